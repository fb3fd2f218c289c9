//! Files and folders, in an order that does not depend on the file system.

use std::collections::BTreeSet;
use std::ffi::OsStr;
use std::io::{BufReader, Read};
use std::path::{Path, PathBuf};

use flate2::read::MultiGzDecoder;
use vitreous_files::open::open_regular;

use super::DatasetError;
use crate::image::{SkippedImages, has_image_extension};

/// A file's extension, in lower case.
pub(crate) fn extension(path: &Path) -> Option<String> {
    path.extension().and_then(OsStr::to_str).map(str::to_ascii_lowercase)
}

/// A name as text; invalid UTF-8 is replaced.
pub(super) fn text(name: impl AsRef<OsStr>) -> String {
    name.as_ref().to_string_lossy().into_owned()
}

/// The name of a file, as text.
pub(super) fn file_name(path: &Path) -> String {
    path.file_name().map(text).unwrap_or_default()
}

/// A path from bytes, as in an archive or a table.
#[cfg(unix)]
pub(super) fn path_of(bytes: &[u8]) -> PathBuf {
    <OsStr as std::os::unix::ffi::OsStrExt>::from_bytes(bytes).into()
}

/// A path from bytes, as in an archive or a table.
#[cfg(not(unix))]
pub(super) fn path_of(bytes: &[u8]) -> PathBuf {
    String::from_utf8_lossy(bytes).into_owned().into()
}

/// The content of a folder, sorted by name: folders and files (or links to them). Hidden files are left out, among them the `._x.jpg` that
/// macOS writes beside images; so are pipes and devices, which may never end, and links that lead back to a folder above.
#[derive(Debug, Default)]
pub(crate) struct Listing {
    pub folders: Vec<PathBuf>,
    pub files: Vec<PathBuf>,
}

/// Lists a folder.
pub(crate) fn list(folder: &Path) -> Result<Listing, DatasetError> {
    let failed = |error| DatasetError::io(folder, error);
    let mut listing = Listing::default();
    for entry in std::fs::read_dir(folder).map_err(failed)? {
        let entry = entry.map_err(failed)?;
        let path = entry.path();
        let hidden = path
            .file_name()
            .is_none_or(|name| name.as_encoded_bytes().starts_with(b".") || name == "__MACOSX" || name == "lost+found");
        if hidden {
            continue;
        }
        let kind = entry.file_type().map_err(failed)?;
        let is_link = kind.is_symlink();
        // Only links need another system call, which would take most of the time for a million files.
        let kind = if is_link { std::fs::metadata(&path).map(|metadata| metadata.file_type()) } else { Ok(kind) };
        match kind {
            Ok(kind) if kind.is_dir() && is_link && leads_back(&path, folder) => {}
            Ok(kind) if kind.is_dir() => listing.folders.push(path),
            Ok(kind) if kind.is_file() => listing.files.push(path),
            Ok(_) => {}
            // A broken link: reading it will fail with an error.
            Err(_) => listing.files.push(path),
        }
    }
    listing.folders.sort();
    listing.files.sort();
    Ok(listing)
}

/// Whether a link leads to its own folder, or to one above.
fn leads_back(link: &Path, folder: &Path) -> bool {
    match (link.canonicalize(), folder.canonicalize()) {
        (Ok(target), Ok(folder)) => folder.starts_with(target),
        _ => false,
    }
}

/// Files that were skipped while a folder was searched for images.
#[derive(Debug, Default)]
pub(super) struct SkippedFiles {
    /// Images in formats that cannot be decoded.
    pub images: SkippedImages,
    /// Files that are not images.
    others: usize,
    extensions: BTreeSet<String>,
}

impl SkippedFiles {
    pub(super) fn add(&mut self, path: &Path) {
        if self.images.add(path) {
            return;
        }
        self.others += 1;
        self.extensions.insert(extension(path).map_or_else(|| "no extension".to_string(), |name| format!(".{name}")));
    }

