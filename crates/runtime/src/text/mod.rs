//! Models of texts: from text to vectors, classes, entities, answers and blanks.

mod answer_json;
mod answers;
mod dense;
mod embed;
mod entities;
mod fill;
mod model;
mod runner;
mod sentence;

pub use answer_json::{answers_json, fillings_json};
pub use answers::{FoundAnswer, Question, answer_all, answers_in, best_span};
pub use dense::DenseSettings;
pub use embed::{EmbedOptions, Embedder, Purpose, cosine};
pub use entities::{Aggregation, Entity, entities};
pub use fill::{Filler, Filling};
pub use model::{TextInput, TextModel};
pub use runner::TextRunner;
pub use sentence::{Prompts, SentenceSettings, VectorModule};
pub use vitreous_models::Pooling;
pub use vitreous_models::encode::EncoderOutput;
