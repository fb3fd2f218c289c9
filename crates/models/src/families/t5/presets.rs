//! The sizes of the papers and of Hugging Face's configurations.

use super::config::{T5Config, Variant};
use crate::settings::Activation;

/// T5: name, width, width of the feed-forward block, layers of each side, heads, width of a head.
const FIRST: [(&str, [usize; 5]); 5] = [
    ("t5_small", [512, 2048, 6, 8, 64]),
    ("t5_base", [768, 3072, 12, 12, 64]),
    ("t5_large", [1024, 4096, 24, 16, 64]),
    ("t5_3b", [1024, 16_384, 24, 32, 128]),
    ("t5_11b", [1024, 65_536, 24, 128, 128]),
];

/// T5 v1.1, which FLAN-T5 has the sizes of, and mT5: name, width, width of the feed-forward block, layers of each side, heads.
const SECOND: [(&str, [usize; 4]); 5] = [
    ("small", [512, 1024, 8, 6]),
    ("base", [768, 2048, 12, 12]),
    ("large", [1024, 2816, 24, 16]),
    ("xl", [2048, 5120, 24, 32]),
    ("xxl", [4096, 10_240, 24, 64]),
];

/// ByT5: name, width, width of the feed-forward block, layers of the encoder and of the decoder, heads.
const BYTES: [(&str, [usize; 5]); 2] = [("byt5_small", [1472, 3584, 12, 4, 6]), ("byt5_base", [1536, 3968, 18, 6, 12])];

/// The names of the presets.
pub fn names() -> Vec<String> {
    let first = FIRST.iter().map(|(name, _)| name.to_string());
    let second = ["t5_v1.1", "mt5"]
        .into_iter()
        .flat_map(|family| SECOND.iter().map(move |(size, _)| format!("{family}_{size}")));
    first.chain(second).chain(BYTES.iter().map(|(name, _)| name.to_string())).collect()
}

/// The model of a preset, if it exists.
pub fn preset(name: &str) -> Option<T5Config> {
    if let Some((_, [dim, mlp_dim, layers, heads, head_dim])) = FIRST.iter().find(|(known, _)| *known == name) {
        let size = T5Config { dim: *dim, mlp_dim: *mlp_dim, heads: *heads, head_dim: *head_dim, ..T5Config::default() };
        return Some(T5Config { encoder_layers: *layers, decoder_layers: *layers, ..size });
    }
    if let Some((_, sizes)) = BYTES.iter().find(|(known, _)| *known == name) {
        let [dim, mlp_dim, encoder_layers, decoder_layers, heads] = *sizes;
        return Some(T5Config { vocabulary: 384, decoder_layers, ..gated(dim, mlp_dim, encoder_layers, heads) });
    }
    let size = |name: &str| SECOND.iter().find(|(known, _)| *known == name).map(|(_, sizes)| *sizes);
    if let Some([dim, mlp_dim, layers, heads]) = name.strip_prefix("t5_v1.1_").and_then(size) {
        return Some(gated(dim, mlp_dim, layers, heads));
    }
    let [dim, mlp_dim, layers, heads] = name.strip_prefix("mt5_").and_then(size)?;
    Some(mt5(dim, mlp_dim, layers, heads))
}

/// T5 v1.1 of a size.
fn gated(dim: usize, mlp_dim: usize, layers: usize, heads: usize) -> T5Config {
    T5Config {
        dim,
        mlp_dim,
        encoder_layers: layers,
        decoder_layers: layers,
        heads,
        activation: Activation::GeluTanh,
        gated: true,
        tied_output: false,
        scaled_output: false,
        ..T5Config::default()
    }
}

/// mT5 of a size.
pub(super) fn mt5(dim: usize, mlp_dim: usize, layers: usize, heads: usize) -> T5Config {
    T5Config { variant: Variant::Mt5, vocabulary: 250_112, ..gated(dim, mlp_dim, layers, heads) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Architecture;

    #[test]
    fn sizes_are_those_of_the_published_models() {
        let count = |name: &str| {
            let model: Box<dyn Architecture> = Box::new(preset(name).expect("known"));
            model.parameter_count().expect("builds")
        };
        assert_eq!(count("t5_small"), 60_506_624);
        assert_eq!(count("t5_base"), 222_903_552);
        assert_eq!(count("t5_v1.1_small"), 76_961_152);
        assert_eq!(count("mt5_small"), 300_176_768);
        assert_eq!(count("byt5_small"), 299_637_760);
    }
}
