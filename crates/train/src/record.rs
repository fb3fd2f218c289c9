//! A run as its directory describes it: read only, at any time, also while another process trains in it.

use std::fmt;
use std::path::{Path, PathBuf};

use vitreous_files::open::read_bounded;

use crate::error::TrainError;
use crate::evaluation::Evaluation;
use crate::metrics::{EvaluationMetrics, History};
use crate::recipe::{FAMILY, LATER_KEYS, Recipe, TASK, written_keys};
use crate::run_directory::{EVALUATION, MACHINE, METRICS, MODEL, MOST_JSON, RECIPE, RunDirectory};
use crate::scores::Score;
use crate::sessions::{Session, Sessions};

/// What is known of a run.
#[derive(Clone, Debug)]
pub struct RunRecord {
    /// The run directory.
    pub path: PathBuf,
    /// The text of `recipe.toml`.
    pub recipe_text: String,
    /// The recipe, or why it cannot be read.
    pub recipe: Result<Recipe, String>,
    /// Keys that `recipe.toml` should have and has not: their values in this run are not known.
    pub missing_keys: Vec<String>,
    /// The metrics. If only `evaluation.json` has the last evaluation, it is added here.
    pub history: History,
    /// The last evaluation; `None` if there was none, or if it cannot be read.
    pub evaluation: Option<Evaluation>,
    /// Where, when and for how long it was trained; empty if that cannot be read.
    pub sessions: Vec<Session>,
    /// What is missing or damaged.
    pub faults: Vec<Fault>,
    /// Whether a process trains it now.
    pub in_progress: bool,
}

/// A file of a run that is missing or damaged.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Fault {
    /// Its name in the run directory.
    pub file: &'static str,
    /// What is wrong with it, to be read after the file's name.
    pub what: String,
}

impl fmt::Display for Fault {
    fn fmt(&self, out: &mut fmt::Formatter) -> fmt::Result {
        write!(out, "{} {}.", self.file, self.what)
    }
}

/// Of a file that every run of this version has.
const MISSING: &str = "is missing (it was removed, or a version made the run that did not keep it)";

impl RunRecord {
    /// Whether a directory is a run directory.
    pub fn is_run(path: &Path) -> bool {
        path.join(RECIPE).is_file()
    }

    /// Reads a run. What is missing or damaged is listed in [`RunRecord::faults`]; only a directory without a run is refused.
    pub fn read(path: &Path) -> Result<RunRecord, TrainError> {
        if !RunRecord::is_run(path) {
            let what = "this is no run directory: it has no recipe.toml".to_string();
            return Err(TrainError::NoRun { path: path.to_path_buf(), what });
        }
        let recipe_file = path.join(RECIPE);
        let bytes = read_bounded(&recipe_file, MOST_JSON).map_err(TrainError::io(&recipe_file, "cannot be read"))?;
        let recipe_text = String::from_utf8_lossy(&bytes).into_owned();
        let mut run = RunRecord {
            path: path.to_path_buf(),
            recipe: read_recipe(&recipe_text),
            recipe_text,
            missing_keys: Vec::new(),
            history: History::default(),
            evaluation: None,
            sessions: Vec::new(),
            faults: Vec::new(),
            // Before the files are read: a line that is cut stays so only if nobody writes the file any more.
            in_progress: RunDirectory::in_use(path),
        };
        run.check_recipe();
        run.history = History::read(&path.join(METRICS), run.in_progress).unwrap_or_else(|error| {
            run.fault(METRICS, format!("cannot be read: {error}"));
            History::default()
        });
        run.evaluation = Evaluation::read(&path.join(EVALUATION)).unwrap_or_else(|error| {
            run.fault(EVALUATION, format!("is damaged: {error}"));
            None
        });
        let sessions = Sessions::read(&path.join(MACHINE)).unwrap_or_else(|error| {
            run.fault(MACHINE, format!("is damaged: {error}"));
            None
        });
        run.sessions = sessions.unwrap_or_default();
        run.add_last_evaluation();
        run.check_files();
        Ok(run)
    }

    /// What is wrong with a file.
    pub fn fault_of(&self, file: &str) -> Option<&Fault> {
        self.faults.iter().find(|fault| fault.file == file)
    }

    /// Whether there is a sign that anything was ever measured or saved.
    pub fn has_begun(&self) -> bool {
        self.step() > 0 || self.path.join(MODEL).is_dir()
    }

    fn fault(&mut self, file: &'static str, what: impl Into<String>) {
        self.faults.push(Fault { file, what: what.into() });
    }

    fn check_recipe(&mut self) {
        match &self.recipe {
            Err(error) => self.fault(RECIPE, format!("cannot be understood: {error}")),
            Ok(recipe) => {
                let written = written_keys(&self.recipe_text);
                // A recipe without a task has the first one, and a model without a family the usual one: that is known.
                let family = format!("model.{FAMILY}");
                let old = |key: &String| {
                    LATER_KEYS.contains(&key.as_str())
                        || recipe.task.values_of_old_runs().iter().any(|(old, _)| old == key)
                };
                let known = |key: &String| key == TASK || *key == family || old(key) || written.contains(key);
                self.missing_keys = recipe.values().into_keys().filter(|key| !known(key)).collect();
                if let Some(first) = self.missing_keys.first() {
                    let what = match self.missing_keys.len() {
                        1 => format!("lacks the key `{first}`: its value in this run is not known"),
                        many => format!("lacks {many} keys, such as `{first}`: their values in this run are not known"),
                    };
                    self.fault(RECIPE, what);
                }
            }
        }
    }

