//! The Transformer of "Attention is all you need": an encoder for the source and an autoregressive decoder for the
//! target.
//!
//! ```text
//! x = √d · embedding[source] + positions                                        (3.4, 3.5)
//! encoder layer:  x = norm(x + attention(x, x));  x = norm(x + feed_forward(x))   (3.1)
//! decoder layer:  y = norm(y + causal_attention(y, y));  y = norm(y + attention(y, x));  y = norm(y + feed_forward(y))
//! logits = output(y)
//! ```
//!
//! With pre-norm each branch is `x + f(norm(x))`, and both stacks end in a norm.

mod config;
mod graph;
mod presets;
#[cfg(test)]
mod tests;

use vitreous_engine::{Graph, Result};

use crate::call::{Call, Outputs, Part, StepShape};
use crate::checkpoint::Dialect;
use crate::checkpoint::json::Fault;
use crate::family::{Architecture, Checkpoint, Family, Format, Reading, family, to_settings};
use crate::settings::{ConfigError, Settings};
use crate::signature::{Gives, Head, Signature, Takes, TokenInput};

pub use config::{TextPositions, TransformerConfig};
pub use graph::{PairShape, Transformer, decoder_step, encoder, encoder_for_decoding, transformer};

// Hugging Face has no class for this model; Marian, the closest, belongs to the BART family.
family!(
    TransformerFamily,
    "transformer",
    TransformerConfig,
    model_types: [],
    gguf: [],
    read: read
);

fn read(_checkpoint: &Checkpoint) -> std::result::Result<Option<Reading>, Fault> {
    Ok(None)
}

impl Architecture for TransformerConfig {
    fn family(&self) -> &'static dyn Family {
        &FAMILY
    }

    fn settings(&self) -> Settings {
        to_settings(self)
    }

    fn signature(&self) -> Signature {
        let tokens =
            |vocabulary: usize| TokenInput { vocabulary, longest: self.max_length, token_types: 0, window: None };
        let takes = Takes::Pairs {
            source: tokens(self.source_vocabulary),
            target: tokens(self.target_vocabulary),
            shared: self.shared_vocabulary,
            special: None,
        };
        Signature { takes, gives: vec![Gives::Sequence(self.target_vocabulary)] }
    }

    fn build(&self, graph: &mut Graph, call: &Call) -> Result<Outputs> {
        let (batch, source, target) = (call.batch, call.tokens, call.target);
        match call.part {
            Part::Whole => {
                let Transformer { memory, logits } = transformer(graph, self, PairShape { batch, source, target })?;
                Ok(Outputs::new([("memory", memory), ("logits", logits)]))
            }
            Part::Encode => encoder_for_decoding(graph, self, batch, source),
            Part::Step => {
                let logits =
                    decoder_step(graph, self, StepShape { batch, source, capacity: target, cache: call.cache })?;
                Ok(Outputs::new([("logits", logits)]))
            }
        }
    }

    fn with_head(&self, _head: Head) -> std::result::Result<Box<dyn Architecture>, ConfigError> {
        Err(ConfigError("a translator has no head that could be replaced".to_string()))
    }

    fn dialect(&self, format: Format) -> std::result::Result<Dialect, String> {
        match format {
            Format::Own => Ok(Dialect::own()),
            Format::HuggingFace => Err("Hugging Face has no class for the Transformer of 2017".to_string()),
            Format::Npz => Err("Google's .npz is for Vision Transformers".to_string()),
            Format::Gguf => Err("GGUF is for language models; save to a directory instead".to_string()),
        }
    }
}
