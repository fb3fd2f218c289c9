//! Hugging Face's tensor names for BART, mBART and Marian, and reading their checkpoints.

use super::config::{BartConfig, Variant};
use crate::checkpoint::json::Fault;
use crate::checkpoint::{Dialect, Rule, prefix_of};
use crate::family::{Checkpoint, Reading};

/// The prefix of all tensors but those of the output.
const BACKBONE: &str = "model.";
const SHARED: &str = "model.shared.weight";
const OUTPUT: &str = "lm_head.weight";
const LOGITS_BIAS: &str = "final_logits_bias";

/// Reads a checkpoint; `None` if it is none of these models.
pub(super) fn read(checkpoint: &Checkpoint) -> Result<Option<Reading>, Fault> {
    let (Some(model_type), Some(object)) = (checkpoint.model_type()?, checkpoint.config) else { return Ok(None) };
    let Some(variant) = Variant::ALL.into_iter().find(|variant| variant.model_type() == model_type) else {
        return Ok(None);
    };
    let mut config = BartConfig::from_hugging_face(&object, variant)?;
    let prefix = match checkpoint.tensors {
        None => String::new(),
        Some(tensors) => {
            let anchor = "encoder.layers.0.self_attn.q_proj.weight";
            let found = prefix_of(tensors, anchor, &["model"]).ok_or_else(|| {
                let what =
                    format!("it is a configuration of `{model_type}`, but no tensor beside it is called `{anchor}`");
                Fault::whole(what)
            })?;
            match found.strip_suffix(BACKBONE) {
                Some(prefix) => prefix.to_string(),
                None => {
                    let what = "it is an encoder-decoder without the matrix of its output: open a model of the class \
                                ..ForConditionalGeneration";
                    return Err(Fault::whole(what));
                }
            }
        }
    };
    let bias = format!("{prefix}{LOGITS_BIAS}");
    config.logits_bias = checkpoint.tensors.is_none_or(|tensors| tensors.contains_key(&bias));
    checkpoint.check_layers(config.encoder_layers.max(config.decoder_layers))?;
    let mut dialect = rules(&config).with_prefix(&prefix);
    dialect.foreign = &["classification_head.", "qa_outputs."];
    Ok(Some(Reading { architecture: Box::new(config), dialect, labels: Vec::new(), notes: Vec::new() }))
}

/// The dialect in which a model is written; or why there is none.
pub(super) fn written(config: &BartConfig) -> Result<Dialect, String> {
    config.has_class()?;
    Ok(Dialect { config: Some(config.to_hugging_face()), ..rules(config) })
}

/// The names of one layer's tensors, of either side.
const LAYER: [(&str, &str); 7] = [
    ("attention.query.*", "self_attn.q_proj.*"),
    ("attention.key.*", "self_attn.k_proj.*"),
    ("attention.value.*", "self_attn.v_proj.*"),
    ("attention.output.*", "self_attn.out_proj.*"),
    ("norm1.*", "self_attn_layer_norm.*"),
    ("mlp.fc1.*", "fc1.*"),
    ("mlp.fc2.*", "fc2.*"),
];

/// Those of the decoder alone.
const DECODER_LAYER: [(&str, &str); 5] = [
    ("cross_attention.query.*", "encoder_attn.q_proj.*"),
    ("cross_attention.key.*", "encoder_attn.k_proj.*"),
    ("cross_attention.value.*", "encoder_attn.v_proj.*"),
    ("cross_attention.output.*", "encoder_attn.out_proj.*"),
    ("norm2.*", "encoder_attn_layer_norm.*"),
];

fn rules(config: &BartConfig) -> Dialect {
    let mut rules = words(config);
    for side in ["encoder", "decoder"] {
        let mut rename = |ours: &str, theirs: &str| {
            rules.push(Rule::rename(&format!("{side}{ours}"), format!("{BACKBONE}{side}.{theirs}")));
        };
        rename(".positions", "embed_positions.weight");
        rename(".embedding.norm.*", "layernorm_embedding.*");
        rename("_norm.*", "layer_norm.*");
        let own: &[(&str, &str)] = if side == "decoder" { &DECODER_LAYER } else { &[] };
        for (ours, theirs) in LAYER.iter().chain(own) {
            rename(&format!(".#.{ours}"), &format!("layers.#.{theirs}"));
        }
        let last = if side == "decoder" { ".#.norm3.*" } else { ".#.norm2.*" };
        rename(last, "layers.#.final_layer_norm.*");
        // Marian's positions follow from their formula, and early files of BART have a version.
        let constants: &[&str] =
            if config.variant.learns_positions() { &["version"] } else { &["embed_positions.weight"] };
        rules.extend(constants.iter().map(|name| Rule::redundant(format!("{BACKBONE}{side}.{name}"))));
    }
    rules.push(Rule::rename("output.bias", LOGITS_BIAS).leading_one());
    Dialect { library: "Hugging Face", rules, ..Dialect::default() }
}

/// The tables of words and the output.
fn words(config: &BartConfig) -> Vec<Rule> {
    let sides = ["model.encoder.embed_tokens.weight", "model.decoder.embed_tokens.weight"];
    let mut rules = match config.shared_embedding {
        true => {
            let mut rules = vec![Rule::rename("embedding", SHARED)];
            // Read if the file has no `shared`; redundant if it has.
            rules.extend(sides.map(|side| Rule::rename("embedding", side)));
            rules.extend(sides.map(Rule::redundant));
            rules
        }
        false => vec![
            Rule::rename("source_embedding", sides[0]),
            Rule::rename("target_embedding", sides[1]),
            Rule::redundant(SHARED),
        ],
    };
    rules.push(match config.tied_output {
        true => Rule::redundant(OUTPUT),
        false => Rule::rename("output.weight", OUTPUT),
    });
    rules
}
