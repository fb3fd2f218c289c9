//! LLaMA and its relatives in GGUF files: their keys and tensor names.
//!
//! Files of the architecture `llama` hold the rows of queries and keys so that those which are rotated together are neighbours, as Meta's
//! own files do; those of the others hold them as Hugging Face does. The scaling of LLaMA 3 is a tensor of factors, without its settings.

use serde_json::{Value, json};
use vitreous_engine::rotary_frequencies;

use super::config::{LlamaConfig, Variant};
use super::rope::RopeScaling;
use crate::checkpoint::gguf::{GgufModel, described};
use crate::checkpoint::json::{Fault, shortest};
use crate::checkpoint::{Dialect, Rule};
use crate::family::{Checkpoint, Reading};
use crate::settings::Activation;

/// The factors that frequencies are divided by.
const ROPE_FACTORS: &str = "rope_freqs.weight";
/// What LLaMA 3.1 and later have, which their files do not say.
const LLAMA3_LENGTH: usize = 8192;
const LLAMA3_LOW: f32 = 1.0;
const LLAMA3_HIGH: f32 = 4.0;

/// Reads a file; `None` if it is not a LLaMA.
pub(super) fn read(checkpoint: &Checkpoint, file: &GgufModel) -> Result<Option<Reading>, Fault> {
    let variant = match file.architecture {
        // Mistral's files say that they are LLaMA's.
        "llama" if file.settings.get("attention.sliding_window").is_some() => Variant::Mistral,
        "llama" => Variant::Llama,
        "qwen2" => Variant::Qwen2,
        "qwen3" => Variant::Qwen3,
        _ => return Ok(None),
    };
    let config = config(file, variant)?;
    checkpoint.check_layers(config.depth)?;
    let dialect = rules(&config);
    Ok(Some(Reading { architecture: Box::new(config), dialect, labels: Vec::new(), notes: Vec::new() }))
}

fn config(file: &GgufModel, variant: Variant) -> Result<LlamaConfig, Fault> {
    let keys = &file.settings;
    if keys.size("expert_count")?.is_some_and(|experts| experts > 0) {
        return Err(keys.fault("expert_count", "mixtures of experts are not supported".to_string()));
    }
    let (dim, heads) = (file.size("embedding_length")?, file.size("attention.head_count")?);
    let head_dim = match keys.size("attention.key_length")? {
        Some(width) => width,
        None => dim / heads.max(1),
    };
    for (key, what) in [
        ("attention.value_length", "values of another width than keys are not supported"),
        ("rope.dimension_count", "rotating a part of each head is not supported"),
    ] {
        if keys.size(key)?.is_some_and(|width| width != head_dim) {
            return Err(keys.fault(key, format!("is not {head_dim}, the width of a head: {what}")));
        }
    }
    let max_length = file.size("context_length")?;
    let rope_base = file.number("rope.freq_base")?.unwrap_or(10_000.0);
    Ok(LlamaConfig {
        variant,
        vocabulary: file.vocabulary()?,
        dim,
        depth: file.size("block_count")?,
        heads,
        kv_heads: keys.size("attention.head_count_kv")?.unwrap_or(heads),
        head_dim: Some(head_dim).filter(|width| width.saturating_mul(heads) != dim),
        mlp_dim: file.size("feed_forward_length")?,
        activation: Activation::Silu,
        max_length,
        window: keys.size("attention.sliding_window")?.filter(|window| *window > 0),
        norm_eps: file.number("attention.layer_norm_rms_epsilon")?.unwrap_or(1e-5),
        rope_base,
        rope_scaling: scaling(file, rope_base, head_dim, max_length)?,
        qkv_bias: file.has("blk.0.attn_q.bias"),
        output_bias: file.has("blk.0.attn_output.bias"),
        mlp_bias: file.has("blk.0.ffn_gate.bias"),
        qk_norm: file.has("blk.0.attn_q_norm.weight"),
        tied: !file.has("output.weight"),
        ..LlamaConfig::default()
    })
}

