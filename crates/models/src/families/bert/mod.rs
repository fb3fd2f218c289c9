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
use crate::families::encoder::{Encoder, EncoderConfig};
use crate::family::{Family, family};
use crate::settings::ConfigError;
use crate::signature::Head;

pub use config::BertConfig;
pub use graph::bert;
pub use variant::Variant;

family!(
    Bert,
    "bert",
    BertConfig,
    model_types: ["bert", "roberta", "xlm-roberta", "camembert", "distilbert", "electra"],
    gguf: [],
    read: names::read
);

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
