//! The sizes of the papers and of Hugging Face's configurations.

use super::config::{LlamaConfig, Variant};
use super::rope::RopeScaling;

/// The names of the presets.
pub fn names() -> Vec<String> {
    SIZES.iter().map(|(name, ..)| name.to_string()).chain(OTHERS.map(str::to_string)).collect()
}

/// LLaMA 1 and 2: name, width, layers, heads, key/value heads, width of the feed-forward block, maximum length, epsilon of the norms.
const SIZES: [(&str, [usize; 6], f32); 8] = [
    ("llama_7b", [4096, 32, 32, 32, 11_008, 2048], 1e-6),
    ("llama_13b", [5120, 40, 40, 40, 13_824, 2048], 1e-6),
    ("llama_33b", [6656, 60, 52, 52, 17_920, 2048], 1e-6),
    ("llama_65b", [8192, 80, 64, 64, 22_016, 2048], 1e-5),
    ("llama2_7b", [4096, 32, 32, 32, 11_008, 4096], 1e-5),
    ("llama2_13b", [5120, 40, 40, 40, 13_824, 4096], 1e-5),
    ("llama2_70b", [8192, 80, 64, 8, 28_672, 4096], 1e-5),
    ("tinyllama_1.1b", [2048, 22, 32, 4, 5632, 2048], 1e-5),
];

const OTHERS: [&str; 11] = [
    "gemma_2b",
    "gemma_7b",
    "llama3_8b",
    "llama3_70b",
    "llama3.2_1b",
    "mistral_7b",
    "phi3_mini_4k",
    "qwen2.5_0.5b",
    "qwen3_0.6b",
    "smollm2_135m",
    "smollm2_1.7b",
];

/// The model of a preset, if it exists.
pub fn preset(name: &str) -> Option<LlamaConfig> {
    if let Some(&(_, sizes, norm_eps)) = SIZES.iter().find(|(known, ..)| *known == name) {
        let [dim, depth, heads, kv_heads, mlp_dim, max_length] = sizes;
        return Some(LlamaConfig {
            dim,
            depth,
            heads,
            kv_heads,
            mlp_dim,
            max_length,
            norm_eps,
            ..LlamaConfig::default()
        });
    }
    let usual = LlamaConfig { norm_eps: 1e-5, ..LlamaConfig::default() };
    let third = LlamaConfig { vocabulary: 128_256, kv_heads: 8, max_length: 8192, rope_base: 5e5, ..usual.clone() };
    let smol = LlamaConfig { vocabulary: 49_152, max_length: 8192, rope_base: 1e5, tied: true, ..usual.clone() };
    let qwen = LlamaConfig { vocabulary: 151_936, rope_base: 1e6, norm_eps: 1e-6, tied: true, ..usual.clone() };
    Some(match name {
        "gemma_2b" => LlamaConfig {
            dim: 2048,
            depth: 18,
            heads: 8,
            kv_heads: 1,
            head_dim: None,
            mlp_dim: 16_384,
            ..Variant::Gemma.usual()
        },
        "gemma_7b" => Variant::Gemma.usual(),
        "phi3_mini_4k" => LlamaConfig { window: Some(2047), ..Variant::Phi3.usual() },
        "llama3_8b" => LlamaConfig { mlp_dim: 14_336, ..third },
        "llama3_70b" => LlamaConfig { dim: 8192, depth: 80, heads: 64, mlp_dim: 28_672, ..third },
        "llama3.2_1b" => LlamaConfig {
            dim: 2048,
            depth: 16,
            mlp_dim: 8192,
            max_length: 131_072,
            tied: true,
            rope_scaling: RopeScaling::Llama3 {
                factor: 32.0,
                low_freq_factor: 1.0,
                high_freq_factor: 4.0,
                original_length: 8192,
            },
            ..third
        },
        "mistral_7b" => LlamaConfig {
            variant: Variant::Mistral,
            kv_heads: 8,
            mlp_dim: 14_336,
            max_length: 32_768,
            window: Some(4096),
            ..usual
        },
        "qwen2.5_0.5b" => LlamaConfig {
            variant: Variant::Qwen2,
            dim: 896,
            depth: 24,
            heads: 14,
            kv_heads: 2,
            mlp_dim: 4864,
            max_length: 32_768,
            qkv_bias: true,
            ..qwen
        },
        "qwen3_0.6b" => LlamaConfig {
            variant: Variant::Qwen3,
            dim: 1024,
            depth: 28,
            heads: 16,
            kv_heads: 8,
            head_dim: Some(128),
            mlp_dim: 3072,
            max_length: 40_960,
            qk_norm: true,
            ..qwen
        },
        "smollm2_135m" => LlamaConfig { dim: 576, depth: 30, heads: 9, kv_heads: 3, mlp_dim: 1536, ..smol },
        "smollm2_1.7b" => {
            LlamaConfig { dim: 2048, depth: 24, heads: 32, kv_heads: 32, mlp_dim: 8192, rope_base: 1.3e5, ..smol }
        }
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Architecture;

    #[test]
    fn parameter_counts_are_those_of_transformers() {
        let count = |name: &str| preset(name).map(|config| (&config as &dyn Architecture).parameter_count());
        // Counted in transformers 5, on the meta device.
        for (name, expected) in [
            ("llama_7b", 6_738_415_616),
            ("llama2_70b", 68_976_648_192),
            ("tinyllama_1.1b", 1_100_048_384),
            ("llama3_8b", 8_030_261_248),
            ("llama3.2_1b", 1_235_814_400),
            ("mistral_7b", 7_241_732_096),
            ("qwen2.5_0.5b", 494_032_768),
            ("qwen3_0.6b", 596_049_920),
            ("smollm2_135m", 134_515_008),
        ] {
            assert_eq!(count(name).map(Result::ok), Some(Some(expected)), "{name}");
        }
    }
}
