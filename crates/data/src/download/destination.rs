//! The folder that a download writes to, and what is removed from it when the download fails.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::path::{Path, PathBuf};
use std::sync::{Mutex, PoisonError};

use super::DownloadError;

/// A folder to write to.
#[derive(Debug)]
pub(super) struct Destination {
    folder: PathBuf,
    /// Folders that are not there before the download, the outermost first.
    missing: Vec<PathBuf>,
    /// Files and folders that this download has begun to write.
    begun: Mutex<Vec<PathBuf>>,
}

impl Destination {
    pub(super) fn new(folder: &Path) -> Destination {
        let mut missing: Vec<PathBuf> = folder
            .ancestors()
            .take_while(|folder| !folder.as_os_str().is_empty() && !folder.exists())
            .map(Path::to_path_buf)
            .collect();
        missing.reverse();
        Destination { folder: folder.to_path_buf(), missing, begun: Mutex::default() }
    }

    pub(super) fn folder(&self) -> &Path {
        &self.folder
    }

    pub(super) fn create(&self) -> Result<(), DownloadError> {
        fs::create_dir_all(&self.folder).map_err(|error| DownloadError::io(&self.folder, error))
    }

    /// Notes a file or folder, to be removed if the download fails.
    pub(super) fn began(&self, path: &Path) {
        self.begun.lock().unwrap_or_else(PoisonError::into_inner).push(path.to_path_buf());
    }

    /// Opens a partial file, unless another process writes it.
    pub(super) fn open_alone(&self, partial: &Path) -> Result<File, DownloadError> {
        let failed = |error| DownloadError::io(partial, error);
        let file =
            OpenOptions::new().read(true).write(true).create(true).truncate(false).open(partial).map_err(failed)?;
        match file.try_lock() {
            // Some network file systems have no locks.
            Ok(()) | Err(TryLockError::Error(_)) => {
                self.began(partial);
                Ok(file)
            }
            Err(TryLockError::WouldBlock) => Err(DownloadError::Busy(partial.to_path_buf())),
        }
    }

    /// Removes empty files and all folders that were begun, then folders that were created and are empty. Gives the number of bytes in
    /// files that stay, because a later attempt resumes them.
    pub(super) fn clean_up(&self) -> u64 {
        let mut kept = 0;
        for path in self.begun.lock().unwrap_or_else(PoisonError::into_inner).drain(..) {
            match fs::metadata(&path) {
                Ok(metadata) if metadata.is_dir() => _ = fs::remove_dir_all(&path),
                Ok(metadata) if metadata.len() == 0 => _ = fs::remove_file(&path),
                Ok(metadata) => kept += metadata.len(),
                Err(_) => {}
            }
        }
        // A folder that is not empty stays, and so do those around it.
        for folder in self.missing.iter().rev() {
            let _ = fs::remove_dir(folder);
        }
        kept
    }
}

pub(super) fn with_partial(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(".partial");
    name.into()
}

/// Gives a file or folder its name, so that a crash leaves the one name or the other.
pub(super) fn rename(from: &Path, to: &Path) -> Result<(), DownloadError> {
    fs::rename(from, to).map_err(|error| DownloadError::io(to, error))?;
    // Where folders can be opened, their entries are synchronised, too.
    if let Some(folder) = to.parent().and_then(|folder| File::open(folder).ok()) {
        let _ = folder.sync_all();
    }
    Ok(())
}
