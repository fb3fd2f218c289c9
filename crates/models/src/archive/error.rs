//! What can be wrong with an archive. Each error says which file, which tensor, what, and what to do.

use std::io;
use std::path::{Path, PathBuf};

/// A result with an [`ArchiveError`].
pub type Result<T, E = ArchiveError> = std::result::Result<T, E>;

/// An error of reading or writing an archive.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ArchiveError {
    /// An error of the operating system.
    #[error("{}: cannot {doing}: {source}", .file.display())]
    Io {
        /// The file.
        file: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// The file is inconsistent or truncated.
    #[error("{}: {}{what}; the file is damaged or cut short: fetch it again", .file.display(), of(.tensor))]
    Damaged {
        /// The file.
        file: PathBuf,
        /// The tensor, if the error concerns one.
        tensor: Option<String>,
        /// What is wrong.
        what: String,
    },
    /// The file may be valid, but is not supported.
    #[error("{}: {}{what}; {remedy}", .file.display(), of(.tensor))]
    Unsupported {
        /// The file.
        file: PathBuf,
        /// The tensor, if the error concerns one.
        tensor: Option<String>,
        /// What is not supported.
        what: String,
        /// What to do.
        remedy: String,
    },
    /// No tensor has this name.
    #[error("{}: no tensor is called `{tensor}`{}", .file.display(), known(.count, .names))]
    NotFound {
        /// The file.
        file: PathBuf,
        /// The requested name.
        tensor: String,
        /// How many tensors there are.
        count: usize,
        /// Some of their names.
        names: Vec<String>,
    },
    /// A slice of the wrong length was passed.
    #[error("{}: tensor `{tensor}` has {elements} elements, but {got} are to be filled; pass a slice of its length", .file.display())]
    Length {
        /// The file.
        file: PathBuf,
        /// The tensor.
        tensor: String,
        /// Number of elements.
        elements: usize,
        /// Length of the slice.
        got: usize,
    },
    /// There is not enough memory for the values of a tensor.
    #[error("{0}")]
    Memory(String),
    /// A tensor cannot be written.
    #[error("{}: cannot write tensor `{tensor}`: {what}", .file.display())]
    Unwritable {
        /// The file to be written; its previous content is unchanged.
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

/// An error found by a parser. Parsers know bytes, not files: the caller adds the file.
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

    /// Whether the file itself is invalid, rather than something in it unsupported.
    pub(super) fn is_damage(&self) -> bool {
        self.remedy.is_none()
    }

    /// Adds the tensor's name, shortened: in a hostile file it may be megabytes long.
    pub(super) fn in_tensor(mut self, name: &str) -> Self {
        self.tensor = Some(shortened(name));
        self
    }

    /// Adds the key of a file's metadata.
    pub(super) fn in_key(mut self, key: &str) -> Self {
        self.what = format!("`{}`: {}", shortened(key), self.what);
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

/// A name, shortened for messages.
pub(super) fn shortened(name: &str) -> String {
    const LONGEST: usize = 200;
    match name.char_indices().nth(LONGEST) {
        Some((end, _)) => format!("{}...", &name[..end]),
        None => name.to_string(),
    }
}
