//! Parameter groups: which parameters are trained, their learning rate and their weight decay. All follows from what the model
//! declares of a parameter: its role, its level in the stack, and whether it belongs to the head.

use vitreous_engine::{Group, Level, Parameter, Role};

use crate::recipe::OptimizerSettings;

/// Which parameters of a model are trained, and how fast.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct TrainedParts {
    /// Factor of the learning rate of the head; 0 freezes it.
    pub head: f64,
    /// Factor of the learning rate of everything else; 0 freezes it.
    pub backbone: f64,
    /// Whether only adapters are trained besides the head.
    pub adapters_only: bool,
}

impl Default for TrainedParts {
    /// Everything, at the same rate.
    fn default() -> Self {
        TrainedParts { head: 1.0, backbone: 1.0, adapters_only: false }
    }
}

/// The group of a parameter of a model with this many blocks; `None` freezes it.
///
/// Biases, norms, scales, tokens and positions do not decay unless the recipe says so. The learning rate falls by `layer_decay` from
/// layer to layer, from the head (1) down to the embedding, as in BEiT and timm.
pub fn group_of(
    optimizer: &OptimizerSettings,
    parts: TrainedParts,
    blocks: usize,
    parameter: &Parameter,
) -> Option<Group> {
    if parameter.role() == Role::Constant {
        return None;
    }
    if parts.adapters_only && !parameter.head && parameter.role() != Role::Adapter {
        return None;
    }
    let own = if parameter.head { parts.head } else { parts.backbone };
    if own == 0.0 {
        return None;
    }
    let rate_factor = own * optimizer.layer_decay.powi(layers_below_head(parameter, blocks) as i32);
    let decays = optimizer.decay_all || parameter.role().decays();
    Some(Group { decay: if decays { optimizer.weight_decay } else { 0.0 }, rate_factor })
}

/// The number of blocks that parameters stand in.
pub fn block_count<'p>(parameters: impl IntoIterator<Item = &'p Parameter>) -> usize {
    let block = |parameter: &Parameter| match parameter.level {
        Level::Block(block) => block as usize + 1,
        Level::Stem | Level::Top => 0,
    };
    parameters.into_iter().map(block).max().unwrap_or(0)
}

/// How many layers below the head a parameter is, as timm counts: 0 for the head and what is between it and the last norm, 1 for the
/// last norm and the last block, then the other blocks, then the embedding.
fn layers_below_head(parameter: &Parameter, blocks: usize) -> usize {
    match parameter.level {
        _ if parameter.head => 0,
        Level::Top => usize::from(parameter.role() == Role::Norm),
        Level::Block(block) => blocks - (block as usize).min(blocks),
        Level::Stem => blocks + 1,
    }
}
