//! The graph of Whisper.

use vitreous_engine::{
    Activation, AttentionInputs, AttentionOptions, DType, Graph, Init, LayerKind, Result, Role, Sliding, Value,
};

use super::config::WhisperConfig;
use crate::blocks::{Branch, Linear, Mlp, embedding_table, layer, norm};
use crate::call::{Call, Outputs, Part};
use crate::families::decoder::{LayerCache, Sequence, refused};
use crate::families::pairs::source_outputs;
use crate::settings::NormOrder;

/// Epsilon of all norms.
const NORM_EPS: f32 = 1e-5;
/// Values of time that a convolution covers.
pub(super) const KERNEL: usize = 3;

/// Builds a part of the model. The whole has the inputs `mel [batch, frames, bins]` and `target [batch, target]`; its outputs are
/// `memory [batch, positions, dim]`, the encoder's result, and `logits [batch, target, vocabulary]` of the next token at every position.
/// The encoder has the input `mel`, and gives what a decoder's caches take. A step takes some tokens of each text, as that of a language
/// model does, and gives `logits [batch, vocabulary]`.
pub fn whisper(g: &mut Graph, config: &WhisperConfig, call: &Call) -> Result<Outputs> {
    config.check().map_err(|refusal| refused("whisper", refusal.0))?;
    let build = Build { config, call };
    match call.part {
        Part::Whole => {
            if call.target > config.target_positions {
                let (target, most) = (call.target, config.target_positions);
                return Err(refused("whisper", format!("a text of {target} tokens is longer than {most}")));
            }
            let memory = build.encoder(g)?;
            let tokens = g.input("target", [call.batch, call.target], DType::I32)?;
            let logits = build.decoder(g, &Text::Whole { tokens, memory })?;
            Ok(Outputs::new([("memory", memory), ("logits", logits)]))
        }
        Part::Encode => {
            let memory = build.encoder(g)?;
            source_outputs(g, config.decoder_layers, |g| build.keys_and_values(g, memory))
        }
        Part::Step => {
            let sequence = Sequence::new(g, call, "whisper", config.target_positions)?;
            let positions = g.input("positions", [call.batch, call.tokens], DType::I32)?;
            let logits = build.decoder(g, &Text::Step { sequence, positions })?;
            Ok(Outputs::new([("logits", logits)]))
        }
    }
}

/// What a graph is built of.
#[derive(Clone, Copy)]
struct Build<'b> {
    config: &'b WhisperConfig,
    call: &'b Call<'b>,
}

/// The tokens of a decoder, and where it finds the audio.
enum Text {
    /// All of them, with the encoder's result.
    Whole { tokens: Value, memory: Value },
    /// The next ones, with caches; `positions [batch, length]` are their places.
    Step { sequence: Sequence, positions: Value },
}

/// The KV caches of one decoder layer.
#[derive(Clone, Copy)]
struct Caches {
    own: Option<LayerCache>,
    source: (Value, Value),
}

