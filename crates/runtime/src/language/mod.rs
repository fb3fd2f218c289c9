//! Language models: from a prompt to text, piece by piece.

mod chat;
mod generator;
mod model;
mod stop_strings;

pub use chat::{Chat, ChatFormat, ChatMessage, ChatMl, ChatRole};
pub use generator::{Continuation, StopReason, TextGenerator, TextOptions, TextUpdate};
pub use model::LanguageModel;
pub use stop_strings::StopStrings;
pub use vitreous_data::text::TextStream;
