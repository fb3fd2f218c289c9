//! The configuration of BERT and its relatives, read from and written to Hugging Face's `config.json`.

use serde::{Deserialize, Serialize};
use serde_json::json;

use super::variant::Variant;
use crate::checkpoint::json::{Fault, Object, shortest};
use crate::families::encoder::{Classifier, Encoder, Sizes, check_supported, class_of_head, put_problem_type};
use crate::settings::{Activation, ConfigError, Settings, rule};
use crate::signature::Head;

/// A BERT. The default is BERT-Base, uncased, with its pooler.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct BertConfig {
    /// Which relative of BERT it is.
    pub variant: Variant,
    /// Vocabulary size.
    pub vocabulary: usize,
    /// Width of a token.
    pub dim: usize,
    /// Width of the embeddings, if it differs from `dim`: a linear layer is between them.
    pub embedding_dim: Option<usize>,
    /// Number of layers.
    pub depth: usize,
    /// Attention heads; must divide `dim`.
    pub heads: usize,
    /// Width of the feed-forward block.
    pub mlp_dim: usize,
    /// Activation of the feed-forward block and of the masked-token head.
    pub activation: Activation,
    /// Maximum sequence length.
    pub max_length: usize,
    /// The row of the position table that the first token gets: RoBERTa's positions begin behind that of padding.
    pub position_offset: usize,
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
    /// Dropout before the output of a head, if it differs from `dropout`.
    pub head_dropout: Option<f32>,
}

impl Default for BertConfig {
    fn default() -> Self {
        BertConfig {
            variant: Variant::Bert,
            vocabulary: 30_522,
            dim: 768,
            embedding_dim: None,
            depth: 12,
            heads: 12,
            mlp_dim: 3072,
            activation: Activation::Gelu,
            max_length: 512,
            position_offset: 0,
            token_types: 2,
            norm_eps: 1e-12,
            pooler: true,
            head: Head::None,
            states_problem: true,
            tied: true,
            dropout: 0.1,
            attention_dropout: 0.1,
            head_dropout: None,
        }
    }
}

/// DistilBERT's norms have no setting of their own.
const DISTILBERT_EPS: f32 = 1e-12;

impl BertConfig {
    /// What the graph needs to know.
    pub(super) fn encoder(&self) -> Encoder {
        let embedding_dim = self.embedding_dim.unwrap_or(self.dim);
        let head_dropout = self.head_dropout.unwrap_or(self.dropout);
        Encoder {
            family: "bert",
            vocabulary: self.vocabulary,
            embedding_dim,
            projects: embedding_dim != self.dim,
            dim: self.dim,
            heads: self.heads,
            mlp_dim: self.mlp_dim,
            activation: self.activation,
            max_length: self.max_length,
            position_offset: self.position_offset,
            token_types: self.token_types,
            norm_eps: self.norm_eps,
            pooler: self.pooler,
            head: self.head,
            classifier: match self.variant {
                Variant::Bert => Classifier::Pooler,
                Variant::Roberta | Variant::XlmRoberta | Variant::Camembert => {
                    Classifier::Layer { activation: Activation::Tanh, dropout_before: true }
                }
                Variant::Distilbert => Classifier::Layer { activation: Activation::Relu, dropout_before: false },
                Variant::Electra => Classifier::Layer { activation: Activation::Gelu, dropout_before: true },
            },
            masked_activation: match self.variant {
                Variant::Bert | Variant::Distilbert => self.activation,
                Variant::Roberta | Variant::XlmRoberta | Variant::Camembert | Variant::Electra => Activation::Gelu,
            },
            tied: self.tied,
            dropout: self.dropout,
            attention_dropout: self.attention_dropout,
            head_dropout,
            span_dropout: if self.variant == Variant::Distilbert { head_dropout } else { 0.0 },
        }
    }

    /// An error for a configuration that cannot be built, with the requirement.
    pub fn check(&self) -> Result<(), ConfigError> {
        self.encoder().check(self.depth)?;
        let variant = self.variant.name();
        rule(!self.pooler || self.variant.has_pooler(), || format!("{variant} has no pooler: set pooler = false"))
    }

