//! The configuration of GPT-1 and GPT-2, read from and written to Hugging Face's `config.json`.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::checkpoint::json::{Fault, Object, shortest};
use crate::settings::{
    Activation, ConfigError, NormOrder, Settings, check_eps, check_layers, check_rates, check_sizes,
};

/// A GPT. The default is GPT-2 with 124 million parameters.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Gpt2Config {
    /// Vocabulary size.
    pub vocabulary: usize,
    /// Width of a token.
    pub dim: usize,
    /// Number of layers.
    pub depth: usize,
    /// Attention heads; must divide `dim`.
    pub heads: usize,
    /// Width of the feed-forward block.
    pub mlp_dim: usize,
    /// Activation of the feed-forward block.
    pub activation: Activation,
    /// Maximum sequence length.
    pub max_length: usize,
    /// Where the norms are: before each branch and at the end (GPT-2), or after each sum (GPT-1).
    pub norm_order: NormOrder,
    /// Epsilon of the norms.
    pub norm_eps: f32,
    /// Whether attention scores are divided by the square root of a head's width.
    pub scaled_attention: bool,
    /// Whether attention scores are also divided by the number of the layer, counted from 1.
    pub scaled_by_layer: bool,
    /// Whether the output matrix is that of the word embeddings.
    pub tied: bool,
    /// Dropout after the embeddings.
    pub embedding_dropout: f32,
    /// Dropout after residual branches.
    pub dropout: f32,
    /// Dropout on the attention weights.
    pub attention_dropout: f32,
}

impl Default for Gpt2Config {
    fn default() -> Self {
        Gpt2Config {
            vocabulary: 50_257,
            dim: 768,
            depth: 12,
            heads: 12,
            mlp_dim: 3072,
            activation: Activation::GeluTanh,
            max_length: 1024,
            norm_order: NormOrder::Pre,
            norm_eps: 1e-5,
            scaled_attention: true,
            scaled_by_layer: false,
            tied: true,
            embedding_dropout: 0.1,
            dropout: 0.1,
            attention_dropout: 0.1,
        }
    }
}

/// GPT-1's `model_type`; the other is GPT-2's.
pub(super) const GPT1: &str = "openai-gpt";

impl Gpt2Config {
    /// An error for a configuration that cannot be built, with the requirement.
    pub fn check(&self) -> Result<(), ConfigError> {
        check_sizes(&[
            ("vocabulary", self.vocabulary),
            ("dim", self.dim),
            ("depth", self.depth),
            ("heads", self.heads),
            ("mlp_dim", self.mlp_dim),
            ("max_length", self.max_length),
        ])?;
        check_layers(self.dim, self.heads, self.depth)?;
        check_rates(&[
            ("embedding_dropout", self.embedding_dropout),
            ("dropout", self.dropout),
            ("attention_dropout", self.attention_dropout),
        ])?;
        check_eps(self.norm_eps)
    }

    /// Hugging Face's name of the model's type.
    pub(super) fn model_type(&self) -> &'static str {
        match self.norm_order {
            NormOrder::Pre => "gpt2",
            NormOrder::Post => GPT1,
        }
    }

    /// Reads a configuration.
    pub(super) fn from_hugging_face(object: &Object, model_type: &str) -> Result<Gpt2Config, Fault> {
        if object.flag("add_cross_attention")? == Some(true) {
            return Err(object.fault("add_cross_attention", "a decoder beside an encoder is not supported".to_string()));
        }
        let usual = Gpt2Config::default();
        let is_first = model_type == GPT1;
        let (vocabulary, max_length) = if is_first { (40_478, 512) } else { (usual.vocabulary, usual.max_length) };
        let size = |key: &str, usual: usize| Ok::<_, Fault>(object.size(key)?.unwrap_or(usual));
        let rate = |key: &str, usual: f32| Ok::<_, Fault>(object.number(key)?.map_or(usual, |rate| rate as f32));
        let dim = size("n_embd", usual.dim)?;
        Ok(Gpt2Config {
            vocabulary: size("vocab_size", vocabulary)?,
            dim,
            depth: size("n_layer", usual.depth)?,
            heads: size("n_head", usual.heads)?,
            mlp_dim: size("n_inner", dim.saturating_mul(4))?,
            activation: activation(object, is_first)?,
            max_length: size("n_positions", max_length)?,
            norm_order: if is_first { NormOrder::Post } else { NormOrder::Pre },
            norm_eps: rate("layer_norm_epsilon", usual.norm_eps)?,
            scaled_attention: is_first || object.flag("scale_attn_weights")?.unwrap_or(true),
            scaled_by_layer: !is_first && object.flag("scale_attn_by_inverse_layer_idx")?.unwrap_or(false),
            tied: object.flag("tie_word_embeddings")?.unwrap_or(true),
            embedding_dropout: rate("embd_pdrop", usual.embedding_dropout)?,
            dropout: rate("resid_pdrop", usual.dropout)?,
            attention_dropout: rate("attn_pdrop", usual.attention_dropout)?,
        })
    }

    /// The configuration of the Hugging Face class for this model.
    pub(super) fn to_hugging_face(&self) -> Settings {
        let is_first = self.norm_order == NormOrder::Post;
        let class = if is_first { "OpenAIGPTLMHeadModel" } else { "GPT2LMHeadModel" };
        let activation = match (is_first, self.activation) {
            // GPT-1's own word for GELU's approximation.
            (true, Activation::GeluTanh) => "gelu",
            (_, activation) => activation.hugging_face(),
        };
        let mut entries = vec![
            ("architectures", json!([class])),
            ("model_type", json!(self.model_type())),
            ("vocab_size", json!(self.vocabulary)),
            ("n_positions", json!(self.max_length)),
            ("n_embd", json!(self.dim)),
            ("n_layer", json!(self.depth)),
            ("n_head", json!(self.heads)),
            (if is_first { "afn" } else { "activation_function" }, json!(activation)),
            ("resid_pdrop", shortest(self.dropout)),
            ("embd_pdrop", shortest(self.embedding_dropout)),
            ("attn_pdrop", shortest(self.attention_dropout)),
            ("layer_norm_epsilon", shortest(self.norm_eps)),
            ("initializer_range", json!(0.02)),
        ];
        if self.mlp_dim != 4 * self.dim {
            entries.push(("n_inner", json!(self.mlp_dim)));
        }
        let flags = [
            ("tie_word_embeddings", self.tied, true),
            ("scale_attn_weights", self.scaled_attention, true),
            ("scale_attn_by_inverse_layer_idx", self.scaled_by_layer, false),
        ];
        entries.extend(flags.iter().filter(|(_, flag, usual)| flag != usual).map(|(key, flag, _)| (*key, json!(flag))));
        entries.into_iter().map(|(key, value): (&str, Value)| (key.to_string(), value)).collect()
    }
}

/// The activation; in GPT-1's configurations "gelu" is the approximation with tanh.
fn activation(object: &Object, is_first: bool) -> Result<Activation, Fault> {
    let key = if is_first { "afn" } else { "activation_function" };
    match object.text(key)? {
        None => Ok(Activation::GeluTanh),
        Some("gelu") if is_first => Ok(Activation::GeluTanh),
        Some(name) => Activation::from_hugging_face(name).ok_or_else(|| {
            object.fault(key, format!("{name:?} is not supported: gelu, gelu_new, relu, silu and tanh are"))
        }),
    }
}