    pub(super) fn notes(&self) -> Vec<String> {
        let extensions = some_of(self.extensions.iter().map(String::as_str), 6);
        let others = (self.others > 0).then(|| {
            let files = counted(self.others, "file that is not an image was", "files that are not images were");
            format!("{files} skipped ({extensions})")
        });
        self.images.note().into_iter().chain(others).collect()
    }
}

/// `1 file was`, `2 files were`.
pub(crate) fn counted(count: usize, one: &str, many: &str) -> String {
    format!("{count} {}", if count == 1 { one } else { many })
}

/// The first few of some names: `a, b, c ...`.
pub(crate) fn some_of<'a>(names: impl Iterator<Item = &'a str>, most: usize) -> String {
    let mut names: Vec<&str> = names.take(most + 1).collect();
    if names.len() > most {
        names[most] = "...";
    }
    names.join(", ")
}

/// What tells a folder from all others, whatever links lead to it.
#[cfg(unix)]
fn identity(folder: &Path) -> std::io::Result<(u64, u64)> {
    use std::os::unix::fs::MetadataExt;
    // Its canonical path would take a system call for each folder above it.
    folder.metadata().map(|metadata| (metadata.dev(), metadata.ino()))
}

/// What tells a folder from all others, whatever links lead to it.
#[cfg(not(unix))]
fn identity(folder: &Path) -> std::io::Result<PathBuf> {
    folder.canonicalize()
}

/// All images under a folder, sorted by path. Links to folders are followed, as in `torchvision`, but each folder is visited once.
pub(super) fn images_under(root: &Path, skipped: &mut SkippedFiles) -> Result<Vec<PathBuf>, DatasetError> {
    let mut seen = BTreeSet::new();
    let (mut images, mut waiting) = (Vec::new(), vec![root.to_path_buf()]);
    while let Some(folder) = waiting.pop() {
        if !seen.insert(identity(&folder).map_err(|error| DatasetError::io(&folder, error))?) {
            continue;
        }
        let listing = list(&folder)?;
        for file in listing.files {
            if has_image_extension(&file) { images.push(file) } else { skipped.add(&file) }
        }
        waiting.extend(listing.folders.into_iter().rev());
    }
    images.sort();
    Ok(images)
}

/// A file, unpacked if its extension is `.gz`.
pub(super) fn open_unpacked(path: &Path) -> Result<Box<dyn Read>, DatasetError> {
    let file = BufReader::new(open_regular(path).map_err(|error| DatasetError::io(path, error))?);
    Ok(match extension(path).as_deref() {
        Some("gz") => Box::new(MultiGzDecoder::new(file)),
        _ => Box::new(file),
    })
}

/// The content of a file, unpacked if its extension is `.gz`; an error if it is longer than `most` bytes.
pub(super) fn read(path: &Path, most: u64) -> Result<Vec<u8>, DatasetError> {
    let mut bytes = Vec::new();
    let too_long =
        || DatasetError::damaged(path, format!("it is longer than {most} bytes, the maximum for such a file"));
    // Packed or not: what is packed is no shorter when it is unpacked.
    if path.metadata().is_ok_and(|metadata| metadata.len() > most) {
        return Err(too_long());
    }
    let read = open_unpacked(path)?.take(most + 1).read_to_end(&mut bytes);
    read.map_err(|error| match extension(path).as_deref() {
        Some("gz") => DatasetError::damaged(path, format!("this is not a complete gzip file: {error}")),
        _ => DatasetError::io(path, error),
    })?;
    if bytes.len() as u64 > most {
        return Err(too_long());
    }
    Ok(bytes)
}

/// The lines of a file of names; None if there is no such file.
pub(super) fn names(path: &Path) -> Result<Option<Vec<String>>, DatasetError> {
    const MOST_BYTES: u64 = 64 << 20;
    if !path.is_file() {
        return Ok(None);
    }
    let bytes = read(path, MOST_BYTES)?;
    let text = String::from_utf8_lossy(&bytes);
    let names = text.trim_start_matches('\u{feff}').lines().map(str::trim).filter(|line| !line.is_empty());
    Ok(Some(names.map(str::to_string).collect()))
}
