//! The configuration of LLaMA and its relatives, read from and written to Hugging Face's `config.json`.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use super::rope::RopeScaling;
use crate::checkpoint::json::{Fault, Object, shortest};
use crate::settings::{
    Activation, ConfigError, Settings, check_eps, check_layers, check_rates, check_sizes, choice, rule,
};

choice! {
    /// Which relative of LLaMA a model is: which settings Hugging Face's class for it has.
    Variant {
        /// LLaMA 1 to 3, SmolLM, TinyLlama and many more.
        Llama,
        /// Mistral, with a sliding window.
        Mistral,
        /// Qwen 2 and 2.5, whose queries, keys and values have biases.
        Qwen2,
        /// Qwen 3, which normalises queries and keys.
        Qwen3,
        /// Phi-3, which may rotate a part of each head.
        Phi3,
        /// Gemma 1, with scaled embeddings and norms that add 1 to their weights.
        Gemma,
    }
}

impl Variant {
    pub(super) const ALL: [Variant; 6] =
        [Variant::Llama, Variant::Mistral, Variant::Qwen2, Variant::Qwen3, Variant::Phi3, Variant::Gemma];

    /// Hugging Face's `model_type`.
    pub(super) fn model_type(self) -> &'static str {
        match self {
            Variant::Llama => "llama",
            Variant::Mistral => "mistral",
            Variant::Qwen2 => "qwen2",
            Variant::Qwen3 => "qwen3",
            Variant::Phi3 => "phi3",
            Variant::Gemma => "gemma",
        }
    }

    /// Hugging Face's class.
    fn class(self) -> &'static str {
        match self {
            Variant::Llama => "LlamaForCausalLM",
            Variant::Mistral => "MistralForCausalLM",
            Variant::Qwen2 => "Qwen2ForCausalLM",
            Variant::Qwen3 => "Qwen3ForCausalLM",
            Variant::Phi3 => "Phi3ForCausalLM",
            Variant::Gemma => "GemmaForCausalLM",
        }
    }

    /// What `transformers` takes for settings that a configuration does not have.
    pub(super) fn usual(self) -> LlamaConfig {
        let llama = LlamaConfig { variant: self, ..LlamaConfig::default() };
        match self {
            Variant::Llama => llama,
            Variant::Mistral => {
                LlamaConfig { mlp_dim: 14_336, kv_heads: 8, max_length: 4096 * 32, window: Some(4096), ..llama }
            }
            Variant::Qwen2 | Variant::Qwen3 => LlamaConfig {
                vocabulary: 151_936,
                mlp_dim: 22_016,
                max_length: 32_768,
                head_dim: (self == Variant::Qwen3).then_some(128),
                ..llama
            },
            Variant::Phi3 => LlamaConfig {
                vocabulary: 32_064,
                dim: 3072,
                mlp_dim: 8192,
                max_length: 4096,
                norm_eps: 1e-5,
                fused_qkv: true,
                ..llama
            },
            Variant::Gemma => LlamaConfig {
                vocabulary: 256_000,
                dim: 3072,
                depth: 28,
                heads: 16,
                kv_heads: 16,
                head_dim: Some(256),
                mlp_dim: 24_576,
                activation: Activation::GeluTanh,
                max_length: 8192,
                tied: true,
                scaled_embedding: true,
                unit_offset_norm: true,
                ..llama
            },
        }
    }
}

/// A LLaMA. The default is LLaMA-7B.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LlamaConfig {
    /// Which relative of LLaMA it is.
    pub variant: Variant,
    /// Vocabulary size.
    pub vocabulary: usize,
    /// Width of a token.
    pub dim: usize,
    /// Number of layers.
    pub depth: usize,
    /// Attention heads.
    pub heads: usize,
    /// Heads of keys and values; must divide `heads`.
    pub kv_heads: usize,
    /// Width of a head, if it is not `dim / heads`.
    pub head_dim: Option<usize>,
    /// Width of the feed-forward block.
    pub mlp_dim: usize,
    /// Activation of the feed-forward block's gate.
    pub activation: Activation,
    /// Maximum sequence length.
    pub max_length: usize,
    /// Tokens that a token attends to, itself among them; all by default.
    pub window: Option<usize>,
    /// Epsilon of the norms.
    pub norm_eps: f32,
    /// Base of the rotary positions' frequencies.
    pub rope_base: f32,
    /// How their frequencies are scaled.
    pub rope_scaling: RopeScaling,
    /// The first values of each head that are rotated, if it is not the whole head.
    pub rotary_dim: Option<usize>,
    /// Whether queries, keys and values come from one matrix.
    pub fused_qkv: bool,
    /// Whether queries, keys and values have biases.
    pub qkv_bias: bool,
    /// Whether the output of attention has a bias.
    pub output_bias: bool,
    /// Whether the feed-forward block has biases.
    pub mlp_bias: bool,
    /// Whether each head of queries and keys is normalised.
    pub qk_norm: bool,
    /// Whether the output matrix is that of the word embeddings.
    pub tied: bool,
    /// Whether the vectors of words are multiplied by the square root of their width.
    pub scaled_embedding: bool,
    /// Whether norms multiply by 1 + weight.
    pub unit_offset_norm: bool,
    /// Dropout on the attention weights.
    pub attention_dropout: f32,
}

