//! Tensor names of Hugging Face and of OpenAI for Whisper, and reading their checkpoints.

use super::config::{HEAD_DIM, WhisperConfig};
use super::graph::KERNEL;
use crate::checkpoint::json::Fault;
use crate::checkpoint::{Dialect, Inventory, Rule, prefix_of};
use crate::family::{Checkpoint, Reading};

/// Layers beyond which a file's layers are not counted.
const MOST_LAYERS: usize = 1001;

/// Reads a checkpoint; `None` if it is no Whisper.
pub(super) fn read(checkpoint: &Checkpoint) -> Result<Option<Reading>, Fault> {
    match (checkpoint.model_type()?, checkpoint.config, checkpoint.tensors) {
        (Some("whisper"), Some(object), tensors) => {
            let config = WhisperConfig::from_hugging_face(&object)?;
            checkpoint.check_layers(config.encoder_layers.max(config.decoder_layers))?;
            let prefix = tensors.map_or(Ok(String::new()), prefix_in_hugging_face)?;
            let dialect = hugging_face(&config).with_prefix(&prefix);
            Ok(Some(Reading { architecture: Box::new(config), dialect, labels: Vec::new(), notes: Vec::new() }))
        }
        (None, None, Some(tensors)) => Ok(read_openai(tensors)),
        _ => Ok(None),
    }
}

fn prefix_in_hugging_face(tensors: &Inventory) -> Result<String, Fault> {
    let anchor = "encoder.conv1.weight";
    let found = prefix_of(tensors, anchor, &["model"]).ok_or_else(|| {
        Fault::whole(format!("it is a configuration of `whisper`, but no tensor beside it is called `{anchor}`"))
    })?;
    let outer = found.strip_suffix("model.").map(str::to_string);
    outer.ok_or_else(|| Fault::whole("it is a Whisper without its output: open a WhisperForConditionalGeneration"))
}

/// The dialect in which a model is written.
pub(super) fn written(config: &WhisperConfig) -> Dialect {
    Dialect { config: Some(config.to_hugging_face()), ..hugging_face(config) }
}

/// The tensors of one layer: ours, Hugging Face's, OpenAI's.
const LAYER: [[&str; 3]; 7] = [
    ["attention.query.*", "self_attn.q_proj.*", "attn.query.*"],
    ["attention.key.*", "self_attn.k_proj.*", "attn.key.*"],
    ["attention.value.*", "self_attn.v_proj.*", "attn.value.*"],
    ["attention.output.*", "self_attn.out_proj.*", "attn.out.*"],
    ["norm1.*", "self_attn_layer_norm.*", "attn_ln.*"],
    ["mlp.fc1.*", "fc1.*", "mlp.0.*"],
    ["mlp.fc2.*", "fc2.*", "mlp.2.*"],
];

/// Those of the decoder alone.
const DECODER_LAYER: [[&str; 3]; 5] = [
    ["cross_attention.query.*", "encoder_attn.q_proj.*", "cross_attn.query.*"],
    ["cross_attention.key.*", "encoder_attn.k_proj.*", "cross_attn.key.*"],
    ["cross_attention.value.*", "encoder_attn.v_proj.*", "cross_attn.value.*"],
    ["cross_attention.output.*", "encoder_attn.out_proj.*", "cross_attn.out.*"],
    ["norm2.*", "encoder_attn_layer_norm.*", "cross_attn_ln.*"],
];

fn hugging_face(config: &WhisperConfig) -> Dialect {
    let mut rules = vec![
        Rule::rename("embedding", "model.decoder.embed_tokens.weight"),
        Rule::redundant("proj_out.weight"),
        Rule::rename("encoder.positions", "model.encoder.embed_positions.weight"),
        Rule::rename("decoder.positions", "model.decoder.embed_positions.weight"),
        Rule::rename("encoder_norm.*", "model.encoder.layer_norm.*"),
        Rule::rename("decoder_norm.*", "model.decoder.layer_norm.*"),
    ];
    rules.extend(convolutions(config, "model.encoder."));
    rules.extend(layers(1, "model.encoder.layers.#.", "model.decoder.layers.#.", "final_layer_norm.*"));
    Dialect { library: "Hugging Face", rules, ..Dialect::default() }
}

