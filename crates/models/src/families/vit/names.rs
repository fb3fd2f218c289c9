//! Tensor names of Vision Transformers in the libraries with PyTorch's layouts: Hugging Face, timm, and the original
//! DINOv2, whose names are timm's except for a few. Each is a list of rename rules.

use super::config::{FinalNorm, VitConfig};
use super::hugging_face::ModelType;
use crate::checkpoint::resize::Filter;
use crate::checkpoint::{Dialect, GridTable, Rule};

/// Hugging Face's `vit`, `deit`, `dinov2` and `dinov2_with_registers`. `backbone` is the prefix of all names but the
/// heads': `vit.`. The first spelling of each name is the one that all versions of the library read.
pub(super) fn hugging_face(model: ModelType, backbone: &str, config: &VitConfig) -> Dialect {
    let mut rules = Vec::new();
    let mut rename = |ours: &str, theirs: &str| rules.push(Rule::rename(ours, format!("{backbone}{theirs}")));
    let (norms, mlp) = match model.is_dinov2() {
        true => (["norm1", "norm2"], [["mlp.fc1", "mlp.fc2"]; 2]),
        false => {
            (["layernorm_before", "layernorm_after"], [["intermediate.dense", "output.dense"], ["mlp.fc1", "mlp.fc2"]])
        }
    };
    for layer in ["encoder.layer.#", "layers.#"] {
        let mut both = |ours: &str, theirs: &str| rename(&format!("blocks.#.{ours}"), &format!("{layer}.{theirs}"));
        both("norm1.*", &format!("{}.*", norms[0]));
        both("norm2.*", &format!("{}.*", norms[1]));
        for (part, new) in [("query", "q_proj"), ("key", "k_proj"), ("value", "v_proj")] {
            both(&format!("attention.{part}.*"), &format!("attention.attention.{part}.*"));
            both(&format!("attention.{part}.*"), &format!("attention.{new}.*"));
        }
        both("attention.output.*", "attention.output.dense.*");
        both("attention.output.*", "attention.o_proj.*");
        for [fc1, fc2] in mlp {
            both("mlp.fc1.*", &format!("{fc1}.*"));
            both("mlp.fc2.*", &format!("{fc2}.*"));
        }
        both("layer_scale1", "layer_scale1.lambda1");
        both("layer_scale2", "layer_scale2.lambda1");
        both("mlp.down.*", "mlp.weights_out.*");
        for part in ["gate", "up", "down"] {
            both(&format!("mlp.{part}.*"), &format!("mlp.{part}_proj.*"));
        }
    }
    rename("norm.*", "layernorm.*");
    for layer in ["layers.#", "encoder.layer.#"] {
        let joined = ["blocks.#.mlp.gate.*", "blocks.#.mlp.up.*"];
        // Before the separate ones, because the first is written.
        rules.insert(0, Rule::join(&joined, format!("{backbone}{layer}.mlp.weights_in.*")));
    }
    let embeddings = |name: &str| format!("{backbone}embeddings.{name}");
    rules.extend(patches(config, &embeddings("patch_embeddings.projection")));
    rules.extend(tokens("class_token", &embeddings("cls_token")));
    rules.extend(tokens("distillation_token", &embeddings("distillation_token")));
    rules.extend(tokens("register_tokens", &embeddings("register_tokens")));
    rules.push(positions(config, &embeddings("position_embeddings"), model.filter()));
    let mask = [1, 1, config.dim];
    rules.push(Rule::keep("mask_token", embeddings("mask_token"), &mask[usize::from(model.is_dinov2())..]));
    let pooler = format!("{backbone}pooler.dense");
    if config.pre_logits.is_some() || model.is_dinov2() {
        rules.push(Rule::rename("pre_logits.*", format!("{pooler}.*")));
    } else {
        // Classifiers may still contain the layer after `ViTModel`, unused.
        rules.push(Rule::keep("unused.pooler.weight", format!("{pooler}.weight"), &[config.dim; 2]));
        rules.push(Rule::keep("unused.pooler.bias", format!("{pooler}.bias"), &[config.dim]));
    }
    let heads = ["classifier.*", "cls_classifier.*"];
    let [first, second] = if config.distillation_head { [heads[1], heads[0]] } else { heads };
    rules.extend([Rule::rename("head.*", first), Rule::rename("head.*", second)]);
    rules.push(Rule::rename("distillation_head.*", "distillation_classifier.*"));
    Dialect { library: "Hugging Face", rules, ..Dialect::default() }
}

