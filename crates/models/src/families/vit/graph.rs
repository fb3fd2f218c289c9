//! The graph of a Vision Transformer, in the order of the paper.

use vitreous_engine as engine;
use vitreous_engine::{AttentionInputs, AttentionOptions, DType, Graph, Init, LayerKind, Result, Role, Value};

use super::config::{FeedForward, FinalNorm, Pooling, Positions, Qkv, VitConfig};
use crate::adapters::Adapters;
use crate::blocks::{Branch, Linear, Mlp, layer, linear, norm, token};
use crate::call::{Call, Outputs};
use crate::positions;

/// Builds the model, with an input `images [batch, channels, height, width]` unless the call has images. Outputs:
///
/// - `tokens [batch, tokens, dim]`: all tokens after the last layer (and the final norm, if that is over tokens),
/// - `features [batch, features]`: one vector per image, the input of the head,
/// - `logits [batch, classes]`, with a head: the mean of both heads if there are two, whose outputs are `class_logits`
///   and
///   `distillation_logits`.
pub fn vit(g: &mut Graph, config: &VitConfig, call: &Call) -> Result<Outputs> {
    check(config, call.adapters)?;
    let shape = [config.channels, config.image.height, config.image.width];
    let images = match call.images {
        Some(images) => images,
        None => g.input("images", [call.batch, shape[0], shape[1], shape[2]], DType::F32)?,
    };
    if g.shape_of(images).axes().get(1..) != Some(&shape[..]) {
        let rule = format!("images must be [batch, {}, {}, {}]", shape[0], shape[1], shape[2]);
        return Err(refused("images", rule));
    }
    let x = embed(g, config, images)?;
    let mut x = g.name("embedding", x)?; // [batch, tokens, dim]
    for number in 0..config.depth {
        x = layer(g, &format!("blocks.{number}"), |g| encoder_layer(g, config, call.adapters, number, x))?;
    }
    if config.final_norm == FinalNorm::Tokens {
        x = norm(g, "norm", x, config.norm_eps)?;
        x = g.name("norm", x)?;
    }
    let pooled = g.scope("pooling", |g| pool(g, config, x))?; // [batch, pooled]
    let features = finish_features(g, config, pooled)?; // [batch, features]
    let mut outputs = Outputs::new([("tokens", x), ("features", features)]);
    if config.classes > 0 {
        g.head(|g| heads(g, config, x, features, &mut outputs))?;
    }
    Ok(outputs)
}

/// The head over the features and, with a distillation token, a second one over that token.
fn heads(g: &mut Graph, config: &VitConfig, x: Value, features: Value, outputs: &mut Outputs) -> Result<()> {
    let logits = Linear::new("head", config.classes, true).of(g, features)?; // [batch, classes]
    if !config.distillation_head {
        outputs.push("logits", logits);
        return Ok(());
    }
    let distilled = g.scope("distillation_pooling", |g| token(g, x, 1))?;
    let distilled = Linear::new("distillation_head", config.classes, true).of(g, distilled)?;
    let mean = g.scope("distillation_head", |g| {
        let both = g.add(logits, distilled)?;
        g.scale(both, 0.5)
    })?;
    outputs.push("logits", mean);
    outputs.push("class_logits", logits);
    outputs.push("distillation_logits", distilled);
    Ok(())
}

fn check(config: &VitConfig, adapters: Option<&Adapters>) -> Result<()> {
    config.check().map_err(|refusal| refused("config", refusal.0))?;
    adapters.map_or(Ok(()), Adapters::check).map_err(|rule| refused("adapters", rule))
}

fn refused(path: &str, rule: String) -> engine::Error {
    engine::Error::Rule { op: "vit", path: path.to_string(), inputs: Vec::new(), rule }
}

