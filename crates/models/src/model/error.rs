//! What can be wrong with a model, said so that the reader knows which file, which tensor or key, and what to do.

use std::fmt::Write;
use std::io;
use std::path::{Path, PathBuf};

use crate::archive::ArchiveError;
use crate::checkpoint::json::Fault;
use crate::checkpoint::{Inventory, Problem};
use crate::settings::ConfigError;

/// An error of opening, reading or saving a model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum ModelError {
    /// The operating system refused.
    #[error("{}: cannot {doing}: {source}", .file.display())]
    Io {
        /// The file or directory.
        file: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// A file of tensors cannot be read or written.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// A configuration says something that is wrong or not known; or shapes do, where there is none.
    #[error("{}: {fault}", .file.display())]
    Config {
        /// The file.
        file: PathBuf,
        /// The key, and what is wrong.
        fault: Fault,
    },
    /// The configuration is readable, but no such model can be built.
    #[error(transparent)]
    Unbuildable(#[from] ConfigError),
    /// Tensors are missing, surplus or of another shape.
    #[error("{}: {}", .file.display(), list(.problems))]
    Tensors {
        /// The file.
        file: PathBuf,
        /// All that is wrong.
        problems: Vec<Problem>,
    },
    /// This is not something that is opened here.
    #[error("{}: {what}", .file.display())]
    Refused {
        /// The file or directory.
        file: PathBuf,
        /// What was found, and what to do.
        what: String,
    },
    /// A parameter cannot be given or taken.
    #[error("parameter `{name}` {what}")]
    Parameter {
        /// Its name.
        name: String,
        /// What is wrong.
        what: String,
    },
    /// There are not as many names as classes.
    #[error("{names} names for {classes} classes: pass one for each, or none")]
    Labels {
        /// Classes of the model.
        classes: usize,
        /// Names that were passed.
        names: usize,
    },
    /// The model cannot be saved so; nothing was changed.
    #[error("{}: cannot save here: {what}", .target.display())]
    Unwritable {
        /// Where to.
        target: PathBuf,
        /// Why, and what to do.
        what: String,
    },
    /// The engine refused.
    #[error(transparent)]
    Engine(#[from] vitreous_engine::Error),
}

impl ModelError {
    pub(crate) fn parameter(name: &str, what: impl Into<String>) -> ModelError {
        ModelError::Parameter { name: name.to_string(), what: what.into() }
    }

    pub(super) fn unwritable(target: &Path, what: impl Into<String>) -> ModelError {
        ModelError::Unwritable { target: target.to_path_buf(), what: what.into() }
    }

    pub(super) fn unknown_dialect(file: &Path, inventory: &Inventory) -> ModelError {
        let some: Vec<String> = inventory.keys().take(4).map(|name| format!("`{}`", shortened(name))).collect();
        let what = format!(
            "its {} tensors ({}, ...) are not those of a model that is known here, by the names of Hugging Face, timm, DINOv2 or Google; \
             a model of our own needs the config.json that was written beside it",
            inventory.len(),
            some.join(", ")
        );
        ModelError::Refused { file: file.to_path_buf(), what }
    }
}

/// A hostile file's names may be megabytes long.
fn shortened(name: &str) -> String {
    name.chars().take(120).collect()
}

/// The first problems, and how many there are.
fn list(problems: &[Problem]) -> String {
    const SHOWN: usize = 8;
    let mut text = match problems.len() {
        1 => "a tensor is not as this model needs it:".to_string(),
        count => format!("{count} tensors are not as this model needs them:"),
    };
    for problem in problems.iter().take(SHOWN) {
        let _ = write!(text, "\n  {}", shortened(&problem.to_string()));
    }
    if problems.len() > SHOWN {
        let _ = write!(text, "\n  and {} more", problems.len() - SHOWN);
    }
    text.push_str("\nis this the configuration that belongs to the file?");
    text
}
