//! Downloads of well-known data sets from their official addresses: checksum-verified; interrupted downloads resume.
//!
//! A file is downloaded to `NAME.partial`, resumed where it was interrupted, and gets its name only when its checksum is right and all
//! files of the data set are there. So a folder never holds half of a data set under the names of a whole one. A download that fails
//! leaves nothing behind but the `.partial` files that the next attempt resumes.

mod destination;
mod error;
mod known;
#[cfg_attr(not(feature = "download"), path = "no_transfer.rs")]
mod transfer;
mod unpack;

use std::fs::{self, File};
use std::io::{self, Read};
use std::path::{Path, PathBuf};
use std::time::Duration;

use md5::{Digest, Md5};

use destination::{Destination, rename, with_partial};
pub use error::DownloadError;
pub use known::{Archive, KNOWN_NAMES, KnownDataset, RemoteFile};

/// How downloads are done.
#[derive(Debug, Clone)]
pub struct DownloadOptions {
    /// Where to download the same files from instead of the official addresses: `http://host/folder`.
    pub mirror: Option<String>,
    /// Number of attempts without progress before giving up.
    pub attempts: usize,
    /// The pause before the second attempt; it doubles with each further one.
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

impl DownloadOptions {
    fn address(&self, remote: &RemoteFile) -> String {
        match &self.mirror {
            Some(mirror) => format!("{}/{}", mirror.trim_end_matches('/'), remote.file_name()),
            None => remote.address.clone(),
        }
    }
}

/// The progress of a download.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Progress {
    /// This file or folder is complete already.
    AlreadyThere(PathBuf),
    /// A file is begun or resumed.
    Begun {
        /// The file's name.
        file: String,
        /// Bytes received so far.
        have: u64,
        /// Bytes in all, if the server says so.
        total: Option<u64>,
    },
    /// Bytes of the file received so far.
    Received(u64),
    /// An attempt failed; the next one follows.
    Again {
        /// Why it failed.
        reason: String,
        /// The pause before the next one.
        wait: Duration,
    },
    /// All bytes were received; the checksum is verified.
    Checking,
    /// An archive is unpacked.
    Unpacking,
    /// This file or folder is complete.
    Finished(PathBuf),
}

/// The download of a well-known data set into a folder.
#[derive(Debug)]
pub struct Download {
    dataset: KnownDataset,
    options: DownloadOptions,
    destination: Destination,
}

/// Downloads a data set into a folder; what is complete there is not downloaded again.
pub fn download(
    dataset: &KnownDataset,
    to: &Path,
    options: &DownloadOptions,
    tell: &mut dyn FnMut(Progress),
) -> Result<(), DownloadError> {
    Download::new(dataset.clone(), to, options.clone()).run(tell)
}

impl Download {
    /// Nothing is written before [`Download::run`].
    pub fn new(dataset: KnownDataset, to: &Path, options: DownloadOptions) -> Download {
        Download { dataset, options, destination: Destination::new(to) }
    }

    /// Downloads all files. If that fails, [`Download::clean_up`] is done.
    pub fn run(&self, tell: &mut dyn FnMut(Progress)) -> Result<(), DownloadError> {
        let result = self.all_files(tell);
        if result.is_err() {
            self.clean_up();
        }
        result
    }

    /// Removes what a later attempt cannot use: empty files, half-unpacked archives, folders that were created and are empty. For when
    /// the process ends while another thread runs the download. Gives the number of bytes that are kept.
    pub fn clean_up(&self) -> u64 {
        self.destination.clean_up()
    }

    fn all_files(&self, tell: &mut dyn FnMut(Progress)) -> Result<(), DownloadError> {
        self.destination.create()?;
        let mut verified = Vec::new();
        for remote in &self.dataset.files {
            match &remote.archive {
                None => verified.extend(self.file(remote, tell)?),
                Some(archive) => self.archive(remote, archive, tell)?,
            }
        }
        for path in verified {
            rename(&with_partial(&path), &path)?;
            tell(Progress::Finished(path));
        }
        self.class_names()
    }