/// Equation 1: patches through a linear layer (equivalent to a convolution with stride = kernel = patch), preceded by
/// the special tokens, plus positions.
fn embed(g: &mut Graph, config: &VitConfig, images: Value) -> Result<Value> {
    let batch = g.shape_of(images).axes()[0];
    let patch = [config.patch.height, config.patch.width];
    let patches = g.scope("patch_embedding", |g| g.patchify(images, patch))?;
    let projection = Linear {
        kind: LayerKind::Convolution,
        role: Role::Embedding,
        ..Linear::new("patch_embedding", config.dim, config.patch_bias)
    };
    let mut x = projection.of(g, patches)?; // [batch, patches, dim]

    let positioned = config.positioned_prefix();
    let positions = position_table(g, config)?;
    if let Some(positions) = positions {
        x = g.scope("position_embedding", |g| {
            let rows = rows(g, positions, positioned, positioned + config.patches())?;
            g.add(x, rows)
        })?;
    }

    // The standard deviations are timm's.
    let parts = [
        ("class_token", usize::from(config.class_token), 1e-6),
        ("distillation_token", usize::from(config.distillation_token), 0.02),
        ("register_tokens", config.registers, 1e-6),
    ];
    let mut prefix = Vec::new();
    let mut first = 0;
    for (name, count, deviation) in parts.into_iter().filter(|(_, count, _)| *count > 0) {
        let mut token = g.declare(name, [count, config.dim], Role::Token.starting(Init::Normal(deviation)))?;
        if let Some(positions) = positions.filter(|_| first + count <= positioned) {
            token = g.scope("position_embedding", |g| {
                let rows = rows(g, positions, first, first + count)?;
                g.add(token, rows)
            })?;
        }
        prefix.push(token);
        first += count;
    }
    if !prefix.is_empty() {
        x = g.scope("prefix_tokens", |g| {
            let tokens = if prefix.len() == 1 { prefix[0] } else { g.concat(&prefix, 0)? };
            let tokens = g.broadcast(tokens, [batch, config.prefix_tokens(), config.dim])?;
            g.concat(&[tokens, x], 1)
        })?;
    }
    if config.embedding_norm {
        x = norm(g, "embedding_norm", x, config.norm_eps)?;
    }
    g.scope("position_embedding", |g| g.dropout(x, config.dropout))
}

/// One row per token with a position, those before the patches first.
fn position_table(g: &mut Graph, config: &VitConfig) -> Result<Option<Value>> {
    let count = config.positioned_prefix() + config.patches();
    Ok(Some(match config.positions {
        Positions::None => return Ok(None),
        Positions::Learned => {
            g.declare("positions", [count, config.dim], Role::Position.starting(Init::Normal(0.02)))?
        }
        Positions::Sinusoidal => {
            positions::fixed_table(g, count, config.dim, || positions::sinusoidal(count, config.dim))?
        }
        Positions::SinCos2d => {
            positions::fixed_table(g, count, config.dim, || positions::sin_cos_2d(config.grid(), config.dim))?
        }
    }))
}

/// Equations 2 and 3: attention, then feed-forward, each a residual branch.
fn encoder_layer(
    g: &mut Graph,
    config: &VitConfig,
    adapters: Option<&Adapters>,
    layer: usize,
    x: Value,
) -> Result<Value> {
    let branch = |name: &'static str, norm: &'static str, scale: &'static str| Branch {
        name,
        norm,
        order: config.norm_order,
        eps: config.norm_eps,
        dropout: config.dropout,
        layer_scale: config.layer_scale.map(|start| (scale, start)),
        stochastic_depth: config.stochastic_depth_at(layer),
    };
    let x = branch("attention", "norm1", "layer_scale1").around(g, x, |g, x| attention(g, config, adapters, x))?;
    let adapters = adapters.filter(|adapters| adapters.mlp);
    branch("mlp", "norm2", "layer_scale2").around(g, x, |g, x| feed_forward(g, config, adapters, x))
}

/// Multi-head self-attention.
fn attention(g: &mut Graph, config: &VitConfig, adapters: Option<&Adapters>, x: Value) -> Result<Value> {
    let dim = config.dim;
    let project = |g: &mut Graph, name: &str| Linear::new(name, dim, config.qkv_bias).adapted(g, adapters, x);
    let inputs = match config.qkv {
        Qkv::Fused => {
            let fused = Linear { parts: &["query", "key", "value"], ..Linear::new("qkv", 3 * dim, config.qkv_bias) };
            AttentionInputs::Packed(fused.adapted(g, adapters, x)?) // [batch, tokens, 3 dim]
        }
        Qkv::Separate => {
            AttentionInputs::Separate { q: project(g, "query")?, k: project(g, "key")?, v: project(g, "value")? }
        }
    };
    let options =
        AttentionOptions { heads: config.heads, dropout: config.attention_dropout, ..AttentionOptions::default() };
    let mixed = g.attention(inputs, &options)?; // [batch, tokens, dim]
    Linear::new("output", dim, true).adapted(g, adapters, mixed)
}

