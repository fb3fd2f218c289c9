//! Errors of sentence pairs and tokenisers.

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
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A folder cannot be listed.
    #[error(transparent)]
    Folder(#[from] DatasetError),
    /// The content is not UTF-8.
    #[error("{}, line {line}, byte {byte}: this is not UTF-8 ({value:#04x}){}", .path.display(), .hint)]
    NotUtf8 {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// The position in the line, from 1.
        byte: usize,
        /// The byte at that position.
        value: u8,
        /// Which encoding it may be, and how to convert it; may be empty.
        hint: &'static str,
    },
    /// A line cannot be parsed.
    #[error("{}, line {line}: {reason}", .path.display())]
    Line {
        /// The file.
        path: PathBuf,
        /// The line, from 1.
        line: usize,
        /// What is wrong with it.
        reason: String,
    },
    /// The content is not what it must be.
    #[error("{}: {reason}", .path.display())]
    Content {
        /// The file or folder.
        path: PathBuf,
        /// What is wrong with it, and what to do.
        reason: String,
    },
    /// Two parallel files have different numbers of lines.
    #[error(
        "{} has {source_lines} lines, but {} has {target_lines}: each line of one must be the translation of the same line of the other",
        .source_path.display(), .target_path.display()
    )]
    Unequal {
        /// The file of source sentences.
        source_path: PathBuf,
        /// Its number of lines.
        source_lines: usize,
        /// The file of target sentences.
        target_path: PathBuf,
        /// Its number of lines.
        target_lines: usize,
    },
    /// No pairs were found.
    #[error(
        "{}: no sentence pairs were found here; {found}. Supported are: train.tsv (source, tab, target), train.jsonl \
         ({{\"source\": .., \"target\": ..}} or {{\"translation\": {{\"en\": .., \"de\": ..}}}}), and train.en with train.de if the \
         languages are given (--languages en-de)", .path.display()
    )]
    Unknown {
        /// Where pairs were searched for.
        path: PathBuf,
        /// What is there instead.
        found: String,
    },
    /// The files could be understood in more than one way.
    #[error("{}: {found}: {advice}", .path.display())]
    Ambiguous {
        /// Where pairs were searched for.
        path: PathBuf,
        /// What is there.
        found: String,
        /// What to do.
        advice: String,
    },
    /// An option has an invalid value.
    #[error("{0}")]
    Option(String),
}

impl PairsError {
    pub(super) fn io(path: &Path, error: io::Error) -> PairsError {
        PairsError::Io { path: path.to_path_buf(), error }
    }

    pub(super) fn content(path: &Path, reason: impl Into<String>) -> PairsError {
        PairsError::Content { path: path.to_path_buf(), reason: reason.into() }
    }

    pub(super) fn line(path: &Path, line: usize, reason: impl Into<String>) -> PairsError {
        PairsError::Line { path: path.to_path_buf(), line, reason: reason.into() }
    }
}

/// Why a tokeniser could not be trained, opened or used.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TokeniserError {
    /// A file cannot be read or written.
    #[error("{}: {error}", .path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// The system's error.
        error: io::Error,
    },
    /// A file is not a tokeniser, or not one that was trained by Vitreous.
    #[error("{}: {reason}", .path.display())]
    Damaged {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        reason: String,
    },
    /// The vocabulary inside of a model's file cannot be used.
    #[error("the vocabulary inside of the model's file cannot be used: {0}")]
    Stored(String),
    /// The tokens of a speech model are not what they must be.
    #[error("{0}")]
    Speech(String),
    /// There is no tokeniser in a folder.
    #[error("{}: there is no tokenizer here; looked for tokenizer.json, {missing}", .path.display())]
    Missing {
        /// The folder.
        path: PathBuf,
        /// The other file that would do.
        missing: String,
    },
    /// The vocabulary size is out of range.
    #[error(
        "vocab_size is {0}, but must be from 260 (256 bytes, 3 special tokens and one more) to 1048576: 8000 suits tens of thousands \
         of pairs, 32000 millions"
    )]
    Size(usize),
    /// The size of a vocabulary that is to be learnt is out of range.
    #[error(
        "the vocabulary size is {size}, but must be from {smallest} to {most}: 8000 suits some megabytes of text, 30000 more"
    )]
    Vocabulary {
        /// The size.
        size: usize,
        /// The smallest size.
        smallest: usize,
        /// The largest size.
        most: usize,
    },
    /// The special tokens alone are longer than an input may be.
    #[error(
        "an input of {longest} tokens has no room for the {special} special tokens of this model: allow more tokens"
    )]
    Longest {
        /// The most tokens that were allowed.
        longest: usize,
        /// The number of special tokens.
        special: usize,
    },
    /// A question leaves too little room for the context.
    #[error(
        "the question has {question} tokens, which leaves {room} of {longest} for the context, but windows that overlap by {stride} \
         need more than that: shorten the question, allow more tokens, or let the windows overlap less"
    )]
    Window {
        /// The number of the question's tokens.
        question: usize,
        /// The most tokens of an input.
        longest: usize,
        /// The number of tokens that are left for the context.
        room: usize,
        /// The number of tokens by which windows overlap.
        stride: usize,
    },
    /// A model does not have a language.
    #[error("{}", no_such_language(.wanted, .known))]
    Language {
        /// The language that was asked for.
        wanted: String,
        /// Those that it has; empty if it has none.
        known: String,
    },
    /// A model has languages, and none was named.
    #[error("this model has several languages: name one with {option} CODE; it has {known}")]
    NoLanguage {
        /// The option.
        option: &'static str,
        /// The languages.
        known: String,
    },
    /// There is no text.
    #[error("there is no text to train a tokeniser on")]
    NoText,
    /// The `tokenizers` library failed.
    #[error("the tokeniser failed: {0}")]
    Library(String),
}

fn no_such_language(wanted: &str, known: &str) -> String {
    let wanted: String = wanted.chars().take(40).collect();
    match known.is_empty() {
        true => format!("this model has no languages to choose from, so that {wanted:?} says nothing: leave it out"),
        false => format!("this model does not have the language {wanted:?}; it has {known}"),
    }
}

impl TokeniserError {
    pub(super) fn library(error: impl ToString) -> TokeniserError {
        TokeniserError::Library(error.to_string())
    }
}
