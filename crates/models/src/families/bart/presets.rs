//! The sizes of the papers and of Hugging Face's configurations.

use super::config::{BartConfig, Variant};
use crate::settings::Activation;

const NAMES: [&str; 5] = ["bart_base", "bart_large", "mbart_large", "mbart_large_50", "marian_base"];

/// The names of the presets.
pub fn names() -> Vec<String> {
    NAMES.map(str::to_string).to_vec()
}

/// The model of a preset, if it exists.
pub fn preset(name: &str) -> Option<BartConfig> {
    let base = BartConfig::default();
    let large = BartConfig {
        dim: 1024,
        heads: 16,
        decoder_heads: 16,
        encoder_layers: 12,
        decoder_layers: 12,
        mlp_dim: 4096,
        decoder_mlp_dim: 4096,
        ..base.clone()
    };
    let mbart = |vocabulary| BartConfig {
        variant: Variant::Mbart,
        source_vocabulary: vocabulary,
        target_vocabulary: vocabulary,
        scaled_embedding: true,
        ..large.clone()
    };
    Some(match name {
        "bart_base" => base,
        "bart_large" => large,
        "mbart_large" => mbart(250_027),
        "mbart_large_50" => mbart(250_054),
        "marian_base" => BartConfig {
            variant: Variant::Marian,
            source_vocabulary: 58_101,
            target_vocabulary: 58_101,
            dim: 512,
            heads: 8,
            decoder_heads: 8,
            mlp_dim: 2048,
            decoder_mlp_dim: 2048,
            activation: Activation::Silu,
            max_length: 512,
            scaled_embedding: true,
            begin_token: None,
            padding_token: 58_100,
            end_token: 0,
            start_token: 58_100,
            forced_end_token: Some(0),
            ..base
        },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Architecture;

    /// The counts of the published models, with the bias of the logits, which is no parameter to the peers.
    #[test]
    fn sizes_are_those_of_the_published_models() {
        let count = |name: &str| {
            let model: Box<dyn Architecture> = Box::new(preset(name).expect("known"));
            model.parameter_count().expect("builds")
        };
        assert_eq!(count("bart_base"), 139_420_416 + 50_265);
        assert_eq!(count("bart_large"), 406_291_456 + 50_265);
    }
}
