//! GPT-2 in GGUF files: its keys and tensor names. Matrices lie there as ours do, not transposed.

use serde_json::json;

use super::config::Gpt2Config;
use crate::checkpoint::gguf::{GgufModel, described};
use crate::checkpoint::json::{Fault, shortest};
use crate::checkpoint::{Dialect, Rule};
use crate::family::{Checkpoint, Reading};
use crate::settings::{Activation, NormOrder};

const ARCHITECTURE: &str = "gpt2";

/// Reads a file; `None` if it is not a GPT-2.
pub(super) fn read(checkpoint: &Checkpoint, file: &GgufModel) -> Result<Option<Reading>, Fault> {
    if file.architecture != ARCHITECTURE {
        return Ok(None);
    }
    let usual = Gpt2Config::default();
    let config = Gpt2Config {
        vocabulary: file.vocabulary()?,
        dim: file.size("embedding_length")?,
        depth: file.size("block_count")?,
        heads: file.size("attention.head_count")?,
        mlp_dim: file.size("feed_forward_length")?,
        max_length: file.size("context_length")?,
        norm_eps: file.number("attention.layer_norm_epsilon")?.unwrap_or(usual.norm_eps),
        tied: !file.has("output.weight"),
        ..usual
    };
    checkpoint.check_layers(config.depth)?;
    let dialect = rules(&config);
    Ok(Some(Reading { architecture: Box::new(config), dialect, labels: Vec::new(), notes: Vec::new() }))
}

/// The dialect in which a model is written; or why there is none.
pub(super) fn written(config: &Gpt2Config) -> Result<Dialect, String> {
    let fits = [
        (config.norm_order == NormOrder::Pre, "norms after the residual sums"),
        (config.activation == Activation::GeluTanh, "another activation than GELU's approximation"),
        (config.scaled_attention && !config.scaled_by_layer, "another scaling of attention"),
    ];
    if let Some((_, what)) = fits.into_iter().find(|(fits, _)| !fits) {
        return Err(format!("the GGUF files of `{ARCHITECTURE}` have no {what}"));
    }
    let settings = vec![
        ("block_count", json!(config.depth)),
        ("context_length", json!(config.max_length)),
        ("embedding_length", json!(config.dim)),
        ("feed_forward_length", json!(config.mlp_dim)),
        ("attention.head_count", json!(config.heads)),
        ("attention.layer_norm_epsilon", shortest(config.norm_eps)),
    ];
    Ok(Dialect { config: Some(described(ARCHITECTURE, settings)), ..rules(config) })
}

fn rules(config: &Gpt2Config) -> Dialect {
    let names = [
        ("embedding.words", "token_embd.weight"),
        ("embedding.positions", "position_embd.weight"),
        ("norm.*", "output_norm.*"),
        ("blocks.#.norm1.*", "blk.#.attn_norm.*"),
        ("blocks.#.norm2.*", "blk.#.ffn_norm.*"),
        ("blocks.#.attention.qkv.*", "blk.#.attn_qkv.*"),
        ("blocks.#.attention.output.*", "blk.#.attn_output.*"),
        ("blocks.#.mlp.fc1.*", "blk.#.ffn_up.*"),
        ("blocks.#.mlp.fc2.*", "blk.#.ffn_down.*"),
    ];
    let mut rules: Vec<Rule> = names.iter().map(|(ours, theirs)| Rule::rename(ours, *theirs)).collect();
    if !config.tied {
        rules.push(Rule::rename("output", "output.weight"));
    }
    Dialect { library: "llama.cpp", rules, ..Dialect::default() }
}
