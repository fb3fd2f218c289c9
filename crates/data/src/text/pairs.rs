//! Sentence pairs, and their file formats.

use std::path::Path;
use std::str::FromStr;

use tokenizers::NormalizedString;

use super::jsonl;
use super::lines::Lines;
use super::{PairsError, open};

/// A sentence and its translation, in Unicode's composed form (NFC), trimmed.
#[derive(Clone, Debug, PartialEq, Eq, Hash)]
pub struct Pair {
    /// The source sentence.
    pub source: String,
    /// Its translation.
    pub target: String,
}

impl Pair {
    /// A pair of these sentences, trimmed and composed.
    pub fn new(source: &str, target: &str) -> Pair {
        Pair { source: composed(source.trim()), target: composed(target.trim()) }
    }

    /// Whether a sentence is empty.
    pub fn is_empty(&self) -> bool {
        self.source.is_empty() || self.target.is_empty()
    }
}

/// Composes letters and their marks, as the tokenisers do: `e` and an acute accent are one letter.
fn composed(text: &str) -> String {
    if text.is_ascii() { text.to_string() } else { NormalizedString::from(text).nfc().get().to_string() }
}

/// Source and target language, as in the names of files and keys: `en`, `de`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Languages {
    /// The source language.
    pub source: String,
    /// The target language.
    pub target: String,
}

impl Languages {
    /// What a language pair must look like.
    pub const RULE: &str = "it must be two languages, the source first: en-de (or pt-BR,en)";
}

impl FromStr for Languages {
    type Err = &'static str;

    /// `en-de`: from English to German. Names with a hyphen are separated by a comma: `pt-BR,en`.
    fn from_str(text: &str) -> Result<Languages, &'static str> {
        let separator = if text.contains(',') { ',' } else { '-' };
        match text.split(separator).map(str::trim).collect::<Vec<_>>()[..] {
            [source, target] if !source.is_empty() && !target.is_empty() && source != target => {
                Ok(Languages { source: source.to_string(), target: target.to_string() })
            }
            _ => Err(Languages::RULE),
        }
    }
}

/// The pairs of a file, in its order.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct ReadPairs {
    /// Pairs without empty sentences.
    pub pairs: Vec<Pair>,
    /// How many pairs were dropped because a sentence was empty.
    pub empty: usize,
}

impl ReadPairs {
    pub(super) fn push(&mut self, source: &str, target: &str) {
        let pair = Pair::new(source, target);
        if pair.is_empty() { self.empty += 1 } else { self.pairs.push(pair) }
    }
}

/// Reads the pairs of a `.tsv` (or `.txt`) or `.jsonl` file. If there is no such file, but two of that name with the languages as
/// extensions (`corpus.en`, `corpus.de`), these are read.
pub fn read(path: &Path, languages: Option<&Languages>) -> Result<ReadPairs, PairsError> {
    if !path.exists() {
        return open::read_stem(path, languages)?.ok_or_else(|| {
            // The system's own error.
            let error = path.metadata().err().unwrap_or_else(|| std::io::ErrorKind::NotFound.into());
            PairsError::io(path, error)
        });
    }
    match crate::dataset::extension(path).as_deref() {
        Some("tsv" | "txt") => read_tsv(path),
        Some("jsonl" | "ndjson") => jsonl::read(path, languages),
        _ => Err(PairsError::Unknown {
            path: path.to_path_buf(),
            found: "its name ends neither in .tsv nor in .jsonl".to_string(),
        }),
    }
}

/// Reads lines of source, tab, target, without quoting and without further tabs.
pub(super) fn read_tsv(path: &Path) -> Result<ReadPairs, PairsError> {
    let mut lines = Lines::open_regular(path)?;
    let mut read = ReadPairs::default();
    while let Some(line) = lines.next_line()? {
        match line.split_once('\t') {
            Some((source, target)) if !target.contains('\t') => read.push(source, target),
            None if line.trim().is_empty() => read.empty += 1,
            _ => {
                let columns = line.split('\t').count();
                let reason = format!(
                    "it must be source, tab, target, but it has {columns} {}",
                    if columns == 1 { "column" } else { "columns" }
                );
                return Err(PairsError::line(path, lines.number(), reason));
            }
        }
    }
    Ok(read)
}

/// Reads two files whose lines are translations of each other.
pub fn read_parallel(source: &Path, target: &Path) -> Result<ReadPairs, PairsError> {
    let (mut sources, mut targets) = (Lines::open_regular(source)?, Lines::open_regular(target)?);
    let mut read = ReadPairs::default();
    loop {
        match (sources.next_line()?, targets.next_line()?) {
            (Some(source), Some(target)) => read.push(source, target),
            (None, None) => return Ok(read),
            _ => break,
        }
    }
    // One of the two has ended: the other is read to the end for its number of lines.
    while sources.next_line()?.is_some() || targets.next_line()?.is_some() {}
    Err(PairsError::Unequal {
        source_path: source.to_path_buf(),
        source_lines: sources.number(),
        target_path: target.to_path_buf(),
        target_lines: targets.number(),
    })
}
