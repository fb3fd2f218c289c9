//! The published sizes, and a small one.

use super::config::ClipConfig;
use crate::settings::{Activation, Size};

const NAMES: [&str; 6] = [
    "clip_vit_base_patch32",
    "clip_vit_base_patch16",
    "clip_vit_large_patch14",
    "clip_vit_large_patch14_336",
    "siglip_base_patch16_224",
    "clip_cifar",
];

/// The names of the presets.
pub fn names() -> Vec<String> {
    NAMES.map(String::from).to_vec()
}

/// The model of a preset, if it exists.
pub fn preset(name: &str) -> Option<ClipConfig> {
    let base = ClipConfig::default();
    let large = ClipConfig {
        patch: Size::square(14),
        dim: 1024,
        depth: 24,
        heads: 16,
        mlp_dim: 4096,
        text_dim: 768,
        text_heads: 12,
        text_mlp_dim: 3072,
        projection: 768,
        ..base.clone()
    };
    Some(match name {
        "clip_vit_base_patch32" => base,
        "clip_vit_base_patch16" => ClipConfig { patch: Size::square(16), ..base },
        "clip_vit_large_patch14" => large,
        "clip_vit_large_patch14_336" => ClipConfig { image: Size::square(336), ..large },
        "siglip_base_patch16_224" => ClipConfig::siglip(),
        // For images of 32 x 32 and captions of a few words; its vocabulary is learned from them.
        "clip_cifar" => ClipConfig {
            image: Size::square(32),
            patch: Size::square(4),
            dim: 128,
            depth: 6,
            heads: 4,
            mlp_dim: 512,
            vocabulary: 512,
            max_length: 16,
            text_dim: 64,
            text_depth: 2,
            text_heads: 2,
            text_mlp_dim: 256,
            projection: 64,
            activation: Activation::Gelu,
            end_token: None,
            ..base
        },
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
            ("clip_vit_base_patch32", 151_277_313),
            ("clip_vit_base_patch16", 149_620_737),
            ("clip_vit_large_patch14", 427_616_513),
            ("clip_vit_large_patch14_336", 427_944_193),
            ("siglip_base_patch16_224", 203_155_970),
        ] {
            assert_eq!(count(name).map(Result::ok), Some(Some(expected)), "{name}");
        }
    }
}
