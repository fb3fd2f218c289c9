//! `vitreous report`: the page of a run, or of several side by side.

use std::collections::BTreeSet;
use std::io::Write;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use clap::Args;
use vitreous_train::{RunRecord, TrainError};

use crate::failure::Failure;
use vitreous_pages::report::headline::Headline;
use vitreous_pages::report::pictures::{Effort, data};
use vitreous_pages::report::{self, FILE, RunPictures};
use vitreous_pages::write::write_page;

/// Write the page of a run again, or one of several runs side by side
#[derive(Args)]
#[command(after_help = "\
Examples:
  vitreous report runs/small-1                  write runs/small-1/report.html, also while it is trained
  vitreous report runs/small-1 runs/small-2     write comparison.html: curves, numbers, what differs
  vitreous report runs --json                   the numbers of all runs in a folder")]
pub struct Report {
    /// Run directories, or folders that hold some
    #[arg(required = true, value_name = "RUN")]
    runs: Vec<PathBuf>,
    /// The file to write [default: RUN/report.html, or comparison.html for several runs]
    #[arg(long, value_name = "FILE")]
    out: Option<PathBuf>,
    /// Print the numbers of each run as one line of JSON, and write a page only with --out
    #[arg(long)]
    json: bool,
}

impl Report {
    pub fn run(self) -> Result<(), Failure> {
        let mut runs = Vec::new();
        for path in self.directories()? {
            let run = RunRecord::read(&path).map_err(of_reading)?;
            for fault in &run.faults {
                say!("note: {}: {fault}", path.display());
            }
            runs.push(run);
        }
        let mut out = crate::say::stdout();
        if self.json {
            for run in &runs {
                writeln!(out, "{}", Headline::of(run).json(run))?;
            }
            if self.out.is_none() {
                return Ok(());
            }
        }
        let (page, usual) = match &runs[..] {
            [run] => {
                let pictures = RunPictures::of(run, &data(run), vitreous_runtime::threads(), Effort::Usual);
                (report::page(run, &pictures), run.path.join(FILE))
            }
            several => (report::comparison::page(several), PathBuf::from("comparison.html")),
        };
        let file = self.out.unwrap_or(usual);
        write_page(&file, &page)?;
        if !self.json {
            writeln!(out, "{}", file.display())?;
        }
        Ok(())
    }

    /// Those that were named, and for a folder of runs, those in it by name. Each once.
    fn directories(&self) -> Result<Vec<PathBuf>, Failure> {
        let mut found = Vec::new();
        for path in &self.runs {
            if RunRecord::is_run(path) {
                found.push(path.clone());
                continue;
            }
            let inside = runs_in(path);
            if inside.is_empty() {
                let what = if path.exists() { "there is no run in it" } else { "no such directory" };
                let hint = "name a directory that `vitreous train` wrote: it has a recipe.toml";
                return Err(Failure::input(anyhow!("{}: {what}; {hint}", path.display())));
            }
            found.extend(inside);
        }
        let mut seen = BTreeSet::new();
        found.retain(|path| {
            let first = seen.insert(path.canonicalize().unwrap_or_else(|_| path.clone()));
            if !first {
                say!("note: {}: named more than once, and taken once", path.display());
            }
            first
        });
        Ok(found)
    }
}

fn runs_in(folder: &Path) -> Vec<PathBuf> {
    let entries = std::fs::read_dir(folder).into_iter().flatten().flatten().map(|entry| entry.path());
    let mut runs: Vec<PathBuf> = entries.filter(|path| RunRecord::is_run(path)).collect();
    runs.sort();
    runs
}

fn of_reading(error: TrainError) -> Failure {
    match error {
        TrainError::NoRun { .. } => Failure::input(error),
        other => Failure::work(other),
    }
}
