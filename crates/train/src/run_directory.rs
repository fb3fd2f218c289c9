//! The directory of a run, and that only one process trains in it.
//!
//! ```text
//! recipe.toml      every key, as it is run
//! metrics.jsonl    one object a line
//! evaluation.json  all that the last evaluation found
//! machine.json     where, when and for how long it was trained
//! events.out.*     the metrics for TensorBoard
//! checkpoints/     to resume from
//! model/           the model after the last evaluation, as a model directory
//! best/            the model of the best evaluation
//! ```

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{Read, Write};
use std::path::{Path, PathBuf};
use std::time::Duration;

use crate::error::TrainError;
use crate::recipe::AnyRecipe;

/// The recipe in a run directory: what makes it one.
pub(crate) const RECIPE: &str = "recipe.toml";
/// What was measured.
pub(crate) const METRICS: &str = "metrics.jsonl";
/// What the last evaluation found.
pub(crate) const EVALUATION: &str = "evaluation.json";
/// Where, when and for how long.
pub(crate) const MACHINE: &str = "machine.json";
/// The folder of checkpoints in a run directory.
pub(crate) const CHECKPOINTS: &str = "checkpoints";
const LOCK: &str = ".lock";

/// A run directory that is ours as long as this lives.
#[derive(Debug)]
pub struct RunDirectory {
    path: PathBuf,
    /// Its lock goes when it is closed, also by the system when we are killed.
    _lock: File,
}

impl RunDirectory {
    /// A new one, with its recipe. A directory that has a run already is refused.
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

    /// The next free `NAME-1`, `NAME-2` .. in a parent directory.
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

    /// One that is there, with its recipe.
    pub fn open(path: &Path) -> Result<(RunDirectory, AnyRecipe), TrainError> {
        let file = path.join(RECIPE);
        if !file.is_file() {
            let what = "this is no run directory: it has no recipe.toml".to_string();
            return Err(TrainError::NoRun { path: path.to_path_buf(), what });
        }
        let text = fs::read_to_string(&file).map_err(TrainError::io(&file, "cannot be read"))?;
        let recipe = AnyRecipe::read_run(&file.display().to_string(), &text)?;
        Ok((RunDirectory::lock(path)?, recipe))
    }

    /// Whether a process trains in a directory now. Nothing is changed by asking.
    pub fn in_use(path: &Path) -> bool {
        let lock = File::open(path.join(LOCK));
        lock.is_ok_and(|lock| matches!(lock.try_lock_shared(), Err(TryLockError::WouldBlock)))
    }

    fn lock(path: &Path) -> Result<RunDirectory, TrainError> {
        let file = path.join(LOCK);
        let open = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(&file);
        let mut lock = open.map_err(TrainError::io(&file, "cannot be opened"))?;
        // Whoever only asks whether it is in use holds the lock for an instant.
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
        // Only for the message to others.
        let _ = lock.set_len(0).and_then(|()| write!(lock, "{}", std::process::id()));
        Ok(RunDirectory { path: path.to_path_buf(), _lock: lock })
    }

    /// The directory.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// A file or directory in it.
    pub fn file(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

/// Writes a small file aside, then gives it its name.
pub(crate) fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), TrainError> {
    let aside = path.with_extension("partial");
    let write = || {
        let mut file = File::create(&aside)?;
        file.write_all(bytes)?;
        file.sync_all()?;
        fs::rename(&aside, path)
    };
    write().map_err(|source| {
        let _ = fs::remove_file(&aside);
        TrainError::Io { path: path.to_path_buf(), what: "cannot be written", source }
    })
}
