//! What can be wrong with a model. Each error says which file, which tensor or key, and what to do.

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
    /// An error of the operating system.
    #[error("{}: cannot {doing}: {source}", .file.display())]
    Io {
        /// The file or directory.
        file: PathBuf,
        /// What was being done.
        doing: &'static str,
        /// The system's reason.
        source: io::Error,
    },
    /// An archive cannot be read or written.
    #[error(transparent)]
    Archive(#[from] ArchiveError),
    /// A configuration has a wrong or unknown value; or, without a configuration, the shapes are inconsistent.
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
    /// Tensors are missing, unexpected or of the wrong shape.
    #[error("{}: {}", .file.display(), list(.problems))]
    Tensors {
        /// The file.
        file: PathBuf,
        /// Everything that is wrong.
        problems: Vec<Problem>,
    },
    /// This cannot be opened.
    #[error("{}: {what}", .file.display())]
    Refused {
        /// The file or directory.
        file: PathBuf,
        /// What it is, and what to do.
        what: String,
    },
    /// A parameter cannot be read or set.
    #[error("parameter `{name}` {what}")]
    Parameter {
        /// Its name.
        name: String,
        /// What is wrong.
        what: String,
    },
    /// The number of names differs from the number of classes.
    #[error("{names} names for {classes} classes: pass one for each, or none")]
    Labels {
        /// Number of classes.
        classes: usize,
        /// Number of names passed.
        names: usize,
    },
    /// The model cannot be saved like this; nothing was changed.
    #[error("{}: cannot save here: {what}", .target.display())]
    Unwritable {
        /// The target of the save.
        target: PathBuf,
        /// Why, and what to do.
        what: String,
    },
    /// An engine error.
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

/// Names in a hostile file may be megabytes long.
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
