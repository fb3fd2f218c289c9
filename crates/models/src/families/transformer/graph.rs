//! The Transformer of "Attention is all you need": an encoder reads the source, a decoder writes the target.
//!
//! ```text
//! x = √d · embedding[source] + positions                                        (3.4, 3.5)
//! encoder layer:  x = norm(x + attention(x, x));  x = norm(x + feed_forward(x))   (3.1)
//! decoder layer:  y = norm(y + causal_attention(y, y));  y = norm(y + attention(y, x));  y = norm(y + feed_forward(y))
//! logits = output(y)
//! ```
//!
//! With pre-norm each branch is `x + f(norm(x))`, and both stacks end in a norm.

use vitreous_engine as engine;
use vitreous_engine::{AttentionInputs, AttentionOptions, DType, Graph, Init, Padding, Result, Role, Value};

use super::config::{TextPositions, TransformerConfig};
use crate::blocks::{Branch, Mlp, embedding_table, linear, norm};
use crate::call::StepShape;
use crate::positions;
use crate::settings::NormOrder;

/// What a Transformer computes of pairs.
#[derive(Clone, Copy, Debug)]
pub struct Transformer {
    /// The encoder's result: `[batch, source length, dim]`.
    pub memory: Value,
    /// Logits of the next token, one per token of the target vocabulary, at each position: `[batch, target length, vocabulary]`.
    pub logits: Value,
}

/// Whose words.
#[derive(Clone, Copy)]
enum Side {
    Source,
    Target,
}

/// The shape of a batch of pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub struct PairShape {
    /// Pairs.
    pub batch: usize,
    /// Tokens of each source, with padding.
    pub source: usize,
    /// Tokens of each target, with padding.
    pub target: usize,
}

/// Builds the model for teacher forcing: inputs `source [batch, source]` and `target [batch, target]` (token numbers), and
/// `source_lengths [batch]`, behind which a source is padding. Padding behind a target needs no mask: no earlier place sees it.
pub fn transformer(g: &mut Graph, config: &TransformerConfig, shape: PairShape) -> Result<Transformer> {
    let (memory, lengths) = encoder(g, config, shape.batch, shape.source)?;
    let target = g.input("target", [shape.batch, shape.target], DType::I32)?;
    let words = table(g, config, Side::Target)?;
    let mut y = g.scope("decoder", |g| embed(g, config, words, target))?;
    for layer in 0..config.decoder_layers {
        y = g.block(&format!("decoder.{layer}"), |g| {
            let own = |g: &mut Graph, q, k, v| {
                let options = AttentionOptions { causal: true, ..options(config) };
                g.attention(AttentionInputs::Separate { q, k, v }, &options)
            };
            decoder_layer(g, config, y, own, |g, q| {
                let (k, v) = keys_and_values(g, config, memory)?;
                let options = AttentionOptions { padding: Padding::Lengths(lengths), ..options(config) };
                g.attention(AttentionInputs::Separate { q, k, v }, &options)
            })
        })?;
    }
    let logits = output(g, config, y)?;
    Ok(Transformer { memory, logits })
}

/// Builds the encoder alone, with inputs `source` and `source_lengths`: its result, and the lengths.
pub fn encoder(g: &mut Graph, config: &TransformerConfig, batch: usize, length: usize) -> Result<(Value, Value)> {
    config.check().map_err(|refusal| refused(refusal.0))?;
    let source = g.input("source", [batch, length], DType::I32)?;
    let lengths = g.input("source_lengths", [batch], DType::I32)?;
    let words = table(g, config, Side::Source)?;
    let mut x = g.scope("encoder", |g| embed(g, config, words, source))?;
    for layer in 0..config.encoder_layers {
        x = g.block(&format!("encoder.{layer}"), |g| encoder_layer(g, config, x, lengths))?;
    }
    if config.norm_order == NormOrder::Pre {
        x = norm(g, "encoder_norm", x, config.norm_eps)?;
    }
    Ok((x, lengths))
}

/// Builds what a decoder asks of the source: the encoder, and of each decoder layer the keys and values of its result.
pub fn encoder_for_decoding(
    g: &mut Graph,
    config: &TransformerConfig,
    batch: usize,
    length: usize,
) -> Result<Vec<(Value, Value)>> {
    let (memory, _) = encoder(g, config, batch, length)?;
    (0..config.decoder_layers)
        .map(|layer| {
            let path = format!("decoder.{layer}.cross_attention");
            g.scope(&path, |g| keys_and_values(g, config, memory))
        })
        .collect()
}