impl Default for LlamaConfig {
    fn default() -> Self {
        LlamaConfig {
            variant: Variant::Llama,
            vocabulary: 32_000,
            dim: 4096,
            depth: 32,
            heads: 32,
            kv_heads: 32,
            head_dim: None,
            mlp_dim: 11_008,
            activation: Activation::Silu,
            max_length: 2048,
            window: None,
            norm_eps: 1e-6,
            rope_base: 10_000.0,
            rope_scaling: RopeScaling::None,
            rotary_dim: None,
            fused_qkv: false,
            qkv_bias: false,
            output_bias: false,
            mlp_bias: false,
            qk_norm: false,
            tied: false,
            scaled_embedding: false,
            unit_offset_norm: false,
            attention_dropout: 0.0,
        }
    }
}

impl LlamaConfig {
    /// Width of a head.
    pub fn head_dim(&self) -> usize {
        self.head_dim.unwrap_or(self.dim / self.heads.max(1))
    }

    /// Values of a head that are rotated.
    pub fn rotary_dim(&self) -> usize {
        self.rotary_dim.unwrap_or(self.head_dim())
    }

    /// Width of a token's keys, and of its values.
    pub fn kv_dim(&self) -> usize {
        self.kv_heads * self.head_dim()
    }

    /// An error for a configuration that cannot be built, with the requirement.
    pub fn check(&self) -> Result<(), ConfigError> {
        check_sizes(&[
            ("vocabulary", self.vocabulary),
            ("dim", self.dim),
            ("depth", self.depth),
            ("heads", self.heads),
            ("kv_heads", self.kv_heads),
            ("head_dim", self.head_dim()),
            ("mlp_dim", self.mlp_dim),
            ("max_length", self.max_length),
            ("window", self.window.unwrap_or(1)),
        ])?;
        // With a width of its own, heads need not divide the width of a token.
        check_layers(if self.head_dim.is_some() { self.heads } else { self.dim }, self.heads, self.depth)?;
        let rotated = self.rotary_dim();
        rule(rotated.is_multiple_of(2), || {
            format!("{rotated} values of a head cannot be rotated in pairs: head_dim, or rotary_dim, must be even")
        })?;
        rule((2..=self.head_dim()).contains(&rotated), || {
            format!("rotary_dim must be between 2 and the width of a head, {}; it is {rotated}", self.head_dim())
        })?;
        rule(self.heads.is_multiple_of(self.kv_heads), || {
            format!("{} kv_heads do not divide {} heads", self.kv_heads, self.heads)
        })?;
        rule(self.rope_base > 1.0 && self.rope_base.is_finite(), || {
            format!("rope_base must be above 1, not {}", self.rope_base)
        })?;
        self.rope_scaling.check(rotated)?;
        check_rates(&[("attention_dropout", self.attention_dropout)])?;
        check_eps(self.norm_eps)
    }

