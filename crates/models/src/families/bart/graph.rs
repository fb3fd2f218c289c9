//! The graph of BART, mBART and Marian.

use vitreous_engine::{AttentionInputs, AttentionOptions, Graph, Init, Result, Role, Value};

use super::config::{BartConfig, Variant};
use crate::blocks::{Branch, Linear, Mlp, layer, norm};
use crate::call::{Call, Outputs};
use crate::families::pairs::{LayerCaches, PairSizes, Source, Target, build_part, refused, three_parts};
use crate::positions;
use crate::settings::NormOrder;

/// Epsilon of all norms.
const NORM_EPS: f32 = 1e-5;
/// Rows of a table of learned positions before the first token's: what padding had in the first implementation.
pub(super) const POSITION_OFFSET: usize = 2;
const QKV: &[&str] = &["query", "key", "value"];

/// Builds a part of the model: see `build_part`.
pub fn bart(g: &mut Graph, config: &BartConfig, call: &Call) -> Result<Outputs> {
    config.check().map_err(|refusal| refused("bart", refusal.0))?;
    let build = Build { config, call };
    let sizes = PairSizes {
        family: "bart",
        max_length: config.max_length,
        decoder_layers: config.decoder_layers,
        vocabulary: config.target_vocabulary,
    };
    build_part(
        g,
        call,
        &sizes,
        |g| build.encoder(g),
        |g, target| build.decoder(g, target),
        |g, memory| build.keys_and_values(g, memory),
    )
}

/// Whose words.
#[derive(Clone, Copy)]
enum Side {
    Source,
    Target,
}

/// What a graph is built of.
#[derive(Clone, Copy)]
struct Build<'b> {
    config: &'b BartConfig,
    call: &'b Call<'b>,
}

