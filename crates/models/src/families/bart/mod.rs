//! BART ("Denoising Sequence-to-Sequence Pre-training for Natural Language Generation, Translation, and Comprehension"), mBART
//! ("Multilingual Denoising Pre-training for Neural Machine Translation") and Marian's translators.
//!
//! ```text
//! x = norm(word[source] + position)                                            mBART and Marian: √d · word; Marian: sines, no norm
//! encoder layer:  x = norm(x + attention(x)) ;  x = norm(x + mlp(x))             mBART: x = x + attention(norm(x)) ; .., a norm at the end
//! decoder layer:  y = norm(y + causal_attention(y)) ;  y = norm(y + attention(y, x)) ;  y = norm(y + mlp(y))
//! logits = word · y + bias                                                      the bias is Marian's; it is not trained
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
use crate::family::{Architecture, Family, Format, family, to_settings};
use crate::settings::{ConfigError, Settings};
use crate::signature::{Gives, Head, Signature, SpecialTokens, Takes, TokenInput};

pub use config::{BartConfig, Variant};
pub use graph::bart;

family!(
    Bart,
    "bart",
    BartConfig,
    model_types: ["bart", "mbart", "marian"],
    gguf: [],
    read: names::read
);

impl Architecture for BartConfig {
    fn family(&self) -> &'static dyn Family {
        &FAMILY
    }

    fn settings(&self) -> Settings {
        to_settings(self)
    }

    fn signature(&self) -> Signature {
        let tokens =
            |vocabulary: usize| TokenInput { vocabulary, longest: self.max_length, token_types: 0, window: None };
        let special = SpecialTokens {
            padding: self.padding_token as u32,
            start: self.start_token as u32,
            end: self.end_token as u32,
            forced_end: self.forced_end_token.map(|token| token as u32),
        };
        let takes = Takes::Pairs {
            source: tokens(self.source_vocabulary),
            target: tokens(self.target_vocabulary),
            shared: self.shared_embedding,
            special: Some(special),
        };
        Signature { takes, gives: vec![Gives::Sequence(self.target_vocabulary)] }
    }

    fn build(&self, graph: &mut Graph, call: &Call) -> Result<Outputs> {
        bart(graph, self, call)
    }

    fn with_head(&self, _head: Head) -> std::result::Result<Box<dyn Architecture>, ConfigError> {
        Err(ConfigError("the head of an encoder-decoder cannot be replaced".to_string()))
    }

    fn dialect(&self, format: Format) -> std::result::Result<Dialect, String> {
        match format {
            Format::Own => Ok(Dialect::own()),
            Format::HuggingFace => names::written(self),
            Format::Npz => Err("Google's .npz is for Vision Transformers; save to a directory instead".to_string()),
            Format::Gguf => Err("GGUF is for language models; save to a directory instead".to_string()),
        }
    }
}
