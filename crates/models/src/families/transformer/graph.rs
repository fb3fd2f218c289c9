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

use vitreous_engine::{AttentionInputs, AttentionOptions, Graph, Init, Result, Role, Value};

use super::config::{TextPositions, TransformerConfig};
use crate::blocks::{self, Branch, Mlp, embedding_table, linear, norm};
use crate::call::{Call, Outputs, StepShape};
use crate::families::pairs::{LayerCaches, Source, Target, refused, source_outputs};
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
/// `source_lengths [batch]`, behind which a source is padding.
pub fn transformer(g: &mut Graph, config: &TransformerConfig, shape: PairShape) -> Result<Transformer> {
    let (memory, source) = encode(g, config, shape.batch, shape.source)?;
    let call = Call::whole(shape.batch).tokens(shape.source).target(shape.target);
    let target = Target::whole(g, &call, &source, memory)?;
    let words = table(g, config, Side::Target)?;
    let y = g.scope("decoder", |g| embed(g, config, words, target.tokens))?;
    let y = decode(g, config, &target, y)?;
    let logits = output(g, config, y)?;
    Ok(Transformer { memory, logits })
}

/// Builds the encoder alone, with inputs `source` and `source_lengths`: its result, and the lengths.
pub fn encoder(g: &mut Graph, config: &TransformerConfig, batch: usize, length: usize) -> Result<(Value, Value)> {
    let (memory, source) = encode(g, config, batch, length)?;
    Ok((memory, source.lengths))
}

fn encode(g: &mut Graph, config: &TransformerConfig, batch: usize, length: usize) -> Result<(Value, Source)> {
    config.check().map_err(|refusal| refused("transformer", refusal.0))?;
    let source = Source::new(g, &Call::whole(batch).tokens(length))?;
    let words = table(g, config, Side::Source)?;
    let mut x = g.scope("encoder", |g| embed(g, config, words, source.tokens))?;
    for layer in 0..config.encoder_layers {
        x = blocks::layer(g, &format!("encoder.{layer}"), |g| encoder_layer(g, config, x, &source))?;
    }
    if config.norm_order == NormOrder::Pre {
        x = norm(g, "encoder_norm", x, config.norm_eps)?;
    }
    Ok((x, source))
}

/// Builds what a decoder asks of the source: the encoder, and of each decoder layer the keys and values of its result.
pub fn encoder_for_decoding(g: &mut Graph, config: &TransformerConfig, batch: usize, length: usize) -> Result<Outputs> {
    let (memory, _) = encode(g, config, batch, length)?;
    source_outputs(g, config.decoder_layers, |g| keys_and_values(g, config, memory))
}

/// Builds a decoding step: the logits of the token that follows, `[batch, vocabulary]`.
pub fn decoder_step(g: &mut Graph, config: &TransformerConfig, shape: StepShape) -> Result<Value> {
    config.check().map_err(|refusal| refused("transformer", refusal.0))?;
    let StepShape { batch, capacity, .. } = shape;
    let target = Target::step(g, &shape.into())?;
    let words = table(g, config, Side::Target)?;
    let y = g.scope("decoder", |g| {
        let x = g.scope("embedding", |g| g.embedding(words, target.tokens))?; // [batch, dim]
        let x = g.scale(x, (config.dim as f64).sqrt() as f32)?;
        let table = position_table(g, config, capacity)?;
        let positions = match target.step {
            Some(step) => g.scope("position", |g| g.embedding(table, step.place))?,
            None => table,
        };
        let x = g.add(x, positions)?;
        let x = g.reshape(x, [batch, 1, config.dim])?;
        g.name("embedding", x)
    })?;
    let y = decode(g, config, &target, y)?;
    let logits = output(g, config, y)?; // [batch, 1, vocabulary]
    g.reshape(logits, [batch, config.target_vocabulary])
}

