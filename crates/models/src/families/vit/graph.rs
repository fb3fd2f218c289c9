//! The Vision Transformer, in the order of the paper ("An Image is Worth 16x16 Words", equations 1 to 4).
//!
//! ```text
//! z0 = [class; x1 E; ..; xN E] + positions                                  (1)
//! z  = z + attention(norm(z))        or, post-norm,  z = norm(z + attention(z))  (2)
//! z  = z + mlp(norm(z))              or, post-norm,  z = norm(z + mlp(z))        (3)
//! y  = norm(z)[class]                or the mean or maximum over patches     (4)
//! ```

use vitreous_engine as engine;
use vitreous_engine::{AttentionInputs, AttentionOptions, DType, Graph, Result, Value};

use crate::adapters::{Adapters, adapt};
use crate::config::{Activation, FeedForward, FinalNorm, NormOrder, Pooling, Positions, Qkv, VitConfig};
use crate::layers::{linear, norm};
use crate::positions;

/// What a Vision Transformer computes of images.
#[derive(Clone, Copy, Debug)]
pub struct Vit {
    /// All tokens after the last layer (and the last norm, where that is over tokens): `[batch, tokens, dim]`.
    pub tokens: Value,
    /// One vector an image, as the head sees it: `[batch, features]`.
    pub features: Value,
    /// A number a class: `[batch, classes]`; the mean of both heads where there are two.
    pub logits: Option<Value>,
    /// What each head says, class first, where a distillation token has one.
    pub heads: Option<[Value; 2]>,
}

/// Builds the model, with an input `images` of `[batch, channels, height, width]`.
pub fn vit(g: &mut Graph, config: &VitConfig, batch: usize) -> Result<Vit> {
    vit_with(g, config, batch, None)
}

/// As [`vit`], with low-rank adapters beside the encoder's matrices.
pub fn vit_with(g: &mut Graph, config: &VitConfig, batch: usize, adapters: Option<&Adapters>) -> Result<Vit> {
    check(config, adapters)?;
    let shape = [batch, config.channels, config.image.height, config.image.width];
    let images = g.input("images", shape, DType::F32)?;
    vit_of(g, config, images, adapters)
}

/// As [`vit_with`], of images `[batch, channels, height, width]` that the graph computes itself.
pub fn vit_of(g: &mut Graph, config: &VitConfig, images: Value, adapters: Option<&Adapters>) -> Result<Vit> {
    check(config, adapters)?;
    let shape = [config.channels, config.image.height, config.image.width];
    if g.shape_of(images).axes().get(1..) != Some(&shape[..]) {
        let rule = format!("images must be [batch, {}, {}, {}]", shape[0], shape[1], shape[2]);
        return Err(refused("images", rule));
    }
    let mut x = embed(g, config, images)?;
    for layer in 0..config.depth {
        x = g.block(&format!("blocks.{layer}"), |g| encoder_layer(g, config, adapters, layer, x))?;
    }
    if config.final_norm == FinalNorm::Tokens {
        x = norm(g, "norm", x, config.norm_eps)?;
    }

    let pooled = g.scope("pooling", |g| pool(g, config, x))?;
    let features = finish_features(g, config, pooled)?;
    if config.classes == 0 {
        return Ok(Vit { tokens: x, features, logits: None, heads: None });
    }
    let logits = linear(g, "head", features, config.classes, true)?;
    if !config.distillation_head {
        return Ok(Vit { tokens: x, features, logits: Some(logits), heads: None });
    }
    let distilled = g.scope("distillation_pooling", |g| token(g, x, 1))?;
    let distilled = linear(g, "distillation_head", distilled, config.classes, true)?;
    let mean = g.scope("distillation_head", |g| {
        let both = g.add(logits, distilled)?;
        g.scale(both, 0.5)
    })?;
    Ok(Vit { tokens: x, features, logits: Some(mean), heads: Some([logits, distilled]) })
}

