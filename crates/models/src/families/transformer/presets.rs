//! The sizes of the paper, and a small one.

use super::config::TransformerConfig;

/// The names of the presets.
pub const PRESET_NAMES: [&str; 3] = ["transformer_tiny", "transformer_base", "transformer_big"];

/// The names of the presets, for listing.
pub fn names() -> Vec<String> {
    PRESET_NAMES.map(str::to_string).to_vec()
}

/// The model of a preset: `transformer_tiny`, `transformer_base` or `transformer_big`.
pub fn preset(name: &str) -> Option<TransformerConfig> {
    let size = |dim, heads, layers, mlp_dim| TransformerConfig {
        dim,
        heads,
        encoder_layers: layers,
        decoder_layers: layers,
        mlp_dim,
        ..TransformerConfig::default()
    };
    match name {
        "transformer_tiny" => Some(size(256, 4, 3, 1024)),
        "transformer_base" => Some(size(512, 8, 6, 2048)),
        "transformer_big" => Some(size(1024, 16, 6, 4096)),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Architecture;

    fn parameters(config: &TransformerConfig) -> usize {
        let architecture: &dyn Architecture = config;
        architecture.parameter_count().expect("builds")
    }

    #[test]
    fn parameters_are_those_of_the_description() {
        let base = preset("transformer_base").expect("known");
        assert_eq!(parameters(&base), 59_508_496);
        let words = 32_000;
        let large = TransformerConfig { source_vocabulary: words, target_vocabulary: words, ..base.clone() };
        assert_eq!(parameters(&large), 93_322_496);
        let shared = TransformerConfig { shared_vocabulary: true, tied_output: true, ..base };
        assert_eq!(parameters(&shared), 59_508_496 - 2 * 512 * 10_000);
    }
}
