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
use crate::family::{Architecture, Checkpoint, Family, Format, Reading, parse_settings, to_settings};
use crate::settings::{ConfigError, Settings};
use crate::signature::{Head, Signature};

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
        let config: AlbertConfig = parse_settings(settings)?;
        config.check()?;
        Ok(Box::new(config))
    }

    fn read(&self, checkpoint: &Checkpoint) -> std::result::Result<Option<Reading>, Fault> {
        names::read(checkpoint)
    }
}

impl Architecture for AlbertConfig {
    fn family(&self) -> &'static dyn Family {
        &FAMILY
    }

    fn settings(&self) -> Settings {
        to_settings(self)
    }

    fn signature(&self) -> Signature {
        self.encoder().signature()
    }

    fn build(&self, graph: &mut Graph, call: &Call) -> Result<Outputs> {
        albert(graph, self, call)
    }

    fn with_head(&self, head: Head) -> std::result::Result<Box<dyn Architecture>, ConfigError> {
        let pooler = self.encoder().pooler_with(head);
        let config = AlbertConfig { head, states_problem: true, pooler, ..self.clone() };
        config.check()?;
        Ok(Box::new(config))
    }

    fn dialect(&self, format: Format) -> std::result::Result<Dialect, String> {
        match format {
            Format::Own => Ok(Dialect::own()),
            Format::HuggingFace => names::written(self),
            Format::Npz => Err("Google's .npz is for Vision Transformers; save to a directory instead".to_string()),
        }
    }
}
