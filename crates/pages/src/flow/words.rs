//! What a stage does, in a student's words.

use vitreous_models::VitConfig;
use vitreous_models::config::{Activation, FeedForward, FinalNorm, Pooling, Positions};

use super::steps::{Joining, Step};
use crate::folding::name_inside;
use crate::format;

/// A sentence about a step, with the model's own numbers. Of what it does not know it names the ops.
pub fn caption(config: &VitConfig, step: &Step) -> String {
    let (dim, tokens) = (config.dim, config.tokens());
    let (grid, patch) = (config.grid(), config.patch);
    match name_inside(&step.stage) {
        "images" => format!("{} \u{d7} {} pixels of {}", config.image.height, config.image.width, channels(config)),
        "patch_embedding" => format!(
            "{} \u{d7} {} patches of {} \u{d7} {} pixels; the {} numbers of each become a token of {dim}",
            grid.height,
            grid.width,
            patch.height,
            patch.width,
            patch.height * patch.width * config.channels,
        ),
        "position_embedding" => format!("adds to each token where it stands: {}", positions(config)),
        "prefix_tokens" => format!("{} in front of {} patches: {tokens} tokens", prefix(config), config.patches()),
        "norm" if config.final_norm == FinalNorm::Pooled => "layer norm of the pooled vector".to_string(),
        "norm1" | "norm2" | "norm" => "layer norm of each token".to_string(),
        "attention" => format!(
            "{} of {}: every token looks at all {tokens}, by softmax(QK\u{1d40} / \u{221a}{}) V",
            format::count(config.heads, "head", "heads"),
            dim / config.heads.max(1),
            dim / config.heads.max(1)
        ),
        "mlp" => feed_forward(config),
        "residual" => residual(step),
        "pooling" => pooling(config),
        "pre_logits" => format!("linear {} \u{2192} {}, tanh", config.pooled(), config.features()),
        "head" => format!("linear {} \u{2192} {}: a number a class", config.features(), config.classes),
        "distillation_pooling" => "takes the distillation token".to_string(),
        "distillation_head" => format!("linear {dim} \u{2192} {}, then the mean of both heads", config.classes),
        _ => step.inside.operations.join(", "),
    }
}

/// The name of what joins from the side, in few letters, and what it is.
pub fn joining(config: &VitConfig, value: &Joining) -> [String; 2] {
    let name = match value.name.as_str() {
        "class_token" => "class token".to_string(),
        "distillation_token" => "distillation".to_string(),
        "register_tokens" => format::count(config.registers, "register", "registers"),
        other => other.to_string(),
    };
    let kind = match (value.trained, config.positions) {
        (true, _) => "trained",
        (false, Positions::Sinusoidal) => "sinusoidal",
        (false, Positions::SinCos2d) => "2-D sin-cos",
        (false, _) => "fixed",
    };
    [name, kind.to_string()]
}

fn channels(config: &VitConfig) -> String {
    match config.channels {
        1 => "grey".to_string(),
        3 => "red, green and blue".to_string(),
        other => format!("{other} channels"),
    }
}

fn positions(config: &VitConfig) -> &'static str {
    match config.positions {
        Positions::Learned => "a trained table",
        Positions::Sinusoidal => "sines and cosines of its place in the sequence",
        Positions::SinCos2d => "sines and cosines of its column and row",
        Positions::None => "nothing",
    }
}

fn prefix(config: &VitConfig) -> String {
    let mut parts = Vec::new();
    if config.class_token {
        parts.push("class token".to_string());
    }
    if config.distillation_token {
        parts.push("distillation token".to_string());
    }
    if config.registers > 0 {
        parts.push(format::count(config.registers, "register", "registers"));
    }
    parts.join(", ")
}

fn feed_forward(config: &VitConfig) -> String {
    let (dim, hidden) = (config.dim, config.mlp_dim);
    match config.feed_forward {
        FeedForward::Mlp => {
            let activation = match config.activation {
                Activation::Gelu => "GELU",
                Activation::GeluTanh => "GELU (tanh)",
                Activation::Relu => "ReLU",
                Activation::Silu => "SiLU",
            };
            format!("each token: {dim} \u{2192} {hidden} \u{2192} {activation} \u{2192} {dim}")
        }
        FeedForward::SwiGlu => {
            format!("each token: {dim} \u{2192} SiLU(gate) \u{b7} up, both {hidden} \u{2192} {dim}")
        }
    }
}

fn residual(step: &Step) -> String {
    match step.inside.joining.first() {
        Some(scale) => format!("times {}, plus what entered", scale.name),
        None => "plus what entered".to_string(),
    }
}

fn pooling(config: &VitConfig) -> String {
    let patches = config.patches();
    match config.pooling {
        Pooling::Class => "takes the class token".to_string(),
        Pooling::Mean => format!("the mean over {patches} patches"),
        Pooling::Max => format!("the maximum over {patches} patches"),
        Pooling::ClassAndMean => format!("the class token, and the mean over {patches} patches"),
    }
}
