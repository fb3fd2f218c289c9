//! T5 ("Exploring the Limits of Transfer Learning with a Unified Text-to-Text Transformer"): every task is text to text. T5 v1.1, mT5,
//! FLAN-T5 and ByT5 are settings of it.
//!
//! ```text
//! x = word[source]                                                      no positions: attention has a bias for each distance
//! encoder layer:  x = x + attention(norm(x)) ;  x = x + mlp(norm(x))        norm: x / √(mean(x²) + ε) · γ; no biases
//! attention:      softmax(q kᵀ + bias[bucket(key - query)]) v               not divided by √d; one bias per head for all layers
//! decoder layer:  y = y + causal_attention(norm(y)) ;  y = y + attention(norm(y), x) ;  y = y + mlp(norm(y))
//! mlp:            fc2(relu(fc1 x)),  or gated (v1.1, mT5):  down(gelu(gate x) · up x)
//! logits = word · norm(y) / √d,  or (v1.1, mT5)  output · norm(y)
//! ```

pub(crate) mod config;
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

pub use config::{T5Config, Variant};
pub use graph::t5;

family!(
    T5,
    "t5",
    T5Config,
    model_types: ["t5", "mt5"],
    gguf: [],
    read: names::read
);

impl Architecture for T5Config {
    fn family(&self) -> &'static dyn Family {
        &FAMILY
    }

    fn settings(&self) -> Settings {
        to_settings(self)
    }

    fn signature(&self) -> Signature {
        let tokens = TokenInput { vocabulary: self.vocabulary, longest: self.max_length, token_types: 0, window: None };
        let special = SpecialTokens {
            padding: self.padding_token as u32,
            start: self.start_token as u32,
            end: self.end_token as u32,
            forced_end: None,
        };
        let takes = Takes::Pairs { source: tokens, target: tokens, shared: true, special: Some(special) };
        Signature { takes, gives: vec![Gives::Sequence(self.vocabulary)] }
    }

    fn build(&self, graph: &mut Graph, call: &Call) -> Result<Outputs> {
        t5(graph, self, call)
    }

    fn with_head(&self, _head: Head) -> std::result::Result<Box<dyn Architecture>, ConfigError> {
        Err(ConfigError("the head of an encoder-decoder cannot be replaced".to_string()))
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

/// The bucket of a relative position `key - query`: half of the buckets for single distances, the others for ranges that grow with the
/// logarithm of the distance, up to `max_distance`. In both directions, half of all buckets are for keys ahead; in one, keys ahead have
/// the bucket of distance 0. Computed in f32, as the peer does.
pub(crate) fn bucket(relative: i64, bidirectional: bool, buckets: usize, max_distance: usize) -> i32 {
    let (buckets, ahead, distance) = match bidirectional {
        true => (buckets / 2, if relative > 0 { buckets / 2 } else { 0 }, relative.unsigned_abs()),
        false => (buckets, 0, (-relative).max(0) as u64),
    };
    let exact = buckets / 2;
    let within = if distance < exact as u64 {
        distance as usize
    } else {
        let range = (max_distance as f64 / exact as f64).ln() as f32;
        let grown = (distance as f32 / exact as f32).ln() / range * (buckets - exact) as f32;
        (exact + grown as usize).min(buckets - 1)
    };
    (ahead + within) as i32
}
