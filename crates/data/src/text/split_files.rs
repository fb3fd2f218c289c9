//! Which files of a folder belong to which split: `train.csv`, `dev.tsv`, `test.jsonl`.

use std::path::{Path, PathBuf};

use super::PairsError;
use crate::dataset::{Split, TEST_NAMES, TRAIN_NAMES, VALIDATION_NAMES, list, some_of};

/// The splits and their names.
pub(super) const NAMES: [(Split, &[&str]); 3] =
    [(Split::Train, &TRAIN_NAMES), (Split::Validation, &VALIDATION_NAMES), (Split::Test, &TEST_NAMES)];

/// The split of this name.
pub(super) fn split_named(name: &str) -> Option<Split> {
    NAMES.into_iter().find_map(|(split, names)| names.iter().any(|own| own.eq_ignore_ascii_case(name)).then_some(split))
}

/// The name of a file, as text.
pub(super) fn file_name(path: &Path) -> String {
    path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned()
}

/// The supported files of a folder by their splits, in the order training, validation, test. `split_of` says the split of a file, or None
/// if it is not of the data set.
pub(super) fn split_files(
    folder: &Path,
    split_of: impl Fn(&Path) -> Option<Split>,
) -> Result<Vec<(Split, PathBuf)>, PairsError> {
    let mut found: Vec<(Split, PathBuf)> = Vec::new();
    for path in list(folder)?.files {
        let Some(split) = split_of(&path) else { continue };
        if let Some((_, before)) = found.iter().find(|(other, _)| *other == split) {
            return Err(PairsError::Ambiguous {
                path: folder.to_path_buf(),
                found: format!("{} and {} are both the {} part", file_name(before), file_name(&path), split.name()),
                advice: "keep one of them".to_string(),
            });
        }
        found.push((split, path));
    }
    found.sort();
    Ok(found)
}

/// What a folder holds, for the message that it is not a data set.
pub(super) fn content_of(folder: &Path) -> Result<String, PairsError> {
    let listing = list(folder)?;
    let folders = listing.folders.iter().map(|path| format!("{}/", file_name(path)));
    let names: Vec<String> = folders.chain(listing.files.iter().map(|path| file_name(path))).take(7).collect();
    Ok(if names.is_empty() {
        "it is empty".to_string()
    } else {
        format!("it has {}", some_of(names.iter().map(String::as_str), 6))
    })
}
