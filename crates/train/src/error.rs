//! What can go wrong in a training run.

use std::path::PathBuf;

use vitreous_data::loader::LoadError;
use vitreous_models::ModelError;
use vitreous_models::archive::ArchiveError;

/// Why a run failed.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum TrainError {
    /// Reading or writing failed.
    #[error("{}: {what}: {source}{}", .path.display(), full_hint(.source))]
    Io {
        /// The file.
        path: PathBuf,
        /// What could not be done with it.
        what: &'static str,
        /// The system's reason.
        source: std::io::Error,
    },
    /// Another process trains in this directory.
    #[error("{} is in use by another run{}; wait for it, or choose another directory with --out", .path.display(), .owner)]
    InUse {
        /// The run directory.
        path: PathBuf,
        /// Which one, if that is known.
        owner: String,
    },
    /// The directory is no run directory.
    #[error("{}: {what}", .path.display())]
    NoRun {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The run directory was moved or removed while training.
    #[error("{}: {what}", .path.display())]
    Gone {
        /// The run directory, where it was.
        path: PathBuf,
        /// What happened to it.
        what: String,
    },
    /// A run that is resumed has another recipe or other data than when it was saved.
    #[error(
        "{}: a run can be resumed only with the same data and recipe, but since it was saved: {}. Undo that, or resume with \
         --accept-changes, which is written down in machine.json",
        .path.display(), .changes.join("; ")
    )]
    Changed {
        /// The run directory.
        path: PathBuf,
        /// What differs.
        changes: Vec<String>,
    },
    /// A checkpoint cannot be used.
    #[error("{}: {what}", .path.display())]
    Checkpoint {
        /// The file.
        path: PathBuf,
        /// What is wrong with it.
        what: String,
    },
    /// The data cannot be opened, or does not fit the recipe.
    #[error("{0}")]
    Data(String),
    /// None of the samples can be read.
    #[error(transparent)]
    Nothing(#[from] LoadError),
    /// The loss or the gradient is not finite.
    #[error("step {step}: {what}")]
    NotFinite {
        /// The step, from 1.
        step: u64,
        /// What was not finite, and what to do.
        what: String,
    },
    /// Several processes cannot train together.
    #[error("{0}")]
    Ranks(String),
    /// The recipe makes no sense.
    #[error(transparent)]
    Recipe(#[from] crate::recipe::RecipeError),
    /// The engine refused.
    #[error(transparent)]
    Engine(#[from] vitreous_engine::Error),
    /// The model does not fit into memory, whatever the batch.
    #[error("{0}")]
    TooLarge(String),
    /// The model could not be opened or saved.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// The settings of the model make no sense.
    #[error(transparent)]
    Settings(#[from] vitreous_models::ConfigError),
    /// Text could not be tokenised.
    #[error(transparent)]
    Tokeniser(#[from] vitreous_data::text::TokeniserError),
    /// The augmentation or preprocessing makes no sense.
    #[error("{0}")]
    Config(#[from] vitreous_data::image::ConfigError),
}

impl TrainError {
    /// For `map_err`: an error of saving a model, with that of a full disk recognisable.
    pub(crate) fn of_saving(error: ModelError) -> TrainError {
        match error {
            ModelError::Io { file, source, .. } | ModelError::Archive(ArchiveError::Io { file, source, .. }) => {
                TrainError::Io { path: file, what: "the model cannot be saved", source }
            }
            other => TrainError::Model(other),
        }
    }

    /// Whether there was no room to write.
    pub fn is_full_disk(&self) -> bool {
        matches!(self, TrainError::Io { source, .. } if is_full(source))
    }

    /// For `map_err`: an error of this file.
    pub(crate) fn io(path: impl Into<PathBuf>, what: &'static str) -> impl FnOnce(std::io::Error) -> TrainError {
        let path = path.into();
        move |source| TrainError::Io { path, what, source }
    }
}

/// What to do about a full disk. Whether there is something to resume from, the command says.
fn full_hint(error: &std::io::Error) -> &'static str {
    match is_full(error) {
        true => ". What was saved before is whole: make room",
        false => "",
    }
}

fn is_full(error: &std::io::Error) -> bool {
    use std::io::ErrorKind::{FileTooLarge, QuotaExceeded, StorageFull};
    matches!(error.kind(), StorageFull | QuotaExceeded | FileTooLarge)
}
