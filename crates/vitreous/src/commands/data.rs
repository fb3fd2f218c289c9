//! `vitreous data`: what a data set holds, and known ones downloaded.

mod get;
mod preview;
mod report;

use std::io::{IsTerminal, Write};
use std::path::PathBuf;
use std::time::Duration;

use clap::{Args, Subcommand};
use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use vitreous_data::dataset::{self, OpenDataset, Splits, count_labels, inspect};

use super::parse_threads;
use crate::failure::Failure;
use report::{Part, Report};

/// How many images of a part `--quick` looks at.
const QUICK: usize = 1000;

/// Show what a data set holds: counts, classes, sizes, means, broken files; or download a known one
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
    /// Look at 1,000 images of each part instead of all
    #[arg(long)]
    quick: bool,
    /// The share drawn for validation, by the hash of each image's name, where there is no validation part
    #[arg(long, value_name = "SHARE", default_value = "0.1", allow_negative_numbers = true)]
    validation_share: f64,
    /// Which labels: `fine` or `coarse` (CIFAR-100), a column of a table, a key of the JSON in shards
    #[arg(long, value_name = "NAME")]
    labels: Option<String>,
    /// Threads to decode with; by default one a core
    #[arg(long, value_name = "N", value_parser = parse_threads, allow_negative_numbers = true)]
    threads: Option<usize>,
    /// Write a picture of images as a recipe shows them to a model that learns, with their labels
    #[arg(long, value_name = "FILE.png", conflicts_with = "json")]
    preview: Option<PathBuf>,
    /// The recipe of the preview: its name or file [default: cifar10-strong, or imagenet-s16 for larger images]
    #[arg(long, value_name = "RECIPE", requires = "preview")]
    recipe: Option<String>,
    /// Changes to the recipe of the preview, as in `augment.mixup=0`
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
            Part { name, images: part.len(), classes: count_labels(part.as_ref(), splits.classes.len()), inspection }
        };
        let parts = [part("train", &splits.train), part("validation", &splits.validation)];
        let report = Report { path: self.path.as_deref(), splits: &splits, parts, threads };
        let mut out = std::io::stdout().lock();
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
            labels: self.labels.clone(),
            // Each image is looked at once.
            keep_bytes: 0,
        };
        dataset::open(path, &options).map_err(Failure::input)
    }
}

/// A bar on a terminal; nothing elsewhere, since it only says how far it is.
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
