//! Which files of a folder are of which split, and in which format.

use std::path::{Path, PathBuf};

use super::{Languages, PairsError};
use crate::dataset::{Split, TEST_NAMES, TRAIN_NAMES, VALIDATION_NAMES, list, some_of};

/// The names of the files of each split.
const NAMES: [(Split, &[&str]); 3] =
    [(Split::Train, &TRAIN_NAMES), (Split::Validation, &VALIDATION_NAMES), (Split::Test, &TEST_NAMES)];

/// The files of a split.
pub(super) struct SplitFiles {
    pub split: Split,
    pub form: PairFiles,
}

/// Files of pairs, by format.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum PairFiles {
    Tsv(PathBuf),
    Jsonl(PathBuf),
    Parallel(PathBuf, PathBuf),
}

impl PairFiles {
    /// The files named `stem` with an extension; an error if there are several formats.
    pub(super) fn of(stem: &Path, languages: Option<&Languages>) -> Result<Option<PairFiles>, PairsError> {
        let mut forms = Vec::new();
        for (extension, form) in [("tsv", PairFiles::Tsv as fn(PathBuf) -> PairFiles), ("jsonl", PairFiles::Jsonl)] {
            let path = with_extension(stem, extension);
            if path.is_file() {
                forms.push(form(path));
            }
        }
        if let Some(Languages { source, target }) = languages {
            let (source, target) = (with_extension(stem, source), with_extension(stem, target));
            match (source.is_file(), target.is_file()) {
                (true, true) => forms.push(PairFiles::Parallel(source, target)),
                (false, false) => {}
                (is_source, _) => {
                    let (there, missing) = if is_source { (source, target) } else { (target, source) };
                    return Err(PairsError::Ambiguous {
                        path: there,
                        found: "this file is there".to_string(),
                        advice: format!("but {}, its other half, is missing", missing.display()),
                    });
                }
            }
        }
        if forms.len() > 1 {
            let names: Vec<String> = forms.iter().map(PairFiles::name).collect();
            return Err(PairsError::Ambiguous {
                path: stem.to_path_buf(),
                found: format!("there are several formats of it ({})", names.join("; ")),
                advice: "keep one of them".to_string(),
            });
        }
        Ok(forms.pop())
    }

    /// The names of the files.
    pub(super) fn name(&self) -> String {
        let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match self {
            PairFiles::Tsv(path) | PairFiles::Jsonl(path) => name(path),
            PairFiles::Parallel(source, target) => format!("{} and {}", name(source), name(target)),
        }
    }
}

/// `stem.extension`; a dot in the stem stays.
fn with_extension(stem: &Path, extension: &str) -> PathBuf {
    let mut name = stem.as_os_str().to_os_string();
    name.push(".");
    name.push(extension);
    name.into()
}

/// Finds the splits in a folder, in the order training, validation, test.
pub(super) fn find(folder: &Path, languages: Option<&Languages>) -> Result<Vec<SplitFiles>, PairsError> {
    let mut found: Vec<SplitFiles> = Vec::new();
    for (split, names) in NAMES {
        for name in names {
            let Some(form) = PairFiles::of(&folder.join(name), languages)? else { continue };
            if let Some(before) = found.iter().find(|found| found.split == split) {
                return Err(PairsError::Ambiguous {
                    path: folder.to_path_buf(),
                    found: format!("{} and {} are the same split", before.form.name(), form.name()),
                    advice: "keep one of them".to_string(),
                });
            }
            found.push(SplitFiles { split, form });
        }
    }
    if found.is_empty() { Err(nothing(folder)?) } else { Ok(found) }
}

/// The error for a folder without pairs; if its files are named after languages, it asks for these.
fn nothing(folder: &Path) -> Result<PairsError, PairsError> {
    let files = list(folder)?.files;
    let names: Vec<String> =
        files.iter().filter_map(|path| path.file_name()).map(|name| name.to_string_lossy().into_owned()).collect();
    let of_train = |name: &&String| name.split_once('.').is_some_and(|(stem, _)| TRAIN_NAMES.contains(&stem));
    let parallel: Vec<&str> = names.iter().filter(of_train).map(String::as_str).collect();
    let there = some_of(names.iter().map(String::as_str), 6);
    Ok(match parallel.len() {
        2.. => PairsError::Ambiguous {
            path: folder.to_path_buf(),
            found: format!("it has {}", some_of(parallel.into_iter(), 6)),
            advice: "give the languages, the source first: --languages en-de".to_string(),
        },
        _ => PairsError::Unknown {
            path: folder.to_path_buf(),
            found: if names.is_empty() { "it has no files".to_string() } else { format!("it has {there}") },
        },
    })
}
