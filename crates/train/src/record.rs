//! A run as its directory tells it: read only, at any moment, also while another process trains in it.

use std::fs;
use std::path::{Path, PathBuf};

use crate::error::TrainError;
use crate::metrics::History;
use crate::recipe::Recipe;
use crate::run_directory::{EVALUATION, MACHINE, METRICS, RECIPE, RunDirectory};
use crate::sittings::{Sitting, Sittings};
use crate::tested::Tested;

/// What is known of a run.
#[derive(Clone, Debug)]
pub struct RunRecord {
    /// The run directory.
    pub path: PathBuf,
    /// `recipe.toml` as it stands there.
    pub recipe_text: String,
    /// The recipe, or why it cannot be understood.
    pub recipe: Result<Recipe, String>,
    /// What was measured.
    pub history: History,
    /// What the last evaluation found; `None` if there was none, or if a version wrote the run that did not keep it.
    pub tested: Option<Tested>,
    /// Where, when and for how long; empty if that was not written down.
    pub sittings: Vec<Sitting>,
    /// What could not be read, in sentences.
    pub faults: Vec<String>,
    /// Whether a process trains it now.
    pub goes_on: bool,
}

impl RunRecord {
    /// Whether a directory is one of a run.
    pub fn is_run(path: &Path) -> bool {
        path.join(RECIPE).is_file()
    }

    /// Reads a run. What is missing or damaged is said in [`RunRecord::faults`]; only a directory that has no run is refused.
    pub fn read(path: &Path) -> Result<RunRecord, TrainError> {
        if !RunRecord::is_run(path) {
            let what = "this is no run directory: it has no recipe.toml".to_string();
            return Err(TrainError::NoRun { path: path.to_path_buf(), what });
        }
        let mut faults = Vec::new();
        let recipe_file = path.join(RECIPE);
        let bytes = fs::read(&recipe_file).map_err(TrainError::io(&recipe_file, "cannot be read"))?;
        let recipe_text = String::from_utf8_lossy(&bytes).into_owned();
        let recipe = Recipe::read(RECIPE, &recipe_text, &[]).map_err(|error| error.to_string());
        faults.extend(recipe.as_ref().err().map(|error| format!("The recipe cannot be understood: {error}.")));
        let history = History::read(&path.join(METRICS)).unwrap_or_else(|error| {
            faults.push(format!("The metrics cannot be read: {error}."));
            History::default()
        });
        match history.damaged {
            0 => {}
            1 => faults.push(format!("One line of {METRICS} is damaged and left out.")),
            lines => faults.push(format!("{lines} lines of {METRICS} are damaged and left out.")),
        }
        let tested = Tested::read(&path.join(EVALUATION)).unwrap_or_else(|error| {
            faults.push(format!("{EVALUATION} is damaged: {error}."));
            None
        });
        let sittings = Sittings::read(&path.join(MACHINE)).unwrap_or_else(|error| {
            faults.push(format!("{MACHINE} is damaged: {error}."));
            None
        });
        let (path, goes_on) = (path.to_path_buf(), RunDirectory::in_use(path));
        let sittings = sittings.unwrap_or_default();
        Ok(RunRecord { path, recipe_text, recipe, history, tested, sittings, faults, goes_on })
    }

    /// The step that the run has come to, as far as it was written down.
    pub fn step(&self) -> u64 {
        let learned = self.history.learned.last().map(|line| line.step);
        let tested = self.history.tested.last().map(|line| line.step);
        let sitting = self.sittings.last().map(|sitting| sitting.step);
        [learned, tested, sitting].into_iter().flatten().max().unwrap_or(0)
    }

    /// The steps of an epoch, where any line of metrics tells.
    pub fn steps_per_epoch(&self) -> Option<u64> {
        let line = self.history.learned.last().filter(|line| line.epoch > 0.0)?;
        Some((line.step as f64 / line.epoch).round() as u64).filter(|&steps| steps > 0)
    }

    /// The steps that the run has in all, where that is known.
    pub fn steps(&self) -> Option<u64> {
        let written = self.sittings.last().map(|sitting| sitting.steps).filter(|&steps| steps > 0);
        let computed = || self.steps_per_epoch()?.checked_mul(self.recipe.as_ref().ok()?.train.epochs);
        written.or_else(computed)
    }

    /// Whether all steps are done.
    pub fn finished(&self) -> bool {
        self.steps().is_some_and(|steps| self.step() >= steps)
    }

    /// Seconds that were trained in all.
    pub fn seconds(&self) -> f64 {
        let learned = self.history.learned.last().map_or(0.0, |line| line.seconds);
        let last = self.history.tested.last().map_or(learned, |line| line.seconds.max(learned));
        match self.sittings.split_last() {
            // What goes on has not been written down to the last second.
            Some((now, before)) => {
                let begun = self.step() > now.first_step;
                let now = if begun { now.seconds.max(last) } else { now.seconds };
                before.iter().map(|sitting| sitting.seconds).sum::<f64>() + now
            }
            None => last,
        }
    }

    /// The best score of an evaluation (the share of right answers, or the mean average precision), and after which step.
    pub fn best(&self) -> Option<(f64, u64)> {
        let scores = self.history.tested.iter().filter_map(|line| Some((line.val_top1.or(line.val_map)?, line.step)));
        // Of equal ones the first, as training keeps it.
        scores.fold(None, |best: Option<(f64, u64)>, found| match best {
            Some(best) if best.0 >= found.0 => Some(best),
            _ => Some(found),
        })
    }
}
