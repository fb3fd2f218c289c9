//! `vitreous data`: statistics of a data set, and downloads of well-known ones.

mod get;
mod preview;
mod report;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use vitreous_data::dataset::{self, OpenDataset, Splits, ValidationRule, count_labels, inspect};

use super::parse_threads;
use crate::failure::Failure;
use report::{Report, SplitStatistics};

/// How many images of each split `--quick` decodes.
const QUICK: usize = 1000;

/// Show what is in a data set (counts, classes, sizes, means, broken files), or download a well-known one
#[derive(Args)]
#[command(args_conflicts_with_subcommands = true)]
pub struct Data {
    #[command(subcommand)]
    action: Option<Action>,
    /// IDX or CIFAR files, an image folder, a manifest (.csv, .tsv, .jsonl) or tar shards; without it, the built-in data set
    path: Option<PathBuf>,
    /// Print one JSON object
    #[arg(long)]
    json: bool,
    /// Decode 1,000 images of each split instead of all
    #[arg(long)]
    quick: bool,
    /// The share of the training images to draw for validation, stratified by class, where there is no validation part
    #[arg(long, value_name = "SHARE", default_value = "0.1", allow_negative_numbers = true)]
    validation_share: f64,
    /// Which labels to use: `fine` or `coarse` (CIFAR-100), a column of a table, a key of the JSON in shards
    #[arg(long, value_name = "NAME")]
    labels: Option<String>,
    /// Threads to decode with [default: one per core]
    #[arg(long, value_name = "N", value_parser = parse_threads, allow_negative_numbers = true)]
    threads: Option<usize>,
    /// Write a picture of training images as a recipe augments them, with their labels
    #[arg(long, value_name = "FILE.png", conflicts_with = "json")]
    preview: Option<PathBuf>,
    /// The recipe of the preview, by name or file [default: cifar10-strong, or imagenet-s16 for larger images]
    #[arg(long, value_name = "RECIPE", requires = "preview")]
    recipe: Option<String>,
    /// Settings of the preview's recipe to override, as in `augment.mixup=0`
    #[arg(value_name = "KEY=VALUE", requires = "preview")]
    changes: Vec<String>,
}

#[derive(Subcommand)]
enum Action {
    Get(get::Get),
}

impl Data {
    pub fn run(self) -> Result<(), Failure> {
        match self.action {
            Some(Action::Get(get)) => get.run(),
            None => self.show(),
        }
    }

    fn show(self) -> Result<(), Failure> {
        let splits = self.open()?;
        if let Some(file) = &self.preview {
            return preview::write(file, &splits, self.recipe.as_deref(), &self.changes);
        }
        let threads = self.threads.unwrap_or_else(vitreous_runtime::threads);
        let part = |name: &'static str, part: &std::sync::Arc<dyn dataset::Dataset>| {
            let most = self.quick.then_some(QUICK);
            let bar = progress(part.len().min(most.unwrap_or(usize::MAX)) as u64, name);
            let inspection = inspect(part, threads, most, |done| bar.set_position(done as u64));
            bar.finish_and_clear();
            SplitStatistics {
                name,
                images: part.len(),
                classes: count_labels(part.as_ref(), splits.classes.len()),
                inspection,
            }
        };
        let mut parts = vec![part("train", &splits.train), part("validation", &splits.validation)];
        parts.extend(splits.test.as_ref().map(|test| part("test", test)));
        let report = Report { path: self.path.as_deref(), splits: &splits, parts, threads };
        let mut out = crate::say::stdout();
        if self.json {
            writeln!(out, "{}", report.json())?;
        } else {
            for line in report.lines() {
                writeln!(out, "{line}")?;
            }
        }
        Ok(())
    }

    fn open(&self) -> Result<Splits, Failure> {
        let Some(path) = &self.path else { return Ok(dataset::builtin()) };
        let options = OpenDataset {
            validation_share: self.validation_share,
            validation_rule: ValidationRule::default(),
            labels: self.labels.clone(),
            // Each image is decoded once.
            keep_bytes: 0,
        };
        dataset::open(path, &options).map_err(Failure::input)
    }
}

/// A progress bar on a terminal; nothing elsewhere.
fn progress(total: u64, what: &'static str) -> ProgressBar {
    let target =
        if std::io::stderr().is_terminal() { ProgressDrawTarget::stderr() } else { ProgressDrawTarget::hidden() };
    let bar = ProgressBar::with_draw_target(Some(total), target).with_message(what);
    bar.enable_steady_tick(Duration::from_millis(200));
    match ProgressStyle::with_template("{msg:10} {bar:40} {human_pos}/{human_len} images, {eta} left") {
        Ok(style) => bar.with_style(style),
        Err(_) => bar,
    }
}
