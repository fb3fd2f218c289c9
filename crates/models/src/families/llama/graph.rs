//! The graph of LLaMA and its relatives.

use vitreous_engine::{AttentionOptions, Graph, Init, Result, Role, RotaryOptions, Value};

use super::config::LlamaConfig;
use crate::blocks::{self, Linear};
use crate::call::{Call, Outputs, Part};
use crate::families::decoder::{LayerCache, Sequence, refused};

/// Builds the model. Outputs: `tokens [batch, length, dim]`, one vector per token, and `logits [batch, length, vocabulary]` of the next
/// token at every position; of a step, `logits [batch, vocabulary]` only. Its inputs are those of `Sequence`.
pub fn llama(g: &mut Graph, config: &LlamaConfig, call: &Call) -> Result<Outputs> {
    config.check().map_err(|refusal| refused("llama", refusal.0))?;
    let sequence = Sequence::new(g, call, "llama", config.max_length)?.with_window(g, config.window)?;
    let words = g.scope("embedding", |g| {
        g.declare("words", [config.vocabulary, config.dim], Role::Embedding.starting(Init::Table))
    })?;
    let mut x = g.named("embedding", |g| {
        let x = g.embedding(words, sequence.tokens)?;
        if config.scaled_embedding { g.scale(x, (config.dim as f64).sqrt() as f32) } else { Ok(x) }
    })?; // [batch, length, dim]
    // A step takes the frequencies of the longest text that its cache holds, since keys in it stay as they are.
    let longest = if call.part == Part::Step { call.target } else { call.tokens };
    let (frequencies, factor) = config.rope_scaling.frequencies(config.rope_base, config.rotary_dim(), longest);
    let rotary = RotaryOptions { frequencies, factor, offsets: sequence.place, ..RotaryOptions::default() };
    for number in 0..config.depth {
        let path = format!("blocks.{number}");
        let cache = g.scope(&path, |g| sequence.layer_cache(g, config.kv_dim()))?;
        x = blocks::layer(g, &path, |g| {
            let seen = norm(g, "norm1", x, config)?;
            let mixed = g.named("attention", |g| attention(g, config, call, &sequence, cache, &rotary, seen))?;
            let x = g.add(x, mixed)?;
            let seen = norm(g, "norm2", x, config)?;
            let y = g.named("mlp", |g| mlp(g, config, call, seen))?;
            g.add(x, y)
        })?;
    }
    let x = norm(g, "norm", x, config)?;
    let x = g.name("norm", x)?;
    let mut outputs = Outputs::default();
    if sequence.place.is_none() {
        outputs.push("tokens", x);
    }
    let last = sequence.for_logits(g, x)?;
    let logits = g.head(|g| {
        let matrix = match config.tied {
            true => words,
            false => g.declare("output", [config.vocabulary, config.dim], Role::Weight.starting(Init::Table))?,
        };
        g.linear(last, matrix, None)
    })?;
    outputs.push("logits", g.name("logits", logits)?);
    Ok(outputs)
}

/// RMS norm, with the parameter `NAME.weight`.
fn norm(g: &mut Graph, name: &str, x: Value, config: &LlamaConfig) -> Result<Value> {
    g.scope(name, |g| {
        let width = g.shape_of(x).columns();
        let start = if config.unit_offset_norm { 0.0 } else { 1.0 };
        let mut weight = g.declare("weight", [width], Role::Norm.starting(Init::Constant(start)))?;
        if config.unit_offset_norm {
            let ones = g.constant("ones", [width], vec![1.0; width])?;
            weight = g.add(weight, ones)?;
        }
        g.rms_norm(x, weight, config.norm_eps)
    })
}

/// Causal self-attention with rotary positions; groups of query heads share keys and values.
fn attention(
    g: &mut Graph,
    config: &LlamaConfig,
    call: &Call,
    sequence: &Sequence,
    cache: Option<LayerCache>,
    rotary: &RotaryOptions,
    x: Value,
) -> Result<Value> {
    let (width, kv_width) = (config.heads * config.head_dim(), config.kv_dim());
    let mut project = |name: &str, width: usize| Linear::new(name, width, config.qkv_bias).adapted(g, call.adapters, x);
    let [q, k, v] = match config.fused_qkv {
        true => {
            let qkv = project("qkv", width + 2 * kv_width)?;
            let mut part = |from: usize, width: usize| g.slice(qkv, 2, from, from + width);
            [part(0, width)?, part(width, kv_width)?, part(width + kv_width, kv_width)?]
        }
        false => [project("query", width)?, project("key", kv_width)?, project("value", kv_width)?],
    };
    let mut rotated = |name: &str, x: Value, heads: usize| {
        let x = if config.qk_norm { norm_of_heads(g, name, x, heads, config)? } else { x };
        g.rotary(x, &RotaryOptions { heads, ..rotary.clone() })
    };
    let q = rotated("query_norm", q, config.heads)?;
    let k = rotated("key_norm", k, config.kv_heads)?;
    let options = AttentionOptions {
        heads: config.heads,
        kv_heads: Some(config.kv_heads),
        window: config.window,
        dropout: config.attention_dropout,
        ..AttentionOptions::default()
    };
    let mixed = sequence.attend(g, [q, k, v], cache, options)?;
    Linear::new("output", config.dim, config.output_bias).adapted(g, call.adapters, mixed)
}

/// RMS norm of each head, with one weight for all of them.
fn norm_of_heads(g: &mut Graph, name: &str, x: Value, heads: usize, config: &LlamaConfig) -> Result<Value> {
    let shape = g.shape_of(x).clone();
    let by_head = g.reshape(x, [shape.axes()[0], shape.axes()[1], heads, config.head_dim()])?;
    let normed = norm(g, name, by_head, config)?;
    g.reshape(normed, shape)
}

/// The gated feed-forward block: `down(activation(gate x) * up x)`.
fn mlp(g: &mut Graph, config: &LlamaConfig, call: &Call, x: Value) -> Result<Value> {
    let adapters = call.adapters.filter(|adapters| adapters.mlp);
    let layer =
        |name: &'static str, width: usize| Linear { bias: config.mlp_bias, ..Linear::feed_forward(name, width) };
    let gate = layer("gate", config.mlp_dim).adapted(g, adapters, x)?;
    let gate = g.activation(gate, config.activation.into())?;
    let up = layer("up", config.mlp_dim).adapted(g, adapters, x)?;
    let hidden = g.multiply(gate, up)?;
    layer("down", config.dim).adapted(g, adapters, hidden)
}
