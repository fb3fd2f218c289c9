//! Whisper ("Robust Speech Recognition via Large-Scale Weak Supervision"): speech to text.
//!
//! ```text
//! x = gelu(conv1(log_mel)) ;  x = gelu(conv2(x)) + sines                        kernels of 3, the second with a stride of 2
//! encoder layer:  x = x + attention(norm(x)) ;  x = x + mlp(norm(x))             a norm at the end
//! y = word[tokens] + position
//! decoder layer:  y = y + causal_attention(norm(y)) ;  y = y + attention(norm(y), x) ;  y = y + mlp(norm(y))
//! logits = word · norm(y)
//! ```
//!
//! Keys have no bias. A window of audio always has all frames that the encoder has positions for, 30 seconds: shorter audio is padded.

mod config;
mod graph;
mod heads;
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
use crate::signature::{AudioInput, Gives, Head, Signature, Takes, TokenInput};

pub use config::WhisperConfig;
pub use graph::whisper;
pub use heads::alignment_heads;

/// The family.
pub struct Whisper;

/// The entry of the family list.
pub static FAMILY: Whisper = Whisper;

impl Family for Whisper {
    fn name(&self) -> &'static str {
        "whisper"
    }

    fn model_types(&self) -> &'static [&'static str] {
        &["whisper"]
    }

    fn presets(&self) -> Vec<String> {
        presets::names()
    }

    fn preset(&self, name: &str) -> Option<Box<dyn Architecture>> {
        Some(Box::new(presets::preset(name)?))
    }

    fn from_settings(&self, settings: &Settings) -> std::result::Result<Box<dyn Architecture>, ConfigError> {
        let config: WhisperConfig = parse_settings(settings)?;
        config.check()?;
        Ok(Box::new(config))
    }

    fn read(&self, checkpoint: &Checkpoint) -> std::result::Result<Option<Reading>, Fault> {
        names::read(checkpoint)
    }
}

impl Architecture for WhisperConfig {
    fn family(&self) -> &'static dyn Family {
        &FAMILY
    }

    fn settings(&self) -> Settings {
        to_settings(self)
    }

    fn signature(&self) -> Signature {
        let target =
            TokenInput { vocabulary: self.vocabulary, longest: self.target_positions, token_types: 0, window: None };
        let audio = AudioInput { bins: self.mel_bins, frames: self.frames(), positions: self.source_positions, target };
        Signature { takes: Takes::Audio(audio), gives: vec![Gives::Sequence(self.vocabulary)] }
    }

    fn build(&self, graph: &mut Graph, call: &Call) -> Result<Outputs> {
        whisper(graph, self, call)
    }

    fn with_head(&self, _head: Head) -> std::result::Result<Box<dyn Architecture>, ConfigError> {
        Err(ConfigError("the head of a speech model cannot be replaced".to_string()))
    }

    fn dialect(&self, format: Format) -> std::result::Result<Dialect, String> {
        match format {
            Format::Own => Ok(Dialect::own()),
            Format::HuggingFace => Ok(names::written(self)),
            Format::Npz => Err("Google's .npz is for Vision Transformers; save to a directory instead".to_string()),
            Format::Gguf => Err("GGUF is for language models; save to a directory instead".to_string()),
        }
    }
}