    /// Reads a configuration.
    pub(super) fn from_hugging_face(object: &Object, variant: Variant) -> Result<LlamaConfig, Fault> {
        let usual = variant.usual();
        let size = |key: &str, usual: usize| Ok::<_, Fault>(object.size(key)?.unwrap_or(usual));
        let flag = |key: &str, usual: bool| Ok::<_, Fault>(object.flag(key)?.unwrap_or(usual));
        let rate = |key: &str, usual: f32| Ok::<_, Fault>(object.number(key)?.map_or(usual, |rate| rate as f32));
        let (dim, heads) = (size("hidden_size", usual.dim)?, size("num_attention_heads", usual.heads)?);
        let kv_heads = match variant {
            Variant::Llama | Variant::Phi3 => heads,
            Variant::Mistral | Variant::Qwen2 | Variant::Qwen3 | Variant::Gemma => usual.kv_heads,
        };
        if variant == Variant::Gemma && object.flag("use_bidirectional_attention")? == Some(true) {
            let what = "attention to later tokens is not supported".to_string();
            return Err(object.fault("use_bidirectional_attention", what));
        }
        let head_dim = object.size("head_dim")?.or(usual.head_dim).filter(|width| width * heads != dim);
        let own_length = size("max_position_embeddings", usual.max_length)?;
        let (rope_base, rope_scaling) = RopeScaling::read(object, usual.rope_base, own_length)?;
        let depth = size("num_hidden_layers", usual.depth)?;
        let (qkv_bias, output_bias) = match variant {
            Variant::Llama | Variant::Qwen3 | Variant::Gemma => {
                let bias = flag("attention_bias", false)?;
                (bias, bias)
            }
            Variant::Mistral | Variant::Phi3 => (false, false),
            Variant::Qwen2 => (true, false),
        };
        Ok(LlamaConfig {
            variant,
            vocabulary: size("vocab_size", usual.vocabulary)?,
            dim,
            depth,
            heads,
            kv_heads: size("num_key_value_heads", kv_heads)?,
            head_dim,
            mlp_dim: size("intermediate_size", usual.mlp_dim)?,
            activation: activation(object, variant, usual.activation)?,
            max_length: rope_scaling.longest(own_length),
            window: window(object, variant, usual.window, depth)?,
            norm_eps: rate("rms_norm_eps", usual.norm_eps)?,
            rope_base,
            rope_scaling,
            rotary_dim: rotary_dim(object, variant, head_dim.unwrap_or(dim / heads.max(1)))?,
            fused_qkv: usual.fused_qkv,
            qkv_bias,
            output_bias,
            mlp_bias: variant == Variant::Llama && flag("mlp_bias", false)?,
            qk_norm: variant == Variant::Qwen3,
            tied: flag("tie_word_embeddings", usual.tied)?,
            scaled_embedding: usual.scaled_embedding,
            unit_offset_norm: usual.unit_offset_norm,
            attention_dropout: rate("attention_dropout", usual.attention_dropout)?,
        })
    }

    /// `rope_parameters` as `transformers` 5 reads them.
    fn rope_parameters(&self) -> Result<Value, String> {
        let mut parameters = self.rope_scaling.write(self.rope_base)?;
        if let Some(rotated) = self.rotary_dim {
            let head = self.head_dim() as f64;
            // The library rounds the product down, which must give the number again.
            let exact = rotated as f64 / head;
            let part = if (head * exact) as usize == rotated { exact } else { (rotated as f64 + 0.5) / head };
            parameters["partial_rotary_factor"] = json!(part);
        }
        Ok(parameters)
    }

