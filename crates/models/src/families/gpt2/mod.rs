//! GPT-2 ("Language Models are Unsupervised Multitask Learners"): a decoder that predicts the next token. GPT-1 ("Improving Language
//! Understanding by Generative Pre-Training") is the same with its norms after the residual sums; GPT-3's sizes are presets.
//!
//! ```text
//! x = word[tokens] + position
//! layer:   x = x + attention(norm(x));  x = x + mlp(norm(x))          GPT-1: x = norm(x + attention(x)); ..
//! logits = word · norm(x)                                                tied to the word embeddings; GPT-1 without the norm
//! ```

mod config;
mod gguf;
mod graph;
mod names;
mod presets;
#[cfg(test)]
mod tests;

use vitreous_engine::{Graph, Result};

use crate::call::{Call, Outputs};
use crate::checkpoint::Dialect;
use crate::checkpoint::json::Fault;
use crate::families::decoder;
use crate::family::{Architecture, Checkpoint, Family, Format, Reading, family, to_settings};
use crate::settings::{ConfigError, Settings};
use crate::signature::{Head, Signature};

pub use config::Gpt2Config;
pub use graph::gpt2;

family!(
    Gpt2,
    "gpt2",
    Gpt2Config,
    model_types: ["gpt2", "openai-gpt"],
    gguf: ["gpt2"],
    read: read
);

fn read(checkpoint: &Checkpoint) -> std::result::Result<Option<Reading>, Fault> {
    match &checkpoint.gguf {
        Some(file) => gguf::read(checkpoint, file),
        None => names::read(checkpoint),
    }
}

impl Architecture for Gpt2Config {
    fn family(&self) -> &'static dyn Family {
        &FAMILY
    }

    fn settings(&self) -> Settings {
        to_settings(self)
    }

    fn signature(&self) -> Signature {
        decoder::signature(self.vocabulary, self.dim, self.max_length, None)
    }

    fn build(&self, graph: &mut Graph, call: &Call) -> Result<Outputs> {
        gpt2(graph, self, call)
    }

    fn with_head(&self, _head: Head) -> std::result::Result<Box<dyn Architecture>, ConfigError> {
        Err(decoder::keeps_head())
    }

    fn dialect(&self, format: Format) -> std::result::Result<Dialect, String> {
        match format {
            Format::Own => Ok(Dialect::own()),
            Format::HuggingFace => Ok(names::written(self)),
            Format::Npz => Err("Google's .npz is for Vision Transformers; save to a directory instead".to_string()),
            Format::Gguf => gguf::written(self),
        }
    }
}
