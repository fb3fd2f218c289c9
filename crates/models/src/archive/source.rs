//! The bytes of one file: mapped, so that opening costs nothing and numbers are read where they lie. A build without the feature
//! `mmap` reads the file.

use std::fmt;
use std::fs::{self, File};
use std::io;
use std::path::{Path, PathBuf};

use super::error::{ArchiveError, Result};

/// One file's bytes, and its path.
pub(super) struct Source {
    pub(super) file: PathBuf,
    bytes: Bytes,
    is_file: bool,
}

enum Bytes {
    #[cfg(feature = "mmap")]
    Mapped(memmap2::Mmap),
    Owned(Vec<u8>),
}

/// The bytes of an open file, and what is being done to get them.
#[cfg(feature = "mmap")]
fn load(file: &mut File) -> (&'static str, io::Result<Bytes>) {
    // SAFETY: The mapping is read-only and private to this value. Rust cannot rule out that another process writes to the file
    // meanwhile; nothing here relies on the same bytes being the same twice: every offset is kept after it is checked.
    ("map", unsafe { memmap2::Mmap::map(&*file) }.map(Bytes::Mapped))
}

#[cfg(not(feature = "mmap"))]
fn load(file: &mut File) -> (&'static str, io::Result<Bytes>) {
    let mut bytes = Vec::new();
    ("read", io::Read::read_to_end(file, &mut bytes).map(|_| Bytes::Owned(bytes)))
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
        let mut file = File::open(path).map_err(failed("open"))?;
        if file.metadata().map_err(failed("open"))?.len() == 0 {
            return Err(refused("the file is empty", "fetch it again"));
        }
        let (doing, bytes) = load(&mut file);
        Ok(Source { file: path.to_path_buf(), bytes: bytes.map_err(failed(doing))?, is_file: true })
    }

    pub(super) fn from_bytes(bytes: Vec<u8>) -> Self {
        Source { file: PathBuf::from("(memory)"), bytes: Bytes::Owned(bytes), is_file: false }
    }

    /// Whether it is a file on disk, with a directory.
    pub(super) fn is_file(&self) -> bool {
        self.is_file
    }

    pub(super) fn bytes(&self) -> &[u8] {
        match &self.bytes {
            #[cfg(feature = "mmap")]
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
