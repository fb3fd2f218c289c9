//! LLaMA and its relatives in GGUF files: their keys and tensor names.
//!
//! Files of the architecture `llama` hold the rows of queries and keys so that those which are rotated together are neighbours, as Meta's
//! own files do; those of the others hold them as Hugging Face does. The scaling of LLaMA 3 is a tensor of factors, without its settings;
//! LongRoPE, Phi-3's, is two. The norms of Gemma's files multiply by what is in them, which is Hugging Face's weight plus 1.

use serde_json::{Value, json};
use vitreous_engine::rotary_frequencies;

use super::config::{LlamaConfig, Variant};
use super::names::GATE_AND_UP;
use super::rope::{RopeScaling, longrope_attention_factor, yarn_attention_factor};
use crate::checkpoint::gguf::{GgufModel, described};
use crate::checkpoint::json::{Fault, shortest};
use crate::checkpoint::{Dialect, Rule};
use crate::family::{Checkpoint, Reading};

/// The factors that frequencies are divided by.
const ROPE_FACTORS: &str = "rope_freqs.weight";
/// LongRoPE's: for texts up to the original length, and for longer ones.
const SHORT_FACTORS: &str = "rope_factors_short.weight";
const LONG_FACTORS: &str = "rope_factors_long.weight";
const ORIGINAL_LENGTH: &str = "rope.scaling.original_context_length";
const QKV: &str = "blk.0.attn_qkv.weight";
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
        "phi3" => Variant::Phi3,
        "gemma" => Variant::Gemma,
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
    let rotary_dim = keys.size("rope.dimension_count")?.filter(|width| *width != head_dim);
    for (key, width, what) in [
        ("attention.value_length", keys.size("attention.value_length")?, "values of another width than keys are"),
        ("rope.dimension_count", rotary_dim.filter(|_| variant != Variant::Phi3), "rotating a part of each head is"),
    ] {
        if width.is_some_and(|width| width != head_dim) {
            return Err(keys.fault(key, format!("is not {head_dim}, the width of a head: {what} not supported")));
        }
    }
    let max_length = file.size("context_length")?;
    let rope_base = file.number("rope.freq_base")?.unwrap_or(10_000.0);
    if !(rope_base.is_finite() && rope_base > 0.0) {
        return Err(keys.fault("rope.freq_base", format!("is {rope_base}; it should be a finite number above 0")));
    }
    let usual = variant.usual();
    Ok(LlamaConfig {
        variant,
        vocabulary: file.vocabulary()?,
        dim,
        depth: file.size("block_count")?,
        heads,
        kv_heads: keys.size("attention.head_count_kv")?.unwrap_or(heads),
        head_dim: Some(head_dim).filter(|width| width.saturating_mul(heads) != dim),
        mlp_dim: file.size("feed_forward_length")?,
        activation: usual.activation,
        max_length,
        window: keys.size("attention.sliding_window")?.filter(|window| *window > 0),
        norm_eps: file.number("attention.layer_norm_rms_epsilon")?.unwrap_or(1e-5),
        rope_base,
        rope_scaling: scaling(file, rope_base, rotary_dim.unwrap_or(head_dim), max_length)?,
        rotary_dim,
        // Hugging Face's Phi-3 has them together; llama.cpp's converter can do that to others, too.
        fused_qkv: file.has(QKV) && !has_rotary_pairs(variant),
        qkv_bias: file.has("blk.0.attn_q.bias") || file.has("blk.0.attn_qkv.bias"),
        output_bias: file.has("blk.0.attn_output.bias"),
        mlp_bias: file.has("blk.0.ffn_gate.bias"),
        qk_norm: file.has("blk.0.attn_q_norm.weight"),
        tied: !file.has("output.weight"),
        scaled_embedding: usual.scaled_embedding,
        unit_offset_norm: usual.unit_offset_norm,
        attention_dropout: 0.0,
    })
}