impl Build<'_> {
    /// The encoder's result: `[batch, positions, dim]`.
    fn encoder(&self, g: &mut Graph) -> Result<Value> {
        let config = self.config;
        let mel = g.input("mel", [self.call.batch, config.frames(), config.mel_bins], DType::F32)?;
        let mut x = g.scope("encoder", |g| {
            let x = self.convolution(g, "conv1", mel, 1)?; // [batch, frames, dim]
            let x = self.convolution(g, "conv2", x, 2)?; // [batch, positions, dim]
            let shape = [config.source_positions, config.dim];
            // Files have the sines, some of them rounded: they are read, but not trained.
            let positions = g.declare("positions", shape, Role::Constant.starting(Init::Sinusoidal))?;
            let x = g.add(x, positions)?;
            g.dropout(x, config.dropout)
        })?;
        for index in 0..config.encoder_layers {
            x = layer(g, &format!("encoder.{index}"), |g| {
                let x = self.branch("attention", "norm1").around(g, x, |g, x| {
                    let inputs = self.query_key_value(g, x)?;
                    let mixed = g.attention(inputs, &self.attention(config.heads))?;
                    self.project(g, "output", mixed, true)
                })?;
                self.branch("mlp", "norm2").around(g, x, |g, x| self.mlp(g, x, config.mlp_dim))
            })?;
        }
        let memory = norm(g, "encoder_norm", x, NORM_EPS)?;
        g.name("memory", memory)
    }

    /// A convolution over time with its activation.
    fn convolution(&self, g: &mut Graph, name: &str, x: Value, stride: usize) -> Result<Value> {
        let x = g.scope(name, |g| {
            let (channels, dim) = (g.shape_of(x).columns(), self.config.dim);
            let kind = LayerKind::Convolution;
            let columns = channels * KERNEL;
            let weight = g.declare("weight", [dim, columns], Role::Weight.starting(Init::Matrix(kind)))?;
            let bias = g.declare("bias", [dim], Role::Bias.starting(Init::Bias { kind, fan_in: columns }))?;
            g.conv1d(x, weight, Some(bias), Sliding { kernel: KERNEL, stride, padding: 1 })
        })?;
        g.activation(x, Activation::Gelu)
    }

    /// Logits of the next token: at every position of the whole, `[batch, length, vocabulary]`; of a step, of the last one of each text,
    /// `[batch, vocabulary]`.
    fn decoder(&self, g: &mut Graph, text: &Text) -> Result<Value> {
        let config = self.config;
        let words = embedding_table(g, "embedding", config.vocabulary, config.dim)?;
        let mut y = g.scope("decoder", |g| {
            let shape = [config.target_positions, config.dim];
            let table = g.declare("positions", shape, Role::Position.starting(Init::Table))?;
            let (tokens, positions) = match text {
                Text::Whole { tokens, .. } => {
                    let length = g.shape_of(*tokens).columns();
                    (*tokens, g.slice(table, 0, 0, length)?)
                }
                Text::Step { sequence, positions } => (sequence.tokens, g.embedding(table, *positions)?),
            };
            let y = g.embedding(words, tokens)?; // [batch, length, dim]
            let y = g.add(y, positions)?;
            g.dropout(y, config.dropout)
        })?;
        for index in 0..config.decoder_layers {
            let path = format!("decoder.{index}");
            let caches = g.scope(&path, |g| self.caches(g, text))?;
            y = layer(g, &path, |g| self.decoder_layer(g, text, caches, y))?;
        }
        let y = norm(g, "decoder_norm", y, NORM_EPS)?;
        let last = match text {
            Text::Whole { .. } => y,
            Text::Step { sequence, .. } => sequence.for_logits(g, y)?,
        };
        let logits = g.linear(last, words, None)?;
        g.name("logits", logits)
    }

    /// The caches of a layer, in a step. In the layer's scope.
    fn caches(&self, g: &mut Graph, text: &Text) -> Result<Option<Caches>> {
        let Text::Step { sequence, .. } = text else { return Ok(None) };
        let (dim, rows) = (self.config.dim, self.config.source_positions);
        let own = sequence.layer_cache(g, dim)?;
        let mut declare = |name: &str| g.cache(name, [self.call.batch, rows, dim], self.call.cache.into());
        Ok(Some(Caches { own, source: (declare("source_keys")?, declare("source_values")?) }))
    }

    fn decoder_layer(&self, g: &mut Graph, text: &Text, caches: Option<Caches>, y: Value) -> Result<Value> {
        let options = self.attention(self.config.decoder_heads);
        let y = self.branch("attention", "norm1").around(g, y, |g, y| {
            let AttentionInputs::Separate { q, k, v } = self.query_key_value(g, y)? else { unreachable!("separate") };
            let mixed = match text {
                Text::Step { sequence, .. } => {
                    sequence.attend(g, [q, k, v], caches.and_then(|caches| caches.own), options)?
                }
                Text::Whole { .. } => {
                    let options = AttentionOptions { causal: true, ..options };
                    g.attention(AttentionInputs::Separate { q, k, v }, &options)?
                }
            };
            self.project(g, "output", mixed, true)
        })?;
        let y = self.branch("cross_attention", "norm2").around(g, y, |g, y| {
            let q = self.project(g, "query", y, true)?;
            let (k, v) = match (text, caches) {
                (_, Some(caches)) => caches.source,
                (Text::Whole { memory, .. }, None) => self.keys_and_values(g, *memory)?,
                (Text::Step { .. }, None) => return Err(refused("whisper", "a step needs its caches".to_string())),
            };
            let mixed = g.attention(AttentionInputs::Separate { q, k, v }, &options)?;
            self.project(g, "output", mixed, true)
        })?;
        self.branch("mlp", "norm3").around(g, y, |g, y| self.mlp(g, y, self.config.decoder_mlp_dim))
    }

    fn query_key_value(&self, g: &mut Graph, x: Value) -> Result<AttentionInputs> {
        let q = self.project(g, "query", x, true)?;
        let (k, v) = self.keys_and_values(g, x)?;
        Ok(AttentionInputs::Separate { q, k, v })
    }

    fn keys_and_values(&self, g: &mut Graph, x: Value) -> Result<(Value, Value)> {
        Ok((self.project(g, "key", x, false)?, self.project(g, "value", x, true)?))
    }

    fn project(&self, g: &mut Graph, name: &str, x: Value, bias: bool) -> Result<Value> {
        Linear::new(name, self.config.dim, bias).adapted(g, self.call.adapters, x)
    }

    fn branch(&self, name: &'static str, norm: &'static str) -> Branch<'static> {
        Branch {
            name,
            norm,
            order: NormOrder::Pre,
            eps: NORM_EPS,
            dropout: self.config.dropout,
            layer_scale: None,
            stochastic_depth: 0.0,
        }
    }

    fn attention(&self, heads: usize) -> AttentionOptions {
        AttentionOptions { heads, dropout: self.config.attention_dropout, ..AttentionOptions::default() }
    }

    fn mlp(&self, g: &mut Graph, x: Value, hidden: usize) -> Result<Value> {
        let mlp = Mlp { hidden, activation: self.config.activation, dropout: self.config.mlp_dropout };
        let adapters = self.call.adapters.filter(|adapters| adapters.mlp);
        mlp.of(g, adapters, x)
    }
}
