//! Tensor names of CLIP and SigLIP: those of Hugging Face, of OpenAI, which LAION's open_clip has taken over, and of open_clip's SigLIP,
//! whose image tower is timm's.

use super::config::{ClipConfig, Variant};
use crate::checkpoint::resize::Filter;
use crate::checkpoint::{Dialect, GridTable, Inventory, Rule};

/// Whose names a file has.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Names {
    /// `vision_model.`, `text_model.`
    HuggingFace,
    /// `visual.transformer.`, `transformer.`
    OpenAi,
    /// The same with the text tower under `text.`, and the image tower of timm under `visual.trunk.`
    OpenClipTimm,
}

impl Names {
    /// The rules. `file` tells whether the temperature is a scalar or has one axis.
    pub(super) fn dialect(self, config: &ClipConfig, prefix: &str, file: Option<&Inventory>) -> Dialect {
        let usual_rank = usize::from(self == Names::HuggingFace && config.variant == Variant::Siglip);
        let stored = file.and_then(|file| file.get(&format!("{prefix}logit_scale")));
        let axes = &[1][..stored.map_or(usual_rank, Vec::len).min(1)];
        let mut rules = vec![
            Rule::rename("logit_scale", "logit_scale").axes(axes),
            Rule::rename("logit_bias", "logit_bias").axes(axes),
        ];
        let (library, own) = match self {
            Names::HuggingFace => ("Hugging Face", hugging_face(config)),
            Names::OpenAi => ("open_clip", open_ai(config)),
            Names::OpenClipTimm => ("open_clip", open_clip_timm(config)),
        };
        rules.extend(own);
        Dialect { library, rules, ..Dialect::default() }.with_prefix(prefix)
    }
}

/// Our own: the names of the graph; only the position table is resized.
pub(super) fn own(config: &ClipConfig) -> Dialect {
    let positions = Rule::rename("image.positions", "image.positions").grid(grid(config, Filter::Bicubic));
    Dialect { rules: vec![positions], ..Dialect::own() }
}

fn hugging_face(config: &ClipConfig) -> Vec<Rule> {
    let mut rules = Vec::new();
    for (ours, theirs) in [("image", "vision_model"), ("text", "text_model")] {
        for (own, name) in [
            ("norm1.*", "layer_norm1.*"),
            ("norm2.*", "layer_norm2.*"),
            ("attention.query.*", "self_attn.q_proj.*"),
            ("attention.key.*", "self_attn.k_proj.*"),
            ("attention.value.*", "self_attn.v_proj.*"),
            ("attention.output.*", "self_attn.out_proj.*"),
            ("mlp.fc1.*", "mlp.fc1.*"),
            ("mlp.fc2.*", "mlp.fc2.*"),
        ] {
            rules.push(Rule::rename(&format!("{ours}.blocks.#.{own}"), format!("{theirs}.encoder.layers.#.{name}")));
        }
        // A constant of older versions of the library.
        rules.push(Rule::redundant(format!("{theirs}.embeddings.position_ids")));
    }
    let embeddings = |name: &str| format!("vision_model.embeddings.{name}");
    rules.extend(patches(config, &embeddings("patch_embedding")));
    rules.push(Rule::rename("image.class_token", embeddings("class_embedding")).axes(&[config.dim]));
    rules.push(
        Rule::rename("image.positions", embeddings("position_embedding.weight")).grid(grid(config, Filter::Bicubic)),
    );
    let head = |name: &str| format!("vision_model.head.{name}");
    rules.push(Rule::rename("image.pooling.query", head("probe")).axes(&[1, 1, config.dim]));
    rules.extend(packed("image.pooling.attention", &head("attention")));
    let text_projection = match config.variant {
        Variant::Clip => "text_projection.*",
        Variant::Siglip => "text_model.head.*",
    };
    for (ours, theirs) in [
        // The library's own spelling.
        ("image.embedding_norm.*", "vision_model.pre_layrnorm.*"),
        ("image.norm.*", "vision_model.post_layernorm.*"),
        ("image.pooling.attention.output.*", "vision_model.head.attention.out_proj.*"),
        ("image.pooling.norm.*", "vision_model.head.layernorm.*"),
        ("image.pooling.mlp.fc1.*", "vision_model.head.mlp.fc1.*"),
        ("image.pooling.mlp.fc2.*", "vision_model.head.mlp.fc2.*"),
        ("image_projection.*", "visual_projection.*"),
        ("text.embedding.words", "text_model.embeddings.token_embedding.weight"),
        ("text.embedding.positions", "text_model.embeddings.position_embedding.weight"),
        ("text.norm.*", "text_model.final_layer_norm.*"),
        ("text_projection.*", text_projection),
    ] {
        rules.push(Rule::rename(ours, theirs));
    }
    rules
}

