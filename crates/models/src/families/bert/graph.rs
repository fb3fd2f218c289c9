//! The graph of a BERT.

use vitreous_engine::{Graph, Result};

use super::config::BertConfig;
use crate::blocks;
use crate::call::{Call, Outputs};
use crate::families::encoder::{build, layer, refused};

/// Builds the model, with inputs `tokens [batch, length]`, `lengths [batch]`, beyond which a sequence is padding, and,
/// from two token types on, `token_types [batch, length]`. Outputs:
///
/// - `tokens [batch, length, dim]`: one vector per token,
/// - `features [batch, dim]`, with a pooler,
/// - `logits`, with a head.
pub fn bert(g: &mut Graph, config: &BertConfig, call: &Call) -> Result<Outputs> {
    config.check().map_err(|refusal| refused("bert", refusal.0))?;
    let encoder = config.encoder();
    build(g, &encoder, call, |g, lengths, mut x| {
        for number in 0..config.depth {
            x = blocks::layer(g, &format!("blocks.{number}"), |g| layer(g, &encoder, call, lengths, x))?;
        }
        Ok(x)
    })
}