/// The KV caches of one decoder layer.
#[derive(Clone, Copy)]
struct LayerCaches {
    /// Keys and values of the target's tokens so far: each step adds its own.
    own: (Value, Value),
    /// Keys and values of the source.
    source: (Value, Value),
}

/// Builds a decoding step: inputs `token [batch]`, the last token of each target; `place [batch]`, how many tokens came before it;
/// `length [batch]`, one more than that; `source_lengths [batch]`; and, of each layer, the caches `decoder.N.keys` and `values
/// [batch, capacity, dim]`, to which a run adds those of its own token, `source_keys` and `source_values [batch, source, dim]`. It
/// gives the logits of the token that follows: `[batch, vocabulary]`.
pub fn decoder_step(g: &mut Graph, config: &TransformerConfig, shape: StepShape) -> Result<Value> {
    config.check().map_err(|refusal| refused(refusal.0))?;
    let StepShape { batch, capacity, cache, .. } = shape;
    let cache = DType::from(cache);
    let numbers = |g: &mut Graph, name: &str| g.input(name, [batch], DType::I32);
    let (token, place) = (numbers(g, "token")?, numbers(g, "place")?);
    let (length, source_lengths) = (numbers(g, "length")?, numbers(g, "source_lengths")?);
    let words = table(g, config, Side::Target)?;
    let mut y = g.scope("decoder", |g| {
        let x = g.embedding(words, token)?; // [batch, dim]
        let x = g.scale(x, (config.dim as f64).sqrt() as f32)?;
        let table = position_table(g, config, capacity)?;
        let positions = g.embedding(table, place)?;
        let x = g.add(x, positions)?;
        g.reshape(x, [batch, 1, config.dim])
    })?;
    for layer in 0..config.decoder_layers {
        let path = format!("decoder.{layer}");
        let caches = g.scope(&path, |g| layer_caches(g, config, shape))?;
        y = g.block(&path, |g| {
            let own = |g: &mut Graph, q, k, v| {
                let (k, v) = (g.cast(k, cache)?, g.cast(v, cache)?);
                let k = g.write_rows(caches.own.0, k, place)?; // [batch, capacity, dim]
                let v = g.write_rows(caches.own.1, v, place)?;
                let options = AttentionOptions { padding: Padding::Lengths(length), ..options(config) };
                g.attention(AttentionInputs::Separate { q, k, v }, &options)
            };
            decoder_layer(g, config, y, own, |g, q| {
                let (k, v) = caches.source;
                let options = AttentionOptions { padding: Padding::Lengths(source_lengths), ..options(config) };
                g.attention(AttentionInputs::Separate { q, k, v }, &options)
            })
        })?;
    }
    let logits = output(g, config, y)?; // [batch, 1, vocabulary]
    g.reshape(logits, [batch, config.target_vocabulary])
}

fn layer_caches(g: &mut Graph, config: &TransformerConfig, shape: StepShape) -> Result<LayerCaches> {
    let StepShape { batch, source, capacity, cache } = shape;
    let mut declare = |name: &str, rows: usize| g.cache(name, [batch, rows, config.dim], cache.into());
    Ok(LayerCaches {
        own: (declare("keys", capacity)?, declare("values", capacity)?),
        source: (declare("source_keys", source)?, declare("source_values", source)?),
    })
}

/// Sections 3.4 and 3.5: rows of the table, scaled, with positions added.
fn embed(g: &mut Graph, config: &TransformerConfig, table: Value, tokens: Value) -> Result<Value> {
    let length = g.shape_of(tokens).columns();
    let x = g.embedding(table, tokens)?;
    let x = g.scale(x, (config.dim as f64).sqrt() as f32)?;
    let mut positions = position_table(g, config, length)?;
    if g.shape_of(positions).rows() > length {
        positions = g.slice(positions, 0, 0, length)?;
    }
    let x = g.add(x, positions)?;
    g.dropout(x, config.dropout)
}

/// A row for each place: as many as are needed, or all that were learned.
fn position_table(g: &mut Graph, config: &TransformerConfig, length: usize) -> Result<Value> {
    if length > config.max_length {
        return Err(refused(format!("a sequence of {length} is longer than max_length, {}", config.max_length)));
    }
    match config.positions {
        TextPositions::Sinusoidal => {
            positions::fixed_table(g, length, config.dim, || positions::sinusoidal(length, config.dim))
        }
        TextPositions::Learned => {
            g.declare("positions", [config.max_length, config.dim], Role::Position.starting(Init::Table))
        }
    }
}

