//! ALBERT ("ALBERT: A Lite BERT for Self-supervised Learning of Language Representations"): BERT with embeddings that
//! are narrower than its layers, and one set of layers that is used again and again.
//!
//! ```text
//! x = P norm(word[tokens] + type[token_types] + position) + p        word: [vocabulary, embedding_dim]
//! layer i = 0..depth:  for each inner layer of its group:
//!     x = norm(x + attention(x));  x = norm(x + mlp(x))               parameters of group ⌊i · groups / depth⌋
//! masked tokens:  logits = word · norm(gelu(W x)) + b                 W: [embedding_dim, dim]
//! ```

mod config;
mod graph;
mod names;
mod presets;
#[cfg(test)]
mod tests;

use vitreous_engine::{Graph, Result};

use crate::call::{Call, Outputs};
use crate::checkpoint::Dialect;
use crate::checkpoint::json::Fault;
use crate::families::encoder::{self, Encoder, EncoderConfig};
use crate::family::{Architecture, Checkpoint, Family, Reading};
use crate::settings::{ConfigError, Settings};
use crate::signature::Head;

pub use config::AlbertConfig;
pub use graph::albert;

/// The family.
pub struct Albert;

/// The entry of the family list.
pub static FAMILY: Albert = Albert;

impl Family for Albert {
    fn name(&self) -> &'static str {
        "albert"
    }

    fn model_types(&self) -> &'static [&'static str] {
        &["albert"]
    }

    fn presets(&self) -> Vec<String> {
        presets::names()
    }

    fn preset(&self, name: &str) -> Option<Box<dyn Architecture>> {
        Some(Box::new(presets::preset(name)?))
    }

    fn from_settings(&self, settings: &Settings) -> std::result::Result<Box<dyn Architecture>, ConfigError> {
        encoder::from_settings::<AlbertConfig>(settings)
    }

    fn read(&self, checkpoint: &Checkpoint) -> std::result::Result<Option<Reading>, Fault> {
        names::read(checkpoint)
    }
}

impl EncoderConfig for AlbertConfig {
    fn own_family() -> &'static dyn Family {
        &FAMILY
    }

    fn to_encoder(&self) -> Encoder {
        self.encoder()
    }

    fn check_settings(&self) -> std::result::Result<(), ConfigError> {
        self.check()
    }

    fn with_parts(&self, head: Head, pooler: bool) -> AlbertConfig {
        AlbertConfig { head, states_problem: true, pooler, ..self.clone() }
    }

    fn build_graph(&self, graph: &mut Graph, call: &Call) -> Result<Outputs> {
        albert(graph, self, call)
    }

    fn hugging_face(&self) -> std::result::Result<Dialect, String> {
        names::written(self)
    }
}
