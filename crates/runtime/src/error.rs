//! What can go wrong, told apart by whether the user's input can mend it.

use vitreous_data::audio::AudioError;
use vitreous_data::image::{ConfigError, ImageError};
use vitreous_data::text::TokeniserError;
use vitreous_data::text::chat_template::ChatTemplateError;
use vitreous_models::ModelError;

/// An error of opening or running a model.
#[derive(Debug, thiserror::Error)]
#[non_exhaustive]
pub enum Error {
    /// Wrong input: what, where, and what to do.
    #[error("{0}")]
    Input(String),
    /// A model cannot be opened, or cannot be built as it was asked for.
    #[error(transparent)]
    Model(#[from] ModelError),
    /// A model's image preprocessing cannot be read.
    #[error("{file}: {source}")]
    Preprocessing {
        /// The file that says it.
        file: &'static str,
        /// What is wrong with it.
        source: ConfigError,
    },
    /// An image cannot be read.
    #[error(transparent)]
    Image(#[from] ImageError),
    /// Audio cannot be read.
    #[error(transparent)]
    Audio(#[from] AudioError),
    /// A tokenizer cannot be opened or used.
    #[error(transparent)]
    Tokenizer(#[from] TokeniserError),
    /// A chat template cannot be used.
    #[error(transparent)]
    ChatTemplate(#[from] ChatTemplateError),
    /// The work itself failed.
    #[error(transparent)]
    Engine(#[from] vitreous_engine::Error),
}

impl Error {
    /// Wrong input.
    pub fn input(what: impl Into<String>) -> Error {
        Error::Input(what.into())
    }

    /// Whether other input would mend it: a command then ends with another exit code than when work fails.
    pub fn is_input(&self) -> bool {
        match self {
            // Another model, or a smaller batch, would fit.
            Error::Engine(vitreous_engine::Error::Memory(_)) => true,
            // Another edit could be done.
            Error::Engine(vitreous_engine::Error::Intervention { .. }) => true,
            Error::Engine(_) => false,
            Error::Input(_)
            | Error::Model(_)
            | Error::Preprocessing { .. }
            | Error::Image(_)
            | Error::Audio(_)
            | Error::Tokenizer(_)
            | Error::ChatTemplate(_) => true,
        }
    }
}