/// The table of a side's words: one for both where they share a vocabulary.
fn table(g: &mut Graph, config: &TransformerConfig, side: Side) -> Result<Value> {
    let (name, words) = match side {
        _ if config.shared_vocabulary => ("embedding", config.target_vocabulary),
        Side::Source => ("source_embedding", config.source_vocabulary),
        Side::Target => ("target_embedding", config.target_vocabulary),
    };
    embedding_table(g, name, words, config.dim)
}

/// Section 3.1: attention, then feed-forward.
fn encoder_layer(g: &mut Graph, config: &TransformerConfig, x: Value, lengths: Value) -> Result<Value> {
    let x = branch(g, config, "norm1", x, |g, x| {
        g.scope("attention", |g| {
            let q = linear(g, "query", x, config.dim, true)?;
            let (k, v) = keys_and_values(g, config, x)?;
            let options = AttentionOptions { padding: Padding::Lengths(lengths), ..options(config) };
            let mixed = g.attention(AttentionInputs::Separate { q, k, v }, &options)?;
            linear(g, "output", mixed, config.dim, true)
        })
    })?;
    branch(g, config, "norm2", x, |g, x| feed_forward(g, config, x))
}

/// Section 3.1: attention to what was written so far, attention to the source, feed-forward. `own` and `cross` say how a query
/// finds keys and values, which differs between teacher forcing and decoding.
fn decoder_layer(
    g: &mut Graph,
    config: &TransformerConfig,
    y: Value,
    own: impl FnOnce(&mut Graph, Value, Value, Value) -> Result<Value>,
    cross: impl FnOnce(&mut Graph, Value) -> Result<Value>,
) -> Result<Value> {
    let y = branch(g, config, "norm1", y, |g, y| {
        g.scope("attention", |g| {
            let q = linear(g, "query", y, config.dim, true)?;
            let (k, v) = keys_and_values(g, config, y)?;
            let mixed = own(g, q, k, v)?;
            linear(g, "output", mixed, config.dim, true)
        })
    })?;
    let y = branch(g, config, "norm2", y, |g, y| {
        g.scope("cross_attention", |g| {
            let q = linear(g, "query", y, config.dim, true)?;
            let mixed = cross(g, q)?;
            linear(g, "output", mixed, config.dim, true)
        })
    })?;
    branch(g, config, "norm3", y, |g, y| feed_forward(g, config, y))
}

fn keys_and_values(g: &mut Graph, config: &TransformerConfig, x: Value) -> Result<(Value, Value)> {
    Ok((linear(g, "key", x, config.dim, true)?, linear(g, "value", x, config.dim, true)?))
}

/// Section 3.3: the part that sees each token alone.
fn feed_forward(g: &mut Graph, config: &TransformerConfig, x: Value) -> Result<Value> {
    let mlp = Mlp { hidden: config.mlp_dim, activation: config.activation, dropout: config.dropout };
    g.scope("mlp", |g| mlp.of(g, None, x))
}

/// `norm(x + dropout(f(x)))`, or `x + dropout(f(norm(x)))`.
fn branch(
    g: &mut Graph,
    config: &TransformerConfig,
    norm_name: &str,
    x: Value,
    f: impl FnOnce(&mut Graph, Value) -> Result<Value>,
) -> Result<Value> {
    let (order, eps, dropout) = (config.norm_order, config.norm_eps, config.dropout);
    Branch { norm: norm_name, order, eps, dropout, layer_scale: None, stochastic_depth: 0.0 }.around(g, x, f)
}

/// Section 3.4: logits over the vocabulary, by an output matrix or the tied embedding.
fn output(g: &mut Graph, config: &TransformerConfig, y: Value) -> Result<Value> {
    let y = match config.norm_order {
        NormOrder::Pre => norm(g, "decoder_norm", y, config.norm_eps)?,
        NormOrder::Post => y,
    };
    if !config.tied_output {
        return linear(g, "output", y, config.target_vocabulary, true);
    }
    let table = table(g, config, Side::Target)?;
    g.scope("output", |g| {
        let bias = g.declare("bias", [config.target_vocabulary], Role::Bias.starting(Init::Constant(0.0)))?;
        g.linear(y, table, Some(bias))
    })
}

fn options(config: &TransformerConfig) -> AttentionOptions {
    AttentionOptions { heads: config.heads, dropout: config.attention_dropout, ..AttentionOptions::default() }
}

fn refused(rule: String) -> engine::Error {
    engine::Error::Rule { op: "transformer", path: "config".to_string(), inputs: Vec::new(), rule }
}
