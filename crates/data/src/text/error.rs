//! What can go wrong with pairs and tokenisers.

use std::io;
use std::path::{Path, PathBuf};

use crate::dataset::DatasetError;

/// Why sentence pairs could not be read.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum PairsError {
    /// A file cannot be read.
    #[error("{}: cannot be read: {error}", .path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A folder cannot be listed.
    #[error(transparent)]
    Folder(#[from] DatasetError),
    /// Bytes that are no UTF-8.
    #[error("{}, line {line}, byte {byte}: this is not UTF-8 ({value:#04x}){}", .path.display(), .hint)]
    NotUtf8 {
        /// The file.
        path: PathBuf,
        /// The line, the first being 1.
        line: usize,
        /// The place in the line, the first byte being 1.
        byte: usize,
        /// The byte that is there.
        value: u8,
        /// What it may be instead, with what to do about it; may be empty.
        hint: &'static str,
    },
    /// A line that cannot be understood.
    #[error("{}, line {line}: {reason}", .path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, the first being 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// Two parallel files that are not.
    #[error(
        "{} has {source_lines} lines, but {} has {target_lines}: line by line they must say the same",
        .source_path.display(), .target_path.display()
    )]
    Unequal {
        /// The file of sources.
        source_path: PathBuf,
        /// Its lines.
        source_lines: usize,
        /// The file of targets.
        target_path: PathBuf,
        /// Its lines.
        target_lines: usize,
    },
    /// There is nothing that holds pairs.
    #[error(
        "{}: no sentence pairs were found here; {found}. Known are: train.tsv (source, tab, target), train.jsonl \
         ({{\"source\": .., \"target\": ..}} or {{\"translation\": {{\"en\": .., \"de\": ..}}}}), and train.en with train.de if the \
         languages are named (--languages en-de)", .path.display()
    )]
    Unknown {
        /// Where it was looked.
        path: PathBuf,
        /// What was there, in words.
        found: String,
    },
    /// There is more than one thing that could be meant.
    #[error("{}: {found}: {advice}", .path.display())]
    Ambiguous {
        /// Where it was looked.
        path: PathBuf,
        /// What was there.
        found: String,
        /// What to do.
        advice: String,
    },
    /// An option has a value that cannot be.
    #[error("{0}")]
    Option(String),
}

impl PairsError {
    pub(super) fn io(path: &Path, error: io::Error) -> PairsError {
        PairsError::Io { path: path.to_path_buf(), error }
    }

    pub(super) fn line(path: &Path, line: usize, reason: impl Into<String>) -> PairsError {
        PairsError::Line { path: path.to_path_buf(), line, reason: reason.into() }
    }
}

/// Why a tokeniser could not be made, opened or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokeniserError {
    /// A file cannot be read or written.
    #[error("{}: {error}", .path.display())]
    Io {
        /// Which.
        path: PathBuf,
        /// Why.
        error: io::Error,
    },
    /// A file is no tokeniser, or not one of ours.
    #[error("{}: {reason}", .path.display())]
    Damaged {
        /// Which.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// There is no tokeniser in a folder.
    #[error("{}: there is no tokeniser here: tokenizer.json is missing, and so is {missing}", .path.display())]
    Missing {
        /// The folder.
        path: PathBuf,
        /// What else would have done.
        missing: String,
    },
    /// The size of the vocabulary cannot be.
    #[error(
        "vocab_size is {0}, but must be from 260 (256 bytes, 3 special tokens and a piece) to 1048576: 8000 suits tens of thousands \
         of pairs, 32000 millions"
    )]
    Size(usize),
    /// There is no text.
    #[error("there is no text to learn a tokeniser from")]
    NoText,
    /// The library refused.
    #[error("the tokeniser failed: {0}")]
    Library(String),
}

impl TokeniserError {
    pub(super) fn library(error: impl ToString) -> TokeniserError {
        TokeniserError::Library(error.to_string())
    }
}
