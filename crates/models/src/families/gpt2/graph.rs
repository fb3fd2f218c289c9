//! The graph of GPT-1 and GPT-2.

use vitreous_engine::{AttentionOptions, DType, Graph, Init, LayerKind, Result, Role, Value};

use super::config::Gpt2Config;
use crate::blocks::{Branch, Linear, Mlp, layer, norm};
use crate::call::{Call, Outputs};
use crate::families::decoder::{LayerCache, Sequence, refused};
use crate::settings::NormOrder;

/// Builds the model. Outputs: `tokens [batch, length, dim]`, one vector per token, and `logits [batch, length, vocabulary]` of the next
/// token at every position; of a step, `logits [batch, vocabulary]` only. A step, and a call that keeps documents apart, has an input
/// `positions [batch, length]` besides those of `Sequence`.
pub fn gpt2(g: &mut Graph, config: &Gpt2Config, call: &Call) -> Result<Outputs> {
    config.check().map_err(|refusal| refused("gpt2", refusal.0))?;
    let sequence = Sequence::new(g, call, "gpt2", config.max_length)?;
    let places = match sequence.place.is_some() || call.documents > 0 {
        true => Some(g.input("positions", [call.batch, call.tokens], DType::I32)?),
        false => None,
    };
    let mut x = g.named("embedding", |g| embed(g, config, sequence.tokens, places))?; // [batch, length, dim]
    for number in 0..config.depth {
        let path = format!("blocks.{number}");
        let cache = g.scope(&path, |g| sequence.layer_cache(g, config.dim))?;
        x = layer(g, &path, |g| block(g, config, call, &sequence, cache, number, x))?;
    }
    if config.norm_order == NormOrder::Pre {
        x = norm(g, "norm", x, config.norm_eps)?;
        x = g.name("norm", x)?;
    }
    let mut outputs = Outputs::default();
    if sequence.place.is_none() {
        outputs.push("tokens", x);
    }
    let last = sequence.for_logits(g, x)?;
    let logits = g.head(|g| output(g, config, last))?;
    outputs.push("logits", g.name("logits", logits)?);
    Ok(outputs)
}

/// Word and position embeddings. Without `places`, the first token is at position 0.
fn embed(g: &mut Graph, config: &Gpt2Config, tokens: Value, places: Option<Value>) -> Result<Value> {
    let table = Role::Embedding.starting(Init::Table);
    let words = g.declare("words", [config.vocabulary, config.dim], table)?;
    let all = g.declare("positions", [config.max_length, config.dim], Role::Position.starting(Init::Table))?;
    let length = g.shape_of(tokens).columns();
    let x = g.embedding(words, tokens)?;
    let positions = match places {
        Some(places) => g.embedding(all, places)?,
        None if length < config.max_length => g.slice(all, 0, 0, length)?,
        None => all,
    };
    let x = g.add(x, positions)?;
    g.dropout(x, config.embedding_dropout)
}

/// One layer: attention and the feed-forward block, each in a residual branch.
fn block(
    g: &mut Graph,
    config: &Gpt2Config,
    call: &Call,
    sequence: &Sequence,
    cache: Option<LayerCache>,
    layer: usize,
    x: Value,
) -> Result<Value> {
    let branch = |name: &'static str, norm: &'static str| Branch {
        name,
        norm,
        order: config.norm_order,
        eps: config.norm_eps,
        dropout: config.dropout,
        layer_scale: None,
        stochastic_depth: 0.0,
    };
    let x = branch("attention", "norm1").around(g, x, |g, x| {
        let qkv = Linear::new("qkv", 3 * config.dim, true).adapted(g, call.adapters, x)?;
        let options = AttentionOptions {
            heads: config.heads,
            scale: scale(config, layer),
            dropout: config.attention_dropout,
            ..AttentionOptions::default()
        };
        let mixed = sequence.attend_packed(g, qkv, cache, options)?;
        let output = Linear { init: residual(config, LayerKind::Linear), ..Linear::new("output", config.dim, true) };
        output.adapted(g, call.adapters, mixed)
    })?;
    let mlp = Mlp { hidden: config.mlp_dim, activation: config.activation, dropout: 0.0 };
    let adapters = call.adapters.filter(|adapters| adapters.mlp);
    let start = residual(config, LayerKind::FeedForward);
    branch("mlp", "norm2").around(g, x, |g, x| mlp.starting(g, adapters, x, start))
}

/// How GPT-2's matrices that add to the residual stream start; GPT-1's start as all others do.
fn residual(config: &Gpt2Config, kind: LayerKind) -> Option<Init> {
    match config.norm_order {
        NormOrder::Pre => Some(Init::ResidualMatrix { kind, layers: config.depth }),
        NormOrder::Post => None,
    }
}

/// The scale of a layer's attention scores, if it is not the usual one.
fn scale(config: &Gpt2Config, layer: usize) -> Option<f32> {
    if config.scaled_attention && !config.scaled_by_layer {
        return None;
    }
    let head_dim = (config.dim / config.heads) as f64;
    let by_width = if config.scaled_attention { head_dim.sqrt() } else { 1.0 };
    let by_layer = if config.scaled_by_layer { (layer + 1) as f64 } else { 1.0 };
    Some((1.0 / (by_width * by_layer)) as f32)
}

/// Logits, by the words' own vectors or by a matrix of their own.
fn output(g: &mut Graph, config: &Gpt2Config, x: Value) -> Result<Value> {
    let words = match config.tied {
        true => g.find("embedding.words")?,
        false => g.declare("output", [config.vocabulary, config.dim], Role::Weight.starting(Init::Table))?,
    };
    g.linear(x, words, None)
}
