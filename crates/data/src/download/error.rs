//! Why a download failed.

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
    /// The server refused the request.
    #[error("{address}: the server answered {status}")]
    Refused {
        /// The requested address.
        address: String,
        /// The HTTP status.
        status: u16,
    },
    /// This build downloads nothing.
    #[error("{address}: this build cannot download; put the file there yourself, or build with the feature `download`")]
    NoDownloads {
        /// Where the file is.
        address: String,
    },
    /// Too many attempts failed.
    #[error("{address}: gave up after {attempts} attempts without progress; the last: {reason}{}", kept(*.have))]
    GivenUp {
        /// The requested address.
        address: String,
        /// Number of attempts.
        attempts: usize,
        /// Why the last one failed.
        reason: String,
        /// Bytes received so far.
        have: u64,
    },
    /// The checksum differs.
    #[error("{address}: the checksum differs: its MD5 sum must be {expected}, but it is {got}; the file was removed")]
    WrongChecksum {
        /// Where it came from.
        address: String,
        /// The known checksum.
        expected: String,
        /// The checksum of what was received.
        got: String,
    },
    /// There is another file of this name.
    #[error("{}: a file of this name is there, but its MD5 sum is {got} instead of {expected}; move it away, or use another folder", .path.display())]
    Another {
        /// The file.
        path: PathBuf,
        /// The known checksum.
        expected: String,
        /// The checksum of what is there.
        got: String,
    },
    /// The folder is there, but incomplete.
    #[error("{}: this folder lacks {missing}; remove it to download it again", .folder.display())]
    Lacks {
        /// The folder.
        folder: PathBuf,
        /// A file that it should have.
        missing: String,
    },
    /// The server sends more bytes than any of the data sets has.
    #[error("{address}: the server sends more than {most} bytes, more than any known data set has")]
    TooLong {
        /// Where it comes from.
        address: String,
        /// The limit.
        most: u64,
    },
    /// Another process downloads the same file.
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

fn kept(have: u64) -> String {
    if have == 0 { String::new() } else { format!("; {have} bytes are kept: the same command resumes") }
}