/// The layers of the decoder.
fn decode(g: &mut Graph, config: &TransformerConfig, target: &Target, mut y: Value) -> Result<Value> {
    for layer in 0..config.decoder_layers {
        let path = format!("decoder.{layer}");
        let caches = g.scope(&path, |g| target.caches(g, config.dim))?;
        y = blocks::layer(g, &path, |g| decoder_layer(g, config, target, caches, y))?;
    }
    Ok(y)
}

/// Sections 3.4 and 3.5: rows of the table, scaled, with positions added.
fn embed(g: &mut Graph, config: &TransformerConfig, table: Value, tokens: Value) -> Result<Value> {
    let length = g.shape_of(tokens).columns();
    let x = g.scope("embedding", |g| g.embedding(table, tokens))?;
    let x = g.scale(x, (config.dim as f64).sqrt() as f32)?;
    let mut positions = position_table(g, config, length)?;
    if g.shape_of(positions).rows() > length {
        positions = g.slice(positions, 0, 0, length)?;
    }
    let x = g.add(x, positions)?;
    let x = g.dropout(x, config.dropout)?;
    g.name("embedding", x)
}

/// A row for each place: as many as are needed, or all that were learned.
fn position_table(g: &mut Graph, config: &TransformerConfig, length: usize) -> Result<Value> {
    if length > config.max_length {
        return Err(refused(
            "transformer",
            format!("a sequence of {length} is longer than max_length, {}", config.max_length),
        ));
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
fn encoder_layer(g: &mut Graph, config: &TransformerConfig, x: Value, source: &Source) -> Result<Value> {
    let x = branch(g, config, ["attention", "norm1"], x, |g, x| {
        let q = linear(g, "query", x, config.dim, true)?;
        let (k, v) = keys_and_values(g, config, x)?;
        let mixed = source.attend(g, AttentionInputs::Separate { q, k, v }, options(config))?;
        linear(g, "output", mixed, config.dim, true)
    })?;
    branch(g, config, ["mlp", "norm2"], x, |g, x| feed_forward(g, config, x))
}

/// Section 3.1: attention to what was written so far, attention to the source, feed-forward.
fn decoder_layer(
    g: &mut Graph,
    config: &TransformerConfig,
    target: &Target,
    caches: Option<LayerCaches>,
    y: Value,
) -> Result<Value> {
    let y = branch(g, config, ["attention", "norm1"], y, |g, y| {
        let q = linear(g, "query", y, config.dim, true)?;
        let (k, v) = keys_and_values(g, config, y)?;
        let mixed = target.attend_own(g, [q, k, v], caches, options(config))?;
        linear(g, "output", mixed, config.dim, true)
    })?;
    let y = branch(g, config, ["cross_attention", "norm2"], y, |g, y| {
        let q = linear(g, "query", y, config.dim, true)?;
        let of_memory = |g: &mut Graph, memory| keys_and_values(g, config, memory);
        let mixed = target.attend_source(g, q, caches, options(config), of_memory)?;
        linear(g, "output", mixed, config.dim, true)
    })?;
    branch(g, config, ["mlp", "norm3"], y, |g, y| feed_forward(g, config, y))
}

fn keys_and_values(g: &mut Graph, config: &TransformerConfig, x: Value) -> Result<(Value, Value)> {
    Ok((linear(g, "key", x, config.dim, true)?, linear(g, "value", x, config.dim, true)?))
}

/// Section 3.3: the part that sees each token alone.
fn feed_forward(g: &mut Graph, config: &TransformerConfig, x: Value) -> Result<Value> {
    let mlp = Mlp { hidden: config.mlp_dim, activation: config.activation, dropout: config.dropout };
    mlp.of(g, None, x)
}

/// `norm(x + dropout(f(x)))`, or `x + dropout(f(norm(x)))`.
fn branch(
    g: &mut Graph,
    config: &TransformerConfig,
    [name, norm]: [&str; 2],
    x: Value,
    f: impl FnOnce(&mut Graph, Value) -> Result<Value>,
) -> Result<Value> {
    let (order, eps, dropout) = (config.norm_order, config.norm_eps, config.dropout);
    Branch { name, norm, order, eps, dropout, layer_scale: None, stochastic_depth: 0.0 }.around(g, x, f)
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