fn scaling(file: &GgufModel, base: f32, head_dim: usize, max_length: usize) -> Result<RopeScaling, Fault> {
    const KIND: &str = "rope.scaling.type";
    let keys = &file.settings;
    let original = keys.size("rope.scaling.original_context_length")?;
    if let Some(factors) = file.vector(ROPE_FACTORS)? {
        if factors.len() != head_dim / 2 || !factors.iter().all(|factor| *factor > 0.0 && factor.is_finite()) {
            let what = format!("should be {} factors above 0, one for every pair of a head's values", head_dim / 2);
            return Err(Fault::of(ROPE_FACTORS, what));
        }
        return Ok(as_llama3(&factors, base, original.unwrap_or(LLAMA3_LENGTH)));
    }
    let factor = match file.number("rope.scaling.factor")? {
        Some(factor) => Some(factor),
        // An older word for it.
        None => file.number("rope.scale_linear")?,
    };
    let kind = keys.text(KIND)?.unwrap_or(if factor.is_some() { "linear" } else { "none" });
    match (kind, factor) {
        ("none", _) | ("linear", None) => Ok(RopeScaling::None),
        ("linear", Some(factor)) => Ok(if factor == 1.0 { RopeScaling::None } else { RopeScaling::Linear { factor } }),
        ("yarn", Some(factor)) => Ok(RopeScaling::Yarn {
            factor,
            beta_fast: file.number("rope.scaling.yarn_beta_fast")?.unwrap_or(32.0),
            beta_slow: file.number("rope.scaling.yarn_beta_slow")?.unwrap_or(1.0),
            original_length: original.unwrap_or(max_length),
            attention_factor: match file.number("rope.scaling.attn_factor")? {
                None | Some(1.0) => None,
                Some(more) => Some(more * usual_attention_factor(factor)),
            },
        }),
        ("yarn", None) => Err(keys.fault("rope.scaling.factor", "is missing".to_string())),
        (other, _) => Err(keys.fault(KIND, format!("{other:?} is not supported: none, linear and yarn are"))),
    }
}

/// What YaRN multiplies cosines and sines by, where a model does not say otherwise.
fn usual_attention_factor(factor: f32) -> f32 {
    if factor <= 1.0 { 1.0 } else { (0.1 * f64::from(factor).ln() + 1.0) as f32 }
}

/// Factors as the scaling of LLaMA 3 if they are what it gives, or as they are.
fn as_llama3(factors: &[f32], base: f32, original_length: usize) -> RopeScaling {
    const CLOSE: f32 = 1e-4;
    let factor = factors.iter().copied().fold(1.0, f32::max);
    let (low_freq_factor, high_freq_factor) = (LLAMA3_LOW, LLAMA3_HIGH);
    let llama3 = RopeScaling::Llama3 { factor, low_freq_factor, high_freq_factor, original_length };
    let given = factors_of(&llama3, base, 2 * factors.len());
    let close = given.iter().zip(factors).all(|(given, factor)| (given / factor - 1.0).abs() < CLOSE);
    if close { llama3 } else { RopeScaling::Factors { factors: factors.to_vec() } }
}

/// What a scaling divides each frequency by.
fn factors_of(scaling: &RopeScaling, base: f32, head_dim: usize) -> Vec<f32> {
    // Neither depends on the length of the text.
    let (scaled, _) = scaling.frequencies(base, head_dim, 1);
    rotary_frequencies(base, head_dim).iter().zip(scaled).map(|(plain, scaled)| plain / scaled).collect()
}

/// The dialect in which a model is written; or why there is none.
pub(super) fn written(config: &LlamaConfig) -> Result<Dialect, String> {
    let Some(architecture) = architecture(config.variant) else {
        return Err(format!("GGUF files of {:?} cannot be written here", config.variant));
    };
    let variant = config.variant;
    let fits = [
        (config.activation == Activation::Silu, "another activation than SiLU"),
        (config.qk_norm == (variant == Variant::Qwen3), "normalised queries and keys, or without"),
        (config.window.is_none() || variant == Variant::Mistral, "a window"),
        (config.rotary_dim.is_none(), "rotation of a part of each head"),
        (!config.scaled_embedding && !config.unit_offset_norm, "scaled embeddings or norms of 1 + weight"),
        (
            !matches!(config.rope_scaling, RopeScaling::Dynamic { .. } | RopeScaling::Longrope { .. }),
            "such a rope scaling",
        ),
    ];
    if let Some((_, what)) = fits.into_iter().find(|(fits, _)| !fits) {
        return Err(format!("the GGUF files of `{}` have no {what}", architecture));
    }
    let mut settings = vec![
        ("block_count", json!(config.depth)),
        ("context_length", json!(config.max_length)),
        ("embedding_length", json!(config.dim)),
        ("feed_forward_length", json!(config.mlp_dim)),
        ("attention.head_count", json!(config.heads)),
        ("attention.head_count_kv", json!(config.kv_heads)),
        ("attention.key_length", json!(config.head_dim())),
        ("attention.value_length", json!(config.head_dim())),
        ("attention.layer_norm_rms_epsilon", shortest(config.norm_eps)),
        ("rope.freq_base", shortest(config.rope_base)),
        ("rope.dimension_count", json!(config.head_dim())),
        ("vocab_size", json!(config.vocabulary)),
    ];
    settings.extend(config.window.map(|window| ("attention.sliding_window", json!(window))));
    settings.extend(scaling_keys(&config.rope_scaling));
    let constants = match &config.rope_scaling {
        scaling @ (RopeScaling::Llama3 { .. } | RopeScaling::Factors { .. }) => {
            vec![(ROPE_FACTORS.to_string(), factors_of(scaling, config.rope_base, config.head_dim()))]
        }
        RopeScaling::None
        | RopeScaling::Linear { .. }
        | RopeScaling::Yarn { .. }
        | RopeScaling::Dynamic { .. }
        | RopeScaling::Longrope { .. } => Vec::new(),
    };
    Ok(Dialect { config: Some(described(architecture, settings)), constants, ..rules(config) })
}