impl Build<'_> {
    /// The encoder's result, and its inputs.
    fn encoder(&self, g: &mut Graph) -> Result<(Value, Source)> {
        let config = self.config;
        let source = Source::new(g, self.call)?;
        let words = self.words(g, Side::Source)?;
        let mut x = g.scope("encoder", |g| {
            let x = self.scaled(g, words, source.tokens)?;
            let positions = self.positions(g, self.call.tokens)?;
            let x = g.add(x, positions)?;
            self.embedded(g, x)
        })?;
        for index in 0..config.encoder_layers {
            x = layer(g, &format!("encoder.{index}"), |g| {
                let x = self.branch("attention", "norm1").around(g, x, |g, x| {
                    let qkv = self.project(g, "qkv", x)?; // [batch, source, 3 dim]
                    let mixed = source.attend(g, AttentionInputs::Packed(qkv), self.attention(config.heads))?;
                    self.project(g, "output", mixed)
                })?;
                self.branch("mlp", "norm2").around(g, x, |g, x| self.mlp(g, x, config.mlp_dim))
            })?;
        }
        if config.variant.norm_order() == NormOrder::Pre {
            x = norm(g, "encoder_norm", x, NORM_EPS)?;
        }
        Ok((x, source))
    }

    /// Logits of the next token at every position: `[batch, length, vocabulary]`.
    fn decoder(&self, g: &mut Graph, target: &Target) -> Result<Value> {
        let config = self.config;
        let words = self.words(g, Side::Target)?;
        let mut y = g.scope("decoder", |g| {
            let y = self.scaled(g, words, target.tokens)?;
            let positions = match target.step {
                Some(step) => {
                    let table = self.positions(g, target.capacity())?;
                    g.embedding(table, step.place)? // [batch, dim]
                }
                None => self.positions(g, target.length)?,
            };
            let y = g.add(y, positions)?;
            let y = g.reshape(y, [target.batch, target.length, config.dim])?;
            self.embedded(g, y)
        })?;
        for index in 0..config.decoder_layers {
            let path = format!("decoder.{index}");
            let caches = g.scope(&path, |g| target.caches(g, config.dim))?;
            y = layer(g, &path, |g| self.decoder_layer(g, target, caches, y))?;
        }
        if config.variant.norm_order() == NormOrder::Pre {
            y = norm(g, "decoder_norm", y, NORM_EPS)?;
        }
        let matrix = match config.tied_output {
            true => words,
            false => {
                let shape = [config.target_vocabulary, config.dim];
                g.head(|g| g.scope("output", |g| g.declare("weight", shape, Role::Weight.starting(Init::Table))))?
            }
        };
        let bias = match config.logits_bias {
            true => {
                let zeros = Role::Constant.starting(Init::Constant(0.0));
                Some(g.head(|g| g.scope("output", |g| g.declare("bias", [config.target_vocabulary], zeros)))?)
            }
            false => None,
        };
        g.linear(y, matrix, bias)
    }

    fn decoder_layer(&self, g: &mut Graph, target: &Target, caches: Option<LayerCaches>, y: Value) -> Result<Value> {
        let options = self.attention(self.config.decoder_heads);
        let y = self.branch("attention", "norm1").around(g, y, |g, y| {
            let qkv = self.project(g, "qkv", y)?;
            let parts = three_parts(g, qkv, self.config.dim)?;
            let mixed = target.attend_own(g, parts, caches, options)?;
            self.project(g, "output", mixed)
        })?;
        let y = self.branch("cross_attention", "norm2").around(g, y, |g, y| {
            let q = self.project(g, "query", y)?;
            let of_memory = |g: &mut Graph, memory| self.keys_and_values(g, memory);
            let mixed = target.attend_source(g, q, caches, options, of_memory)?;
            self.project(g, "output", mixed)
        })?;
        self.branch("mlp", "norm3").around(g, y, |g, y| self.mlp(g, y, self.config.decoder_mlp_dim))
    }

    /// The table of a side's words: one for both where they share it.
    fn words(&self, g: &mut Graph, side: Side) -> Result<Value> {
        let config = self.config;
        let (name, words) = match side {
            _ if config.shared_embedding => ("embedding", config.target_vocabulary),
            Side::Source => ("source_embedding", config.source_vocabulary),
            Side::Target => ("target_embedding", config.target_vocabulary),
        };
        crate::blocks::embedding_table(g, name, words, config.dim)
    }

    fn scaled(&self, g: &mut Graph, words: Value, tokens: Value) -> Result<Value> {
        let x = g.embedding(words, tokens)?;
        if self.config.scaled_embedding { g.scale(x, (self.config.dim as f64).sqrt() as f32) } else { Ok(x) }
    }

    /// A row for each of the first places: `[length, dim]`. In a side's scope.
    fn positions(&self, g: &mut Graph, length: usize) -> Result<Value> {
        let (rows, dim) = (self.config.max_length, self.config.dim);
        if !self.config.variant.learns_positions() {
            return positions::fixed_table(g, length, dim, || positions::sines_then_cosines(length, dim));
        }
        let shape = [rows + POSITION_OFFSET, dim];
        let table = g.declare("positions", shape, Role::Position.starting(Init::Table))?;
        g.slice(table, 0, POSITION_OFFSET, POSITION_OFFSET + length)
    }

    /// What the first layer gets.
    fn embedded(&self, g: &mut Graph, x: Value) -> Result<Value> {
        let x = match self.config.variant {
            Variant::Bart | Variant::Mbart => g.scope("embedding", |g| norm(g, "norm", x, NORM_EPS))?,
            Variant::Marian => x,
        };
        g.dropout(x, self.config.dropout)
    }

    fn branch(&self, name: &'static str, norm: &'static str) -> Branch<'static> {
        Branch {
            name,
            norm,
            order: self.config.variant.norm_order(),
            eps: NORM_EPS,
            dropout: self.config.dropout,
            layer_scale: None,
            stochastic_depth: 0.0,
        }
    }

    fn keys_and_values(&self, g: &mut Graph, memory: Value) -> Result<(Value, Value)> {
        Ok((self.project(g, "key", memory)?, self.project(g, "value", memory)?))
    }

    /// A projection of attention: query, key, value, all three, or the output.
    fn project(&self, g: &mut Graph, name: &str, x: Value) -> Result<Value> {
        let parts = if name == "qkv" { QKV } else { &[] };
        let layer = Linear { parts, ..Linear::new(name, self.config.dim * parts.len().max(1), true) };
        layer.adapted(g, self.call.adapters, x)
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
