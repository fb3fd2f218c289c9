//! Known data sets, downloaded from their official addresses.
//!
//! A file is written to `NAME.partial`, goes on where it was cut, and gets its name only when its sum is right: what has the name is whole.

mod error;
mod known;
mod transfer;
mod unpack;

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use md5::{Digest, Md5};

pub use error::DownloadError;
pub use known::{Archive, KNOWN_NAMES, Known, Remote};

/// How downloads are done.
#[derive(Debug, Clone)]
pub struct DownloadOptions {
    /// Another place that has the same files, instead of the official one: `http://host/folder`.
    pub mirror: Option<String>,
    /// How often it is tried again without getting any further.
    pub attempts: usize,
    /// How long it is waited before the second attempt; twice as long before each further one.
    pub wait: Duration,
    /// How long a server may be silent.
    pub patience: Duration,
}

impl Default for DownloadOptions {
    /// The official addresses, five attempts, a second, half a minute.
    fn default() -> DownloadOptions {
        let (wait, patience) = (Duration::from_secs(1), Duration::from_secs(30));
        DownloadOptions { mirror: None, attempts: 5, wait, patience }
    }
}

/// What a download is at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// It is there already, and whole.
    AlreadyThere(PathBuf),
    /// A file begins, or goes on, with so many bytes there of so many.
    Begun {
        /// The file's name.
        file: String,
        /// Bytes that are there.
        have: u64,
        /// Bytes that it will have, if the server tells.
        total: Option<u64>,
    },
    /// So many bytes are there.
    Received(u64),
    /// It failed, and will be tried again.
    Again {
        /// Why it failed.
        reason: String,
        /// How long it is waited.
        wait: Duration,
    },
    /// All bytes are there; the sum is computed.
    Checking,
    /// An archive is unpacked.
    Unpacking,
    /// This file or folder is complete.
    Finished(PathBuf),
}

/// Downloads a known data set into a folder; what is there already is not downloaded again.
pub fn download(
    known: &Known,
    to: &Path,
    options: &DownloadOptions,
    tell: &mut dyn FnMut(Progress),
) -> Result<(), DownloadError> {
    fs::create_dir_all(to).map_err(|error| DownloadError::io(to, error))?;
    for remote in &known.files {
        match &remote.archive {
            None => download_file(remote, to, options, tell)?,
            Some(archive) => download_archive(remote, archive, to, options, tell)?,
        }
    }
    if !known.classes.is_empty() {
        let path = to.join("classes.txt");
        if !path.exists() {
            let text: String = known.classes.iter().map(|class| format!("{class}\n")).collect();
            let partial = with_partial(&path);
            let written = fs::write(&partial, text).and_then(|()| fs::rename(&partial, &path));
            written.map_err(|error| DownloadError::io(&path, error))?;
        }
    }
    Ok(())
}

fn download_file(
    remote: &Remote,
    to: &Path,
    options: &DownloadOptions,
    tell: &mut dyn FnMut(Progress),
) -> Result<(), DownloadError> {
    let path = to.join(remote.file_name());
    if path.exists() {
        let got = sum_of(&path)?;
        if got != remote.md5 {
            return Err(DownloadError::Another { path, expected: remote.md5.clone(), got });
        }
        tell(Progress::AlreadyThere(path));
        return Ok(());
    }
    let partial = with_partial(&path);
    let mut file = open_alone(&partial)?;
    transfer::receive(remote, &mut file, &partial, options, tell)?;
    tell(Progress::Checking);
    file.sync_all().map_err(|error| DownloadError::io(&partial, error))?;
    let got = sum_of(&partial)?;
    if got != remote.md5 {
        fs::remove_file(&partial).map_err(|error| DownloadError::io(&partial, error))?;
        let address = options.address(remote);
        return Err(DownloadError::WrongSum { address, expected: remote.md5.clone(), got });
    }
    rename(&partial, &path)?;
    tell(Progress::Finished(path));
    Ok(())
}

fn download_archive(
    remote: &Remote,
    archive: &Archive,
    to: &Path,
    options: &DownloadOptions,
    tell: &mut dyn FnMut(Progress),
) -> Result<(), DownloadError> {
    let folder = to.join(&archive.folder);
    if folder.exists() {
        return match archive.files.iter().find(|file| !folder.join(file).is_file()) {
            None => {
                tell(Progress::AlreadyThere(folder));
                Ok(())
            }
            Some(missing) => Err(DownloadError::Lacks { folder, missing: missing.clone() }),
        };
    }
    download_file(remote, to, options, tell)?;
    tell(Progress::Unpacking);
    let packed = to.join(remote.file_name());
    let aside = to.join(format!(".{}.partial", archive.folder));
    if aside.exists() {
        fs::remove_dir_all(&aside).map_err(|error| DownloadError::io(&aside, error))?;
    }
    unpack::unpack(&packed, &aside)?;
    let inner = aside.join(&archive.folder);
    if let Some(missing) = archive.files.iter().find(|file| !inner.join(file).is_file()) {
        return Err(DownloadError::Lacks { folder: inner, missing: missing.clone() });
    }
    rename(&inner, &folder)?;
    fs::remove_dir_all(&aside).map_err(|error| DownloadError::io(&aside, error))?;
    fs::remove_file(&packed).map_err(|error| DownloadError::io(&packed, error))?;
    tell(Progress::Finished(folder));
    Ok(())
}

impl DownloadOptions {
    fn address(&self, remote: &Remote) -> String {
        match &self.mirror {
            Some(mirror) => format!("{}/{}", mirror.trim_end_matches('/'), remote.file_name()),
            None => remote.address.clone(),
        }
    }
}

fn with_partial(path: &Path) -> PathBuf {
    let mut name = path.as_os_str().to_os_string();
    name.push(".partial");
    name.into()
}

/// Opens a file that is still to be completed, unless another process is at it.
fn open_alone(partial: &Path) -> Result<File, DownloadError> {
    let failed = |error| DownloadError::io(partial, error);
    let file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(partial).map_err(failed)?;
    match file.try_lock() {
        Ok(()) => Ok(file),
        Err(TryLockError::WouldBlock) => Err(DownloadError::Busy(partial.to_path_buf())),
        // Some network file systems have no locks.
        Err(TryLockError::Error(_)) => Ok(file),
    }
}

/// Gives a file or folder its name, so that a crash leaves the one name or the other.
fn rename(from: &Path, to: &Path) -> Result<(), DownloadError> {
    let failed = |error| DownloadError::io(to, error);
    fs::rename(from, to).map_err(failed)?;
    // Where folders can be opened, their entries are made sure of, too.
    if let Some(folder) = to.parent().and_then(|folder| File::open(folder).ok()) {
        let _ = folder.sync_all();
    }
    Ok(())
}

/// The MD5 sum of a file, in hexadecimal.
fn sum_of(path: &Path) -> Result<String, DownloadError> {
    let sum = || -> io::Result<String> {
        let (mut file, mut sum, mut buffer) = (File::open(path)?, Md5::new(), vec![0; 1 << 16]);
        loop {
            match file.read(&mut buffer)? {
                0 => break,
                count => sum.update(&buffer[..count]),
            }
        }
        Ok(sum.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    };
    sum().map_err(|error| DownloadError::io(path, error))
}
