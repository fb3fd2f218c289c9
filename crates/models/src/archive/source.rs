//! The bytes of one file: memory-mapped, so that opening is free and values are read in place.

use std::fmt;
use std::fs::{self, File};
use std::path::{Path, PathBuf};

use memmap2::Mmap;

use super::error::{ArchiveError, Result};

/// One file's bytes, and its path.
pub(super) struct Source {
    pub(super) file: PathBuf,
    bytes: Bytes,
}

enum Bytes {
    Mapped(Mmap),
    Owned(Vec<u8>),
}

impl Source {
    /// Maps a file. Only regular files: a directory cannot be mapped, and opening a pipe would block.
    pub(super) fn map(path: &Path) -> Result<Self> {
        let failed = |doing| move |source| ArchiveError::Io { file: path.to_path_buf(), doing, source };
        let refused = |what: &str, remedy: &str| ArchiveError::Unsupported {
            file: path.to_path_buf(),
            tensor: None,
            what: what.to_string(),
            remedy: remedy.to_string(),
        };
        let kind = fs::metadata(path).map_err(failed("open"))?;
        if kind.is_dir() {
            return Err(refused("this is a directory", "name the file inside it that holds the weights"));
        }
        if !kind.is_file() {
            return Err(refused("this is not a regular file", "copy its content to a file first"));
        }
        let file = File::open(path).map_err(failed("open"))?;
        if file.metadata().map_err(failed("open"))?.len() == 0 {
            return Err(refused("the file is empty", "fetch it again"));
        }
        // SAFETY: The mapping is read-only and private to this value. Rust cannot rule out that another process writes
        // to the file meanwhile; nothing here relies on reading the same bytes twice: every offset is kept after it is
        // checked.
        let bytes = unsafe { Mmap::map(&file) }.map_err(failed("map"))?;
        Ok(Source { file: path.to_path_buf(), bytes: Bytes::Mapped(bytes) })
    }

    pub(super) fn from_bytes(bytes: Vec<u8>) -> Self {
        Source { file: PathBuf::from("(memory)"), bytes: Bytes::Owned(bytes) }
    }

    /// Whether it is a file on disk, with a directory.
    pub(super) fn is_file(&self) -> bool {
        matches!(self.bytes, Bytes::Mapped(_))
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match &self.bytes {
            Bytes::Mapped(map) => map,
            Bytes::Owned(bytes) => bytes,
        }
    }
}

impl fmt::Debug for Source {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} ({} bytes)", self.file.display(), self.bytes().len())
    }
}
