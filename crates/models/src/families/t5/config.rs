//! The configuration of T5 and its relatives, read from and written to Hugging Face's `config.json`.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::checkpoint::json::{Fault, Object, shortest};
use crate::settings::{
    Activation, ConfigError, MOST_LAYERS, Settings, check_eps, check_rates, check_sizes, choice, rule,
};

choice! {
    /// Which of Hugging Face's classes a model belongs to. They compute the same.
    Variant {
        /// T5, T5 v1.1, FLAN-T5, ByT5.
        T5,
        /// mT5.
        Mt5,
    }
}

impl Variant {
    /// Hugging Face's name of the model's type.
    pub(super) fn model_type(self) -> &'static str {
        match self {
            Variant::T5 => "t5",
            Variant::Mt5 => "mt5",
        }
    }
}

/// A T5. The default is T5-small.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct T5Config {
    /// Hugging Face's class.
    pub variant: Variant,
    /// Vocabulary size.
    pub vocabulary: usize,
    /// Width of a token.
    pub dim: usize,
    /// Attention heads.
    pub heads: usize,
    /// Width of a head; the heads together may be wider or narrower than a token.
    pub head_dim: usize,
    /// Layers of the encoder.
    pub encoder_layers: usize,
    /// Layers of the decoder.
    pub decoder_layers: usize,
    /// Width of the feed-forward block.
    pub mlp_dim: usize,
    /// Activation of the feed-forward block.
    pub activation: Activation,
    /// Whether the feed-forward block is gated: `down(activation(gate x) · up x)`.
    pub gated: bool,
    /// Buckets of relative positions.
    pub buckets: usize,
    /// Distances from here on are in the last bucket.
    pub max_distance: usize,
    /// Maximum sequence length. Relative positions have none; it bounds what a graph is built for.
    pub max_length: usize,
    /// Epsilon of the norms.
    pub norm_eps: f32,
    /// Whether the output matrix is that of the word embeddings.
    pub tied_output: bool,
    /// Whether the decoder's result is scaled by `1/√dim` before the output matrix, as in the first T5.
    pub scaled_output: bool,
    /// Dropout everywhere.
    pub dropout: f32,
    /// What fills up a batch.
    pub padding_token: usize,
    /// What ends a text.
    pub end_token: usize,
    /// What a target begins with.
    pub start_token: usize,
}

impl Default for T5Config {
    fn default() -> Self {
        T5Config {
            variant: Variant::T5,
            vocabulary: 32_128,
            dim: 512,
            heads: 8,
            head_dim: 64,
            encoder_layers: 6,
            decoder_layers: 6,
            mlp_dim: 2048,
            activation: Activation::Relu,
            gated: false,
            buckets: 32,
            max_distance: 128,
            max_length: LONGEST,
            norm_eps: 1e-6,
            tied_output: true,
            scaled_output: true,
            dropout: 0.1,
            padding_token: 0,
            end_token: 1,
            start_token: 0,
        }
    }
}

/// The longest sequence where the file says nothing: the bias of every pair of tokens takes memory.
const LONGEST: usize = 1 << 13;

impl T5Config {
    /// An error for a configuration that cannot be built, with the requirement.
    pub fn check(&self) -> Result<(), ConfigError> {
        check_sizes(&[
            ("vocabulary", self.vocabulary),
            ("dim", self.dim),
            ("heads", self.heads),
            ("head_dim", self.head_dim),
            ("encoder_layers", self.encoder_layers),
            ("decoder_layers", self.decoder_layers),
            ("mlp_dim", self.mlp_dim),
            ("max_length", self.max_length),
        ])?;
        for (name, layers) in [("encoder_layers", self.encoder_layers), ("decoder_layers", self.decoder_layers)] {
            rule(layers <= MOST_LAYERS, || format!("{name}: {layers} layers are more than {MOST_LAYERS}"))?;
        }
        let width = self.heads.checked_mul(self.head_dim);
        check_sizes(&[("heads x head_dim", width.unwrap_or(usize::MAX))])?;
        // Half of the buckets of an encoder are for keys ahead, and half of those for single distances.
        rule((4..=1 << 16).contains(&self.buckets) && self.buckets.is_multiple_of(2), || {
            format!("buckets must be an even number from 4 to 65536, not {}", self.buckets)
        })?;
        rule(self.max_distance > self.buckets / 2 && self.max_distance < 1 << 30, || {
            let half = self.buckets / 2;
            format!("max_distance must be above {half}, half of the buckets, and below 2^30, not {}", self.max_distance)
        })?;
        rule(self.max_length <= 1 << 20, || format!("max_length must be at most 2^20, not {}", self.max_length))?;
        check_rates(&[("dropout", self.dropout)])?;
        check_eps(self.norm_eps)?;
        let tokens =
            [("padding_token", self.padding_token), ("end_token", self.end_token), ("start_token", self.start_token)];
        for (name, token) in tokens {
            rule(token < self.vocabulary, || {
                format!("{name} is {token}, but the vocabulary has {} tokens", self.vocabulary)
            })?;
        }
        Ok(())
    }

    /// Width of all heads together.
    pub fn attention_dim(&self) -> usize {
        self.heads * self.head_dim
    }