    /// Downloads and verifies a file, which keeps its name `.partial`. Gives the name that it is to have; `None` if it has it already.
    fn file(&self, remote: &RemoteFile, tell: &mut dyn FnMut(Progress)) -> Result<Option<PathBuf>, DownloadError> {
        let path = self.destination.folder().join(remote.file_name());
        if path.exists() {
            let got = checksum(&path)?;
            if got != remote.md5 {
                return Err(DownloadError::Another { path, expected: remote.md5.clone(), got });
            }
            tell(Progress::AlreadyThere(path));
            return Ok(None);
        }
        let partial = with_partial(&path);
        let mut file = self.destination.open_alone(&partial)?;
        if let Err(error) = transfer::receive(remote, &mut file, &partial, &self.options, tell) {
            // A disk that is full is not left so.
            if matches!(error, DownloadError::Io { .. }) {
                let _ = fs::remove_file(&partial);
            }
            return Err(error);
        }
        tell(Progress::Checking);
        file.sync_all().map_err(|error| DownloadError::io(&partial, error))?;
        let got = checksum(&partial)?;
        if got != remote.md5 {
            fs::remove_file(&partial).map_err(|error| DownloadError::io(&partial, error))?;
            let address = self.options.address(remote);
            return Err(DownloadError::WrongChecksum { address, expected: remote.md5.clone(), got });
        }
        Ok(Some(path))
    }

    fn archive(
        &self,
        remote: &RemoteFile,
        archive: &Archive,
        tell: &mut dyn FnMut(Progress),
    ) -> Result<(), DownloadError> {
        let folder = self.destination.folder().join(&archive.folder);
        if folder.exists() {
            return match archive.files.iter().find(|file| !folder.join(file).is_file()) {
                None => {
                    tell(Progress::AlreadyThere(folder));
                    Ok(())
                }
                Some(missing) => Err(DownloadError::Lacks { folder, missing: missing.clone() }),
            };
        }
        let packed = match self.file(remote, tell)? {
            Some(path) => with_partial(&path),
            None => self.destination.folder().join(remote.file_name()),
        };
        tell(Progress::Unpacking);
        let unpacked = self.unpack(&packed, archive, &folder);
        // It is of no more use, whether it was unpacked or cannot be.
        fs::remove_file(&packed).map_err(|error| DownloadError::io(&packed, error))?;
        unpacked?;
        tell(Progress::Finished(folder));
        Ok(())
    }

    /// Unpacks an archive beside the folder that it becomes.
    fn unpack(&self, packed: &Path, archive: &Archive, folder: &Path) -> Result<(), DownloadError> {
        let aside = self.destination.folder().join(format!(".{}.partial", archive.folder));
        if aside.exists() {
            fs::remove_dir_all(&aside).map_err(|error| DownloadError::io(&aside, error))?;
        }
        self.destination.began(&aside);
        unpack::unpack(packed, &aside)?;
        let inner = aside.join(&archive.folder);
        if let Some(missing) = archive.files.iter().find(|file| !inner.join(file).is_file()) {
            return Err(DownloadError::Lacks { folder: inner, missing: missing.clone() });
        }
        rename(&inner, folder)?;
        fs::remove_dir_all(&aside).map_err(|error| DownloadError::io(&aside, error))
    }

    /// Writes `classes.txt` where the files do not say the names of the classes.
    fn class_names(&self) -> Result<(), DownloadError> {
        let path = self.destination.folder().join("classes.txt");
        if self.dataset.classes.is_empty() || path.exists() {
            return Ok(());
        }
        let text: String = self.dataset.classes.iter().map(|class| format!("{class}\n")).collect();
        let partial = with_partial(&path);
        self.destination.began(&partial);
        fs::write(&partial, text).map_err(|error| DownloadError::io(&partial, error))?;
        rename(&partial, &path)
    }
}

/// The MD5 checksum of a file, in hexadecimal.
fn checksum(path: &Path) -> Result<String, DownloadError> {
    let checksum = || -> io::Result<String> {
        let (mut file, mut state, mut buffer) = (File::open(path)?, Md5::new(), vec![0; 1 << 16]);
        loop {
            match file.read(&mut buffer)? {
                0 => break,
                count => state.update(&buffer[..count]),
            }
        }
        Ok(state.finalize().iter().map(|byte| format!("{byte:02x}")).collect())
    };
    checksum().map_err(|error| DownloadError::io(path, error))
}
