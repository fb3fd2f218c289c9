//! The graph of CLIP and SigLIP.

use vitreous_engine::{AttentionInputs, AttentionOptions, DType, Error, Graph, Init, Result, Role, Value};

use super::config::{ClipConfig, Towers, Variant};
use crate::blocks::{Branch, Linear, Mlp, layer, norm, token};
use crate::call::{Call, Outputs, Part};
use crate::families::vit::vit;
use crate::pooling::POOLED;
use crate::settings::NormOrder;

/// The learned temperature starts at 1/0.07 (section 2.5 of CLIP) or 10 (section 3.1 of SigLIP), as a logarithm; SigLIP's bias at -10.
const INITIAL_SCALE: [f32; 2] = [2.6592, std::f32::consts::LN_10];
const INITIAL_BIAS: f32 = -10.0;

/// Builds the towers of the configuration. Inputs: `images [batch, channels, height, width]`; `tokens [batch, length]`; of CLIP also
/// `pooled [batch]` (i32): for each text the token whose vector is the text's, as an index in `batch * length`. Outputs of both towers:
///
/// - `image_embeddings [batch, projection]` and `text_embeddings [batch, projection]`, of length 1,
/// - `logits [batch, batch]`: images in rows, texts in columns.
///
/// One tower alone gives `tokens`, its tokens after the last norm, and `features [batch, projection]`, of length 1.
pub fn clip(g: &mut Graph, config: &ClipConfig, call: &Call) -> Result<Outputs> {
    config.check().map_err(|refusal| refused(refusal.0))?;
    if call.part != Part::Whole {
        return Err(refused("it has no decoder".to_string()));
    }
    let image = match config.towers {
        Towers::Both | Towers::Image => Some(image_tower(g, config, call)?),
        Towers::Text => None,
    };
    let text = match config.towers {
        Towers::Both | Towers::Text => Some(text_tower(g, config, call)?),
        Towers::Image => None,
    };
    match (image, text) {
        (Some(image), Some(text)) => {
            let logits = logits(g, config, image.embeddings, text.embeddings)?;
            Ok(Outputs::new([
                ("image_embeddings", image.embeddings),
                ("text_embeddings", text.embeddings),
                ("logits", logits),
            ]))
        }
        (Some(tower), None) | (None, Some(tower)) => {
            Ok(Outputs::new([("tokens", tower.tokens), ("features", tower.embeddings)]))
        }
        (None, None) => Err(refused("it has no tower".to_string())),
    }
}

/// What a tower gives: tokens `[batch, length, dim]` and embeddings `[batch, projection]`.
struct Tower {
    tokens: Value,
    embeddings: Value,
}

/// A Vision Transformer, and CLIP's projection.
fn image_tower(g: &mut Graph, config: &ClipConfig, call: &Call) -> Result<Tower> {
    let tower = config.image_tower();
    let images = match call.images {
        Some(images) => images,
        None => {
            let shape = [call.batch, tower.channels, tower.image.height, tower.image.width];
            g.input("images", shape, DType::F32)?
        }
    };
    let call = Call { images: Some(images), ..*call };
    let outputs = g.scope("image", |g| vit(g, &tower, &call))?;
    let features = outputs.need("features")?; // [batch, dim]
    let projected = match config.variant {
        Variant::Clip => Linear::new("image_projection", config.projection, false).of(g, features)?,
        Variant::Siglip => features,
    };
    let embeddings = g.named("image_embeddings", |g| unit(g, projected))?; // [batch, projection]
    Ok(Tower { tokens: outputs.need("tokens")?, embeddings })
}

/// Layers with a causal mask (CLIP) or without one (SigLIP), the vector of one token, and a projection.
fn text_tower(g: &mut Graph, config: &ClipConfig, call: &Call) -> Result<Tower> {
    let (batch, length, dim) = (call.batch, call.tokens, config.text_dim);
    if length > config.max_length {
        let what = format!("a text of {length} tokens is longer than max_length, {}", config.max_length);
        return Err(refused(what));
    }
    let tokens = g.input("tokens", [batch, length], DType::I32)?;
    let pooled = match config.variant {
        Variant::Clip => Some(g.input(POOLED, [batch], DType::I32)?),
        Variant::Siglip => None,
    };
    let (x, features) = g.scope("text", |g| {
        let mut x = g.named("embedding", |g| embed(g, config, tokens))?; // [batch, length, dim]
        for number in 0..config.text_depth {
            x = layer(g, &format!("blocks.{number}"), |g| block(g, config, call, x))?;
        }
        x = norm(g, "norm", x, config.norm_eps)?;
        x = g.name("norm", x)?;
        let features = g.scope("pooling", |g| match pooled {
            Some(pooled) => {
                let rows = g.reshape(x, [batch * length, dim])?;
                g.embedding(rows, pooled)
            }
            None => token(g, x, length - 1),
        })?; // [batch, dim]
        Ok((x, features))
    })?;
    let bias = config.variant == Variant::Siglip;
    let projected = Linear::new("text_projection", config.projection, bias).of(g, features)?;
    let embeddings = g.named("text_embeddings", |g| unit(g, projected))?; // [batch, projection]
    Ok(Tower { tokens: x, embeddings })
}

