//! CIFAR as it is downloaded: a `.tar.gz`, read into memory without unpacking it to disk.

use std::collections::BTreeMap;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;

use vitreous_files::open::open_regular;

use super::files::file_name;
use super::{DatasetError, OpenDataset, Splits, cifar};

/// More than both official archives unpack to (184 MB).
const MOST_BYTES: u64 = 1 << 30;

/// The files of an archive, by their names without folders.
struct Unpacked<'a> {
    archive: &'a Path,
    files: BTreeMap<String, Vec<u8>>,
}

impl cifar::Files for Unpacked<'_> {
    fn names(&self) -> Vec<String> {
        self.files.keys().cloned().collect()
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, DatasetError> {
        Ok(self.files.get(name).cloned().unwrap_or_default())
    }

    fn path(&self, name: &str) -> PathBuf {
        self.archive.join(name)
    }
}

/// Reads an archive of CIFAR; None if it is another.
pub(super) fn open(archive: &Path, options: &OpenDataset) -> Result<Option<Splits>, DatasetError> {
    let damaged =
        |error: std::io::Error| DatasetError::damaged(archive, format!("this is not a complete .tar.gz: {error}"));
    let file = open_regular(archive).map_err(|error| DatasetError::io(archive, error))?;
    // A hostile archive may have endless headers.
    let mut tar = tar::Archive::new(MultiGzDecoder::new(BufReader::new(file)).take(MOST_BYTES));
    let mut unpacked = Unpacked { archive, files: BTreeMap::new() };
    for entry in tar.entries().map_err(damaged)? {
        let mut entry = entry.map_err(damaged)?;
        let name = file_name(&entry.path().map_err(damaged)?);
        let wanted = [".bin", ".txt"].iter().any(|ending| name.ends_with(ending));
        if entry.header().entry_type().is_file() && wanted && !name.starts_with('.') {
            let mut content = Vec::new();
            entry.read_to_end(&mut content).map_err(damaged)?;
            if content.len() as u64 != entry.size() {
                return Err(DatasetError::damaged(archive, format!("it ends within {name}")));
            }
            unpacked.files.insert(name, content);
        }
    }
    cifar::open(&unpacked, options)
}
