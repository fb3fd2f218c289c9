//! Unpacks a `.tar.gz` into a folder, and nowhere else.

use std::fs::{self, File};
use std::io::{self, BufReader, Read};
use std::path::{Component, Path};

use flate2::read::MultiGzDecoder;

use super::DownloadError;

/// More than any known archive unpacks to (184 MB).
const MOST_BYTES: u64 = 1 << 30;

/// Unpacks an archive into a new folder. Links are skipped, and a name that leads out of the folder is refused.
pub(super) fn unpack(archive: &Path, to: &Path) -> Result<(), DownloadError> {
    let refused = |reason: String| DownloadError::Unpack { path: archive.to_path_buf(), reason };
    let damaged = |error: io::Error| refused(error.to_string());
    let file = File::open(archive).map_err(|error| DownloadError::io(archive, error))?;
    let mut tar = tar::Archive::new(MultiGzDecoder::new(BufReader::new(file)).take(MOST_BYTES));
    fs::create_dir(to).map_err(|error| DownloadError::io(to, error))?;
    for entry in tar.entries().map_err(damaged)? {
        let mut entry = entry.map_err(damaged)?;
        let name = entry.path().map_err(damaged)?.into_owned();
        if !name.components().all(|part| matches!(part, Component::Normal(_) | Component::CurDir)) {
            return Err(refused(format!("it has a file `{}`, which leads out of the folder", name.display())));
        }
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let path = to.join(&name);
        let folder = path.parent().unwrap_or(to);
        fs::create_dir_all(folder).map_err(|error| DownloadError::io(folder, error))?;
        let mut file = File::create_new(&path).map_err(|error| DownloadError::io(&path, error))?;
        let written =
            io::copy(&mut entry, &mut file).map_err(|error| refused(format!("{}: {error}", name.display())))?;
        if written != entry.size() {
            return Err(refused(format!("it ends within {}", name.display())));
        }
        file.sync_all().map_err(|error| DownloadError::io(&path, error))?;
    }
    Ok(())
}