/// Word and position embeddings.
fn embed(g: &mut Graph, config: &ClipConfig, tokens: Value) -> Result<Value> {
    let (length, dim) = (g.shape_of(tokens).columns(), config.text_dim);
    let words = g.declare("words", [config.vocabulary, dim], Role::Embedding.starting(Init::Table))?;
    let all = g.declare("positions", [config.max_length, dim], Role::Position.starting(Init::Normal(0.01)))?;
    let positions = if length < config.max_length { g.slice(all, 0, 0, length)? } else { all };
    let x = g.embedding(words, tokens)?;
    g.add(x, positions)
}

/// One layer of the text tower: attention and the feed-forward block, each in a residual branch.
fn block(g: &mut Graph, config: &ClipConfig, call: &Call, x: Value) -> Result<Value> {
    let branch = |name: &'static str, norm: &'static str| Branch {
        name,
        norm,
        order: NormOrder::Pre,
        eps: config.norm_eps,
        dropout: 0.0,
        layer_scale: None,
        stochastic_depth: 0.0,
    };
    let dim = config.text_dim;
    let x = branch("attention", "norm1").around(g, x, |g, x| {
        let fused = Linear { parts: &["query", "key", "value"], ..Linear::new("qkv", 3 * dim, true) };
        let qkv = fused.adapted(g, call.adapters, x)?; // [batch, length, 3 dim]
        let options = AttentionOptions {
            heads: config.text_heads,
            causal: config.variant == Variant::Clip,
            dropout: config.attention_dropout,
            ..AttentionOptions::default()
        };
        let mixed = g.attention(AttentionInputs::Packed(qkv), &options)?; // [batch, length, dim]
        Linear::new("output", dim, true).adapted(g, call.adapters, mixed)
    })?;
    let mlp = Mlp { hidden: config.text_mlp_dim, activation: config.activation, dropout: 0.0 };
    let adapters = call.adapters.filter(|adapters| adapters.mlp);
    branch("mlp", "norm2").around(g, x, |g, x| mlp.of(g, adapters, x))
}

/// Rows of length 1: RMSNorm with 1 / √dim as its scale divides by the length.
fn unit(g: &mut Graph, x: Value) -> Result<Value> {
    let x = g.cast(x, DType::F32)?;
    let dim = g.shape_of(x).columns();
    let scale = g.constant("unit", [dim], vec![1.0 / (dim as f32).sqrt(); dim])?;
    g.rms_norm(x, scale, 1e-12)
}

/// Cosines of all pairs times the temperature and, of SigLIP, plus a bias: images in rows, texts in columns.
fn logits(g: &mut Graph, config: &ClipConfig, images: Value, texts: Value) -> Result<Value> {
    let start = INITIAL_SCALE[usize::from(config.variant == Variant::Siglip)];
    let scale = g.declare("logit_scale", [1], Role::Scale.starting(Init::Constant(start)))?;
    let bias = match config.variant {
        Variant::Clip => None,
        Variant::Siglip => Some(g.declare("logit_bias", [1], Role::Scale.starting(Init::Constant(INITIAL_BIAS)))?),
    };
    let logits = scaled_cosines(g, images, texts, scale, bias)?;
    g.name("logits", logits)
}

/// `e^scale · images textsᵀ + bias`: `[images, texts]`. Scale and bias have one element.
pub fn scaled_cosines(g: &mut Graph, images: Value, texts: Value, scale: Value, bias: Option<Value>) -> Result<Value> {
    let cosines = g.matmul(images, texts, false, true)?;
    let cosines = g.cast(cosines, DType::F32)?;
    // One number for every element: the trailing axis of a column.
    let shape = g.shape_of(cosines).axes().to_vec();
    let column = g.reshape(cosines, [shape[0] * shape[1], 1])?;
    let scale = g.exp(scale)?;
    let mut column = g.multiply(column, scale)?;
    if let Some(bias) = bias {
        column = g.add(column, bias)?;
    }
    g.reshape(column, [shape[0], shape[1]])
}

fn refused(rule: String) -> Error {
    Error::Rule { op: "clip", path: "config".to_string(), inputs: Vec::new(), rule }
}
