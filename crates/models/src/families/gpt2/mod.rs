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
use crate::family::{Architecture, Checkpoint, Family, Format, Reading, parse_settings, to_settings};
use crate::settings::{ConfigError, Settings};
use crate::signature::{Gives, Head, Signature, Takes, TokenInput};

pub use config::Gpt2Config;
pub use graph::gpt2;

/// The family.
pub struct Gpt2;

/// The entry of the family list.
pub static FAMILY: Gpt2 = Gpt2;

impl Family for Gpt2 {
    fn name(&self) -> &'static str {
        "gpt2"
    }

    fn model_types(&self) -> &'static [&'static str] {
        &["gpt2", "openai-gpt"]
    }

    fn gguf_architectures(&self) -> &'static [&'static str] {
        &["gpt2"]
    }

    fn presets(&self) -> Vec<String> {
        presets::names()
    }

    fn preset(&self, name: &str) -> Option<Box<dyn Architecture>> {
        Some(Box::new(presets::preset(name)?))
    }

    fn from_settings(&self, settings: &Settings) -> std::result::Result<Box<dyn Architecture>, ConfigError> {
        let config: Gpt2Config = parse_settings(settings)?;
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

impl Architecture for Gpt2Config {
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
            window: None,
        });
        Signature { takes, gives: vec![Gives::NextToken(self.vocabulary), Gives::TokenVectors(self.dim)] }
    }

    fn build(&self, graph: &mut Graph, call: &Call) -> Result<Outputs> {
        gpt2(graph, self, call)
    }

    fn with_head(&self, _head: Head) -> std::result::Result<Box<dyn Architecture>, ConfigError> {
        Err(ConfigError("the head of a language model cannot be replaced".to_string()))
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