fn openai(config: &WhisperConfig, prefix: &str) -> Dialect {
    let mut rules = vec![
        Rule::rename("embedding", "decoder.token_embedding.weight"),
        Rule::rename("encoder.positions", "encoder.positional_embedding"),
        Rule::rename("decoder.positions", "decoder.positional_embedding"),
        Rule::rename("encoder_norm.*", "encoder.ln_post.*"),
        Rule::rename("decoder_norm.*", "decoder.ln.*"),
    ];
    rules.extend(convolutions(config, "encoder."));
    rules.extend(layers(2, "encoder.blocks.#.", "decoder.blocks.#.", "mlp_ln.*"));
    let mut dialect = Dialect { library: "OpenAI", rules, ..Dialect::default() }.with_prefix(prefix);
    dialect.foreign = &["model_state_dict.alignment_heads", "alignment_heads"];
    dialect
}

/// The convolutions, whose weights are `[out, in, kernel]` there.
fn convolutions(config: &WhisperConfig, before: &str) -> Vec<Rule> {
    let mut rules = Vec::new();
    for (name, channels) in [("conv1", config.mel_bins), ("conv2", config.dim)] {
        let ours = |kind: &str| format!("encoder.{name}.{kind}");
        let theirs = |kind: &str| format!("{before}{name}.{kind}");
        rules.push(Rule::rename(&ours("weight"), theirs("weight")).axes(&[config.dim, channels, KERNEL]));
        rules.push(Rule::rename(&ours("bias"), theirs("bias")));
    }
    rules
}

/// The layers of both sides; `which` is the column of a dialect.
fn layers(which: usize, encoder: &str, decoder: &str, last_norm: &str) -> Vec<Rule> {
    let mut rules = Vec::new();
    let sides: [(&str, &str, &[[&str; 3]], &str); 2] =
        [("encoder", encoder, &[], "norm2.*"), ("decoder", decoder, &DECODER_LAYER, "norm3.*")];
    for (side, theirs, own, last) in sides {
        for names in LAYER.iter().chain(own) {
            rules.push(Rule::rename(&format!("{side}.#.{}", names[0]), format!("{theirs}{}", names[which])));
        }
        rules.push(Rule::rename(&format!("{side}.#.{last}"), format!("{theirs}{last_norm}")));
    }
    rules
}

/// Reads a file of OpenAI's, which has no configuration: everything follows from shapes, and heads are 64 wide.
fn read_openai(tensors: &Inventory) -> Option<Reading> {
    const ANCHOR: &str = "decoder.token_embedding.weight";
    let prefix =
        ["model_state_dict.", ""].into_iter().find(|prefix| tensors.contains_key(&format!("{prefix}{ANCHOR}")))?;
    let shape = |name: &str| tensors.get(&format!("{prefix}{name}")).map(Vec::as_slice);
    let (&[vocabulary, dim], &[target_positions, _], &[source_positions, _], &[_, mel_bins, KERNEL]) = (
        shape(ANCHOR)?,
        shape("decoder.positional_embedding")?,
        shape("encoder.positional_embedding")?,
        shape("encoder.conv1.weight")?,
    ) else {
        return None;
    };
    let layers = |side: &str| {
        (0..MOST_LAYERS)
            .take_while(|layer| shape(&format!("{side}.blocks.{layer}.attn.query.weight")).is_some())
            .count()
    };
    let width = |side: &str| shape(&format!("{side}.blocks.0.mlp.0.weight")).and_then(|shape| shape.first().copied());
    let heads = (dim / HEAD_DIM).max(1);
    // The special tokens follow those of the vocabulary that English models and others have.
    let end_token = if vocabulary >= 51_865 { 50_257 } else { 50_256.min(vocabulary.saturating_sub(2)) };
    let config = WhisperConfig {
        mel_bins,
        source_positions,
        target_positions,
        vocabulary,
        dim,
        heads,
        decoder_heads: heads,
        encoder_layers: layers("encoder"),
        decoder_layers: layers("decoder"),
        mlp_dim: width("encoder")?,
        decoder_mlp_dim: width("decoder")?,
        start_token: end_token + 1,
        end_token,
        padding_token: end_token,
        ..WhisperConfig::default()
    };
    let dialect = openai(&config, prefix);
    Some(Reading { architecture: Box::new(config), dialect, labels: Vec::new(), notes: Vec::new() })
}
