//! The graph of a BERT.

use vitreous_engine::{AttentionInputs, AttentionOptions, DType, Error, Graph, Init, Padding, Result, Role, Value};

use super::config::BertConfig;
use crate::blocks::{Branch, Linear, Mlp, norm, token};
use crate::call::{Call, Outputs};
use crate::settings::NormOrder;

/// Builds the model, with inputs `tokens` and `token_types [batch, length]`, and `lengths [batch]`, beyond which a
/// sequence is padding. Outputs:
///
/// - `tokens [batch, length, dim]`: one vector per token,
/// - `features [batch, dim]`, with a pooler,
/// - `logits [batch, length, vocabulary]`, with a masked-token head, or `[batch, classes]` with a classification head.
pub fn bert(g: &mut Graph, config: &BertConfig, call: &Call) -> Result<Outputs> {
    config.check().map_err(|refusal| refused(refusal.0))?;
    let (batch, length) = (call.batch, call.tokens);
    if length > config.max_length {
        return Err(refused(format!("a sequence of {length} tokens is longer than max_length, {}", config.max_length)));
    }
    let tokens = g.input("tokens", [batch, length], DType::I32)?;
    let token_types = g.input("token_types", [batch, length], DType::I32)?;
    let lengths = g.input("lengths", [batch], DType::I32)?;
    let mut x = g.scope("embedding", |g| embed(g, config, tokens, token_types))?; // [batch, length, dim]
    for layer in 0..config.depth {
        x = g.block(&format!("blocks.{layer}"), |g| encoder_layer(g, config, call, lengths, x))?;
    }
    let mut outputs = Outputs::new([("tokens", x)]);
    if config.pooler {
        let pooled = g.scope("pooling", |g| token(g, x, 0))?;
        let pooled = Linear::new("pooler", config.dim, true).of(g, pooled)?;
        let pooled = g.scope("pooler", |g| g.tanh(pooled))?; // [batch, dim]
        outputs.push("features", pooled);
    }
    if config.masked_tokens {
        outputs.push("logits", g.head(|g| g.scope("masked_tokens", |g| masked_tokens(g, config, x)))?);
    }
    if config.classes > 0 {
        let pooled = outputs.need("features")?;
        let logits = g.head(|g| {
            let pooled = g.scope("head", |g| g.dropout(pooled, config.dropout))?;
            Linear::new("head", config.classes, true).of(g, pooled)
        })?;
        outputs.push("logits", logits); // [batch, classes]
    }
    Ok(outputs)
}

/// The normalised sum of word, token type and position embeddings.
fn embed(g: &mut Graph, config: &BertConfig, tokens: Value, token_types: Value) -> Result<Value> {
    let length = g.shape_of(tokens).columns();
    let table = Role::Embedding.starting(Init::Table);
    let words = g.declare("words", [config.vocabulary, config.dim], table)?;
    let x = g.embedding(words, tokens)?;
    let types = g.declare("token_types", [config.token_types, config.dim], table)?;
    let types = g.embedding(types, token_types)?;
    let x = g.add(x, types)?;
    let all = g.declare("positions", [config.max_length, config.dim], Role::Position.starting(Init::Table))?;
    let positions = if length < config.max_length { g.slice(all, 0, 0, length)? } else { all };
    let x = g.add(x, positions)?;
    let x = norm(g, "norm", x, config.norm_eps)?;
    g.dropout(x, config.dropout)
}

fn encoder_layer(g: &mut Graph, config: &BertConfig, call: &Call, lengths: Value, x: Value) -> Result<Value> {
    let branch = |norm: &'static str| Branch {
        norm,
        order: NormOrder::Post,
        eps: config.norm_eps,
        dropout: config.dropout,
        layer_scale: None,
        stochastic_depth: 0.0,
    };
    let x = branch("norm1").around(g, x, |g, x| g.scope("attention", |g| attention(g, config, call, lengths, x)))?;
    let mlp = Mlp { hidden: config.mlp_dim, activation: config.activation, dropout: 0.0 };
    let adapters = call.adapters.filter(|adapters| adapters.mlp);
    branch("norm2").around(g, x, |g, x| g.scope("mlp", |g| mlp.of(g, adapters, x)))
}

/// Bidirectional multi-head self-attention; padding is masked.
fn attention(g: &mut Graph, config: &BertConfig, call: &Call, lengths: Value, x: Value) -> Result<Value> {
    let fused = Linear { parts: &["query", "key", "value"], ..Linear::new("qkv", 3 * config.dim, true) };
    let qkv = fused.adapted(g, call.adapters, x)?; // [batch, length, 3 dim]
    let options = AttentionOptions {
        heads: config.heads,
        dropout: config.attention_dropout,
        padding: Padding::Lengths(lengths),
        ..AttentionOptions::default()
    };
    let mixed = g.attention(AttentionInputs::Packed(qkv), &options)?; // [batch, length, dim]
    Linear::new("output", config.dim, true).adapted(g, call.adapters, mixed)
}

/// Logits for every token; the output matrix is tied to the word embeddings.
fn masked_tokens(g: &mut Graph, config: &BertConfig, x: Value) -> Result<Value> {
    let x = Linear::new("transform", config.dim, true).of(g, x)?;
    let x = g.activation(x, config.activation.into())?;
    let x = norm(g, "norm", x, config.norm_eps)?;
    let words = g.find("embedding.words")?;
    let bias = g.declare("bias", [config.vocabulary], Role::Bias.starting(Init::Constant(0.0)))?;
    g.linear(x, words, Some(bias)) // [batch, length, vocabulary]
}

fn refused(rule: String) -> Error {
    Error::Rule { op: "bert", path: "config".to_string(), inputs: Vec::new(), rule }
}
