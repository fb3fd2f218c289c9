//! Parameter groups: which parameters are trained, their learning rate and their weight decay.

use vitreous_engine::{Group, Parameter};
use vitreous_models::adapters::is_adapter;

use crate::recipe::OptimizerSettings;
use crate::tasks::classify::FinetuneSettings;

/// The group of a parameter; `None` freezes it.
///
/// Biases, norms, scales, tokens and positions do not decay unless the recipe says so. The rate falls by `layer_decay` from
/// layer to layer, from the head (1) down to the embedding, as in BEiT and timm.
pub fn group_of(
    optimizer: &OptimizerSettings,
    finetune: &FinetuneSettings,
    depth: usize,
    parameter: &Parameter,
) -> Option<Group> {
    let name = parameter.name.as_str();
    let (head, adapter) = (is_head(name), is_adapter(name));
    if (finetune.freeze && !head) || (finetune.lora_rank > 0 && !head && !adapter) {
        return None;
    }
    let own = if head { finetune.head_lr } else { finetune.backbone_lr };
    if own == 0.0 {
        return None;
    }
    let below = layers_below_head(name, depth);
    let rate_factor = own * optimizer.layer_decay.powi(below as i32);
    let decays = optimizer.decay_all || decays(parameter);
    Some(Group { decay: if decays { optimizer.weight_decay } else { 0.0 }, rate_factor })
}

/// Whether a parameter belongs to the head.
pub fn is_head(name: &str) -> bool {
    name.starts_with("head.") || name.starts_with("distillation_head.")
}

/// Matrices decay; vectors do not, nor do tables of tokens and positions.
fn decays(parameter: &Parameter) -> bool {
    let table =
        ["class_token", "distillation_token", "register_tokens", "positions"].contains(&parameter.name.as_str());
    parameter.shape.rank() > 1 && !table
}

/// How many layers below the head a parameter is, as timm counts: 0 for the head, 1 for the last block and the last norm, then
/// the other blocks, then the embedding.
fn layers_below_head(name: &str, depth: usize) -> usize {
    let block = name.strip_prefix("blocks.").and_then(|rest| rest.split('.').next()?.parse::<usize>().ok());
    match block {
        Some(block) => depth - block.min(depth),
        None if is_head(name) || name.starts_with("pre_logits.") => 0,
        None if name.starts_with("norm.") => 1,
        None => depth + 1,
    }
}
