//! The configuration of BERT, read from and written to Hugging Face's `config.json`.

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::checkpoint::json::{Fault, Object, shortest};
use crate::settings::{Activation, ConfigError, Settings, check_eps, check_layers, check_rates, check_sizes, rule};

/// A BERT. The default is BERT-Base, uncased, with its pooler.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BertConfig {
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
    /// Activation of the feed-forward block and of the masked-token head.
    pub activation: Activation,
    /// Maximum sequence length: rows of the position table.
    pub max_length: usize,
    /// Number of token types: 2 distinguish the first text from the second.
    pub token_types: usize,
    /// Epsilon of the norms.
    pub norm_eps: f32,
    /// Whether there is a `tanh` layer over the first token.
    pub pooler: bool,
    /// Whether there is a masked-token head.
    pub masked_tokens: bool,
    /// Number of classes of a classification head; 0 for none.
    pub classes: usize,
    /// Dropout after embeddings and residual branches.
    pub dropout: f32,
    /// Dropout on the attention weights.
    pub attention_dropout: f32,
}

impl Default for BertConfig {
    fn default() -> Self {
        BertConfig {
            vocabulary: 30_522,
            dim: 768,
            depth: 12,
            heads: 12,
            mlp_dim: 3072,
            activation: Activation::Gelu,
            max_length: 512,
            token_types: 2,
            norm_eps: 1e-12,
            pooler: true,
            masked_tokens: false,
            classes: 0,
            dropout: 0.1,
            attention_dropout: 0.1,
        }
    }
}

/// Hugging Face settings that change the computation in unsupported ways, with the supported value.
const ONLY: [(&str, &str); 1] = [("position_embedding_type", "absolute")];

impl BertConfig {
    /// An error for a configuration that cannot be built, with the requirement.
    pub fn check(&self) -> Result<(), ConfigError> {
        check_sizes(&[
            ("vocabulary", self.vocabulary),
            ("dim", self.dim),
            ("depth", self.depth),
            ("heads", self.heads),
            ("mlp_dim", self.mlp_dim),
            ("max_length", self.max_length),
            ("token_types", self.token_types),
            ("classes", self.classes.saturating_add(1)),
        ])?;
        check_layers(self.dim, self.heads, self.depth)?;
        check_rates(&[("dropout", self.dropout), ("attention_dropout", self.attention_dropout)])?;
        check_eps(self.norm_eps)?;
        rule(self.classes == 0 || self.pooler, || {
            "a classification head stands on the pooler: set pooler = true".into()
        })?;
        rule(self.classes == 0 || !self.masked_tokens, || "a model has one head: masked_tokens or classes".into())
    }

    /// Reads a configuration; the heads follow from the class name, `None` if there is none.
    pub(super) fn from_hugging_face(object: &Object) -> Result<(BertConfig, Option<Heads>), Fault> {
        let usual = BertConfig::default();
        let size = |key: &str, default: usize| Ok::<_, Fault>(object.size(key)?.unwrap_or(default));
        let rate = |key: &str, default: f32| Ok::<_, Fault>(object.number(key)?.map_or(default, |rate| rate as f32));
        for (key, only) in ONLY {
            if let Some(other) = object.text(key)?.filter(|value| *value != only) {
                return Err(object.fault(key, format!("{other:?} is not known here, only {only:?} is")));
            }
        }
        if object.flag("is_decoder")? == Some(true) {
            return Err(object.fault("is_decoder", "a BERT that decodes is not known here".to_string()));
        }
        let name = object.text("hidden_act")?.unwrap_or("gelu");
        let activation = Activation::from_hugging_face(name).ok_or_else(|| {
            object.fault("hidden_act", format!("{name:?} is not known here: gelu, gelu_new, relu and silu are"))
        })?;
        let config = BertConfig {
            vocabulary: size("vocab_size", usual.vocabulary)?,
            dim: size("hidden_size", usual.dim)?,
            depth: size("num_hidden_layers", usual.depth)?,
            heads: size("num_attention_heads", usual.heads)?,
            mlp_dim: size("intermediate_size", usual.mlp_dim)?,
            activation,
            max_length: size("max_position_embeddings", usual.max_length)?,
            token_types: size("type_vocab_size", usual.token_types)?,
            norm_eps: rate("layer_norm_eps", usual.norm_eps)?,
            pooler: true,
            masked_tokens: false,
            classes: 0,
            dropout: rate("hidden_dropout_prob", usual.dropout)?,
            attention_dropout: rate("attention_probs_dropout_prob", usual.attention_dropout)?,
        };
        let class = object.get("architectures").and_then(Value::as_array).and_then(|names| names.first()?.as_str());
        Ok((config, class.and_then(Heads::of_class)))
    }

    /// The configuration of the Hugging Face class for this model.
    pub(super) fn to_hugging_face(&self) -> Settings {
        let class = match (self.classes, self.masked_tokens, self.pooler) {
            (1.., ..) => "BertForSequenceClassification",
            (0, true, true) => "BertForPreTraining",
            (0, true, false) => "BertForMaskedLM",
            (0, false, _) => "BertModel",
        };
        let entries = [
            ("architectures", json!([class])),
            ("model_type", json!("bert")),
            ("vocab_size", json!(self.vocabulary)),
            ("hidden_size", json!(self.dim)),
            ("num_hidden_layers", json!(self.depth)),
            ("num_attention_heads", json!(self.heads)),
            ("intermediate_size", json!(self.mlp_dim)),
            ("hidden_act", json!(self.activation.hugging_face())),
            ("hidden_dropout_prob", shortest(self.dropout)),
            ("attention_probs_dropout_prob", shortest(self.attention_dropout)),
            ("max_position_embeddings", json!(self.max_length)),
            ("type_vocab_size", json!(self.token_types)),
            ("initializer_range", json!(0.02)),
            ("layer_norm_eps", shortest(self.norm_eps)),
            ("pad_token_id", json!(0)),
        ];
        entries.into_iter().map(|(key, value)| (key.to_string(), value)).collect()
    }
}

/// The heads on the encoder, from the name of Hugging Face's class.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Heads {
    Encoder,
    MaskedTokens,
    Classes,
}

impl Heads {
    fn of_class(name: &str) -> Option<Heads> {
        match name {
            "BertModel" => Some(Heads::Encoder),
            "BertForMaskedLM" | "BertForPreTraining" => Some(Heads::MaskedTokens),
            "BertForSequenceClassification" => Some(Heads::Classes),
            _ => None,
        }
    }
}
