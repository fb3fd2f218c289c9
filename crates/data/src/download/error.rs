//! Why a download did not end well.

use std::io;
use std::path::{Path, PathBuf};

/// Why a data set could not be downloaded.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum DownloadError {
    /// A file cannot be written or read.
    #[error("{}: {error}", .path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// The server says no.
    #[error("{address}: the server answered {status}")]
    Refused {
        /// What was asked for.
        address: String,
        /// HTTP's status.
        status: u16,
    },
    /// It was tried as often as it is tried.
    #[error(
        "{address}: given up after {attempts} attempts that got no further; the last: {reason}; {have} bytes are kept, and the same \
         command goes on from there"
    )]
    GivenUp {
        /// What was asked for.
        address: String,
        /// How often.
        attempts: usize,
        /// Why the last one failed.
        reason: String,
        /// Bytes that are there.
        have: u64,
    },
    /// The bytes are not the known ones.
    #[error(
        "{address}: the file that came is not the known one: its MD5 sum must be {expected}, but it is {got}; it was removed"
    )]
    WrongSum {
        /// Where it came from.
        address: String,
        /// The known sum.
        expected: String,
        /// The sum of what came.
        got: String,
    },
    /// There is another file of this name.
    #[error("{}: a file of this name is there, but its MD5 sum is {got} instead of {expected}; move it away, or use another folder", .path.display())]
    Another {
        /// The file.
        path: PathBuf,
        /// The known sum.
        expected: String,
        /// The sum of what is there.
        got: String,
    },
    /// The folder is there, but not whole.
    #[error("{}: this folder lacks {missing}; remove it to have it downloaded again", .folder.display())]
    Lacks {
        /// The folder.
        folder: PathBuf,
        /// A file that should be in it.
        missing: String,
    },
    /// The server sends more than any known data set has.
    #[error("{address}: the server sends more than {most} bytes, which no known data set has")]
    TooLong {
        /// Where it comes from.
        address: String,
        /// The limit.
        most: u64,
    },
    /// Somebody else downloads the same.
    #[error("{}: another process is writing this file", .0.display())]
    Busy(PathBuf),
    /// The archive cannot be unpacked.
    #[error("{}: cannot be unpacked: {reason}", .path.display())]
    Unpack {
        /// The archive.
        path: PathBuf,
        /// Why.
        reason: String,
    },
}

impl DownloadError {
    pub(super) fn io(path: &Path, error: io::Error) -> DownloadError {
        DownloadError::Io { path: path.to_path_buf(), error }
    }
}