fn check(config: &VitConfig, adapters: Option<&Adapters>) -> Result<()> {
    config.check().map_err(|refusal| refused("config", refusal.0))?;
    adapters.map_or(Ok(()), Adapters::check).map_err(|rule| refused("adapters", rule))
}

fn refused(path: &str, rule: String) -> engine::Error {
    engine::Error::Rule { op: "vit", path: path.to_string(), inputs: Vec::new(), rule }
}

/// Equation 1: patches through a linear layer (which is what a convolution of stride = kernel = patch computes), tokens in
/// front of them, positions added.
fn embed(g: &mut Graph, config: &VitConfig, images: Value) -> Result<Value> {
    let batch = g.shape_of(images).axes()[0];
    let patch = [config.patch.height, config.patch.width];
    let patches = g.scope("patch_embedding", |g| g.patchify(images, patch))?;
    let mut x = linear(g, "patch_embedding", patches, config.dim, true)?;

    let positioned = config.positioned_prefix();
    let positions = position_table(g, config)?;
    if let Some(positions) = positions {
        x = g.scope("position_embedding", |g| {
            let rows = rows(g, positions, positioned, positioned + config.patches())?;
            g.add(x, rows)
        })?;
    }

    let parts = [
        ("class_token", usize::from(config.class_token)),
        ("distillation_token", usize::from(config.distillation_token)),
        ("register_tokens", config.registers),
    ];
    let mut prefix = Vec::new();
    let mut first = 0;
    for (name, count) in parts.into_iter().filter(|(_, count)| *count > 0) {
        let mut token = g.parameter(name, [count, config.dim])?;
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
    g.scope("position_embedding", |g| g.dropout(x, config.dropout))
}

/// A row for each token that has a position, those in front of the patches first.
fn position_table(g: &mut Graph, config: &VitConfig) -> Result<Option<Value>> {
    let count = config.positioned_prefix() + config.patches();
    Ok(Some(match config.positions {
        Positions::None => return Ok(None),
        Positions::Learned => g.parameter("positions", [count, config.dim])?,
        Positions::Sinusoidal => {
            g.constant("positions", [count, config.dim], positions::sinusoidal(count, config.dim))?
        }
        Positions::SinCos2d => {
            g.constant("positions", [count, config.dim], positions::sin_cos_2d(config.grid(), config.dim))?
        }
    }))
}

/// Equations 2 and 3: attention, then feed-forward, each a branch of the residual stream.
fn encoder_layer(
    g: &mut Graph,
    config: &VitConfig,
    adapters: Option<&Adapters>,
    layer: usize,
    x: Value,
) -> Result<Value> {
    let x = branch(g, config, layer, ["norm1", "layer_scale1"], x, |g, x| {
        g.scope("attention", |g| attention(g, config, adapters, x))
    })?;
    let adapters = adapters.filter(|adapters| adapters.mlp);
    branch(g, config, layer, ["norm2", "layer_scale2"], x, |g, x| {
        g.scope("mlp", |g| feed_forward(g, config, adapters, x))
    })
}

/// `x + f(norm(x))`, or `norm(x + f(x))`, with the branch scaled and dropped as the configuration says.
fn branch(
    g: &mut Graph,
    config: &VitConfig,
    layer: usize,
    [norm_name, scale_name]: [&str; 2],
    x: Value,
    f: impl FnOnce(&mut Graph, Value) -> Result<Value>,
) -> Result<Value> {
    let seen = if config.norm_order == NormOrder::Pre { norm(g, norm_name, x, config.norm_eps)? } else { x };
    let mut y = f(g, seen)?;
    y = g.dropout(y, config.dropout)?;
    if config.layer_scale.is_some() {
        let scale = g.parameter(scale_name, [config.dim])?;
        y = g.multiply(y, scale)?;
    }
    y = g.stochastic_depth(y, config.stochastic_depth_at(layer))?;
    let sum = g.add(x, y)?;
    if config.norm_order == NormOrder::Post { norm(g, norm_name, sum, config.norm_eps) } else { Ok(sum) }
}

/// Multi-head self-attention.
fn attention(g: &mut Graph, config: &VitConfig, adapters: Option<&Adapters>, x: Value) -> Result<Value> {
    let (dim, bias) = (config.dim, config.qkv_bias);
    let inputs = match config.qkv {
        Qkv::Fused => AttentionInputs::Packed(adapted(g, adapters, "qkv", x, 3 * dim, bias)?),
        Qkv::Separate => AttentionInputs::Separate {
            q: adapted(g, adapters, "query", x, dim, bias)?,
            k: adapted(g, adapters, "key", x, dim, bias)?,
            v: adapted(g, adapters, "value", x, dim, bias)?,
        },
    };
    let options =
        AttentionOptions { heads: config.heads, dropout: config.attention_dropout, ..AttentionOptions::default() };
    let mixed = g.attention(inputs, &options)?;
    adapted(g, adapters, "output", mixed, dim, true)
}

/// The part that sees each token alone.
fn feed_forward(g: &mut Graph, config: &VitConfig, adapters: Option<&Adapters>, x: Value) -> Result<Value> {
    match config.feed_forward {
        FeedForward::Mlp => {
            let hidden = adapted(g, adapters, "fc1", x, config.mlp_dim, true)?;
            let hidden = g.activation(hidden, config.activation.into())?;
            let hidden = g.dropout(hidden, config.dropout)?;
            adapted(g, adapters, "fc2", hidden, config.dim, true)
        }
        FeedForward::SwiGlu => {
            let gate = adapted(g, adapters, "gate", x, config.mlp_dim, true)?;
            let gate = g.silu(gate)?;
            let up = adapted(g, adapters, "up", x, config.mlp_dim, true)?;
            let hidden = g.multiply(gate, up)?;
            adapted(g, adapters, "down", hidden, config.dim, true)
        }
    }
}

/// Equation 4: all tokens to one vector.
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
    }
}

