//! Language models: from a prompt to text, piece by piece.

mod evaluate;
mod format;
mod generator;
mod model;
mod stop_strings;
mod stream;
mod tokenizer;

pub use evaluate::{AnswerLikelihoods, LanguageEvaluator, Stride, TextLikelihood};
pub use generator::{Continuation, StopReason, TextGenerator, TextOptions, TextUpdate};
pub use model::LanguageModel;
pub use stop_strings::StopStrings;
pub use stream::PieceDecoder;
pub use tokenizer::vocabulary_of;
pub use vitreous_models::generate::constrain::OutputFormat;
