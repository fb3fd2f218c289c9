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
use crate::family::{Architecture, Checkpoint, Family, Format, Reading, parse_settings, to_settings};
use crate::settings::{ConfigError, Settings};
use crate::signature::{Gives, Head, Signature, Takes, TokenInput};

pub use config::{LlamaConfig, Variant};
pub use graph::llama;
pub use rope::RopeScaling;

/// The family.
pub struct Llama;

/// The entry of the family list.
pub static FAMILY: Llama = Llama;

impl Family for Llama {
    fn name(&self) -> &'static str {
        "llama"
    }

    fn model_types(&self) -> &'static [&'static str] {
        &["llama", "mistral", "qwen2", "qwen3", "phi3", "gemma"]
    }

    fn gguf_architectures(&self) -> &'static [&'static str] {
        &["llama", "qwen2", "qwen3", "phi3", "gemma"]
    }

    fn presets(&self) -> Vec<String> {
        presets::names()
    }

    fn preset(&self, name: &str) -> Option<Box<dyn Architecture>> {
        Some(Box::new(presets::preset(name)?))
    }

    fn from_settings(&self, settings: &Settings) -> std::result::Result<Box<dyn Architecture>, ConfigError> {
        let config: LlamaConfig = parse_settings(settings)?;
        config.check()?;
        Ok(Box::new(config))
    }

    fn read(&self, checkpoint: &Checkpoint) -> std::result::Result<Option<Reading>, Fault> {
        match &checkpoint.gguf {
            Some(file) => gguf::read(checkpoint, file),
            None => names::read(checkpoint),
        }
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
        let takes = Takes::Tokens(TokenInput {
            vocabulary: self.vocabulary,
            longest: self.max_length,
            token_types: 0,
            window: self.window,
        });
        Signature { takes, gives: vec![Gives::NextToken(self.vocabulary), Gives::TokenVectors(self.dim)] }
    }

    fn build(&self, graph: &mut Graph, call: &Call) -> Result<Outputs> {
        llama(graph, self, call)
    }

    fn with_head(&self, _head: Head) -> std::result::Result<Box<dyn Architecture>, ConfigError> {
        Err(ConfigError("the head of a language model cannot be replaced".to_string()))
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