fn scaling(file: &GgufModel, base: f32, rotated: usize, max_length: usize) -> Result<RopeScaling, Fault> {
    const KIND: &str = "rope.scaling.type";
    let keys = &file.settings;
    let original = keys.size(ORIGINAL_LENGTH)?;
    if let Some(factors) = factors(file, ROPE_FACTORS, rotated)? {
        return Ok(as_llama3(&factors, base, original.unwrap_or(LLAMA3_LENGTH)));
    }
    match [factors(file, SHORT_FACTORS, rotated)?, factors(file, LONG_FACTORS, rotated)?] {
        [None, None] => {}
        [Some(short_factor), Some(long_factor)] => {
            let original_length = original.unwrap_or(max_length);
            let factor = (max_length as f64 / original_length.max(1) as f64) as f32;
            let attention_factor = file.number("rope.scaling.attn_factor")?.unwrap_or(1.0);
            let is_usual = (attention_factor - longrope_attention_factor(factor, original_length)).abs() < 1e-6;
            let attention_factor = Some(attention_factor).filter(|_| !is_usual);
            return Ok(RopeScaling::Longrope { short_factor, long_factor, original_length, factor, attention_factor });
        }
        [None, Some(_)] => return Err(Fault::of(SHORT_FACTORS, "is missing")),
        [Some(_), None] => return Err(Fault::of(LONG_FACTORS, "is missing")),
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
                Some(more) => Some(more * yarn_attention_factor(factor)),
            },
        }),
        ("yarn", None) => Err(keys.fault("rope.scaling.factor", "is missing".to_string())),
        (other, _) => Err(keys.fault(KIND, format!("{other:?} is not supported: none, linear and yarn are"))),
    }
}

/// A tensor of factors for each pair of so many values that are rotated, if there is one.
fn factors(file: &GgufModel, name: &str, rotated: usize) -> Result<Option<Vec<f32>>, Fault> {
    match file.vector(name)? {
        Some(factors) if factors.len() != rotated / 2 || !factors.iter().all(|f| *f > 0.0 && f.is_finite()) => {
            let what = format!("should be {} factors above 0, one for every pair of a head's values", rotated / 2);
            Err(Fault::of(name, what))
        }
        factors => Ok(factors),
    }
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
    let (variant, architecture) = (config.variant, architecture(config.variant));
    let (is_phi, is_gemma) = (variant == Variant::Phi3, variant == Variant::Gemma);
    let scaling_fits = match config.rope_scaling {
        RopeScaling::None | RopeScaling::Linear { .. } | RopeScaling::Yarn { .. } => true,
        RopeScaling::Llama3 { .. } | RopeScaling::Factors { .. } => !is_phi && !is_gemma,
        RopeScaling::Longrope { .. } => is_phi,
        RopeScaling::Dynamic { .. } => false,
    };
    let usual = variant.usual();
    let fits = [
        (config.activation == usual.activation, "such an activation"),
        (config.qk_norm == (variant == Variant::Qwen3), "normalised queries and keys, or without"),
        (config.window.is_none() || is_phi || variant == Variant::Mistral, "a window"),
        (config.rotary_dim.is_none() || is_phi, "rotation of a part of each head"),
        (config.fused_qkv == is_phi, "queries, keys and values in one matrix, or apart"),
        (config.head_dim.is_none() || !is_phi, "heads of another width than dim / heads"),
        (!(is_phi || is_gemma) || !(config.output_bias || config.mlp_bias), "biases after attention"),
        (config.tied || !is_gemma, "output matrix apart from the word embeddings"),
        (config.scaled_embedding == usual.scaled_embedding, "scaled embeddings, or without"),
        (config.unit_offset_norm == usual.unit_offset_norm, "norms of 1 + weight, or without"),
        (scaling_fits, "such a rope scaling"),
    ];
    if let Some((_, what)) = fits.into_iter().find(|(fits, _)| !fits) {
        return Err(format!("the GGUF files of `{architecture}` have no {what}"));
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
        ("rope.dimension_count", json!(config.rotary_dim())),
        ("vocab_size", json!(config.vocabulary)),
    ];
    // Phi-3's files say of a window and of an original length where there is none, too.
    let window = config.window.or(is_phi.then_some(0));
    settings.extend(window.map(|window| ("attention.sliding_window", json!(window))));
    settings.extend(scaling_keys(&config.rope_scaling));
    if is_phi && config.rope_scaling == RopeScaling::None {
        settings.push((ORIGINAL_LENGTH, json!(config.max_length)));
    }
    let constants = match &config.rope_scaling {
        scaling @ (RopeScaling::Llama3 { .. } | RopeScaling::Factors { .. }) => {
            vec![(ROPE_FACTORS.to_string(), factors_of(scaling, config.rope_base, config.head_dim()))]
        }
        RopeScaling::Longrope { short_factor, long_factor, .. } => {
            vec![(SHORT_FACTORS.to_string(), short_factor.clone()), (LONG_FACTORS.to_string(), long_factor.clone())]
        }
        RopeScaling::None | RopeScaling::Linear { .. } | RopeScaling::Yarn { .. } | RopeScaling::Dynamic { .. } => {
            Vec::new()
        }
    };
    Ok(Dialect { config: Some(described(architecture, settings)), constants, ..rules(config) })
}

