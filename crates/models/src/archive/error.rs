//! What can be wrong with a file of tensors, said so that the reader knows which file, which tensor, what, and what to do.

use std::io;
use std::path::{Path, PathBuf};

/// A result with an [`ArchiveError`].
pub type Result<T, E = ArchiveError> = std::result::Result<T, E>;

/// An error of reading or writing a file of tensors.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// The operating system refused.
    #[error("{}: cannot {doing}: {source}", .file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// The file contradicts itself, or ends early.
    #[error("{}: {}{what}; the file is damaged or cut short: fetch it again", .file.display(), of(.tensor))]
    Damaged {
        /// The file.
        file: PathBuf,
        /// The tensor, where the damage concerns one.
        tensor: Option<String>,
        /// What is wrong.
        what: String,
    },
    /// The file may be sound, but is not something that is read here.
    #[error("{}: {}{what}; {remedy}", .file.display(), of(.tensor))]
    Unsupported {
        /// The file.
        file: PathBuf,
        /// The tensor, where it concerns one.
        tensor: Option<String>,
        /// What was found.
        what: String,
        /// What to do.
        remedy: String,
    },
    /// No tensor has this name.
    #[error("{}: no tensor is called `{tensor}`{}", .file.display(), known(.count, .names))]
    NotFound {
        /// The file.
        file: PathBuf,
        /// The name that was asked for.
        tensor: String,
        /// How many tensors there are.
        count: usize,
        /// Some of their names.
        names: Vec<String>,
    },
    /// A slice of the wrong length was passed to be filled.
    #[error("{}: tensor `{tensor}` has {elements} elements, but {got} are to be filled; pass a slice of its length", .file.display())]
    Length {
        /// The file.
        file: PathBuf,
        /// The tensor.
        tensor: String,
        /// How many elements it has.
        elements: usize,
        /// How many were asked for.
        got: usize,
    },
    /// What was passed to be written cannot be.
    #[error("{}: cannot write tensor `{tensor}`: {what}", .file.display())]
    Unwritable {
        /// The file that was to be written; what it held before is unharmed.
        file: PathBuf,
        /// The tensor.
        tensor: String,
        /// What is wrong, and what to do.
        what: String,
    },
}

fn of(tensor: &Option<String>) -> String {
    tensor.as_ref().map(|name| format!("tensor `{name}`: ")).unwrap_or_default()
}

fn known(count: &usize, names: &[String]) -> String {
    match count {
        0 => "; there are none".to_string(),
        count if *count == names.len() => format!("; there are: {}", names.join(", ")),
        count => format!("; there are {count}, among them {}", names.join(", ")),
    }
}

/// What a parser finds wrong. It knows bytes, not files: the file is added by who called it.
#[derive(Debug, Clone)]
pub(super) struct Fault {
    tensor: Option<String>,
    what: String,
    remedy: Option<String>,
}

pub(super) type Parsed<T> = std::result::Result<T, Fault>;

impl Fault {
    pub(super) fn damaged(what: impl Into<String>) -> Self {
        Fault { tensor: None, what: what.into(), remedy: None }
    }

    pub(super) fn unsupported(what: impl Into<String>, remedy: impl Into<String>) -> Self {
        Fault { tensor: None, what: what.into(), remedy: Some(remedy.into()) }
    }

    /// Whether the file itself is wrong, rather than something in it that is not read.
    pub(super) fn is_damage(&self) -> bool {
        self.remedy.is_none()
    }

    /// Says which tensor it concerns. A name from a hostile file may be megabytes long: its beginning is enough.
    pub(super) fn in_tensor(mut self, name: &str) -> Self {
        self.tensor = Some(shortened(name));
        self
    }

    pub(super) fn in_file(self, file: &Path) -> ArchiveError {
        let Fault { tensor, what, remedy } = self;
        let file = file.to_path_buf();
        match remedy {
            None => ArchiveError::Damaged { file, tensor, what },
            Some(remedy) => ArchiveError::Unsupported { file, tensor, what, remedy },
        }
    }
}

/// A name as messages show it.
pub(super) fn shortened(name: &str) -> String {
    const LONGEST: usize = 200;
    match name.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &name[..end]),
        None => name.to_string(),
    }
}
