//! The graph of T5 and its relatives.

use vitreous_engine::{AttentionInputs, AttentionOptions, Graph, Init, Result, Role, Value};

use super::config::T5Config;
use crate::blocks::{self, Linear, rms_norm};
use crate::call::{Call, Outputs};
use crate::families::pairs::{LayerCaches, PairSizes, Source, Target, build_part, refused, three_parts};
use crate::settings::check_fixed_table;

const QKV: &[&str] = &["query", "key", "value"];

/// Builds a part of the model: see `build_part`.
pub fn t5(g: &mut Graph, config: &T5Config, call: &Call) -> Result<Outputs> {
    config.check().map_err(|refusal| refused("t5", refusal.0))?;
    let build = Build { config, call };
    let sizes = PairSizes {
        family: "t5",
        max_length: config.max_length,
        decoder_layers: config.decoder_layers,
        vocabulary: config.vocabulary,
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

/// What a graph is built of.
#[derive(Clone, Copy)]
struct Build<'b> {
    config: &'b T5Config,
    call: &'b Call<'b>,
}

impl Build<'_> {
    /// The encoder's result, and its inputs.
    fn encoder(&self, g: &mut Graph) -> Result<(Value, Source)> {
        let config = self.config;
        let source = Source::new(g, self.call)?;
        let (mut x, bias) = (self.embed(g, "encoder", source.tokens)?, self.encoder_bias(g)?);
        for layer in 0..config.encoder_layers {
            x = blocks::layer(g, &format!("encoder.{layer}"), |g| {
                let x = self.branch(g, ["attention", "norm1"], x, |g, x| {
                    let qkv = self.project(g, "qkv", x)?; // [batch, source, 3 heads·head_dim]
                    let mixed = source.attend(g, AttentionInputs::Packed(qkv), self.attention(Some(bias)))?;
                    self.output(g, mixed)
                })?;
                self.branch(g, ["mlp", "norm2"], x, |g, x| self.mlp(g, x))
            })?;
        }
        let x = rms_norm(g, "encoder_norm", x, config.norm_eps)?;
        Ok((g.dropout(x, config.dropout)?, source))
    }

    /// Logits of the next token at every position: `[batch, length, vocabulary]`.
    fn decoder(&self, g: &mut Graph, target: &Target) -> Result<Value> {
        let config = self.config;
        let words = self.embed(g, "decoder", target.tokens)?;
        let mut y = g.reshape(words, [target.batch, target.length, config.dim])?;
        let bias = self.decoder_bias(g, target)?;
        for layer in 0..config.decoder_layers {
            let path = format!("decoder.{layer}");
            let caches = g.scope(&path, |g| target.caches(g, config.attention_dim()))?;
            y = blocks::layer(g, &path, |g| self.decoder_layer(g, target, caches, bias, y))?;
        }
        let y = rms_norm(g, "decoder_norm", y, config.norm_eps)?;
        let mut y = g.dropout(y, config.dropout)?;
        if config.scaled_output {
            y = g.scale(y, (config.dim as f64).powf(-0.5) as f32)?;
        }
        let matrix = match config.tied_output {
            true => self.words(g)?,
            false => {
                let shape = [config.vocabulary, config.dim];
                g.head(|g| g.declare("output", shape, Role::Weight.starting(Init::Normal(1.0))))?
            }
        };
        g.linear(y, matrix, None)
    }

    fn decoder_layer(
        &self,
        g: &mut Graph,
        target: &Target,
        caches: Option<LayerCaches>,
        bias: Value,
        y: Value,
    ) -> Result<Value> {
        let y = self.branch(g, ["attention", "norm1"], y, |g, y| {
            let qkv = self.project(g, "qkv", y)?;
            let parts = three_parts(g, qkv, self.config.attention_dim())?;
            let mixed = target.attend_own(g, parts, caches, self.attention(Some(bias)))?;
            self.output(g, mixed)
        })?;
        let y = self.branch(g, ["cross_attention", "norm2"], y, |g, y| {
            let q = self.project(g, "query", y)?;
            let of_memory = |g: &mut Graph, memory| self.keys_and_values(g, memory);
            let mixed = target.attend_source(g, q, caches, self.attention(None), of_memory)?;
            self.output(g, mixed)
        })?;
        self.branch(g, ["mlp", "norm3"], y, |g, y| self.mlp(g, y))
    }

    /// The table of words, which both sides share.
    fn words(&self, g: &mut Graph) -> Result<Value> {
        match g.find("embedding") {
            Ok(there) => Ok(there),
            Err(_) => {
                let shape = [self.config.vocabulary, self.config.dim];
                g.declare("embedding", shape, Role::Embedding.starting(Init::Normal(1.0)))
            }
        }
    }

    fn embed(&self, g: &mut Graph, side: &str, tokens: Value) -> Result<Value> {
        let table = self.words(g)?;
        g.scope(side, |g| {
            let x = g.embedding(table, tokens)?;
            g.dropout(x, self.config.dropout)
        })
    }

    /// The bias of each head for each bucket of relative positions; the first layer's is that of all layers.
    fn bias_table(&self, g: &mut Graph, side: &str) -> Result<Value> {
        let start = Init::Normal((self.config.dim as f64).powf(-0.5));
        g.scope(side, |g| {
            g.declare("relative_bias", [self.config.buckets, self.config.heads], Role::Position.starting(start))
        })
    }

    /// `[1, heads, source, source]`.
    fn encoder_bias(&self, g: &mut Graph) -> Result<Value> {
        let length = self.call.tokens;
        let of_pair = |query: usize, key: usize| self.bucket(key as i64 - query as i64, true);
        self.bias_of_pairs(g, "encoder", length, of_pair)
    }

    /// `[1, heads, target, target]`; in a step `[batch, heads, 1, capacity]`.
    fn decoder_bias(&self, g: &mut Graph, target: &Target) -> Result<Value> {
        let of_distance = |back: i64| self.bucket(-back, false);
        if target.step.is_none() {
            return self
                .bias_of_pairs(g, "decoder", target.length, |query, key| of_distance(query as i64 - key as i64));
        }
        let (heads, capacity) = (self.config.heads, target.capacity());
        let distances = target.distances(g)?;
        let table = self.bias_table(g, "decoder")?;
        g.scope("decoder", |g| {
            let buckets: Vec<i32> = (0..capacity).map(|back| of_distance(back as i64)).collect();
            let buckets = g.constant_i32("buckets", [capacity], &buckets)?;
            let by_distance = g.embedding(table, buckets)?; // [capacity, heads]
            let bias = g.embedding(by_distance, distances)?; // [batch, capacity, heads]
            let bias = g.transpose(bias, &[0, 2, 1])?;
            g.reshape(bias, [target.batch, heads, 1, capacity])
        })
    }

    /// The bias of all pairs of tokens of a sequence: `[1, heads, length, length]`.
    fn bias_of_pairs(
        &self,
        g: &mut Graph,
        side: &str,
        length: usize,
        bucket: impl Fn(usize, usize) -> i32,
    ) -> Result<Value> {
        let table = self.bias_table(g, side)?;
        check_fixed_table(length, length).map_err(|refusal| refused("t5", refusal.0))?;
        g.scope(side, |g| {
            let pairs = (0..length).flat_map(|query| (0..length).map(move |key| (query, key)));
            let buckets: Vec<i32> = pairs.map(|(query, key)| bucket(query, key)).collect();
            let buckets = g.constant_i32("buckets", [length * length], &buckets)?;
            let bias = g.embedding(table, buckets)?; // [queries·keys, heads]
            let bias = g.transpose(bias, &[1, 0])?;
            g.reshape(bias, [1, self.config.heads, length, length])
        })
    }

    fn bucket(&self, relative: i64, bidirectional: bool) -> i32 {
        super::bucket(relative, bidirectional, self.config.buckets, self.config.max_distance)
    }

    /// `x + dropout(f(norm(x)))`, where `f` is built in the scope `name`, which is also the name of what is added.
    fn branch(
        &self,
        g: &mut Graph,
        [name, norm]: [&str; 2],
        x: Value,
        f: impl FnOnce(&mut Graph, Value) -> Result<Value>,
    ) -> Result<Value> {
        let seen = rms_norm(g, norm, x, self.config.norm_eps)?;
        let y = g.scope(name, |g| f(g, seen))?;
        let y = g.dropout(y, self.config.dropout)?;
        let y = g.name(name, y)?;
        g.add(x, y)
    }

    fn keys_and_values(&self, g: &mut Graph, memory: Value) -> Result<(Value, Value)> {
        Ok((self.project(g, "key", memory)?, self.project(g, "value", memory)?))
    }

    /// A projection to the heads: query, key, value, or all three. As scores are not scaled, queries begin smaller.
    fn project(&self, g: &mut Graph, name: &str, x: Value) -> Result<Value> {
        let config = self.config;
        let (dim, head_dim) = (config.dim as f64, config.head_dim as f64);
        let (query, others) = ((dim * head_dim).powf(-0.5), dim.powf(-0.5));
        let (parts, start) = match name {
            "qkv" => (QKV, Init::NormalQuery { query, others }),
            "query" => (&[][..], Init::Normal(query)),
            _ => (&[][..], Init::Normal(others)),
        };
        let out = config.attention_dim() * parts.len().max(1);
        let layer = Linear { parts, init: Some(start), ..Linear::new(name, out, false) };
        layer.adapted(g, self.call.adapters, x)
    }

    fn output(&self, g: &mut Graph, mixed: Value) -> Result<Value> {
        let start = Init::Normal((self.config.attention_dim() as f64).powf(-0.5));
        let layer = Linear { init: Some(start), ..Linear::new("output", self.config.dim, false) };
        layer.adapted(g, self.call.adapters, mixed)
    }

    fn attention(&self, bias: Option<Value>) -> AttentionOptions {
        let config = self.config;
        AttentionOptions {
            heads: config.heads,
            scale: Some(1.0),
            bias,
            dropout: config.dropout,
            ..AttentionOptions::default()
        }
    }

    /// The feed-forward block, gated or not.
    fn mlp(&self, g: &mut Graph, x: Value) -> Result<Value> {
        let config = self.config;
        let adapters = self.call.adapters.filter(|adapters| adapters.mlp);
        let layer = |name: &'static str, from: usize, to: usize| {
            let start = Init::Normal((from as f64).powf(-0.5));
            Linear { bias: false, init: Some(start), ..Linear::feed_forward(name, to) }
        };
        let first = if config.gated { "gate" } else { "fc1" };
        let hidden = layer(first, config.dim, config.mlp_dim).adapted(g, adapters, x)?;
        let mut hidden = g.activation(hidden, config.activation.into())?;
        if config.gated {
            let up = layer("up", config.dim, config.mlp_dim).adapted(g, adapters, x)?;
            hidden = g.multiply(hidden, up)?;
        }
        let hidden = g.dropout(hidden, config.dropout)?;
        let last = if config.gated { "down" } else { "fc2" };
        layer(last, config.mlp_dim, config.dim).adapted(g, adapters, hidden)
    }
}
