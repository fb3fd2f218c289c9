//! Hugging Face's tensor names for T5 and mT5, and reading their checkpoints.

use super::config::{T5Config, Variant};
use crate::checkpoint::json::Fault;
use crate::checkpoint::{Dialect, Rule, prefix_of};
use crate::family::{Checkpoint, Reading};

const WORDS: &str = "shared.weight";
/// What files have in which the shared table is named by its users.
const OTHER_WORDS: [&str; 2] = ["encoder.embed_tokens.weight", "decoder.embed_tokens.weight"];
const OUTPUT: &str = "lm_head.weight";

/// Reads a checkpoint; `None` if it is not a T5.
pub(super) fn read(checkpoint: &Checkpoint) -> Result<Option<Reading>, Fault> {
    let (Some(model_type), Some(object)) = (checkpoint.model_type()?, checkpoint.config) else { return Ok(None) };
    let variant = match model_type {
        "t5" => Variant::T5,
        "mt5" => Variant::Mt5,
        _ => return Ok(None),
    };
    let mut config = T5Config::from_hugging_face(&object, variant)?;
    let prefix = match checkpoint.tensors {
        None => "",
        Some(tensors) => {
            let anchor = "encoder.final_layer_norm.weight";
            let missing = || {
                let what =
                    format!("it is a configuration of `{model_type}`, but no tensor beside it is called `{anchor}`");
                Fault::whole(what)
            };
            prefix_of(tensors, anchor, &[]).ok_or_else(missing)?
        }
    };
    config.tied_output = match checkpoint.tensors {
        None => config.scaled_output,
        Some(tensors) if !tensors.contains_key(&format!("{prefix}{OUTPUT}")) => true,
        // transformers 5 always says that it ties, and does not where the file has both. PyTorch's older files of models that really
        // tie have both, too: there the scale tells.
        Some(_) => config.scaled_output && object.flag("scale_decoder_outputs")?.is_none(),
    };
    checkpoint.check_layers(config.encoder_layers.max(config.decoder_layers))?;
    let dialect = rules(&config).with_prefix(prefix);
    Ok(Some(Reading { architecture: Box::new(config), dialect, labels: Vec::new(), notes: Vec::new() }))
}

/// The dialect in which a model is written.
pub(super) fn written(config: &T5Config) -> Dialect {
    Dialect { config: Some(config.to_hugging_face()), ..rules(config) }
}

fn rules(config: &T5Config) -> Dialect {
    let mut rules = vec![Rule::rename("embedding", WORDS)];
    // Read if the file has no `shared`; redundant if it has.
    rules.extend(OTHER_WORDS.map(|theirs| Rule::rename("embedding", theirs)));
    rules.extend(OTHER_WORDS.map(Rule::redundant));
    rules.push(match config.tied_output {
        true => Rule::redundant(OUTPUT),
        false => Rule::rename("output", OUTPUT),
    });
    for side in ["encoder", "decoder"] {
        let mut rename = |ours: &str, theirs: &str| {
            rules.push(Rule::rename(&format!("{side}{ours}"), format!("{side}.{theirs}")));
        };
        rename(".relative_bias", "block.0.layer.0.SelfAttention.relative_attention_bias.weight");
        rename("_norm.*", "final_layer_norm.*");
        for (ours, theirs) in [("query", "q"), ("key", "k"), ("value", "v"), ("output", "o")] {
            rename(&format!(".#.attention.{ours}.*"), &format!("block.#.layer.0.SelfAttention.{theirs}.*"));
        }
        rename(".#.norm1.*", "block.#.layer.0.layer_norm.*");
        if side == "decoder" {
            for (ours, theirs) in [("query", "q"), ("key", "k"), ("value", "v"), ("output", "o")] {
                rename(&format!(".#.cross_attention.{ours}.*"), &format!("block.#.layer.1.EncDecAttention.{theirs}.*"));
            }
            rename(".#.norm2.*", "block.#.layer.1.layer_norm.*");
        }
        let (last, norm) = if side == "decoder" { (2, "norm3") } else { (1, "norm2") };
        rename(&format!(".#.{norm}.*"), &format!("block.#.layer.{last}.layer_norm.*"));
        let layers: &[(&str, &str)] = match config.gated {
            true => &[("gate", "wi_0"), ("up", "wi_1"), ("down", "wo")],
            false => &[("fc1", "wi"), ("fc2", "wo")],
        };
        for (ours, theirs) in layers {
            rename(&format!(".#.mlp.{ours}.*"), &format!("block.#.layer.{last}.DenseReluDense.{theirs}.*"));
        }
    }
    // A bias of cross attention that early files have and nothing uses.
    rules.push(Rule::redundant("decoder.block.0.layer.1.EncDecAttention.relative_attention_bias.weight"));
    Dialect { library: "Hugging Face", rules, ..Dialect::default() }
}
