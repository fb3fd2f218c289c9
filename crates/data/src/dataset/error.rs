//! Errors of data sets.

use std::io;
use std::path::{Path, PathBuf};

/// Why a data set could not be opened.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DatasetError {
    /// A file or folder cannot be read.
    #[error("{}: cannot be read: {error}", .path.display())]
    Io {
        /// The file or folder.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// The path holds something else than a data set.
    #[error(
        "{}: no data set was recognised here; {found}. Supported are: IDX (train-images-idx3-ubyte, train-labels-idx1-ubyte), CIFAR binary \
         (data_batch_1.bin or train.bin), image folders (train/CLASS/x.jpg, or CLASS/x.jpg), a manifest (.csv, .tsv or .jsonl with \
         `path` and `label`), tar shards (.tar)", .path.display()
    )]
    Unknown {
        /// The path.
        path: PathBuf,
        /// What is there instead.
        found: String,
    },
    /// There are images, but all in formats that cannot be decoded.
    #[error("{}: no images in supported formats; {note}", .path.display())]
    NoSupportedImages {
        /// The path.
        path: PathBuf,
        /// How many of which format there are, and how to convert them.
        note: String,
    },
    /// A file of a data set is missing.
    #[error("{}: {there} is there, but {missing} is missing", .path.display())]
    Incomplete {
        /// The folder.
        path: PathBuf,
        /// What is there.
        there: String,
        /// What is missing.
        missing: String,
    },
    /// A file is damaged.
    #[error("{}: {reason}", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// A row of a manifest cannot be parsed.
    #[error("{}, row {row}: {reason}", .path.display())]
    Row {
        /// The manifest.
        path: PathBuf,
        /// The row, from 1, the header not counted; in JSONL the line.
        row: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// A label is not one of the classes.
    #[error("{}: {reason}", .path.display())]
    Label {
        /// The file or folder.
        path: PathBuf,
        /// The label, and the valid ones.
        reason: String,
    },
    /// An option has an invalid value, or one that does not apply to this data set.
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