/// What comes between pooling and head: the last norm, where it stands there, and a `tanh` layer.
fn finish_features(g: &mut Graph, config: &VitConfig, pooled: Value) -> Result<Value> {
    let mut features = pooled;
    if config.final_norm == FinalNorm::Pooled {
        features = norm(g, "norm", features, config.norm_eps)?;
    }
    if let Some(width) = config.pre_logits {
        features = linear(g, "pre_logits", features, width, true)?;
        features = g.scope("pre_logits", |g| g.tanh(features))?;
    }
    Ok(features)
}

/// One token of each sequence.
fn token(g: &mut Graph, x: Value, index: usize) -> Result<Value> {
    let [batch, _, dim] = *g.shape_of(x).axes() else { unreachable!("tokens have three axes") };
    let one = g.slice(x, 1, index, index + 1)?;
    g.reshape(one, [batch, dim])
}

/// Some rows of a table; the table itself if that is all.
fn rows(g: &mut Graph, table: Value, first: usize, end: usize) -> Result<Value> {
    if first == 0 && end == g.shape_of(table).rows() { Ok(table) } else { g.slice(table, 0, first, end) }
}

/// A linear layer, with an adapter if there are any.
fn adapted(g: &mut Graph, adapters: Option<&Adapters>, name: &str, x: Value, out: usize, bias: bool) -> Result<Value> {
    let y = linear(g, name, x, out, bias)?;
    adapters.map_or(Ok(y), |adapters| g.scope(name, |g| adapt(g, adapters, x, y)))
}

impl From<Activation> for engine::Activation {
    fn from(activation: Activation) -> engine::Activation {
        match activation {
            Activation::Gelu => engine::Activation::Gelu,
            Activation::GeluTanh => engine::Activation::GeluTanh,
            Activation::Relu => engine::Activation::Relu,
            Activation::Silu => engine::Activation::Silu,
        }
    }
}
