//! Why a path gives no data set.

use std::io;
use std::path::{Path, PathBuf};

/// Why a data set could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DatasetError {
    /// A file or folder cannot be read.
    #[error("{}: cannot be read: {error}", .path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// There is something, but no data set.
    #[error(
        "{}: no data set was recognised here; {found}. Known are: IDX (train-images-idx3-ubyte, train-labels-idx1-ubyte), CIFAR binary \
         (data_batch_1.bin or train.bin), image folders (train/CLASS/x.jpg, or CLASS/x.jpg), a manifest (.csv, .tsv or .jsonl with \
         `path` and `label`), tar shards (.tar)", .path.display()
    )]
    Unknown {
        /// Where it was looked.
        path: PathBuf,
        /// What was there, in words.
        found: String,
    },
    /// There are images, but all in formats that cannot be decoded.
    #[error("{}: no images in supported formats; {note}", .path.display())]
    NoSupportedImages {
        /// Where it was looked.
        path: PathBuf,
        /// How many of which format there are, and how to convert them.
        note: String,
    },
    /// A part of a known data set is there, and a part is not.
    #[error("{}: {there} is there, but {missing} is missing", .path.display())]
    Incomplete {
        /// The folder.
        path: PathBuf,
        /// What was found.
        there: String,
        /// What has to come with it.
        missing: String,
    },
    /// A file is not what its name says.
    #[error("{}: {reason}", .path.display())]
    Damaged {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A row of a manifest cannot be understood.
    #[error("{}, row {row}: {reason}", .path.display())]
    Row {
        /// The manifest.
        path: PathBuf,
        /// Which row, the first after the header being 1; in JSONL the line.
        row: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// A label is none of the classes.
    #[error("{}: {reason}", .path.display())]
    Label {
        /// Where it was found.
        path: PathBuf,
        /// Which label, and what was expected.
        reason: String,
    },
    /// An option has a value that cannot be, or that does not go with this data set.
    #[error("{0}")]
    Option(String),
}

impl DatasetError {
    pub(super) fn io(path: &Path, error: io::Error) -> DatasetError {
        DatasetError::Io { path: path.to_path_buf(), error }
    }

    pub(super) fn damaged(path: &Path, reason: impl Into<String>) -> DatasetError {
        DatasetError::Damaged { path: path.to_path_buf(), reason: reason.into() }
    }

    pub(super) fn row(path: &Path, row: usize, reason: impl Into<String>) -> DatasetError {
        DatasetError::Row { path: path.to_path_buf(), row, reason: reason.into() }
    }
}
