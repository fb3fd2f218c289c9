//! A build without the feature `download` receives nothing.

use std::fs::File;
use std::path::Path;

use super::{DownloadError, DownloadOptions, Progress, RemoteFile};

/// An error that says how to get the file.
pub(super) fn receive(
    remote: &RemoteFile,
    _file: &mut File,
    _path: &Path,
    options: &DownloadOptions,
    _tell: &mut dyn FnMut(Progress),
) -> Result<(), DownloadError> {
    Err(DownloadError::NoDownloads { address: options.address(remote) })
}
