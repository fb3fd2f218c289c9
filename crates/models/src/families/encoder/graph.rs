//! The graph of an encoder of texts.

use vitreous_engine::{AttentionInputs, AttentionOptions, DType, Error, Graph, Init, Padding, Result, Role, Value};

use super::{Classifier, Encoder};
use crate::blocks::{Branch, Linear, Mlp, norm, token};
use crate::call::{Call, Outputs};
use crate::settings::NormOrder;
use crate::signature::Head;

/// Builds an encoder around its layers, `layers(graph, lengths, x)`, with inputs `tokens [batch, length]`, `lengths
/// [batch]`, beyond which a sequence is padding, and, from two token types on, `token_types [batch, length]`. Outputs:
///
/// - `tokens [batch, length, dim]`: one vector per token,
/// - `features [batch, dim]`, with a pooler,
/// - `logits`, with a head: `[batch, classes]`, `[batch, length, classes]`, or `[batch, length, vocabulary]` for masked
///   tokens; with `call.masked`, `[masked, vocabulary]` of the tokens that the input `masked [masked]` names.
pub(crate) fn build(
    g: &mut Graph,
    encoder: &Encoder,
    call: &Call,
    layers: impl FnOnce(&mut Graph, Value, Value) -> Result<Value>,
) -> Result<Outputs> {
    let (batch, length) = (call.batch, call.tokens);
    if length > encoder.max_length {
        let what = format!("a sequence of {length} tokens is longer than max_length, {}", encoder.max_length);
        return Err(refused(encoder.family, what));
    }
    let tokens = g.input("tokens", [batch, length], DType::I32)?;
    let types = match encoder.token_types {
        0 | 1 => None,
        _ => Some(g.input("token_types", [batch, length], DType::I32)?),
    };
    let lengths = g.input("lengths", [batch], DType::I32)?;
    let masked = match (call.masked, encoder.head) {
        (0, _) => None,
        (masked, Head::MaskedTokens) => Some(g.input("masked", [masked], DType::I32)?),
        _ => {
            let what = "only a masked-token head can be computed for masked tokens".to_string();
            return Err(refused(encoder.family, what));
        }
    };
    let x = g.named("embedding", |g| embed(g, encoder, tokens, types))?; // [batch, length, dim]
    let x = layers(g, lengths, x)?; // [batch, length, dim]
    let mut outputs = Outputs::new([("tokens", x)]);
    if encoder.pooler {
        let first = g.scope("pooling", |g| token(g, x, 0))?;
        let pooled = Linear::new("pooler", encoder.dim, true).of(g, first)?;
        outputs.push("features", g.scope("pooler", |g| g.tanh(pooled))?); // [batch, dim]
    }
    if encoder.head != Head::None {
        let logits = g.head(|g| head(g, encoder, x, outputs.get("features"), masked))?;
        outputs.push("logits", logits);
    }
    Ok(outputs)
}

/// The normalised sum of word, token type and position embeddings, brought to the width of the layers.
fn embed(g: &mut Graph, encoder: &Encoder, tokens: Value, types: Option<Value>) -> Result<Value> {
    let length = g.shape_of(tokens).columns();
    let dim = encoder.embedding_dim;
    let table = Role::Embedding.starting(Init::Table);
    let words = g.declare("words", [encoder.vocabulary, dim], table)?;
    let mut x = g.embedding(words, tokens)?;
    if encoder.token_types > 0 {
        let all = g.declare("token_types", [encoder.token_types, dim], table)?;
        let of_token = match types {
            Some(types) => g.embedding(all, types)?,
            // The only type is that of every token.
            None => g.reshape(all, [dim])?,
        };
        x = g.add(x, of_token)?;
    }
    let (first, rows) = (encoder.position_offset, encoder.position_offset + encoder.max_length);
    let all = g.declare("positions", [rows, dim], Role::Position.starting(Init::Table))?;
    let positions = if length < rows { g.slice(all, 0, first, first + length)? } else { all };
    x = g.add(x, positions)?;
    x = norm(g, "norm", x, encoder.norm_eps)?;
    x = g.dropout(x, encoder.dropout)?;
    match encoder.projects {
        true => Linear::new("projection", encoder.dim, true).of(g, x),
        false => Ok(x),
    }
}

