//! Generating text token by token: slots, caches and search, for every decoder.

mod search;
mod translate;

pub use search::{Hypothesis, SearchOptions};
pub use translate::{SpecialTokens, TranslateOptions, Translator, Weights};