    /// Reads a configuration. Whether the output is tied is known from the tensors.
    pub(super) fn from_hugging_face(object: &Object, variant: Variant) -> Result<T5Config, Fault> {
        let usual = match variant {
            Variant::T5 => T5Config::default(),
            Variant::Mt5 => super::presets::mt5(512, 1024, 8, 6),
        };
        let size = |key: &str, usual: usize| Ok::<_, Fault>(object.size(key)?.unwrap_or(usual));
        let number = |key: &str, usual: f32| Ok::<_, Fault>(object.number(key)?.map_or(usual, |number| number as f32));
        let encoder_layers = size("num_layers", usual.encoder_layers)?;
        let (activation, gated) = feed_forward(object, &usual)?;
        // transformers 5 writes what older files say by whether the embeddings are tied. mT5 never scales.
        let scaled_output = match (variant, object.flag("scale_decoder_outputs")?) {
            (Variant::Mt5, _) => false,
            (Variant::T5, Some(flag)) => flag,
            (Variant::T5, None) => object.flag("tie_word_embeddings")?.unwrap_or(true),
        };
        let padding_token = size("pad_token_id", usual.padding_token)?;
        let config = T5Config {
            variant,
            vocabulary: size("vocab_size", usual.vocabulary)?,
            dim: size("d_model", usual.dim)?,
            heads: size("num_heads", usual.heads)?,
            head_dim: size("d_kv", usual.head_dim)?,
            encoder_layers,
            decoder_layers: size("num_decoder_layers", encoder_layers)?,
            mlp_dim: size("d_ff", usual.mlp_dim)?,
            activation,
            gated,
            buckets: size("relative_attention_num_buckets", usual.buckets)?,
            max_distance: size("relative_attention_max_distance", usual.max_distance)?,
            max_length: usual.max_length,
            norm_eps: number("layer_norm_epsilon", usual.norm_eps)?,
            tied_output: true,
            scaled_output,
            dropout: number("dropout_rate", usual.dropout)?,
            padding_token,
            end_token: end_token(object)?.unwrap_or(usual.end_token),
            start_token: size("decoder_start_token_id", padding_token)?,
        };
        in_range(object, "decoder_start_token_id", config.start_token, config.vocabulary)?;
        in_range(object, "pad_token_id", config.padding_token, config.vocabulary)?;
        in_range(object, "eos_token_id", config.end_token, config.vocabulary)?;
        Ok(config)
    }

    /// The configuration of the Hugging Face class for this model.
    pub(super) fn to_hugging_face(&self) -> Settings {
        let class = match self.variant {
            Variant::T5 => "T5ForConditionalGeneration",
            Variant::Mt5 => "MT5ForConditionalGeneration",
        };
        let mut entries = vec![
            ("architectures", json!([class])),
            ("model_type", json!(self.variant.model_type())),
            ("is_encoder_decoder", json!(true)),
            ("vocab_size", json!(self.vocabulary)),
            ("d_model", json!(self.dim)),
            ("d_kv", json!(self.head_dim)),
            ("d_ff", json!(self.mlp_dim)),
            ("num_layers", json!(self.encoder_layers)),
            ("num_decoder_layers", json!(self.decoder_layers)),
            ("num_heads", json!(self.heads)),
            ("relative_attention_num_buckets", json!(self.buckets)),
            ("relative_attention_max_distance", json!(self.max_distance)),
            ("feed_forward_proj", json!(self.feed_forward_name())),
            ("layer_norm_epsilon", shortest(self.norm_eps)),
            ("dropout_rate", shortest(self.dropout)),
            ("pad_token_id", json!(self.padding_token)),
            ("eos_token_id", json!(self.end_token)),
            ("decoder_start_token_id", json!(self.start_token)),
            // transformers before 5 scales if this is set, and ties if this is set.
            ("tie_word_embeddings", json!(self.scaled_output && self.tied_output)),
        ];
        if self.variant == Variant::T5 {
            entries.push(("scale_decoder_outputs", json!(self.scaled_output)));
        }
        entries.into_iter().map(|(key, value): (&str, Value)| (key.to_string(), value)).collect()
    }

    fn feed_forward_name(&self) -> String {
        match (self.gated, self.activation) {
            (true, Activation::GeluTanh) => "gated-gelu".to_string(),
            (true, activation) => format!("gated-{}", activation.hugging_face()),
            (false, activation) => activation.hugging_face().to_string(),
        }
    }
}

/// `feed_forward_proj`: an activation, with `gated-` before it where the block is gated. "gated-gelu" is the approximation with tanh.
fn feed_forward(object: &Object, usual: &T5Config) -> Result<(Activation, bool), Fault> {
    const KEY: &str = "feed_forward_proj";
    let Some(text) = object.text(KEY)? else { return Ok((usual.activation, usual.gated)) };
    let (name, gated) = match text.strip_prefix("gated-") {
        Some(name) => (name, true),
        None => (text, false),
    };
    let activation = match (name, gated) {
        ("gelu", true) => Some(Activation::GeluTanh),
        _ => Activation::from_hugging_face(name),
    };
    let activation = activation.ok_or_else(|| {
        object.fault(
            KEY,
            format!("{text:?} is not supported: gelu, gelu_new, relu, silu and tanh are, or gated-.. of them"),
        )
    })?;
    Ok((activation, gated))
}

/// The token that ends a text: one, or the first of a list.
pub(crate) fn end_token(object: &Object) -> Result<Option<usize>, Fault> {
    match object.get("eos_token_id") {
        Some(Value::Array(tokens)) => match tokens.first().and_then(Value::as_u64) {
            Some(token) => Ok(Some(usize::try_from(token).unwrap_or(usize::MAX))),
            None => Err(object.fault("eos_token_id", "should be a token or a list of tokens".to_string())),
        },
        _ => object.size("eos_token_id"),
    }
}

/// A special token must be in the vocabulary.
pub(crate) fn in_range(object: &Object, key: &str, token: usize, vocabulary: usize) -> Result<(), Fault> {
    if token < vocabulary {
        return Ok(());
    }
    Err(object.fault(key, format!("is {token}, but the vocabulary has {vocabulary} tokens")))
}