fn open_ai(config: &ClipConfig) -> Vec<Rule> {
    let mut rules = residual_blocks("image", "visual.transformer");
    rules.extend(text("", false));
    rules.extend(patches(config, "visual.conv1"));
    rules.push(Rule::rename("image.class_token", "visual.class_embedding").axes(&[config.dim]));
    rules.push(Rule::rename("image.positions", "visual.positional_embedding").grid(grid(config, Filter::Bicubic)));
    rules.push(Rule::rename("image.embedding_norm.*", "visual.ln_pre.*"));
    rules.push(Rule::rename("image.norm.*", "visual.ln_post.*"));
    rules.push(Rule::rename("image_projection.weight", "visual.proj").transposed());
    // Numbers that OpenAI's files repeat.
    rules.extend(["input_resolution", "context_length", "vocab_size"].map(Rule::redundant));
    rules
}

fn open_clip_timm(config: &ClipConfig) -> Vec<Rule> {
    let mut rules = text("text.", true);
    let trunk = |name: &str| format!("visual.trunk.{name}");
    rules.extend(patches(config, &trunk("patch_embed.proj")));
    rules.push(
        Rule::rename("image.positions", trunk("pos_embed"))
            .leading_one()
            .grid(grid(config, Filter::BicubicAntialiased)),
    );
    let parts = ["query", "key", "value"].map(|part| format!("image.blocks.#.attention.{part}.*"));
    rules.push(Rule::join(&parts.each_ref().map(String::as_str), trunk("blocks.#.attn.qkv.*")));
    rules.push(Rule::rename("image.pooling.query", trunk("attn_pool.latent")).axes(&[1, 1, config.dim]));
    let keys = ["image.pooling.attention.key.*", "image.pooling.attention.value.*"];
    rules.push(Rule::join(&keys, trunk("attn_pool.kv.*")));
    for (ours, theirs) in [
        ("blocks.#.norm1.*", "blocks.#.norm1.*"),
        ("blocks.#.norm2.*", "blocks.#.norm2.*"),
        ("blocks.#.attention.output.*", "blocks.#.attn.proj.*"),
        ("blocks.#.mlp.fc1.*", "blocks.#.mlp.fc1.*"),
        ("blocks.#.mlp.fc2.*", "blocks.#.mlp.fc2.*"),
        ("norm.*", "norm.*"),
        ("pooling.attention.query.*", "attn_pool.q.*"),
        ("pooling.attention.output.*", "attn_pool.proj.*"),
        ("pooling.norm.*", "attn_pool.norm.*"),
        ("pooling.mlp.fc1.*", "attn_pool.mlp.fc1.*"),
        ("pooling.mlp.fc2.*", "attn_pool.mlp.fc2.*"),
    ] {
        rules.push(Rule::rename(&format!("image.{ours}"), trunk(theirs)));
    }
    rules
}

/// The text tower of OpenAI and open_clip. Its projection is a matrix `[in, out]`, or a linear layer.
fn text(prefix: &str, is_linear: bool) -> Vec<Rule> {
    let mut rules = residual_blocks("text", &format!("{prefix}transformer"));
    let theirs = |name: &str| format!("{prefix}{name}");
    rules.push(Rule::rename("text.embedding.words", theirs("token_embedding.weight")));
    rules.push(Rule::rename("text.embedding.positions", theirs("positional_embedding")));
    rules.push(Rule::rename("text.norm.*", theirs("ln_final.*")));
    rules.push(match is_linear {
        true => Rule::rename("text_projection.*", theirs("text_projection.*")),
        false => Rule::rename("text_projection.weight", theirs("text_projection")).transposed(),
    });
    rules
}

/// The layers of a tower as OpenAI names them.
fn residual_blocks(ours: &str, theirs: &str) -> Vec<Rule> {
    let block = |name: &str| format!("{theirs}.resblocks.#.{name}");
    let own = |name: &str| format!("{ours}.blocks.#.{name}");
    let mut rules = packed(&own("attention"), &block("attn")).to_vec();
    for (name, other) in [
        ("norm1.*", "ln_1.*"),
        ("norm2.*", "ln_2.*"),
        ("attention.output.*", "attn.out_proj.*"),
        ("mlp.fc1.*", "mlp.c_fc.*"),
        ("mlp.fc2.*", "mlp.c_proj.*"),
    ] {
        rules.push(Rule::rename(&own(name), block(other)));
    }
    rules
}

/// The projections of PyTorch's `MultiheadAttention`.
fn packed(ours: &str, theirs: &str) -> [Rule; 2] {
    ["weight", "bias"].map(|kind| {
        let parts = ["query", "key", "value"].map(|part| format!("{ours}.{part}.{kind}"));
        Rule::join(&parts.each_ref().map(String::as_str), format!("{theirs}.in_proj_{kind}"))
    })
}

/// A convolution with kernel and stride equal to the patch size.
fn patches(config: &ClipConfig, theirs: &str) -> [Rule; 2] {
    let kernel = [config.dim, config.channels, config.patch.height, config.patch.width];
    [
        Rule::rename("image.patch_embedding.weight", format!("{theirs}.weight")).axes(&kernel),
        Rule::rename("image.patch_embedding.bias", format!("{theirs}.bias")),
    ]
}

fn grid(config: &ClipConfig, filter: Filter) -> GridTable {
    let tower = config.image_tower();
    GridTable { prefix: tower.positioned_prefix(), size: tower.grid(), filter }
}
