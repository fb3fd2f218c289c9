//! Hugging Face's tensor names for BERT and its relatives, and reading their checkpoints.

use super::config::BertConfig;
use super::variant::Variant;
use crate::checkpoint::Dialect;
use crate::checkpoint::json::Fault;
use crate::families::encoder::{HeadReading, Names, read_head};
use crate::family::{Checkpoint, Reading};
use crate::signature::Head;

/// Reads a checkpoint; `None` if it is not a BERT.
pub(super) fn read(checkpoint: &Checkpoint) -> Result<Option<Reading>, Fault> {
    let Some(variant) = checkpoint.model_type()?.and_then(Variant::of_model_type) else { return Ok(None) };
    let Some(object) = checkpoint.config else { return Ok(None) };
    let mut config = BertConfig::from_hugging_face(&object, variant)?;
    let (prefix, backbone) = match checkpoint.tensors {
        Some(tensors) => Names::prefixes(tensors, variant.model_type(), variant.base())?,
        None => Default::default(),
    };
    let HeadReading { head, states_problem, labels, notes } =
        read_head(checkpoint, &object, &variant.head_names(), &prefix)?;
    (config.head, config.states_problem) = (head, states_problem);
    config.pooler = match checkpoint.tensors {
        Some(tensors) => tensors.contains_key(&format!("{prefix}{backbone}pooler.dense.weight")),
        None => variant.has_pooler() && (head == Head::None || config.encoder().pooler_with(head)),
    };
    // A classification head without its pooler lacks a tensor, which is then named.
    config.pooler |= config.encoder().pooler_with(head);
    config.read_head_dropout(&object)?;
    checkpoint.check_layers(config.depth)?;
    let dialect = rules(&config, &backbone).with_prefix(&prefix);
    Ok(Some(Reading { architecture: Box::new(config), dialect, labels, notes }))
}

/// The dialect in which a model is written; or why there is none.
pub(super) fn written(config: &BertConfig) -> Result<Dialect, String> {
    let backbone = match config.head {
        Head::None => String::new(),
        _ => format!("{}.", config.variant.base()),
    };
    Ok(Dialect { config: Some(config.to_hugging_face()?), ..rules(config, &backbone) })
}

const LAYERS: [(&str, &str); 8] = [
    ("blocks.#.attention.query.*", "encoder.layer.#.attention.self.query.*"),
    ("blocks.#.attention.key.*", "encoder.layer.#.attention.self.key.*"),
    ("blocks.#.attention.value.*", "encoder.layer.#.attention.self.value.*"),
    ("blocks.#.attention.output.*", "encoder.layer.#.attention.output.dense.*"),
    ("blocks.#.norm1.*", "encoder.layer.#.attention.output.LayerNorm.*"),
    ("blocks.#.mlp.fc1.*", "encoder.layer.#.intermediate.dense.*"),
    ("blocks.#.mlp.fc2.*", "encoder.layer.#.output.dense.*"),
    ("blocks.#.norm2.*", "encoder.layer.#.output.LayerNorm.*"),
];

const DISTILBERT_LAYERS: [(&str, &str); 8] = [
    ("blocks.#.attention.query.*", "transformer.layer.#.attention.q_lin.*"),
    ("blocks.#.attention.key.*", "transformer.layer.#.attention.k_lin.*"),
    ("blocks.#.attention.value.*", "transformer.layer.#.attention.v_lin.*"),
    ("blocks.#.attention.output.*", "transformer.layer.#.attention.out_lin.*"),
    ("blocks.#.norm1.*", "transformer.layer.#.sa_layer_norm.*"),
    ("blocks.#.mlp.fc1.*", "transformer.layer.#.ffn.lin1.*"),
    ("blocks.#.mlp.fc2.*", "transformer.layer.#.ffn.lin2.*"),
    ("blocks.#.norm2.*", "transformer.layer.#.output_layer_norm.*"),
];

/// The beginnings of the tensors of all heads.
const HEADS: [&str; 9] = [
    "cls.",
    "classifier.",
    "pre_classifier.",
    "qa_outputs.",
    "lm_head.",
    "vocab_",
    "generator_",
    "discriminator_predictions.",
    "sequence_summary.",
];

fn rules(config: &BertConfig, backbone: &str) -> Dialect {
    let variant = config.variant;
    let mut names = Names::new(backbone);
    names.encoder(&[
        ("embedding.words", "embeddings.word_embeddings.weight"),
        ("embedding.token_types", "embeddings.token_type_embeddings.weight"),
        ("embedding.positions", "embeddings.position_embeddings.weight"),
        ("embedding.norm.*", "embeddings.LayerNorm.*"),
        ("embedding.projection.*", "embeddings_project.*"),
        ("pooler.*", "pooler.dense.*"),
    ]);
    names.encoder(if variant == Variant::Distilbert { &DISTILBERT_LAYERS } else { &LAYERS });
    match config.head {
        Head::None => {}
        Head::MaskedTokens => {
            names.masked(&variant.masked_names(), config.tied, config.vocabulary);
            if variant == Variant::Bert {
                // The next-sentence prediction head.
                names.keep("next_text.weight", "cls.seq_relationship.weight", &[2, config.dim]);
                names.keep("next_text.bias", "cls.seq_relationship.bias", &[2]);
            }
        }
        Head::Classes(_) | Head::Labels(_) | Head::Numbers(_) => match variant {
            Variant::Bert => names.head("head.*", "classifier.*"),
            Variant::Distilbert => {
                names.head("head.dense.*", "pre_classifier.*");
                names.head("head.*", "classifier.*");
            }
            Variant::Roberta | Variant::XlmRoberta | Variant::Camembert | Variant::Electra => {
                names.head("head.dense.*", "classifier.dense.*");
                names.head("head.*", "classifier.out_proj.*");
            }
        },
        Head::TokenClasses(_) => names.head("head.*", "classifier.*"),
        Head::Span => names.head("head.*", "qa_outputs.*"),
    }
    names.dialect(&HEADS)
}
