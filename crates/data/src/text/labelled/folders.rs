//! One text per file, in folders that are named after classes, as in IMDB's archive: `train/pos/0_9.txt`, `test/neg/1_2.txt`.

use std::path::{Path, PathBuf};

use super::super::PairsError;
use super::super::lines::MOST_LINE_BYTES;
use super::super::split_files::{file_name, split_named};
use super::Part;
use super::rows::{Row, Written};
use crate::dataset::{Split, counted, extension, list};

/// Folders of unlabelled texts; IMDB's has 50,000 reviews.
const UNLABELLED: [&str; 3] = ["unsup", "unlabeled", "unlabelled"];

/// The folders of classes under a folder: those that have text files.
fn class_folders(folder: &Path) -> Result<Vec<PathBuf>, PairsError> {
    let mut classes = Vec::new();
    for path in list(folder)?.folders {
        if list(&path)?.files.iter().any(|file| is_text(file)) {
            classes.push(path);
        }
    }
    Ok(classes)
}

fn is_text(path: &Path) -> bool {
    extension(path).as_deref() == Some("txt")
}

/// The splits of a folder that has class folders, within folders of splits or alone.
pub(super) fn find(folder: &Path) -> Result<Vec<(Split, Vec<PathBuf>)>, PairsError> {
    let mut found: Vec<(Split, Vec<PathBuf>)> = Vec::new();
    for path in list(folder)?.folders {
        let Some(split) = split_named(&file_name(&path)) else { continue };
        let classes = class_folders(&path)?;
        if classes.is_empty() {
            continue;
        }
        if found.iter().any(|(other, _)| *other == split) {
            return Err(PairsError::Ambiguous {
                path: folder.to_path_buf(),
                found: format!("two folders are the {} part", split.name()),
                advice: "keep one of them".to_string(),
            });
        }
        found.push((split, classes));
    }
    if found.is_empty() {
        let classes = class_folders(folder)?;
        if classes.len() > 1 {
            found.push((Split::Train, classes));
        }
    }
    found.sort();
    Ok(found)
}

/// Reads the texts of class folders.
pub(super) fn read(split: Split, classes: &[PathBuf], notes: &mut Vec<String>) -> Result<Part, PairsError> {
    let mut rows = Vec::new();
    for folder in classes {
        let class = folder.file_name().and_then(|name| name.to_str()).ok_or_else(|| {
            PairsError::content(folder, "the name of this folder is not UTF-8, so it cannot name a class: rename it")
        })?;
        if UNLABELLED.contains(&class) {
            let texts = list(folder)?.files.iter().filter(|file| is_text(file)).count();
            let texts = counted(texts, "unlabelled text was", "unlabelled texts were");
            notes.push(format!("{texts} left out of the {} part ({class}/)", split.name()));
            continue;
        }
        for file in list(folder)?.files.iter().filter(|file| is_text(file)) {
            rows.push(Row { line: 0, text: text(file)?, pair: None, label: Written::One(class.to_string()) });
        }
    }
    let path = classes.first().and_then(|class| class.parent()).unwrap_or(Path::new("")).to_path_buf();
    Ok(Part { split, path, rows, is_table: false })
}

/// The text of a file, without space around it.
fn text(path: &Path) -> Result<String, PairsError> {
    let bytes = vitreous_files::open::read_bounded(path, MOST_LINE_BYTES as u64);
    let bytes = bytes.map_err(|error| PairsError::io(path, error))?;
    let text = std::str::from_utf8(&bytes).map_err(|error| {
        let before = &bytes[..error.valid_up_to()];
        let start = before.iter().rposition(|&byte| byte == b'\n').map_or(0, |place| place + 1);
        PairsError::NotUtf8 {
            path: path.to_path_buf(),
            line: 1 + before.iter().filter(|&&byte| byte == b'\n').count(),
            byte: before.len() - start + 1,
            value: bytes[before.len()],
            hint: "; if it is Latin-1, convert it with `iconv -f ISO-8859-1 -t UTF-8`",
        }
    })?;
    Ok(text.trim_start_matches('\u{feff}').trim().to_string())
}
