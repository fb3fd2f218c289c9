//! The relatives of BERT, which differ in settings, in their heads and in the names of their tensors:
//!
//! | | positions | token types | embeddings | pooler | head for a text |
//! |---|---|---|---|---|---|
//! | BERT | from 0 | 2 | | yes | on the pooler |
//! | RoBERTa, XLM-RoBERTa, CamemBERT | from that of padding + 1 | 1 | | yes | `tanh` layer over the first token |
//! | DistilBERT | from 0 | none | | no | `relu` layer over the first token |
//! | ELECTRA | from 0 | 2 | may be narrower | no | `gelu` layer over the first token |

use super::config::BertConfig;
use crate::families::encoder::{HeadNames, KEYS, Keys, MaskedNames};
use crate::settings::choice;

choice! {
    /// A relative of BERT.
    Variant {
        /// BERT, and those that changed only its training.
        Bert,
        /// RoBERTa.
        Roberta,
        /// XLM-RoBERTa: RoBERTa for a hundred languages.
        XlmRoberta,
        /// CamemBERT: RoBERTa for French.
        Camembert,
        /// DistilBERT.
        Distilbert,
        /// ELECTRA: generator or discriminator.
        Electra,
    }
}

const DISTILBERT_KEYS: Keys = Keys {
    dim: "dim",
    depth: "n_layers",
    heads: "n_heads",
    mlp_dim: "hidden_dim",
    activation: "activation",
    dropout: "dropout",
    attention_dropout: "attention_dropout",
};

impl Variant {
    const ALL: [Variant; 6] = [
        Variant::Bert,
        Variant::Roberta,
        Variant::XlmRoberta,
        Variant::Camembert,
        Variant::Distilbert,
        Variant::Electra,
    ];

    /// The variant with this `model_type`.
    pub(super) fn of_model_type(name: &str) -> Option<Variant> {
        Variant::ALL.into_iter().find(|variant| variant.model_type() == name)
    }

    /// Its `model_type`.
    pub(super) fn model_type(self) -> &'static str {
        match self {
            Variant::Bert => "bert",
            Variant::Roberta => "roberta",
            Variant::XlmRoberta => "xlm-roberta",
            Variant::Camembert => "camembert",
            Variant::Distilbert => "distilbert",
            Variant::Electra => "electra",
        }
    }

    /// Its name, for people.
    pub(super) fn name(self) -> &'static str {
        match self {
            Variant::Bert => "BERT",
            Variant::Roberta => "RoBERTa",
            Variant::XlmRoberta => "XLM-RoBERTa",
            Variant::Camembert => "CamemBERT",
            Variant::Distilbert => "DistilBERT",
            Variant::Electra => "ELECTRA",
        }
    }

    /// Whether positions begin behind that of padding.
    pub(super) fn offsets_positions(self) -> bool {
        matches!(self, Variant::Roberta | Variant::XlmRoberta | Variant::Camembert)
    }

    pub(super) fn has_pooler(self) -> bool {
        !matches!(self, Variant::Distilbert | Variant::Electra)
    }

    pub(super) fn keys(self) -> &'static Keys {
        if self == Variant::Distilbert { &DISTILBERT_KEYS } else { &KEYS }
    }

    /// The name of the encoder in a model with a head.
    pub(super) fn base(self) -> &'static str {
        match self {
            Variant::Bert => "bert",
            Variant::Roberta | Variant::XlmRoberta | Variant::Camembert => "roberta",
            Variant::Distilbert => "distilbert",
            Variant::Electra => "electra",
        }
    }

    /// The values of absent keys, as `transformers` has them.
    pub(super) fn usual(self) -> BertConfig {
        let usual = BertConfig { variant: self, ..BertConfig::default() };
        let offset = BertConfig { position_offset: 2, max_length: 510, ..usual.clone() };
        match self {
            Variant::Bert => usual,
            Variant::Roberta => BertConfig { vocabulary: 50_265, ..offset },
            Variant::XlmRoberta | Variant::Camembert => offset,
            Variant::Distilbert => BertConfig { depth: 6, token_types: 0, ..usual },
            Variant::Electra => BertConfig { dim: 256, embedding_dim: Some(128), heads: 4, mlp_dim: 1024, ..usual },
        }
    }

    pub(super) fn head_names(self) -> HeadNames {
        let bert = HeadNames {
            class: "Bert",
            pretrains_masked: true,
            masked: "cls.predictions.",
            text_output: "classifier.weight",
            text_only: "bert.pooler.",
        };
        let roberta = |class: &'static str| HeadNames {
            class,
            pretrains_masked: false,
            masked: "lm_head.",
            text_output: "classifier.out_proj.weight",
            text_only: "classifier.out_proj.",
        };
        match self {
            Variant::Bert => bert,
            Variant::Roberta => roberta("Roberta"),
            Variant::XlmRoberta => roberta("XLMRoberta"),
            Variant::Camembert => roberta("Camembert"),
            Variant::Distilbert => HeadNames {
                class: "DistilBert",
                pretrains_masked: false,
                masked: "vocab_",
                text_only: "pre_classifier.",
                ..bert
            },
            Variant::Electra => HeadNames { masked: "generator_", ..roberta("Electra") },
        }
    }

    pub(super) fn masked_names(self) -> MaskedNames {
        match self {
            Variant::Bert => MaskedNames {
                transform: "cls.predictions.transform.dense",
                norm: "cls.predictions.transform.LayerNorm",
                bias: "cls.predictions.bias",
                decoder: "cls.predictions.decoder.weight",
                decoder_bias: Some("cls.predictions.decoder.bias"),
            },
            Variant::Roberta | Variant::XlmRoberta | Variant::Camembert => MaskedNames {
                transform: "lm_head.dense",
                norm: "lm_head.layer_norm",
                bias: "lm_head.bias",
                decoder: "lm_head.decoder.weight",
                decoder_bias: Some("lm_head.decoder.bias"),
            },
            Variant::Distilbert => MaskedNames {
                transform: "vocab_transform",
                norm: "vocab_layer_norm",
                bias: "vocab_projector.bias",
                decoder: "vocab_projector.weight",
                decoder_bias: None,
            },
            Variant::Electra => MaskedNames {
                transform: "generator_predictions.dense",
                norm: "generator_predictions.LayerNorm",
                bias: "generator_lm_head.bias",
                decoder: "generator_lm_head.weight",
                decoder_bias: None,
            },
        }
    }
}