/// timm's `VisionTransformer` and `VisionTransformerDistilled`, and the original DINOv2.
pub(super) fn timm(config: &VitConfig) -> Dialect {
    let mut rules = patches(config, "patch_embed.proj").to_vec();
    rules.extend(tokens("class_token", "cls_token"));
    rules.extend(tokens("distillation_token", "dist_token"));
    rules.extend(tokens("register_tokens", "reg_token"));
    rules.extend(tokens("register_tokens", "register_tokens"));
    rules.push(positions(config, "pos_embed", Filter::BicubicAntialiased));
    rules.push(Rule::keep("mask_token", "mask_token", &[1, config.dim]));
    let parts = ["query", "key", "value"].map(|part| format!("blocks.#.attention.{part}.*"));
    rules.push(Rule::join(&parts.each_ref().map(String::as_str), "blocks.#.attn.qkv.*"));
    let gated = ["blocks.#.mlp.gate.*", "blocks.#.mlp.up.*"];
    // timm's packed gate has the names of a plain MLP; the original DINOv2 and timm's unpacked gate have their own.
    rules.push(Rule::join(&gated, "blocks.#.mlp.w12.*"));
    rules.push(Rule::rename(gated[0], "blocks.#.mlp.fc1_g.*"));
    rules.push(Rule::rename(gated[1], "blocks.#.mlp.fc1_x.*"));
    rules.push(Rule::join(&gated, "blocks.#.mlp.fc1.*"));
    let layer = [
        ("norm1.*", "norm1.*"),
        ("norm2.*", "norm2.*"),
        ("attention.output.*", "attn.proj.*"),
        ("layer_scale1", "ls1.gamma"),
        ("layer_scale2", "ls2.gamma"),
        ("layer_scale1", "gamma_1"),
        ("layer_scale2", "gamma_2"),
        ("mlp.fc1.*", "mlp.fc1.*"),
        ("mlp.fc2.*", "mlp.fc2.*"),
        ("mlp.down.*", "mlp.w3.*"),
        ("mlp.down.*", "mlp.fc2.*"),
    ];
    rules.extend(layer.map(|(ours, theirs)| Rule::rename(&format!("blocks.#.{ours}"), format!("blocks.#.{theirs}"))));
    let norm = if config.final_norm == FinalNorm::Pooled { "fc_norm.*" } else { "norm.*" };
    rules.push(Rule::rename("norm.*", norm));
    rules.push(Rule::rename("pre_logits.*", "pre_logits.fc.*"));
    rules.push(Rule::rename("head.*", "head.*"));
    rules.push(Rule::rename("distillation_head.*", "head_dist.*"));
    Dialect { library: "timm", rules, ..Dialect::default() }
}

/// Our own: the names of the graph, and the optional tensors of other dialects.
pub(super) fn own(config: &VitConfig) -> Dialect {
    let positions = Rule::rename("positions", "positions").grid(grid(config, Filter::Bicubic));
    Dialect { rules: vec![positions, Rule::keep("mask_token", "mask_token", &[1, config.dim])], ..Dialect::own() }
}

/// A convolution with kernel and stride equal to the patch size.
fn patches(config: &VitConfig, theirs: &str) -> [Rule; 2] {
    let kernel = [config.dim, config.channels, config.patch.height, config.patch.width];
    [
        Rule::rename("patch_embedding.weight", format!("{theirs}.weight")).axes(&kernel),
        Rule::rename("patch_embedding.bias", format!("{theirs}.bias")),
    ]
}

/// Learned tokens: `[1, count, dim]`.
fn tokens(ours: &str, theirs: &str) -> [Rule; 1] {
    [Rule::rename(ours, theirs).leading_one()]
}

/// The position table: `[1, count, dim]`.
fn positions(config: &VitConfig, theirs: &str, filter: Filter) -> Rule {
    Rule::rename("positions", theirs).leading_one().grid(grid(config, filter))
}

/// The position table over the grid of patches.
pub(super) fn grid(config: &VitConfig, filter: Filter) -> GridTable {
    GridTable { prefix: config.positioned_prefix(), size: config.grid(), filter }
}