    /// An evaluation is written to `evaluation.json` first, then to the metrics, where its line may be missing or cut.
    fn add_last_evaluation(&mut self) {
        let Some(Evaluation { about, scores }) = &self.evaluation else { return };
        let has_line = self.history.evaluations.last().is_some_and(|line| line.step >= about.step);
        // A run that was resumed from before this evaluation has not come to it again.
        let ahead = self.in_progress && self.history.training.last().is_none_or(|line| line.step < about.step);
        if !has_line && !ahead {
            let seconds = self.history.training.last().map_or(0.0, |line| line.seconds);
            self.history.evaluations.push(EvaluationMetrics::new(scores, about.step, about.epoch, seconds));
        }
    }

    /// Whether the files of a run are there and complete.
    fn check_files(&mut self) {
        match self.history.damaged {
            0 => {}
            1 => self.fault(METRICS, "has one line that is damaged and left out"),
            lines => self.fault(METRICS, format!("has {lines} lines that are damaged and left out")),
        }
        // A damaged file is not missing, too.
        let sound = |run: &RunRecord, file: &str| run.fault_of(file).is_none();
        let measured = !(self.history.training.is_empty() && self.history.gradients.is_empty());
        if !measured && !self.in_progress && self.has_begun() && sound(self, METRICS) {
            let there = self.path.join(METRICS).exists();
            self.fault(METRICS, if there { "is empty" } else { "is missing" });
        }
        if self.evaluation.is_none() && !self.history.evaluations.is_empty() && sound(self, EVALUATION) {
            self.fault(EVALUATION, MISSING);
        }
        if self.sessions.is_empty() && self.has_begun() && sound(self, MACHINE) {
            self.fault(MACHINE, MISSING);
        }
    }

    /// The last step that any file has.
    pub fn step(&self) -> u64 {
        let trained = self.history.training.last().map(|line| line.step);
        let evaluated = self.history.evaluations.last().map(|line| line.step);
        let session = self.sessions.last().map(|session| session.step);
        [trained, evaluated, session].into_iter().flatten().max().unwrap_or(0)
    }

    /// The steps per epoch, if any file has them.
    pub fn steps_per_epoch(&self) -> Option<u64> {
        let trained = self.history.training.last().map(|line| (line.step, line.epoch));
        let evaluated = self.history.evaluations.last().map(|line| (line.step, line.epoch));
        let whole = || Some((self.written_steps()?, self.epochs()? as f64));
        let (step, epoch) = trained.or(evaluated).filter(|line| line.1 > 0.0).or_else(whole)?;
        Some((step as f64 / epoch).round() as u64).filter(|&steps| steps > 0)
    }

    /// The epochs of the whole run, if the recipe has them.
    pub fn epochs(&self) -> Option<u64> {
        let recipe = self.recipe.as_ref().ok().filter(|_| !self.lacks("train.epochs"));
        recipe.map(|recipe| recipe.train.epochs)
    }

    /// Whether the recipe lacks a key.
    pub fn lacks(&self, key: &str) -> bool {
        self.missing_keys.iter().any(|missing| missing == key)
    }

    fn written_steps(&self) -> Option<u64> {
        self.sessions.last().map(|session| session.steps).filter(|&steps| steps > 0)
    }

    /// The steps of the whole run, if they are known.
    pub fn steps(&self) -> Option<u64> {
        self.written_steps().or_else(|| self.steps_per_epoch()?.checked_mul(self.epochs()?))
    }

    /// Whether all steps are done.
    pub fn finished(&self) -> bool {
        self.steps().is_some_and(|steps| self.step() >= steps)
    }

    /// Seconds of training in all.
    pub fn seconds(&self) -> f64 {
        let trained = self.history.training.last().map_or(0.0, |line| line.seconds);
        let last = self.history.evaluations.last().map_or(trained, |line| line.seconds.max(trained));
        match self.sessions.split_last() {
            // The seconds of a session in progress are those of its last write.
            Some((now, before)) => {
                let begun = self.step() > now.first_step;
                let now = if begun { now.seconds.max(last) } else { now.seconds };
                before.iter().map(|session| session.seconds).sum::<f64>() + now
            }
            None => last,
        }
    }

    /// The best evaluation: the number that decides, and its step. Of equal ones the first, which is the one in `best/`.
    pub fn best(&self) -> Option<(Score, u64)> {
        let scores = self.history.evaluations.iter().filter_map(|line| Some((line.deciding()?, line.step)));
        scores.fold(None, |best: Option<(Score, u64)>, next| match best {
            Some(best) if !best.0.metric.is_better(next.0.value, best.0.value) => Some(best),
            _ => Some(next),
        })
    }
}

fn read_recipe(text: &str) -> Result<Recipe, String> {
    match text.trim() {
        "" => Err("it is empty".to_string()),
        _ => Recipe::read_run(RECIPE, text).map_err(|error| error.to_string()),
    }
}