fn scaling_keys(scaling: &RopeScaling) -> Vec<(&'static str, Value)> {
    const ORIGINAL: &str = "rope.scaling.original_context_length";
    match *scaling {
        RopeScaling::None
        | RopeScaling::Factors { .. }
        | RopeScaling::Dynamic { .. }
        | RopeScaling::Longrope { .. } => Vec::new(),
        RopeScaling::Linear { factor } => {
            vec![("rope.scaling.type", json!("linear")), ("rope.scaling.factor", shortest(factor))]
        }
        RopeScaling::Llama3 { original_length, .. } => vec![(ORIGINAL, json!(original_length))],
        RopeScaling::Yarn { factor, beta_fast, beta_slow, original_length, attention_factor } => {
            let mut keys = vec![
                ("rope.scaling.type", json!("yarn")),
                ("rope.scaling.factor", shortest(factor)),
                (ORIGINAL, json!(original_length)),
                ("rope.scaling.yarn_beta_fast", shortest(beta_fast)),
                ("rope.scaling.yarn_beta_slow", shortest(beta_slow)),
            ];
            let more = attention_factor.map(|attention| attention / usual_attention_factor(factor));
            keys.extend(more.map(|more| ("rope.scaling.attn_factor", shortest(more))));
            keys
        }
    }
}

/// What GGUF files call a variant; `None` if their dialect of it is not supported.
fn architecture(variant: Variant) -> Option<&'static str> {
    match variant {
        Variant::Llama | Variant::Mistral => Some("llama"),
        Variant::Qwen2 => Some("qwen2"),
        Variant::Qwen3 => Some("qwen3"),
        Variant::Phi3 | Variant::Gemma => None,
    }
}

fn rules(config: &LlamaConfig) -> Dialect {
    let names = [
        ("embedding.words", "token_embd.weight"),
        ("norm.*", "output_norm.*"),
        ("blocks.#.norm1.*", "blk.#.attn_norm.*"),
        ("blocks.#.norm2.*", "blk.#.ffn_norm.*"),
        ("blocks.#.attention.value.*", "blk.#.attn_v.*"),
        ("blocks.#.attention.output.*", "blk.#.attn_output.*"),
        ("blocks.#.attention.query_norm.*", "blk.#.attn_q_norm.*"),
        ("blocks.#.attention.key_norm.*", "blk.#.attn_k_norm.*"),
        ("blocks.#.mlp.gate.*", "blk.#.ffn_gate.*"),
        ("blocks.#.mlp.up.*", "blk.#.ffn_up.*"),
        ("blocks.#.mlp.down.*", "blk.#.ffn_down.*"),
    ];
    let rotated = [("blocks.#.attention.query.*", "blk.#.attn_q.*"), ("blocks.#.attention.key.*", "blk.#.attn_k.*")];
    let rename = |(ours, theirs): &(&str, &str)| Rule::rename(ours, *theirs);
    let mut rules: Vec<Rule> = names.iter().map(rename).collect();
    rules.extend(rotated.iter().map(|names| match architecture(config.variant) {
        Some("llama") => rename(names).rotary_pairs(config.head_dim()),
        _ => rename(names),
    }));
    if !config.tied {
        rules.push(Rule::rename("output", "output.weight"));
    }
    rules.push(Rule::redundant(ROPE_FACTORS));
    Dialect { library: "llama.cpp", rules, ..Dialect::default() }
}
