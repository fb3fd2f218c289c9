//! BERT ("BERT: Pre-training of Deep Bidirectional Transformers for Language Understanding"): a bidirectional encoder,
//! with a pooler over its first token and a head. RoBERTa, XLM-RoBERTa, CamemBERT, DistilBERT and ELECTRA are settings
//! of it: see [`Variant`].
//!
//! ```text
//! x = norm(word[tokens] + type[token_types] + position)
//! layer:   x = norm(x + attention(x));  x = norm(x + mlp(x))
//! pooler:  features = tanh(W x[0])
//! masked tokens:  logits = word · norm(gelu(W x)) + b          tied to the word embeddings
//! ```

mod config;
mod graph;
mod names;
mod presets;
#[cfg(test)]
mod tests;
mod variant;

use vitreous_engine::{Graph, Result};

use crate::call::{Call, Outputs};
use crate::checkpoint::Dialect;
use crate::checkpoint::json::Fault;
use crate::families::encoder::{self, Encoder, EncoderConfig};
use crate::family::{Architecture, Checkpoint, Family, Reading};
use crate::settings::{ConfigError, Settings};
use crate::signature::Head;

pub use config::BertConfig;
pub use graph::bert;
pub use variant::Variant;

/// The family.
pub struct Bert;

/// The entry of the family list.
pub static FAMILY: Bert = Bert;

impl Family for Bert {
    fn name(&self) -> &'static str {
        "bert"
    }

    fn model_types(&self) -> &'static [&'static str] {
        &["bert", "roberta", "xlm-roberta", "camembert", "distilbert", "electra"]
    }

    fn presets(&self) -> Vec<String> {
        presets::names()
    }

    fn preset(&self, name: &str) -> Option<Box<dyn Architecture>> {
        Some(Box::new(presets::preset(name)?))
    }

    fn from_settings(&self, settings: &Settings) -> std::result::Result<Box<dyn Architecture>, ConfigError> {
        encoder::from_settings::<BertConfig>(settings)
    }

    fn read(&self, checkpoint: &Checkpoint) -> std::result::Result<Option<Reading>, Fault> {
        names::read(checkpoint)
    }
}

impl EncoderConfig for BertConfig {
    fn own_family() -> &'static dyn Family {
        &FAMILY
    }

    fn to_encoder(&self) -> Encoder {
        self.encoder()
    }

    fn check_settings(&self) -> std::result::Result<(), ConfigError> {
        self.check()
    }

    fn with_parts(&self, head: Head, pooler: bool) -> BertConfig {
        BertConfig { head, states_problem: true, pooler, ..self.clone() }
    }

    fn build_graph(&self, graph: &mut Graph, call: &Call) -> Result<Outputs> {
        bert(graph, self, call)
    }

    fn hugging_face(&self) -> std::result::Result<Dialect, String> {
        names::written(self)
    }
}
