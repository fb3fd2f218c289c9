//! Hugging Face's tensor names for ALBERT, and reading its checkpoints.

use super::config::{AlbertConfig, HEAD_NAMES};
use crate::checkpoint::Dialect;
use crate::checkpoint::json::Fault;
use crate::families::encoder::{HeadReading, MaskedNames, Names, read_head};
use crate::family::{Checkpoint, Reading};
use crate::signature::Head;

/// Reads a checkpoint; `None` if it is not an ALBERT.
pub(super) fn read(checkpoint: &Checkpoint) -> Result<Option<Reading>, Fault> {
    let (Some("albert"), Some(object)) = (checkpoint.model_type()?, checkpoint.config) else { return Ok(None) };
    let mut config = AlbertConfig::from_hugging_face(&object)?;
    let (prefix, backbone) = match checkpoint.tensors {
        Some(tensors) => Names::prefixes(tensors, "albert", "albert")?,
        None => Default::default(),
    };
    let HeadReading { head, states_problem, labels, notes } = read_head(checkpoint, &object, &HEAD_NAMES, &prefix)?;
    (config.head, config.states_problem) = (head, states_problem);
    config.pooler = match checkpoint.tensors {
        Some(tensors) => tensors.contains_key(&format!("{prefix}{backbone}pooler.weight")),
        None => head == Head::None,
    };
    // A classification head without its pooler lacks a tensor, which is then named.
    config.pooler |= config.encoder().pooler_with(head);
    // The file bounds the sets of parameters, and the configuration's own check how often they are used.
    checkpoint.check_layers(config.groups.saturating_mul(config.inner_layers))?;
    let dialect = rules(&config, &backbone).with_prefix(&prefix);
    Ok(Some(Reading { architecture: Box::new(config), dialect, labels, notes }))
}

/// The dialect in which a model is written; or why there is none.
pub(super) fn written(config: &AlbertConfig) -> Result<Dialect, String> {
    let backbone = if config.head == Head::None { "" } else { "albert." };
    Ok(Dialect { config: Some(config.to_hugging_face()?), ..rules(config, backbone) })
}

const MASKED: MaskedNames = MaskedNames {
    transform: "predictions.dense",
    norm: "predictions.LayerNorm",
    bias: "predictions.bias",
    decoder: "predictions.decoder.weight",
    decoder_bias: Some("predictions.decoder.bias"),
};

fn rules(config: &AlbertConfig, backbone: &str) -> Dialect {
    let mut names = Names::new(backbone);
    names.encoder(&[
        ("embedding.words", "embeddings.word_embeddings.weight"),
        ("embedding.token_types", "embeddings.token_type_embeddings.weight"),
        ("embedding.positions", "embeddings.position_embeddings.weight"),
        ("embedding.norm.*", "embeddings.LayerNorm.*"),
        ("embedding.projection.*", "encoder.embedding_hidden_mapping_in.*"),
        ("pooler.*", "pooler.*"),
    ]);
    let layer = [
        ("attention.query", "attention.query"),
        ("attention.key", "attention.key"),
        ("attention.value", "attention.value"),
        ("attention.output", "attention.dense"),
        ("norm1", "attention.LayerNorm"),
        ("mlp.fc1", "ffn"),
        ("mlp.fc2", "ffn_output"),
        ("norm2", "full_layer_layer_norm"),
    ];
    for (ours, theirs) in layer {
        let ours = format!("groups.#.#.{ours}.*");
        names.encoder(&[(&ours, &format!("encoder.albert_layer_groups.#.albert_layers.#.{theirs}.*"))]);
    }
    match config.head {
        Head::None => {}
        Head::MaskedTokens => {
            names.masked(&MASKED, config.tied, config.vocabulary);
            // The head for the order of two sentences.
            names.keep("text_order.weight", "sop_classifier.classifier.weight", &[2, config.dim]);
            names.keep("text_order.bias", "sop_classifier.classifier.bias", &[2]);
        }
        Head::Classes(_) | Head::Labels(_) | Head::Numbers(_) | Head::TokenClasses(_) => {
            names.head("head.*", "classifier.*");
        }
        Head::Span => names.head("head.*", "qa_outputs.*"),
    }
    names.dialect(&["predictions.", "sop_classifier.", "classifier.", "qa_outputs."])
}
