//! Texts, recordings and pictures with captions as a model sees them, ready to be shown: the command `explain` writes them to files, the server answers with
//! them. Each kind of model has a module, which reads an input, looks inside, and gives what its page and its JSON are made of.

pub mod encoder;
pub mod image_text;
pub mod language;
pub mod pair;
pub mod speech;

use vitreous_data::text::TokeniserError;
use vitreous_explain::ExplainError;

/// The most tokens of a text: what attention takes grows with their square, and a page of more could hardly be read.
pub const MOST_TOKENS: usize = 512;

/// Why an input is not explained.
#[derive(Debug, thiserror::Error)]
pub enum ExplainedError {
    /// Another input would be explained: what is wrong with this one.
    #[error("{0}")]
    Input(String),
    /// A model cannot be run as it was asked for.
    #[error(transparent)]
    Runtime(#[from] vitreous_runtime::Error),
    /// Nothing can be seen.
    #[error(transparent)]
    Explain(#[from] ExplainError),
    /// A page cannot be drawn.
    #[error("{0}")]
    Work(String),
}

impl ExplainedError {
    fn input(what: impl Into<String>) -> ExplainedError {
        ExplainedError::Input(what.into())
    }

    fn work(error: impl std::fmt::Display) -> ExplainedError {
        ExplainedError::Work(error.to_string())
    }

    /// Whether other input would mend it. A device that fails, or has too little memory left, is no fault of what was asked for.
    pub fn is_input(&self) -> bool {
        use vitreous_engine::Error;
        match self {
            ExplainedError::Input(_) => true,
            ExplainedError::Runtime(error) => error.is_input(),
            // Another edit could be done, and another value is there.
            ExplainedError::Explain(ExplainError::Engine(Error::Intervention { .. } | Error::Unknown { .. })) => true,
            ExplainedError::Explain(ExplainError::Engine(_)) => false,
            ExplainedError::Explain(_) => true,
            ExplainedError::Work(_) => false,
        }
    }
}

impl From<TokeniserError> for ExplainedError {
    fn from(error: TokeniserError) -> ExplainedError {
        ExplainedError::Runtime(error.into())
    }
}