fn scaling_keys(scaling: &RopeScaling) -> Vec<(&'static str, Value)> {
    match *scaling {
        RopeScaling::None | RopeScaling::Factors { .. } | RopeScaling::Dynamic { .. } => Vec::new(),
        RopeScaling::Longrope { original_length, factor, attention_factor, .. } => {
            let attention = attention_factor.unwrap_or_else(|| longrope_attention_factor(factor, original_length));
            vec![(ORIGINAL_LENGTH, json!(original_length)), ("rope.scaling.attn_factor", shortest(attention))]
        }
        RopeScaling::Linear { factor } => {
            vec![("rope.scaling.type", json!("linear")), ("rope.scaling.factor", shortest(factor))]
        }
        RopeScaling::Llama3 { original_length, .. } => vec![(ORIGINAL_LENGTH, json!(original_length))],
        RopeScaling::Yarn { factor, beta_fast, beta_slow, original_length, attention_factor } => {
            let mut keys = vec![
                ("rope.scaling.type", json!("yarn")),
                ("rope.scaling.factor", shortest(factor)),
                (ORIGINAL_LENGTH, json!(original_length)),
                ("rope.scaling.yarn_beta_fast", shortest(beta_fast)),
                ("rope.scaling.yarn_beta_slow", shortest(beta_slow)),
            ];
            let more = attention_factor.map(|attention| attention / yarn_attention_factor(factor));
            keys.extend(more.map(|more| ("rope.scaling.attn_factor", shortest(more))));
            keys
        }
    }
}

/// What GGUF files call a variant.
fn architecture(variant: Variant) -> &'static str {
    match variant {
        Variant::Llama | Variant::Mistral => "llama",
        Variant::Qwen2 => "qwen2",
        Variant::Qwen3 => "qwen3",
        Variant::Phi3 => "phi3",
        Variant::Gemma => "gemma",
    }
}

/// Whether rows of queries and keys that are rotated together are neighbours.
fn has_rotary_pairs(variant: Variant) -> bool {
    architecture(variant) == "llama"
}

fn rules(config: &LlamaConfig) -> Dialect {
    let norms = [
        ("norm.*", "output_norm.*"),
        ("blocks.#.norm1.*", "blk.#.attn_norm.*"),
        ("blocks.#.norm2.*", "blk.#.ffn_norm.*"),
    ];
    let names = [
        ("embedding.words", "token_embd.weight"),
        ("blocks.#.attention.qkv.*", "blk.#.attn_qkv.*"),
        ("blocks.#.attention.value.*", "blk.#.attn_v.*"),
        ("blocks.#.attention.output.*", "blk.#.attn_output.*"),
        ("blocks.#.attention.query_norm.*", "blk.#.attn_q_norm.*"),
        ("blocks.#.attention.key_norm.*", "blk.#.attn_k_norm.*"),
        ("blocks.#.mlp.down.*", "blk.#.ffn_down.*"),
    ];
    let rotated = [("blocks.#.attention.query.*", "blk.#.attn_q.*"), ("blocks.#.attention.key.*", "blk.#.attn_k.*")];
    let rename = |(ours, theirs): &(&str, &str)| Rule::rename(ours, *theirs);
    let mut rules: Vec<Rule> = names.iter().map(rename).collect();
    rules.extend(norms.iter().map(|names| match config.unit_offset_norm {
        true => rename(names).plus_one(),
        false => rename(names),
    }));
    rules.extend(rotated.iter().map(|names| match has_rotary_pairs(config.variant) {
        true => rename(names).rotary_pairs(config.head_dim()),
        false => rename(names),
    }));
    let [gate, up] = GATE_AND_UP;
    match config.variant {
        Variant::Phi3 => rules.push(Rule::join(&GATE_AND_UP, "blk.#.ffn_up.*")),
        _ => rules.extend([Rule::rename(gate, "blk.#.ffn_gate.*"), Rule::rename(up, "blk.#.ffn_up.*")]),
    }
    if !config.tied {
        rules.push(Rule::rename("output", "output.weight"));
    }
    rules.extend([ROPE_FACTORS, SHORT_FACTORS, LONG_FACTORS].map(Rule::redundant));
    Dialect { library: "llama.cpp", rules, ..Dialect::default() }
}
