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
use crate::families::encoder::{Encoder, EncoderConfig};
use crate::family::{Family, family};
use crate::settings::ConfigError;
use crate::signature::Head;

pub use config::AlbertConfig;
pub use graph::albert;

family!(
    Albert,
    "albert",
    AlbertConfig,
    model_types: ["albert"],
    gguf: [],
    read: names::read
);

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
