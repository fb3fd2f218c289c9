//! A folder of run directories.

use std::collections::HashMap;
use std::path::{Component, Path, PathBuf};
use std::sync::{Mutex, PoisonError};
use std::time::SystemTime;

use serde_json::Value as Json;
use vitreous_train::{RunDirectory, RunRecord};

use super::pictures::RunPictureStore;
use super::summary::RunSummary;
use crate::options::NamedModel;

/// The most runs that are listed, the latest first.
const MOST_RUNS: usize = 500;
/// The most models that are taken from runs, the latest first.
const MOST_MODELS: usize = 8;
/// The most entries of the folder that are looked at.
const MOST_ENTRIES: usize = 20_000;

/// A folder whose directories are runs.
pub struct RunFolder {
    path: PathBuf,
    /// Summaries are read again when a run's files changed.
    known: Mutex<HashMap<String, (Stamp, RunSummary)>>,
    pictures: RunPictureStore,
}

/// Why there is no such run.
#[derive(Debug, thiserror::Error)]
pub enum RunError {
    /// The name is none.
    #[error("`{0}` names no run: give the name of one directory of the folder")]
    Name(String),
    /// It is not there.
    #[error("there is no run `{0}`: it was removed or moved, or never was in this folder")]
    Missing(String),
    /// It cannot be read.
    #[error("{0}")]
    Unreadable(String),
}

/// What changes when a run goes on.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct Stamp {
    /// Whether a process trains it.
    pub(super) in_progress: bool,
    files: [Option<(u64, SystemTime)>; 3],
}

impl Stamp {
    pub(super) fn of(run: &Path) -> Stamp {
        let file = |name: &str| {
            let metadata = std::fs::metadata(run.join(name)).ok()?;
            Some((metadata.len(), metadata.modified().unwrap_or(SystemTime::UNIX_EPOCH)))
        };
        let files = ["metrics.jsonl", "evaluation.json", "recipe.toml"].map(file);
        Stamp { in_progress: RunDirectory::in_use(run), files }
    }

    /// Whether only new lines of metrics tell them apart.
    pub(super) fn is_like(&self, other: &Stamp) -> bool {
        self.in_progress == other.in_progress && self.files[1..] == other.files[1..]
    }

    /// When it was last written to.
    fn changed(&self) -> SystemTime {
        self.files.iter().flatten().map(|(_, time)| *time).max().unwrap_or(SystemTime::UNIX_EPOCH)
    }
}

impl RunFolder {
    /// A folder, which need not exist yet.
    pub fn new(path: &Path) -> RunFolder {
        RunFolder { path: path.to_path_buf(), known: Mutex::default(), pictures: RunPictureStore::default() }
    }

    /// The directory of a run. A name is that of one directory: no path leads out of the folder.
    pub fn run(&self, name: &str) -> Result<PathBuf, RunError> {
        let shown = || name.chars().take(100).collect::<String>();
        let mut parts = Path::new(name).components();
        let is_one = matches!((parts.next(), parts.next()), (Some(Component::Normal(part)), None) if part == name);
        if !is_one || name.contains(['/', '\\', '\0']) || name.len() > 255 {
            return Err(RunError::Name(shown()));
        }
        let path = self.path.join(name);
        if RunRecord::is_run(&path) { Ok(path) } else { Err(RunError::Missing(shown())) }
    }

    /// Reads a run.
    pub fn read(&self, name: &str) -> Result<RunRecord, RunError> {
        RunRecord::read(&self.run(name)?).map_err(|error| RunError::Unreadable(error.to_string()))
    }

    /// The sections of a run's page that need its data and its model.
    pub fn pictures(&self, name: &str) -> Result<Vec<Json>, RunError> {
        Ok(self.pictures.sections(name, &self.read(name)?))
    }

    /// All runs with what changes when they go on, the latest first. Names that are no text are left out.
    pub(super) fn stamps(&self) -> Vec<(String, Stamp)> {
        let entries = std::fs::read_dir(&self.path).into_iter().flatten().take(MOST_ENTRIES);
        let names = entries.filter_map(|entry| entry.ok()?.file_name().into_string().ok());
        let runs = names.filter_map(|name| Some((self.run(&name).ok()?, name)));
        let mut runs: Vec<(String, Stamp)> = runs.map(|(path, name)| (name, Stamp::of(&path))).collect();
        runs.sort_by(|(name, a), (other, b)| {
            let key = |stamp: &Stamp| (stamp.in_progress, stamp.changed());
            key(b).cmp(&key(a)).then_with(|| name.cmp(other))
        });
        runs.truncate(MOST_RUNS);
        runs
    }

