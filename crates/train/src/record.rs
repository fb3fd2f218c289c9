//! A run as its directory tells it: read only, at any moment, also while another process trains in it.

use std::fmt;
use std::fs;
use std::path::{Path, PathBuf};

use crate::error::TrainError;
use crate::metrics::{EvaluationMetrics, History};
use crate::recipe::{AnyRecipe, written_keys};
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
    pub recipe: Result<AnyRecipe, String>,
    /// Keys that `recipe.toml` should have and has not, so that what was run is not known of them.
    pub missing_keys: Vec<String>,
    /// What was measured. A last test that only `evaluation.json` tells of is among its tests.
    pub history: History,
    /// What the last evaluation found; `None` if there was none, or if it cannot be read.
    pub tested: Option<Tested>,
    /// Where, when and for how long; empty if that cannot be read.
    pub sittings: Vec<Sitting>,
    /// What is missing or damaged.
    pub faults: Vec<Fault>,
    /// Whether a process trains it now.
    pub goes_on: bool,
}

/// A file of a run that is missing or damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Its name in the run directory.
    pub file: &'static str,
    /// What is wrong with it, to be read after its name.
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        write!(out, "{} {}.", self.file, self.what)
    }
}

/// What may have become of a file that every run of this version has.
const MISSING: &str = "is missing (it was removed, or a version made the run that did not keep it)";

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
        let recipe_file = path.join(RECIPE);
        let bytes = fs::read(&recipe_file).map_err(TrainError::io(&recipe_file, "cannot be read"))?;
        let recipe_text = String::from_utf8_lossy(&bytes).into_owned();
        let mut run = RunRecord {
            path: path.to_path_buf(),
            recipe: read_recipe(&recipe_text),
            recipe_text,
            missing_keys: Vec::new(),
            history: History::default(),
            tested: None,
            sittings: Vec::new(),
            faults: Vec::new(),
            // Asked before the files are read: what is cut in one that nobody writes any more stays so.
            goes_on: RunDirectory::in_use(path),
        };
        run.check_recipe();
        run.history = History::read(&path.join(METRICS), run.goes_on).unwrap_or_else(|error| {
            run.fault(METRICS, format!("cannot be read: {error}"));
            History::default()
        });
        run.tested = Tested::read(&path.join(EVALUATION)).unwrap_or_else(|error| {
            run.fault(EVALUATION, format!("is damaged: {error}"));
            None
        });
        let sittings = Sittings::read(&path.join(MACHINE)).unwrap_or_else(|error| {
            run.fault(MACHINE, format!("is damaged: {error}"));
            None
        });
        run.sittings = sittings.unwrap_or_default();
        run.take_last_test();
        run.check_files();
        Ok(run)
    }

    /// What is wrong with a file.
    pub fn fault_of(&self, file: &str) -> Option<&Fault> {
        self.faults.iter().find(|fault| fault.file == file)
    }

    /// Whether there is a sign that anything was ever measured or saved.
    pub fn has_begun(&self) -> bool {
        self.step() > 0 || self.path.join("model").is_dir()
    }

    fn fault(&mut self, file: &'static str, what: impl Into<String>) {
        self.faults.push(Fault { file, what: what.into() });
    }

    fn check_recipe(&mut self) {
        match &self.recipe {
            Err(error) => self.fault(RECIPE, format!("cannot be understood: {error}")),
            Ok(recipe) => {
                let written = written_keys(&self.recipe_text);
                self.missing_keys = recipe.values().into_keys().filter(|key| !written.contains(key)).collect();
                if let Some(first) = self.missing_keys.first() {
                    let keys = match self.missing_keys.len() {
                        1 => format!("the key `{first}`"),
                        many => format!("{many} keys, such as `{first}`"),
                    };
                    self.fault(RECIPE, format!("lacks {keys}: what was run is not known of what it lacks"));
                }
            }
        }
    }

    /// A test is written to `evaluation.json` first, then to the metrics, where its line may be missing or cut.
    fn take_last_test(&mut self) {
        let Some(Tested { about, scores, .. }) = &self.tested else { return };
        let told = self.history.tested.last().is_some_and(|line| line.step >= about.step);
        // A run that was taken up from before this test has not come to it again.
        let ahead = self.goes_on && self.history.learned.last().is_none_or(|line| line.step < about.step);
        if !told && !ahead {
            let seconds = self.history.learned.last().map_or(0.0, |line| line.seconds);
            self.history.tested.push(EvaluationMetrics::of(scores, about.step, about.epoch, seconds));
        }
    }

    /// Whether files that a run of this kind has are there and whole.
    fn check_files(&mut self) {
        match self.history.damaged {
            0 => {}
            1 => self.fault(METRICS, "has one line that is damaged and left out"),
            lines => self.fault(METRICS, format!("has {lines} lines that are damaged and left out")),
        }
        // What is damaged is not missing, too.
        let sound = |run: &RunRecord, file: &str| run.fault_of(file).is_none();
        let measured = !(self.history.learned.is_empty() && self.history.gradients.is_empty());
        if !measured && !self.goes_on && self.has_begun() && sound(self, METRICS) {
            let there = self.path.join(METRICS).exists();
            self.fault(METRICS, if there { "is empty" } else { "is missing" });
        }
        if self.tested.is_none() && !self.history.tested.is_empty() && sound(self, EVALUATION) {
            self.fault(EVALUATION, MISSING);
        }
        if self.sittings.is_empty() && self.has_begun() && sound(self, MACHINE) {
            self.fault(MACHINE, MISSING);
        }
    }

    /// The step that the run has come to, as far as it was written down.
    pub fn step(&self) -> u64 {
        let learned = self.history.learned.last().map(|line| line.step);
        let tested = self.history.tested.last().map(|line| line.step);
        let sitting = self.sittings.last().map(|sitting| sitting.step);
        [learned, tested, sitting].into_iter().flatten().max().unwrap_or(0)
    }

    /// The steps of an epoch, where any file tells.
    pub fn steps_per_epoch(&self) -> Option<u64> {
        let learned = self.history.learned.last().map(|line| (line.step, line.epoch));
        let tested = self.history.tested.last().map(|line| (line.step, line.epoch));
        let whole = || Some((self.written_steps()?, self.epochs()? as f64));
        let (step, epoch) = learned.or(tested).filter(|line| line.1 > 0.0).or_else(whole)?;
        Some((step as f64 / epoch).round() as u64).filter(|&steps| steps > 0)
    }

    /// The epochs that the run has in all, where the recipe tells.
    pub fn epochs(&self) -> Option<u64> {
        let recipe = self.recipe.as_ref().ok().filter(|_| !self.lacks("train.epochs"));
        recipe.map(|recipe| recipe.epochs())
    }

    /// Whether the recipe does not tell a key.
    pub fn lacks(&self, key: &str) -> bool {
        self.missing_keys.iter().any(|missing| missing == key)
    }

    fn written_steps(&self) -> Option<u64> {
        self.sittings.last().map(|sitting| sitting.steps).filter(|&steps| steps > 0)
    }

    /// The steps that the run has in all, where that is known.
    pub fn steps(&self) -> Option<u64> {
        self.written_steps().or_else(|| self.steps_per_epoch()?.checked_mul(self.epochs()?))
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

    /// The best score of an evaluation (the share of right answers, the mean average precision, or BLEU), and after which step.
    pub fn best(&self) -> Option<(f64, u64)> {
        let score = |line: &EvaluationMetrics| line.val_top1.or(line.val_map).or(line.val_bleu);
        let scores = self.history.tested.iter().filter_map(|line| Some((score(line)?, line.step)));
        // Of equal ones the first, as training keeps it.
        scores.fold(None, |best: Option<(f64, u64)>, found| match best {
            Some(best) if best.0 >= found.0 => Some(best),
            _ => Some(found),
        })
    }
}

fn read_recipe(text: &str) -> Result<AnyRecipe, String> {
    match text.trim() {
        "" => Err("it is empty".to_string()),
        _ => AnyRecipe::read_run(RECIPE, text).map_err(|error| error.to_string()),
    }
}
