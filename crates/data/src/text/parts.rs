//! Which files of a folder hold which part, and in which form.

use std::path::{Path, PathBuf};

use super::{Languages, PairsError};
use crate::dataset::{Split, TEST_NAMES, TRAIN_NAMES, VALIDATION_NAMES, list, some_of};

/// What the files of a part may be called.
const NAMES: [(Split, &[&str]); 3] =
    [(Split::Train, &TRAIN_NAMES), (Split::Validation, &VALIDATION_NAMES), (Split::Test, &TEST_NAMES)];

/// A part and its files.
pub(super) struct Found {
    pub split: Split,
    pub form: Form,
}

/// Files that hold pairs.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Form {
    Tsv(PathBuf),
    Jsonl(PathBuf),
    Parallel(PathBuf, PathBuf),
}

impl Form {
    /// The form of what is called `stem` and an ending; an error if there is more than one.
    pub(super) fn of(stem: &Path, languages: Option<&Languages>) -> Result<Option<Form>, PairsError> {
        let mut forms = Vec::new();
        for (ending, form) in [("tsv", Form::Tsv as fn(PathBuf) -> Form), ("jsonl", Form::Jsonl)] {
            let path = with_ending(stem, ending);
            if path.is_file() {
                forms.push(form(path));
            }
        }
        if let Some(Languages { source, target }) = languages {
            let (source, target) = (with_ending(stem, source), with_ending(stem, target));
            match (source.is_file(), target.is_file()) {
                (true, true) => forms.push(Form::Parallel(source, target)),
                (false, false) => {}
                (is_source, _) => {
                    let (there, missing) = if is_source { (source, target) } else { (target, source) };
                    return Err(PairsError::Ambiguous {
                        path: there,
                        found: "this is there".to_string(),
                        advice: format!("but {}, which must go with it, is missing", missing.display()),
                    });
                }
            }
        }
        if forms.len() > 1 {
            let names: Vec<String> = forms.iter().map(Form::name).collect();
            return Err(PairsError::Ambiguous {
                path: stem.to_path_buf(),
                found: format!("there is more than one form of it ({})", names.join("; ")),
                advice: "leave one".to_string(),
            });
        }
        Ok(forms.pop())
    }

    /// The names of the files.
    pub(super) fn name(&self) -> String {
        let name = |path: &PathBuf| path.file_name().unwrap_or_default().to_string_lossy().into_owned();
        match self {
            Form::Tsv(path) | Form::Jsonl(path) => name(path),
            Form::Parallel(source, target) => format!("{} and {}", name(source), name(target)),
        }
    }
}

/// `stem.ending`; what is behind a dot in the stem stays.
fn with_ending(stem: &Path, ending: &str) -> PathBuf {
    let mut name = stem.as_os_str().to_os_string();
    name.push(".");
    name.push(ending);
    name.into()
}

/// Finds the parts in a folder, in the order training, validation, test.
pub(super) fn find(folder: &Path, languages: Option<&Languages>) -> Result<Vec<Found>, PairsError> {
    let mut found: Vec<Found> = Vec::new();
    for (split, names) in NAMES {
        for name in names {
            let Some(form) = Form::of(&folder.join(name), languages)? else { continue };
            if let Some(before) = found.iter().find(|found| found.split == split) {
                return Err(PairsError::Ambiguous {
                    path: folder.to_path_buf(),
                    found: format!("{} and {} are the same part", before.form.name(), form.name()),
                    advice: "leave one".to_string(),
                });
            }
            found.push(Found { split, form });
        }
    }
    if found.is_empty() { Err(nothing(folder)?) } else { Ok(found) }
}

/// Says what is there instead; if it is files called by languages, that these must be named.
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
            found: format!("it holds {}", some_of(parallel.into_iter(), 6)),
            advice: "name the languages, the source first: --languages en-de".to_string(),
        },
        _ => PairsError::Unknown {
            path: folder.to_path_buf(),
            found: if names.is_empty() { "it holds no files".to_string() } else { format!("it holds {there}") },
        },
    })
}
