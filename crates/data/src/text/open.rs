//! Finding the pairs that a path holds: a file, two files, or a folder with a file for each part.

use std::path::Path;

use super::parts::{Form, find};
use super::{Languages, Pair, PairsError, ReadPairs, jsonl, pairs};
use crate::dataset::{Split, counted, is_drawn, name_hash};

/// How pairs are opened.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenPairs {
    /// The languages, where files or keys are called by them.
    pub languages: Option<Languages>,
    /// The share of the training part that is drawn for validation if there is no such part.
    pub validation_share: f64,
}

impl Default for OpenPairs {
    fn default() -> OpenPairs {
        OpenPairs { languages: None, validation_share: 0.02 }
    }
}

/// Pairs to learn from, to test with while learning, and to test with at the end.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PairSplits {
    /// What to learn from; may be empty where only another part is there.
    pub train: Vec<Pair>,
    /// What to test with while learning; may be empty.
    pub validation: Vec<Pair>,
    /// What to test with at the end; may be empty.
    pub test: Vec<Pair>,
    /// How many pairs were dropped because a side was empty.
    pub empty: usize,
    /// What a user should know of how it was read: files, what was dropped, how it was split.
    pub notes: Vec<String>,
}

/// Opens a folder with `train`, `valid` (or `validation`, `val`, `dev`) and `test` files, or one file, which is the training part.
///
/// If there is no validation part, a share of the training part is drawn by a hash of each source: a pair stays where it is whatever
/// comes or goes, and a source that occurs twice is never in both parts.
pub fn open(path: &Path, options: &OpenPairs) -> Result<PairSplits, PairsError> {
    if !(0.0..1.0).contains(&options.validation_share) {
        let share = options.validation_share;
        return Err(PairsError::Option(format!("validation_share must be at least 0 and under 1, but it is {share}")));
    }
    let languages = options.languages.as_ref();
    let mut splits = PairSplits::default();
    if path.is_dir() {
        for part in find(path, languages)? {
            let pairs = splits.take(&part.form.name(), read_form(&part.form, languages)?);
            match part.split {
                Split::Train => splits.train = pairs,
                Split::Validation => splits.validation = pairs,
                Split::Test => splits.test = pairs,
            }
        }
    } else {
        let name = path.file_name().unwrap_or(path.as_os_str()).to_string_lossy().into_owned();
        splits.train = splits.take(&name, pairs::read(path, languages)?);
    }
    if splits.validation.is_empty() && options.validation_share > 0.0 {
        splits.draw(options.validation_share);
    }
    Ok(splits)
}

impl PairSplits {
    fn take(&mut self, name: &str, read: ReadPairs) -> Vec<Pair> {
        self.empty += read.empty;
        let dropped = match read.empty {
            0 => String::new(),
            empty => format!("; {} dropped because a side is empty", counted(empty, "pair was", "pairs were")),
        };
        self.notes.push(format!("{name}: {}{dropped}", counted(read.pairs.len(), "pair", "pairs")));
        read.pairs
    }

    fn draw(&mut self, share: f64) {
        let all = std::mem::take(&mut self.train);
        (self.validation, self.train) =
            all.into_iter().partition(|pair| is_drawn(name_hash(pair.source.as_bytes()), share));
        let drawn = counted(self.validation.len(), "pair was", "pairs were");
        self.notes.push(format!(
            "there is no validation part: {drawn} drawn for it by the hash of the source (a share of {share})"
        ));
    }
}

/// Reads `stem.tsv`, `stem.jsonl`, or `stem.en` and `stem.de`; None if nothing of that is there.
pub(super) fn read_stem(stem: &Path, languages: Option<&Languages>) -> Result<Option<ReadPairs>, PairsError> {
    Form::of(stem, languages)?.map(|form| read_form(&form, languages)).transpose()
}

fn read_form(form: &Form, languages: Option<&Languages>) -> Result<ReadPairs, PairsError> {
    match form {
        Form::Tsv(path) => pairs::read_tsv(path),
        Form::Jsonl(path) => jsonl::read(path, languages),
        Form::Parallel(source, target) => pairs::read_parallel(source, target),
    }
}
