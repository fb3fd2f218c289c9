//! Language models: from a prompt to text, piece by piece.

mod chat;
mod evaluate;
mod format;
mod generator;
mod model;
mod stop_strings;
mod tokenizer;
mod write_vocabulary;

pub use chat::{Chat, ChatFormat, ChatPrompt};
pub use evaluate::{AnswerLikelihoods, LanguageEvaluator, Stride, TextLikelihood};
pub use generator::{Continuation, StopReason, TextGenerator, TextOptions, TextUpdate};
pub use model::LanguageModel;
pub use stop_strings::StopStrings;
pub use tokenizer::{tokenizer_of, vocabulary_of, vocabulary_to_write};
pub use vitreous_data::text::TextStream;
pub use vitreous_models::generate::constrain::{Constrainer, FormatConstraint, OutputFormat};
pub use write_vocabulary::{metadata_of, vocabulary_of_directory};