/// The feed-forward block, applied to each token.
fn feed_forward(g: &mut Graph, config: &VitConfig, adapters: Option<&Adapters>, x: Value) -> Result<Value> {
    let (hidden, activation, dropout) = (config.mlp_dim, config.activation, config.dropout);
    match config.feed_forward {
        FeedForward::Mlp => Mlp { hidden, activation, dropout }.of(g, adapters, x),
        FeedForward::SwiGlu => {
            let gate = Linear::feed_forward("gate", hidden).adapted(g, adapters, x)?;
            let gate = g.silu(gate)?;
            let up = Linear::feed_forward("up", hidden).adapted(g, adapters, x)?;
            let gated = g.multiply(gate, up)?;
            Linear::feed_forward("down", config.dim).adapted(g, adapters, gated)
        }
    }
}

/// Equation 4: pools all tokens into one vector.
fn pool(g: &mut Graph, config: &VitConfig, x: Value) -> Result<Value> {
    let patches = |g: &mut Graph| match config.prefix_tokens() {
        0 => Ok(x),
        prefix => g.slice(x, 1, prefix, config.tokens()),
    };
    match config.pooling {
        Pooling::Class => token(g, x, 0),
        Pooling::Mean => {
            let patches = patches(g)?;
            g.mean_tokens(patches)
        }
        Pooling::Max => {
            let patches = patches(g)?;
            g.max_tokens(patches)
        }
        Pooling::ClassAndMean => {
            let class = token(g, x, 0)?;
            let patches = patches(g)?;
            let mean = g.mean_tokens(patches)?;
            g.concat(&[class, mean], 1)
        }
        Pooling::Attention => attention_pool(g, config, x),
    }
}

/// SigLIP's head: a learned query attends to all tokens; then `y + mlp(norm(y))`.
fn attention_pool(g: &mut Graph, config: &VitConfig, x: Value) -> Result<Value> {
    let (batch, dim) = (g.shape_of(x).axes()[0], config.dim);
    let query = g.declare("query", [1, dim], Role::Token.starting(Init::Normal(0.02)))?;
    let mixed = g.scope("attention", |g| {
        let q = linear(g, "query", query, dim, true)?;
        let q = g.broadcast(q, [batch, 1, dim])?;
        let (k, v) = (linear(g, "key", x, dim, true)?, linear(g, "value", x, dim, true)?);
        let options = AttentionOptions { heads: config.heads, ..AttentionOptions::default() };
        let mixed = g.attention(AttentionInputs::Separate { q, k, v }, &options)?; // [batch, 1, dim]
        linear(g, "output", mixed, dim, true)
    })?;
    let pooled = g.reshape(mixed, [batch, dim])?;
    let seen = norm(g, "norm", pooled, config.norm_eps)?;
    let mlp = Mlp { hidden: config.mlp_dim, activation: config.activation, dropout: 0.0 };
    let more = g.scope("mlp", |g| mlp.of(g, None, seen))?;
    g.add(pooled, more)
}

/// Between pooling and head: the final norm, if it is there, and a `tanh` layer.
fn finish_features(g: &mut Graph, config: &VitConfig, pooled: Value) -> Result<Value> {
    let mut features = pooled;
    if config.final_norm == FinalNorm::Pooled {
        features = norm(g, "norm", features, config.norm_eps)?;
        features = g.name("norm", features)?;
    }
    if let Some(width) = config.pre_logits {
        features = Linear::new("pre_logits", width, true).of(g, features)?;
        features = g.scope("pre_logits", |g| g.tanh(features))?;
    }
    Ok(features)
}

/// Rows `first..end` of a table; the table itself if that is all of it.
fn rows(g: &mut Graph, table: Value, first: usize, end: usize) -> Result<Value> {
    if first == 0 && end == g.shape_of(table).rows() { Ok(table) } else { g.slice(table, 0, first, end) }
}
