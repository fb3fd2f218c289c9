//! Hugging Face's tensor names for BERT, and reading its checkpoints.

use super::config::{BertConfig, Heads};
use crate::checkpoint::json::Fault;
use crate::checkpoint::{Dialect, Inventory, Rule, prefix_of};
use crate::family::{Checkpoint, Reading};

/// Reads a checkpoint; `None` if it is not a BERT.
pub(super) fn read(checkpoint: &Checkpoint) -> Result<Option<Reading>, Fault> {
    let (Some("bert"), Some(object)) = (checkpoint.model_type()?, checkpoint.config) else { return Ok(None) };
    let (mut config, heads) = BertConfig::from_hugging_face(&object)?;
    let labels = object.labels("id2label")?.unwrap_or_default();
    let said = object.size("num_labels")?.or(Some(labels.len()).filter(|count| *count > 0));
    let (prefix, backbone) = match checkpoint.tensors {
        Some(tensors) => prefixes(tensors)?,
        None => (String::new(), ""),
    };
    let rows = |name: &str| Some(*checkpoint.tensors?.get(&format!("{prefix}{name}"))?.first()?);
    let pooler = || rows(&format!("{backbone}pooler.dense.weight")).is_some();
    config.masked_tokens =
        heads.map_or_else(|| rows("cls.predictions.bias").is_some(), |heads| heads == Heads::MaskedTokens);
    let has_classes = heads.map_or_else(|| rows("classifier.weight").is_some(), |heads| heads == Heads::Classes);
    config.classes = match (has_classes, rows("classifier.weight"), said) {
        (false, ..) => 0,
        (true, Some(rows), Some(said)) if rows != said && checkpoint.options.replace_head.is_none() => {
            let what = format!("the configuration has {said} classes, but `classifier.weight` has {rows}");
            return Err(Fault::whole(what));
        }
        (true, rows, said) => rows.or(said).unwrap_or(2),
    };
    // Without tensors: the default of the class.
    config.pooler = config.classes > 0 || if checkpoint.tensors.is_some() { pooler() } else { !config.masked_tokens };
    checkpoint.check_layers(config.depth)?;
    let labels = if config.classes > 0 { labels } else { Vec::new() };
    let dialect = rules(&config, backbone).with_prefix(&prefix);
    Ok(Some(Reading { architecture: Box::new(config), dialect, labels, notes: Vec::new() }))
}

/// The dialect in which a model is written.
pub(super) fn written(config: &BertConfig) -> Dialect {
    let backbone = if config.masked_tokens || config.classes > 0 { "bert." } else { "" };
    Dialect { config: Some(config.to_hugging_face()), ..rules(config, backbone) }
}

/// The prefix of all names of a file, and the prefix of the encoder's.
fn prefixes(tensors: &Inventory) -> Result<(String, &'static str), Fault> {
    let anchor = "embeddings.word_embeddings.weight";
    let Some(prefix) = prefix_of(tensors, anchor, &["bert"]) else {
        return Err(Fault::whole(format!(
            "it is a BERT's configuration, but no tensor beside it is called `{anchor}`"
        )));
    };
    Ok(match prefix.strip_suffix("bert.") {
        Some(prefix) => (prefix.to_string(), "bert."),
        None => (prefix.to_string(), ""),
    })
}

fn rules(config: &BertConfig, backbone: &str) -> Dialect {
    let mut rules = Vec::new();
    let encoder = [
        ("embedding.words", "embeddings.word_embeddings.weight"),
        ("embedding.token_types", "embeddings.token_type_embeddings.weight"),
        ("embedding.positions", "embeddings.position_embeddings.weight"),
        ("embedding.norm.*", "embeddings.LayerNorm.*"),
        ("blocks.#.attention.query.*", "encoder.layer.#.attention.self.query.*"),
        ("blocks.#.attention.key.*", "encoder.layer.#.attention.self.key.*"),
        ("blocks.#.attention.value.*", "encoder.layer.#.attention.self.value.*"),
        ("blocks.#.attention.output.*", "encoder.layer.#.attention.output.dense.*"),
        ("blocks.#.norm1.*", "encoder.layer.#.attention.output.LayerNorm.*"),
        ("blocks.#.mlp.fc1.*", "encoder.layer.#.intermediate.dense.*"),
        ("blocks.#.mlp.fc2.*", "encoder.layer.#.output.dense.*"),
        ("blocks.#.norm2.*", "encoder.layer.#.output.LayerNorm.*"),
        ("pooler.*", "pooler.dense.*"),
    ];
    let heads = [
        ("masked_tokens.transform.*", "cls.predictions.transform.dense.*"),
        ("masked_tokens.norm.*", "cls.predictions.transform.LayerNorm.*"),
        ("masked_tokens.bias", "cls.predictions.bias"),
        ("head.*", "classifier.*"),
    ];
    let mut rename = |ours: &str, theirs: String| {
        rules.push(Rule::rename(ours, theirs.clone()));
        // In files converted from TensorFlow, such as BERT-Base, the weights of norms are called gamma and beta.
        if let (Some((ours, "*")), Some(norm)) = (ours.rsplit_once('.'), theirs.strip_suffix("LayerNorm.*")) {
            rules.extend(from_tensorflow(ours, norm));
        }
    };
    encoder.into_iter().for_each(|(ours, theirs)| rename(ours, format!("{backbone}{theirs}")));
    heads.into_iter().for_each(|(ours, theirs)| rename(ours, theirs.to_string()));
    // The output matrix is tied to the word embeddings; position ids are constant.
    rules.push(Rule::redundant("cls.predictions.decoder.weight"));
    rules.push(Rule::redundant("cls.predictions.decoder.bias"));
    rules.push(Rule::redundant(format!("{backbone}embeddings.position_ids")));
    if !config.masked_tokens {
        return Dialect { library: "Hugging Face", rules, ..Dialect::default() };
    }
    // The next-sentence prediction head.
    rules.push(Rule::keep("next_text.weight", "cls.seq_relationship.weight", &[2, config.dim]));
    rules.push(Rule::keep("next_text.bias", "cls.seq_relationship.bias", &[2]));
    Dialect { library: "Hugging Face", rules, ..Dialect::default() }
}

/// The older tensor names of a norm.
fn from_tensorflow(ours: &str, theirs: &str) -> [Rule; 2] {
    [("weight", "gamma"), ("bias", "beta")]
        .map(|(kind, old)| Rule::rename(&format!("{ours}.{kind}"), format!("{theirs}LayerNorm.{old}")))
}