    /// Reads a configuration, without pooler and head, which follow from the class and the tensors.
    pub(super) fn from_hugging_face(object: &Object, variant: Variant) -> Result<BertConfig, Fault> {
        check_supported(object)?;
        let usual = variant.usual();
        let rate = |key: &str| Ok::<_, Fault>(object.number(key)?.map(|rate| rate as f32));
        let sizes = Sizes::read(object, variant.keys(), usual.sizes())?;
        let position_offset = match variant.offsets_positions() {
            true => object.size("pad_token_id")?.map_or(usual.position_offset, |padding| padding + 1),
            false => 0,
        };
        let positions = sizes.positions;
        let max_length = positions.checked_sub(position_offset).filter(|rows| *rows > 0).ok_or_else(|| {
            let what = format!("{positions} positions leave none for tokens, whose first is {position_offset}");
            object.fault("max_position_embeddings", what)
        })?;
        let (token_types, norm_eps) = match variant {
            Variant::Distilbert => (0, DISTILBERT_EPS),
            _ => (
                object.size("type_vocab_size")?.unwrap_or(usual.token_types),
                rate("layer_norm_eps")?.unwrap_or(usual.norm_eps),
            ),
        };
        let embedding_dim = match variant {
            Variant::Electra => object.size("embedding_size")?.or(usual.embedding_dim),
            _ => None,
        };
        Ok(BertConfig {
            variant,
            vocabulary: sizes.vocabulary,
            dim: sizes.dim,
            embedding_dim: embedding_dim.filter(|width| *width != sizes.dim),
            depth: sizes.depth,
            heads: sizes.heads,
            mlp_dim: sizes.mlp_dim,
            activation: sizes.activation,
            max_length,
            position_offset,
            token_types,
            norm_eps,
            pooler: false,
            head: Head::None,
            states_problem: true,
            tied: sizes.tied,
            dropout: sizes.dropout,
            attention_dropout: sizes.attention_dropout,
            head_dropout: None,
        })
    }

    /// Dropout of a head, from the key that Hugging Face has for it.
    pub(super) fn read_head_dropout(&mut self, object: &Object) -> Result<(), Fault> {
        let (key, usual) = match (self.variant, self.head) {
            (Variant::Distilbert, Head::TokenClasses(_)) => return Ok(()),
            (Variant::Distilbert, Head::Span) => ("qa_dropout", Some(0.1)),
            (Variant::Distilbert, _) => ("seq_classif_dropout", Some(0.2)),
            _ => ("classifier_dropout", None),
        };
        self.head_dropout = object.number(key)?.map(|rate| rate as f32).or(usual);
        Ok(())
    }

    fn sizes(&self) -> Sizes {
        Sizes {
            vocabulary: self.vocabulary,
            dim: self.dim,
            depth: self.depth,
            heads: self.heads,
            mlp_dim: self.mlp_dim,
            activation: self.activation,
            positions: self.max_length + self.position_offset,
            dropout: self.dropout,
            attention_dropout: self.attention_dropout,
            tied: self.tied,
        }
    }

    /// The configuration of the Hugging Face class for this model; or why there is none.
    pub(super) fn to_hugging_face(&self) -> Result<Settings, String> {
        let variant = self.variant;
        let fits = [
            (self.embedding_dim.is_none() || variant == Variant::Electra, "projected embeddings"),
            ((self.position_offset > 0) == variant.offsets_positions(), "positions that begin in that row"),
            ((self.token_types == 0) == (variant == Variant::Distilbert), "that number of token types"),
            (variant != Variant::Distilbert || self.norm_eps == DISTILBERT_EPS, "another epsilon of its norms"),
        ];
        if let Some((_, what)) = fits.into_iter().find(|(fits, _)| !fits) {
            return Err(format!("Hugging Face has no {} with {what}", variant.name()));
        }
        let class = class_of_head(&variant.head_names(), self.head, self.pooler);
        let mut config = self.sizes().write(variant.keys(), &class, variant.model_type());
        let mut put = |key: &str, value: serde_json::Value| config.insert(key.to_string(), value);
        if variant != Variant::Distilbert {
            put("type_vocab_size", json!(self.token_types));
            put("layer_norm_eps", shortest(self.norm_eps));
        }
        if variant == Variant::Electra {
            put("embedding_size", json!(self.embedding_dim.unwrap_or(self.dim)));
        }
        match (variant, self.head, self.head_dropout) {
            (Variant::Distilbert, Head::Span, rate) => {
                put("qa_dropout", shortest(rate.unwrap_or(self.dropout)));
            }
            (Variant::Distilbert, _, rate) => {
                put("seq_classif_dropout", shortest(rate.unwrap_or(self.dropout)));
            }
            (_, _, Some(rate)) => {
                put("classifier_dropout", shortest(rate));
            }
            (_, _, None) => {}
        }
        match self.position_offset.checked_sub(1) {
            Some(padding) => {
                // The first position follows from the token of padding.
                put("pad_token_id", json!(padding));
                put("bos_token_id", json!(0));
                put("eos_token_id", json!(2));
            }
            None => {
                put("pad_token_id", json!(0));
            }
        }
        if self.states_problem {
            put_problem_type(&mut config, self.head);
        }
        Ok(config)
    }
}
