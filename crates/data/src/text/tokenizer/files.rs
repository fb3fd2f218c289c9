//! The files of a tokenizer's directory, kept as they were read, so that saving gives the same bytes.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use vitreous_files::open::read_bounded;

use crate::text::TokeniserError;

/// The largest file that is read: the vocabulary of a model with 250,000 tokens takes 17 MiB.
pub(super) const MOST_FILE_BYTES: u64 = 256 << 20;

/// The files of a directory.
#[derive(Clone, Debug)]
pub(super) struct Files {
    directory: PathBuf,
    read: Vec<(String, Arc<[u8]>)>,
}

impl Files {
    pub(super) fn of(directory: &Path) -> Files {
        Files { directory: directory.to_path_buf(), read: Vec::new() }
    }

    pub(super) fn path(&self, name: &str) -> PathBuf {
        self.directory.join(name)
    }

    pub(super) fn directory(&self) -> &Path {
        &self.directory
    }

    /// Whether there is something of this name.
    pub(super) fn has(&self, name: &str) -> bool {
        self.path(name).symlink_metadata().is_ok()
    }

    /// The content of a file; `None` if there is none of this name.
    pub(super) fn read(&mut self, name: &str) -> Result<Option<Arc<[u8]>>, TokeniserError> {
        let path = self.path(name);
        match read_bounded(&path, MOST_FILE_BYTES) {
            Ok(bytes) => {
                let bytes: Arc<[u8]> = bytes.into();
                self.read.push((name.to_string(), bytes.clone()));
                Ok(Some(bytes))
            }
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(TokeniserError::Io { path, error }),
        }
    }

    /// Adds or replaces a file.
    pub(super) fn put(&mut self, name: &str, bytes: &[u8]) {
        self.read.retain(|(there, _)| there != name);
        self.read.push((name.to_string(), bytes.into()));
    }

    /// The files that were read and belong to the tokenizer.
    pub(super) fn kept(&self) -> impl Iterator<Item = (&str, &[u8])> {
        let own = self.read.iter().filter(|(name, _)| name != "config.json");
        own.map(|(name, bytes)| (name.as_str(), &bytes[..]))
    }
}