    /// The configuration of the Hugging Face class for this model; or why there is none.
    pub(super) fn to_hugging_face(&self) -> Result<Settings, String> {
        let variant = self.variant;
        let biases = match variant {
            Variant::Llama | Variant::Qwen3 | Variant::Gemma => self.qkv_bias == self.output_bias,
            Variant::Mistral | Variant::Phi3 => !self.qkv_bias && !self.output_bias,
            Variant::Qwen2 => self.qkv_bias && !self.output_bias,
        };
        let fits = [
            (biases, "such biases of attention"),
            (!self.mlp_bias || variant == Variant::Llama, "biases of the feed-forward block"),
            (self.qk_norm == (variant == Variant::Qwen3), "normalised queries and keys, or without"),
            (self.window.is_none() || !matches!(variant, Variant::Llama | Variant::Gemma), "a window"),
            (self.fused_qkv == (variant == Variant::Phi3), "queries, keys and values in one matrix, or apart"),
            (self.rotary_dim.is_none() || variant == Variant::Phi3, "heads that are rotated in part"),
            (variant != Variant::Phi3 || self.rope_scaling.suits_phi3(), "such a scaling of rotary positions"),
            (self.scaled_embedding == (variant == Variant::Gemma), "scaled embeddings, or without"),
            (self.unit_offset_norm == (variant == Variant::Gemma), "norms that add 1 to their weights, or without"),
        ];
        if let Some((_, what)) = fits.into_iter().find(|(fits, _)| !fits) {
            return Err(format!("Hugging Face's {} has no {what}", variant.class()));
        }
        let mut entries = vec![
            ("architectures", json!([variant.class()])),
            ("model_type", json!(variant.model_type())),
            ("vocab_size", json!(self.vocabulary)),
            ("hidden_size", json!(self.dim)),
            ("num_hidden_layers", json!(self.depth)),
            ("num_attention_heads", json!(self.heads)),
            ("num_key_value_heads", json!(self.kv_heads)),
            ("head_dim", json!(self.head_dim())),
            ("intermediate_size", json!(self.mlp_dim)),
            ("hidden_act", json!(self.activation.hugging_face())),
            ("max_position_embeddings", json!(self.rope_scaling.own_length(self.max_length))),
            ("rms_norm_eps", shortest(self.norm_eps)),
            ("rope_parameters", self.rope_parameters()?),
            ("rope_theta", shortest(self.rope_base)),
            ("tie_word_embeddings", json!(self.tied)),
            ("attention_dropout", shortest(self.attention_dropout)),
            ("initializer_range", json!(0.02)),
        ];
        match variant {
            Variant::Llama => {
                entries.extend([("attention_bias", json!(self.qkv_bias)), ("mlp_bias", json!(self.mlp_bias))]);
            }
            Variant::Mistral => entries.push(("sliding_window", json!(self.window))),
            Variant::Gemma => entries.push(("attention_bias", json!(self.qkv_bias))),
            Variant::Phi3 => {
                let original = self.rope_scaling.original_length().unwrap_or(self.max_length);
                entries.push(("sliding_window", json!(self.window)));
                entries.push(("original_max_position_embeddings", json!(original)));
                // The class pads with token 32000 unless it is told otherwise.
                if self.vocabulary <= 32_000 {
                    entries.push(("pad_token_id", Value::Null));
                }
            }
            Variant::Qwen2 | Variant::Qwen3 => {
                let everywhere = if self.window.is_some() { 0 } else { self.depth };
                entries.extend([
                    ("use_sliding_window", json!(self.window.is_some())),
                    ("sliding_window", json!(self.window)),
                    ("max_window_layers", json!(everywhere)),
                ]);
                if variant == Variant::Qwen3 {
                    entries.push(("attention_bias", json!(self.qkv_bias)));
                }
            }
        }
        Ok(entries.into_iter().map(|(key, value): (&str, Value)| (key.to_string(), value)).collect())
    }
}

/// The activation; Gemma's "gelu" is the approximation with tanh.
fn activation(object: &Object, variant: Variant, usual: Activation) -> Result<Activation, Fault> {
    let Some(name) = object.text("hidden_act")? else { return Ok(usual) };
    match Activation::from_hugging_face(name) {
        Some(Activation::Gelu) if variant == Variant::Gemma => Ok(Activation::GeluTanh),
        Some(activation) => Ok(activation),
        None => {
            Err(object.fault("hidden_act", format!("{name:?} is not supported: silu, gelu, gelu_new and relu are")))
        }
    }
}

/// How many values of a head are rotated, if it is a part of them.
fn rotary_dim(object: &Object, variant: Variant, head_dim: usize) -> Result<Option<usize>, Fault> {
    const KEY: &str = "partial_rotary_factor";
    let mut stated = None;
    for key in ["rope_parameters", "rope_scaling"] {
        if let Some(inner) = object.object(key)? {
            stated = stated.or(inner.number(KEY)?);
        }
    }
    match stated.or(object.number(KEY)?).filter(|part| *part != 1.0) {
        None => Ok(None),
        Some(_) if variant != Variant::Phi3 => {
            Err(object.fault(KEY, "rotating a part of each head is not supported but for Phi-3".to_string()))
        }
        Some(part) if part > 0.0 && part < 1.0 => Ok(Some((head_dim as f64 * part) as usize)),
        Some(part) => Err(object.fault(KEY, format!("must be above 0 and at most 1, not {part}"))),
    }
}

/// The window of all layers. Qwen's first layers may be without one, which is not supported.
fn window(object: &Object, variant: Variant, usual: Option<usize>, depth: usize) -> Result<Option<usize>, Fault> {
    let stated = |usual| match object.get("sliding_window") {
        Some(Value::Null) => Ok(None),
        _ => Ok::<_, Fault>(object.size("sliding_window")?.or(usual)),
    };
    match variant {
        Variant::Llama | Variant::Gemma => Ok(None),
        Variant::Mistral | Variant::Phi3 => stated(usual),
        Variant::Qwen2 | Variant::Qwen3 if object.flag("use_sliding_window")? != Some(true) => Ok(None),
        Variant::Qwen2 | Variant::Qwen3 => match object.size("max_window_layers")?.unwrap_or(28) {
            0 => stated(Some(4096)),
            first if first >= depth => Ok(None),
            _ => {
                let what = "a window for some layers only is not supported".to_string();
                Err(object.fault("max_window_layers", what))
            }
        },
    }
}
