//! LLaMA ("LLaMA: Open and Efficient Foundation Language Models") and what has its shape: LLaMA 2 and 3, SmolLM, TinyLlama, Mistral,
//! Qwen 2 and 3, Phi-3 and Gemma 1 are settings of it: see [`Variant`].
//!
//! ```text
//! x = word[tokens]
//! layer:   x = x + attention(norm(x));  x = x + down(silu(gate y) * up y), y = norm(x)
//! attention rotates queries and keys by their position; groups of query heads share keys and values
//! logits = W norm(x)
//! ```

mod config;
mod gguf;
mod graph;
mod names;
mod presets;
mod rope;
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

pub use config::{LlamaConfig, Variant};
pub use graph::llama;
pub use rope::RopeScaling;

family!(
    Llama,
    "llama",
    LlamaConfig,
    model_types: ["llama", "mistral", "qwen2", "qwen3", "phi3", "gemma"],
    gguf: ["llama", "qwen2", "qwen3", "phi3", "gemma"],
    read: read
);

fn read(checkpoint: &Checkpoint) -> std::result::Result<Option<Reading>, Fault> {
    match &checkpoint.gguf {
        Some(file) => gguf::read(checkpoint, file),
        None => names::read(checkpoint),
    }
}

impl Architecture for LlamaConfig {
    fn family(&self) -> &'static dyn Family {
        &FAMILY
    }

    fn settings(&self) -> Settings {
        to_settings(self)
    }

    fn signature(&self) -> Signature {
        decoder::signature(self.vocabulary, self.dim, self.max_length, self.window)
    }

    fn build(&self, graph: &mut Graph, call: &Call) -> Result<Outputs> {
        llama(graph, self, call)
    }

    fn with_head(&self, _head: Head) -> std::result::Result<Box<dyn Architecture>, ConfigError> {
        Err(decoder::keeps_head())
    }

    fn dialect(&self, format: Format) -> std::result::Result<Dialect, String> {
        match format {
            Format::Own => Ok(Dialect::own()),
            Format::HuggingFace => names::written(self),
            Format::Npz => Err("Google's .npz is for Vision Transformers; save to a directory instead".to_string()),
            Format::Gguf => gguf::written(self),
        }
    }
}
