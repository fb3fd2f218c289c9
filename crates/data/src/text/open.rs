//! Opens the pairs at a path: a file, two files, or a folder with files for each split.

use std::path::Path;

use super::parts::{PairFiles, find};
use super::{Languages, Pair, PairsError, ReadPairs, jsonl, pairs};
use crate::dataset::{Split, counted, is_drawn, name_hash};

/// How pairs are opened.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenPairs {
    /// The languages, where files or keys are named after them.
    pub languages: Option<Languages>,
    /// The share of the training pairs to draw for validation where there is no validation part.
    pub validation_share: f64,
}

impl Default for OpenPairs {
    fn default() -> OpenPairs {
        OpenPairs { languages: None, validation_share: 0.02 }
    }
}

/// Sentence pairs, split for training and evaluation.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct PairSplits {
    /// What a model is trained on; empty where there are only other parts.
    pub train: Vec<Pair>,
    /// What is evaluated during training, and chooses the best checkpoint; may be empty.
    pub validation: Vec<Pair>,
    /// The held-out test part; may be empty.
    pub test: Vec<Pair>,
    /// How many pairs were dropped because a sentence was empty.
    pub empty: usize,
    /// What a user should know about how it was read: files, what was dropped, how it was split.
    pub notes: Vec<String>,
}

/// Opens a folder with `train`, `valid` (or `validation`, `val`, `dev`) and `test` files, or one file, which is the training part.
///
/// If there is no validation part, a share of the training part is drawn by the hash of each source sentence: a pair stays in its split
/// whatever is added or removed, and a source that occurs twice is never in both.
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
            empty => format!("; {} dropped because a sentence is empty", counted(empty, "pair was", "pairs were")),
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

/// Reads `stem.tsv`, `stem.jsonl`, or `stem.en` and `stem.de`; None if there is no such file.
pub(super) fn read_stem(stem: &Path, languages: Option<&Languages>) -> Result<Option<ReadPairs>, PairsError> {
    PairFiles::of(stem, languages)?.map(|form| read_form(&form, languages)).transpose()
}

fn read_form(form: &PairFiles, languages: Option<&Languages>) -> Result<ReadPairs, PairsError> {
    match form {
        PairFiles::Tsv(path) => pairs::read_tsv(path),
        PairFiles::Jsonl(path) => jsonl::read(path, languages),
        PairFiles::Parallel(source, target) => pairs::read_parallel(source, target),
    }
}
