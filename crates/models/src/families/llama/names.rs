//! Hugging Face's tensor names for LLaMA and its relatives, and reading their checkpoints.

use super::config::{LlamaConfig, Variant};
use crate::checkpoint::json::Fault;
use crate::checkpoint::{Dialect, Rule};
use crate::families::decoder::{self, Prefixes};
use crate::family::{Checkpoint, Reading};

/// The prefix of all tensors but those of heads, in models with one.
const BACKBONE: &str = "model";
const WORDS: &str = "embed_tokens.weight";

/// Reads a checkpoint; `None` if it is not a LLaMA.
pub(super) fn read(checkpoint: &Checkpoint) -> Result<Option<Reading>, Fault> {
    let (Some(model_type), Some(object)) = (checkpoint.model_type()?, checkpoint.config) else { return Ok(None) };
    if let Some(what) = beyond(model_type) {
        return Err(object.fault("model_type", format!("{model_type:?} {what}; Gemma 1 is supported")));
    }
    let Some(variant) = Variant::ALL.into_iter().find(|variant| variant.model_type() == model_type) else {
        return Ok(None);
    };
    let mut config = LlamaConfig::from_hugging_face(&object, variant)?;
    let Prefixes { all, backbone, has_head } = decoder::prefixes(checkpoint, WORDS, BACKBONE)?;
    // A model without a head, such as OpenAI's own file of GPT-2, has the words' vectors for one.
    config.tied |= !has_head;
    checkpoint.check_layers(config.depth)?;
    let dialect = rules(&config, &backbone).with_prefix(&all);
    Ok(Some(Reading { architecture: Box::new(config), dialect, labels: Vec::new(), notes: Vec::new() }))
}

/// The dialect in which a model is written; or why there is none.
pub(super) fn written(config: &LlamaConfig) -> Result<Dialect, String> {
    Ok(Dialect { config: Some(config.to_hugging_face()?), ..rules(config, &format!("{BACKBONE}.")) })
}

/// What later relatives have that is not supported.
fn beyond(model_type: &str) -> Option<&'static str> {
    match model_type {
        "gemma2" => Some("limits scores by soft-capping and alternates between windows, which is not supported"),
        "gemma3" | "gemma3_text" => {
            Some("alternates between windows with frequencies of their own, which is not supported")
        }
        _ => None,
    }
}

/// Phi-3 stores these together.
pub(super) const GATE_AND_UP: [&str; 2] = ["blocks.#.mlp.gate.*", "blocks.#.mlp.up.*"];

fn rules(config: &LlamaConfig, backbone: &str) -> Dialect {
    let names = [
        ("embedding.words", WORDS),
        ("norm.*", "norm.*"),
        ("blocks.#.norm1.*", "layers.#.input_layernorm.*"),
        ("blocks.#.norm2.*", "layers.#.post_attention_layernorm.*"),
        ("blocks.#.attention.query.*", "layers.#.self_attn.q_proj.*"),
        ("blocks.#.attention.key.*", "layers.#.self_attn.k_proj.*"),
        ("blocks.#.attention.value.*", "layers.#.self_attn.v_proj.*"),
        ("blocks.#.attention.qkv.*", "layers.#.self_attn.qkv_proj.*"),
        ("blocks.#.attention.output.*", "layers.#.self_attn.o_proj.*"),
        ("blocks.#.attention.query_norm.*", "layers.#.self_attn.q_norm.*"),
        ("blocks.#.attention.key_norm.*", "layers.#.self_attn.k_norm.*"),
        ("blocks.#.mlp.gate.*", "layers.#.mlp.gate_proj.*"),
        ("blocks.#.mlp.up.*", "layers.#.mlp.up_proj.*"),
        ("blocks.#.mlp.down.*", "layers.#.mlp.down_proj.*"),
    ];
    let is_phi = config.variant == Variant::Phi3;
    let renamed = names.iter().filter(|(ours, _)| !(is_phi && GATE_AND_UP.contains(ours)));
    let mut rules: Vec<Rule> =
        renamed.map(|(ours, theirs)| Rule::rename(ours, format!("{backbone}{theirs}"))).collect();
    if is_phi {
        rules.push(Rule::join(&GATE_AND_UP, format!("{backbone}layers.#.mlp.gate_up_proj.*")));
    }
    rules.push(match config.tied {
        true => Rule::redundant("lm_head.weight"),
        false => Rule::rename("output", "lm_head.weight"),
    });
    // Constants of the library, of old files.
    for layer in 0..config.depth {
        rules.push(Rule::redundant(format!("{backbone}layers.{layer}.self_attn.rotary_emb.inv_freq")));
    }
    Dialect { library: "Hugging Face", rules, ..Dialect::default() }
}
