//! The directory of a run, in which only one process may train.
//!
//! ```text
//! recipe.toml      every key of the recipe
//! metrics.jsonl    one JSON object per line
//! evaluation.json  the full result of the last evaluation
//! machine.json     where, when and for how long it was trained
//! events.out.*     the metrics for TensorBoard
//! checkpoints/     to resume from
//! model/           the model of the last evaluation, as a model directory
//! best/            the model of the best evaluation
//! ```

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use vitreous_files::open::open_regular;
use vitreous_files::partial;

use crate::error::TrainError;
use crate::recipe::Recipe;

/// The recipe. A directory that has one is a run directory.
pub(crate) const RECIPE: &str = "recipe.toml";
/// The metrics.
pub(crate) const METRICS: &str = "metrics.jsonl";
/// The result of the last evaluation.
pub(crate) const EVALUATION: &str = "evaluation.json";
/// The machine, and the times of training.
pub(crate) const MACHINE: &str = "machine.json";
/// The folder of checkpoints.
pub(crate) const CHECKPOINTS: &str = "checkpoints";
/// The folder of the model of the last evaluation.
pub(crate) const MODEL: &str = "model";
/// The folder of the model of the best evaluation.
pub(crate) const BEST: &str = "best";
const LOCK: &str = ".lock";

/// The most bytes of a recipe or of a JSON file in it.
pub(crate) const MOST_JSON: u64 = 256 << 20;
/// The most bytes of its metrics.
pub(crate) const MOST_METRICS: u64 = 1 << 30;

/// A run directory that no other process can use as long as this lives.
#[derive(Debug)]
pub struct RunDirectory {
    path: PathBuf,
    /// The lock is released when the file is closed, also by the system when the process is killed.
    lock: File,
}

impl RunDirectory {
    /// Creates one, with its recipe. A directory that already has a run is refused.
    pub fn create(path: &Path, recipe: &str) -> Result<RunDirectory, TrainError> {
        fs::create_dir_all(path).map_err(TrainError::io(path, "cannot create the run directory"))?;
        let directory = RunDirectory::lock(path)?;
        if directory.file(RECIPE).exists() || directory.file(CHECKPOINTS).exists() {
            let what = format!(
                "there is a run in it already; resume it with `vitreous train --resume {}`, or choose another directory with --out",
                path.display()
            );
            return Err(TrainError::NoRun { path: path.to_path_buf(), what });
        }
        write_whole(&directory.file(RECIPE), recipe.as_bytes())?;
        Ok(directory)
    }

    /// Creates the next free `NAME-1`, `NAME-2` .. in a parent directory.
    pub fn create_numbered(parent: &Path, name: &str, recipe: &str) -> Result<RunDirectory, TrainError> {
        fs::create_dir_all(parent).map_err(TrainError::io(parent, "cannot create the directory of runs"))?;
        for number in 1.. {
            let path = parent.join(format!("{name}-{number}"));
            match fs::create_dir(&path) {
                Err(error) if error.kind() == std::io::ErrorKind::AlreadyExists => {}
                other => {
                    other.map_err(TrainError::io(&path, "cannot create the run directory"))?;
                    return RunDirectory::create(&path, recipe);
                }
            }
        }
        unreachable!("numbers do not end")
    }

    /// Opens one, with its recipe.
    pub fn open(path: &Path) -> Result<(RunDirectory, Recipe), TrainError> {
        let file = path.join(RECIPE);
        if !file.is_file() {
            let what = "this is no run directory: it has no recipe.toml".to_string();
            return Err(TrainError::NoRun { path: path.to_path_buf(), what });
        }
        let recipe = Recipe::of_run(path)?;
        Ok((RunDirectory::lock(path)?, recipe))
    }

    /// Whether a process trains in a directory now. Asking changes nothing.
    pub fn in_use(path: &Path) -> bool {
        let lock = File::open(path.join(LOCK));
        lock.is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }

    fn lock(path: &Path) -> Result<RunDirectory, TrainError> {
        let file = path.join(LOCK);
        // What was put there may be a pipe.
        if file.exists() {
            open_regular(&file).map_err(TrainError::io(&file, "cannot be opened"))?;
        }
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&file);
        let mut lock = open.map_err(TrainError::io(&file, "cannot be opened"))?;
        // A process that only asks whether it is in use holds the lock for a moment.
        let mut locked = lock.try_lock();
        for _ in 0..5 {
            if matches!(locked, Err(TryLockError::WouldBlock)) {
                std::thread::sleep(Duration::from_millis(10));
                locked = lock.try_lock();
            }
        }
        match locked {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut process = String::new();
                let _ = lock.read_to_string(&mut process);
                let owner = match process.trim() {
                    "" => String::new(),
                    process => format!(" (process {process})"),
                };
                return Err(TrainError::InUse { path: path.to_path_buf(), owner });
            }
            Err(TryLockError::Error(source)) => {
                return Err(TrainError::Io { path: file, what: "cannot be locked", source });
            }
        }
        // Only for the message that others show.
        let _ = lock.set_len(0).and_then(|()| write!(lock, "{}", std::process::id()));
        Ok(RunDirectory { path: path.to_path_buf(), lock })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// Refuses to go on if the directory was moved, removed or replaced meanwhile, or its recipe is gone: what would be written now
    /// would be a run that cannot be resumed.
    pub fn check(&self) -> Result<(), TrainError> {
        let what = match (partial::is_at(&self.lock, &self.file(LOCK)), self.file(RECIPE).is_file()) {
            (true, true) => return Ok(()),
            (false, _) => "the run directory was moved or removed while it was trained in",
            (true, false) => "recipe.toml was removed from the run directory while it was trained in",
        };
        let what = format!("{what}; training stopped. If it was moved, resume it where it is now: --resume DIR");
        Err(TrainError::Gone { path: self.path.clone(), what })
    }

    /// A directory in it, which is created if it is missing.
    pub fn directory(&self, name: &str) -> Result<PathBuf, TrainError> {
        self.check()?;
        let path = self.file(name);
        // Without its parents: a run directory that was removed is not created again without its recipe.
        match fs::create_dir(&path) {
            Err(error) if error.kind() != std::io::ErrorKind::AlreadyExists => {
                Err(TrainError::io(&path, "cannot be created")(error))
            }
            _ => Ok(path),
        }
    }

    /// Whether there is a checkpoint to resume from.
    pub fn has_checkpoint(&self) -> bool {
        self.file(CHECKPOINTS).read_dir().is_ok_and(|mut entries| entries.next().is_some())
    }

    /// A file or directory in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

/// Writes a small file, whole or not at all.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), TrainError> {
    partial::write(path, bytes).map_err(TrainError::io(path, "cannot be written"))
}
