//! The configuration of ALBERT, read from and written to Hugging Face's `config.json`.

use serde::{Deserialize, Serialize};
use serde_json::json;

use crate::checkpoint::json::{Fault, Object, shortest};
use crate::families::encoder::{
    Classifier, Encoder, HeadNames, KEYS, Sizes, check_supported, class_of_head, put_problem_type,
};
use crate::settings::{Activation, ConfigError, Settings, rule};
use crate::signature::Head;

/// An ALBERT. The default is ALBERT-Base, version 2, with its pooler.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AlbertConfig {
    /// Vocabulary size.
    pub vocabulary: usize,
    /// Width of the embeddings.
    pub embedding_dim: usize,
    /// Width of a token in the layers.
    pub dim: usize,
    /// How often a group of layers is applied.
    pub depth: usize,
    /// Groups with parameters of their own: the first is used for the first `depth / groups` times, and so on.
    pub groups: usize,
    /// Layers in a group.
    pub inner_layers: usize,
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
    /// The head.
    pub head: Head,
    /// Whether Hugging Face's configuration says what the outputs of a head for texts mean. Where it does not,
    /// `transformers` takes one output for a number in training, and for a probability in its pipeline.
    pub states_problem: bool,
    /// Whether the output matrix of the masked-token head is that of the word embeddings.
    pub tied: bool,
    /// Dropout after embeddings and residual branches.
    pub dropout: f32,
    /// Dropout on the attention weights.
    pub attention_dropout: f32,
    /// Dropout before the output of a head.
    pub head_dropout: f32,
}

impl Default for AlbertConfig {
    fn default() -> Self {
        AlbertConfig {
            vocabulary: 30_000,
            embedding_dim: 128,
            dim: 768,
            depth: 12,
            groups: 1,
            inner_layers: 1,
            heads: 12,
            mlp_dim: 3072,
            activation: Activation::GeluTanh,
            max_length: 512,
            token_types: 2,
            norm_eps: 1e-12,
            pooler: true,
            head: Head::None,
            states_problem: true,
            tied: true,
            dropout: 0.0,
            attention_dropout: 0.0,
            head_dropout: 0.1,
        }
    }
}

pub(super) const HEAD_NAMES: HeadNames = HeadNames {
    class: "Albert",
    pretrains_masked: true,
    masked: "predictions.",
    text_output: "classifier.weight",
    text_only: "albert.pooler.",
};

impl AlbertConfig {
    /// What the graph needs to know.
    pub(super) fn encoder(&self) -> Encoder {
        Encoder {
            family: "albert",
            vocabulary: self.vocabulary,
            embedding_dim: self.embedding_dim,
            projects: true,
            dim: self.dim,
            heads: self.heads,
            mlp_dim: self.mlp_dim,
            activation: self.activation,
            max_length: self.max_length,
            position_offset: 0,
            token_types: self.token_types,
            norm_eps: self.norm_eps,
            pooler: self.pooler,
            head: self.head,
            classifier: Classifier::Pooler,
            masked_activation: self.activation,
            tied: self.tied,
            dropout: self.dropout,
            attention_dropout: self.attention_dropout,
            head_dropout: self.head_dropout,
            span_dropout: 0.0,
        }
    }

    /// The group that is applied in this place. It is computed as `transformers` does, which divides by a fraction.
    pub(super) fn group(&self, place: usize) -> usize {
        let group = place as f64 / (self.depth as f64 / self.groups as f64);
        (group as usize).min(self.groups - 1)
    }

    /// An error for a configuration that cannot be built, with the requirement.
    pub fn check(&self) -> Result<(), ConfigError> {
        let AlbertConfig { depth, groups, inner_layers, .. } = *self;
        rule(groups > 0 && inner_layers > 0, || "groups and inner_layers must be at least 1".to_string())?;
        rule(groups <= depth, || format!("{groups} groups are more than {depth} layers that could use them"))?;
        self.encoder().check(depth.saturating_mul(inner_layers))
    }

    /// Reads a configuration, without pooler and head, which follow from the class and the tensors.
    pub(super) fn from_hugging_face(object: &Object) -> Result<AlbertConfig, Fault> {
        check_supported(object)?;
        // The defaults of the class are those of ALBERT-xxlarge.
        let usual = AlbertConfig { dim: 4096, heads: 64, mlp_dim: 16_384, ..AlbertConfig::default() };
        let size = |key: &str, usual: usize| Ok::<_, Fault>(object.size(key)?.unwrap_or(usual));
        let rate = |key: &str, usual: f32| Ok::<_, Fault>(object.number(key)?.map_or(usual, |rate| rate as f32));
        let sizes = Sizes::read(object, &KEYS, usual.sizes())?;
        Ok(AlbertConfig {
            vocabulary: sizes.vocabulary,
            embedding_dim: size("embedding_size", usual.embedding_dim)?,
            dim: sizes.dim,
            depth: sizes.depth,
            groups: size("num_hidden_groups", usual.groups)?,
            inner_layers: size("inner_group_num", usual.inner_layers)?,
            heads: sizes.heads,
            mlp_dim: sizes.mlp_dim,
            activation: sizes.activation,
            max_length: sizes.positions,
            token_types: size("type_vocab_size", usual.token_types)?,
            norm_eps: rate("layer_norm_eps", usual.norm_eps)?,
            pooler: false,
            head: Head::None,
            states_problem: true,
            tied: sizes.tied,
            dropout: sizes.dropout,
            attention_dropout: sizes.attention_dropout,
            head_dropout: rate("classifier_dropout_prob", usual.head_dropout)?,
        })
    }

    fn sizes(&self) -> Sizes {
        Sizes {
            vocabulary: self.vocabulary,
            dim: self.dim,
            depth: self.depth,
            heads: self.heads,
            mlp_dim: self.mlp_dim,
            activation: self.activation,
            positions: self.max_length,
            dropout: self.dropout,
            attention_dropout: self.attention_dropout,
            tied: self.tied,
        }
    }

    /// The configuration of the Hugging Face class for this model; or why there is none.
    pub(super) fn to_hugging_face(&self) -> Result<Settings, String> {
        if self.token_types == 0 {
            return Err("Hugging Face has no ALBERT without token types".to_string());
        }
        let class = class_of_head(&HEAD_NAMES, self.head, self.pooler);
        let mut config = self.sizes().write(&KEYS, &class, "albert");
        let entries = [
            ("embedding_size", json!(self.embedding_dim)),
            ("num_hidden_groups", json!(self.groups)),
            ("inner_group_num", json!(self.inner_layers)),
            ("type_vocab_size", json!(self.token_types)),
            ("layer_norm_eps", shortest(self.norm_eps)),
            ("classifier_dropout_prob", shortest(self.head_dropout)),
            ("pad_token_id", json!(0)),
            ("bos_token_id", json!(2)),
            ("eos_token_id", json!(3)),
        ];
        config.extend(entries.into_iter().map(|(key, value)| (key.to_string(), value)));
        if self.states_problem {
            put_problem_type(&mut config, self.head);
        }
        Ok(config)
    }
}