    /// What can be said of each run in a line.
    pub fn summaries(&self) -> Vec<RunSummary> {
        let mut known = std::mem::take(&mut *self.known.lock().unwrap_or_else(PoisonError::into_inner));
        let mut all = HashMap::new();
        let mut summaries = Vec::new();
        for (name, stamp) in self.stamps() {
            let kept = known.remove(&name).filter(|(seen, _)| *seen == stamp);
            let summary =
                kept.map(|(_, summary)| summary).or_else(|| Some(RunSummary::of(&name, &self.read(&name).ok()?)));
            let Some(summary) = summary else { continue };
            summaries.push(summary.clone());
            all.insert(name, (stamp, summary));
        }
        *self.known.lock().unwrap_or_else(PoisonError::into_inner) = all;
        summaries
    }

    /// Whether this is the model of a run of this folder: the run's name.
    pub fn run_of(&self, model: &Path) -> Option<String> {
        let (folder, model) = (self.path.canonicalize().ok()?, model.canonicalize().ok()?);
        let mut parts = model.strip_prefix(&folder).ok()?.components();
        let name = parts.next()?.as_os_str().to_str()?.to_string();
        let is_model = parts.next().is_none_or(|part| part.as_os_str() == "model") && parts.next().is_none();
        (is_model && self.run(&name).is_ok()).then_some(name)
    }

    /// The models of the latest runs, under the names of the runs.
    pub fn models(&self) -> Vec<NamedModel> {
        let has_model = |name: &String| self.path.join(name).join("model/config.json").is_file();
        let names = self.stamps().into_iter().map(|(name, _)| name).filter(has_model);
        let model =
            |name: String| NamedModel::parse(&format!("{}={}", usual(&name), self.path.join(&name).display())).ok();
        names.filter_map(model).take(MOST_MODELS).collect()
    }
}

/// A name as clients can use it.
fn usual(name: &str) -> String {
    let is_usual = |letter: char| letter.is_ascii_alphanumeric() || "._-:".contains(letter);
    name.chars().map(|letter| if is_usual(letter) { letter } else { '-' }).take(100).collect()
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    fn folder() -> (tempfile::TempDir, RunFolder) {
        let root = tempfile::tempdir().expect("a directory");
        for name in ["one", "a b"] {
            fs::create_dir_all(root.path().join("runs").join(name).join("model")).expect("created");
            fs::write(root.path().join("runs").join(name).join("recipe.toml"), "").expect("written");
        }
        fs::create_dir(root.path().join("runs/none")).expect("created");
        fs::write(root.path().join("recipe.toml"), "").expect("written");
        let runs = RunFolder::new(&root.path().join("runs"));
        (root, runs)
    }

    #[test]
    fn a_name_leads_nowhere_else() {
        let (root, runs) = folder();
        assert_eq!(runs.run("one").expect("a run"), root.path().join("runs/one"));
        let absolute = root.path().join("runs/one").display().to_string();
        for wrong in
            ["..", ".", "", "/", "one/", "./one", "one/..", "../runs/one", "one/model", "..\\one", "one\0", &absolute]
        {
            assert!(matches!(runs.run(wrong), Err(RunError::Name(_))), "{wrong:?}");
        }
        assert!(matches!(runs.run("none"), Err(RunError::Missing(_))));
        assert!(matches!(runs.run(&"x".repeat(300)), Err(RunError::Name(_))));
    }

    #[test]
    fn a_model_knows_its_run() {
        let (root, runs) = folder();
        let path = |name: &str| root.path().join("runs").join(name);
        for (model, run) in
            [("one", Some("one")), ("one/model", Some("one")), ("a b/model", Some("a b")), ("none", None)]
        {
            assert_eq!(runs.run_of(&path(model)).as_deref(), run, "{model}");
        }
        assert_eq!(runs.run_of(root.path()), None);
        assert_eq!(runs.run_of(Path::new("builtin:small")), None);
        assert_eq!(runs.models(), []);
        fs::write(path("a b/model/config.json"), "{}").expect("written");
        let models: Vec<(String, PathBuf)> = runs.models().into_iter().map(|model| (model.name, model.path)).collect();
        assert_eq!(models, [("a-b".to_string(), path("a b"))]);
    }

    #[test]
    fn a_folder_that_is_missing_has_no_runs() {
        let runs = RunFolder::new(Path::new("/nowhere/at/all"));
        assert!(runs.summaries().is_empty() && runs.models().is_empty());
    }
}
