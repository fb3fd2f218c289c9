//! The graph of an ALBERT.

use vitreous_engine::{Graph, Result};

use super::config::AlbertConfig;
use crate::blocks;
use crate::call::{Call, Outputs};
use crate::families::encoder::{build, layer, refused};

/// Builds the model, with the inputs and outputs of [`bert`](crate::families::bert::bert). Layer `i` is the block
/// `blocks.i`, with the parameters of `groups.GROUP.INNER`: a parameter's gradient is the sum over its uses.
pub fn albert(g: &mut Graph, config: &AlbertConfig, call: &Call) -> Result<Outputs> {
    config.check().map_err(|refusal| refused("albert", refusal.0))?;
    let encoder = config.encoder();
    build(g, &encoder, call, |g, lengths, mut x| {
        for number in 0..config.depth * config.inner_layers {
            let (place, inner) = (number / config.inner_layers, number % config.inner_layers);
            let parameters = format!("groups.{}.{inner}", config.group(place));
            x = blocks::layer(g, &format!("blocks.{number}"), |g| {
                g.sharing(&parameters, |g| layer(g, &encoder, call, lengths, x))
            })?;
        }
        Ok(x)
    })
}
