//! Hugging Face's tensor names for GPT-1 and GPT-2, and reading their checkpoints. Their linear layers are stored transposed.

use super::config::Gpt2Config;
use crate::checkpoint::json::Fault;
use crate::checkpoint::{Dialect, Rule};
use crate::families::decoder::{self, Prefixes};
use crate::family::{Checkpoint, Family, Reading};
use crate::settings::NormOrder;

/// The prefix of all tensors but those of heads, in models with one.
const BACKBONE: &str = "transformer";

/// Reads a checkpoint; `None` if it is not a GPT.
pub(super) fn read(checkpoint: &Checkpoint) -> Result<Option<Reading>, Fault> {
    let (Some(model_type), Some(object)) = (checkpoint.model_type()?, checkpoint.config) else { return Ok(None) };
    if !super::FAMILY.model_types().contains(&model_type) {
        return Ok(None);
    }
    let mut config = Gpt2Config::from_hugging_face(&object, model_type)?;
    let Prefixes { all, backbone, has_head } = decoder::prefixes(checkpoint, words(&config), BACKBONE)?;
    // A model without a head, such as OpenAI's own file of GPT-2, has the words' vectors for one.
    config.tied |= !has_head;
    checkpoint.check_layers(config.depth)?;
    let dialect = rules(&config, &backbone).with_prefix(&all);
    Ok(Some(Reading { architecture: Box::new(config), dialect, labels: Vec::new(), notes: Vec::new() }))
}

/// The dialect in which a model is written.
pub(super) fn written(config: &Gpt2Config) -> Dialect {
    Dialect { config: Some(config.to_hugging_face()), ..rules(config, &format!("{BACKBONE}.")) }
}

fn words(config: &Gpt2Config) -> &'static str {
    match config.norm_order {
        NormOrder::Pre => "wte.weight",
        NormOrder::Post => "tokens_embed.weight",
    }
}

fn rules(config: &Gpt2Config, backbone: &str) -> Dialect {
    let positions = match config.norm_order {
        NormOrder::Pre => "wpe.weight",
        NormOrder::Post => "positions_embed.weight",
    };
    let same = [
        ("embedding.words", words(config)),
        ("embedding.positions", positions),
        ("norm.*", "ln_f.*"),
        ("blocks.#.norm1.*", "h.#.ln_1.*"),
        ("blocks.#.norm2.*", "h.#.ln_2.*"),
        ("blocks.#.attention.qkv.bias", "h.#.attn.c_attn.bias"),
        ("blocks.#.attention.output.bias", "h.#.attn.c_proj.bias"),
        ("blocks.#.mlp.fc1.bias", "h.#.mlp.c_fc.bias"),
        ("blocks.#.mlp.fc2.bias", "h.#.mlp.c_proj.bias"),
    ];
    let transposed = [
        ("blocks.#.attention.qkv.weight", "h.#.attn.c_attn.weight"),
        ("blocks.#.attention.output.weight", "h.#.attn.c_proj.weight"),
        ("blocks.#.mlp.fc1.weight", "h.#.mlp.c_fc.weight"),
        ("blocks.#.mlp.fc2.weight", "h.#.mlp.c_proj.weight"),
    ];
    let theirs = |name: &str| format!("{backbone}{name}");
    let mut rules: Vec<Rule> = same.iter().map(|(ours, name)| Rule::rename(ours, theirs(name))).collect();
    rules.extend(transposed.iter().map(|(ours, name)| Rule::rename(ours, theirs(name)).transposed()));
    rules.push(match config.tied {
        true => Rule::redundant("lm_head.weight"),
        false => Rule::rename("output", "lm_head.weight"),
    });
    // Constants of the library: the causal mask, and what it hides.
    for layer in 0..config.depth {
        rules.extend(["bias", "masked_bias"].map(|name| Rule::redundant(theirs(&format!("h.{layer}.attn.{name}")))));
    }
    Dialect { library: "Hugging Face", rules, ..Dialect::default() }
}