/// One layer: attention and the feed-forward block, each in a residual branch that is normalised after the sum.
pub(crate) fn layer(g: &mut Graph, encoder: &Encoder, call: &Call, lengths: Value, x: Value) -> Result<Value> {
    let branch = |name: &'static str, norm: &'static str| Branch {
        name,
        norm,
        order: NormOrder::Post,
        eps: encoder.norm_eps,
        dropout: encoder.dropout,
        layer_scale: None,
        stochastic_depth: 0.0,
    };
    let x = branch("attention", "norm1").around(g, x, |g, x| attention(g, encoder, call, lengths, x))?;
    let mlp = Mlp { hidden: encoder.mlp_dim, activation: encoder.activation, dropout: 0.0 };
    let adapters = call.adapters.filter(|adapters| adapters.mlp);
    branch("mlp", "norm2").around(g, x, |g, x| mlp.of(g, adapters, x))
}

/// Bidirectional multi-head self-attention; padding is masked.
fn attention(g: &mut Graph, encoder: &Encoder, call: &Call, lengths: Value, x: Value) -> Result<Value> {
    let fused = Linear { parts: &["query", "key", "value"], ..Linear::new("qkv", 3 * encoder.dim, true) };
    let qkv = fused.adapted(g, call.adapters, x)?; // [batch, length, 3 dim]
    let options = AttentionOptions {
        heads: encoder.heads,
        dropout: encoder.attention_dropout,
        padding: Padding::Lengths(lengths),
        ..AttentionOptions::default()
    };
    let mixed = g.attention(AttentionInputs::Packed(qkv), &options)?; // [batch, length, dim]
    Linear::new("output", encoder.dim, true).adapted(g, call.adapters, mixed)
}

/// The logits of the head.
fn head(g: &mut Graph, encoder: &Encoder, x: Value, features: Option<Value>, masked: Option<Value>) -> Result<Value> {
    let (x, outputs, dropout) = match encoder.head {
        Head::None => return Ok(x),
        Head::MaskedTokens => return g.scope("masked_tokens", |g| masked_tokens(g, encoder, x, masked)),
        Head::TokenClasses(classes) => (x, classes, encoder.head_dropout),
        Head::Span => (x, 2, encoder.span_dropout),
        Head::Classes(outputs) | Head::Labels(outputs) | Head::Numbers(outputs) => {
            let of_text = match (encoder.classifier, features) {
                (Classifier::Pooler, Some(features)) => features,
                (Classifier::Pooler, None) => {
                    return Err(refused(encoder.family, "its head stands on the pooler, which is missing".to_string()));
                }
                (Classifier::Layer { activation, dropout_before }, _) => g.scope("head", |g| {
                    let mut first = token(g, x, 0)?;
                    if dropout_before {
                        first = g.dropout(first, encoder.head_dropout)?;
                    }
                    let y = Linear::new("dense", encoder.dim, true).of(g, first)?;
                    g.activation(y, activation.into())
                })?,
            };
            (of_text, outputs, encoder.head_dropout)
        }
    };
    let x = g.scope("head", |g| g.dropout(x, dropout))?;
    Linear::new("head", outputs, true).of(g, x)
}

/// Logits for every token, or for the masked ones.
fn masked_tokens(g: &mut Graph, encoder: &Encoder, mut x: Value, masked: Option<Value>) -> Result<Value> {
    if let Some(masked) = masked {
        let tokens = g.shape_of(x).rows();
        let rows = g.reshape(x, [tokens, encoder.dim])?;
        x = g.embedding(rows, masked)?; // [masked, dim]
    }
    let x = Linear::new("transform", encoder.embedding_dim, true).of(g, x)?;
    let x = g.activation(x, encoder.masked_activation.into())?;
    let x = norm(g, "norm", x, encoder.norm_eps)?;
    let shape = [encoder.vocabulary, encoder.embedding_dim];
    let words = match encoder.tied {
        true => g.find("embedding.words")?,
        false => g.declare("decoder", shape, Role::Weight.starting(Init::Table))?,
    };
    let bias = g.declare("bias", [encoder.vocabulary], Role::Bias.starting(Init::Constant(0.0)))?;
    g.linear(x, words, Some(bias)) // [batch, length, vocabulary] or [masked, vocabulary]
}

pub(crate) fn refused(family: &'static str, rule: String) -> Error {
    Error::Rule { op: family, path: "config".to_string(), inputs: Vec::new(), rule }
}
