//! The published sizes.

use super::config::{HEAD_DIM, WhisperConfig};

/// Name, width, layers of the encoder and of the decoder.
const SIZES: [(&str, usize, usize, usize); 6] = [
    ("tiny", 384, 4, 4),
    ("base", 512, 6, 6),
    ("small", 768, 12, 12),
    ("medium", 1024, 24, 24),
    ("large", 1280, 32, 32),
    ("turbo", 1280, 32, 4),
];

const NAMES: [&str; 12] = [
    "whisper_tiny",
    "whisper_tiny_en",
    "whisper_base",
    "whisper_base_en",
    "whisper_small",
    "whisper_small_en",
    "whisper_medium",
    "whisper_medium_en",
    "whisper_large_v1",
    "whisper_large_v2",
    "whisper_large_v3",
    "whisper_turbo",
];

/// The names of the presets.
pub fn names() -> Vec<String> {
    NAMES.map(str::to_string).to_vec()
}

/// The model of a preset, if it exists.
pub fn preset(name: &str) -> Option<WhisperConfig> {
    let size = NAMES.iter().find(|known| **known == name)?.strip_prefix("whisper_")?;
    let (size, is_english) = match size.strip_suffix("_en") {
        Some(size) => (size, true),
        None => (size, false),
    };
    let (size, version) = size.split_once("_v").unwrap_or((size, "2"));
    let &(_, dim, encoder_layers, decoder_layers) = SIZES.iter().find(|(known, ..)| *known == size)?;
    // The third version has more bins and one more language; turbo is made of it.
    let is_third = version == "3" || size == "turbo";
    let end_token = if is_english { 50_256 } else { 50_257 };
    Some(WhisperConfig {
        mel_bins: if is_third { 128 } else { 80 },
        vocabulary: if is_english { 51_864 } else { 51_865 + usize::from(is_third) },
        dim,
        heads: dim / HEAD_DIM,
        decoder_heads: dim / HEAD_DIM,
        encoder_layers,
        decoder_layers,
        mlp_dim: 4 * dim,
        decoder_mlp_dim: 4 * dim,
        start_token: end_token + 1,
        end_token,
        padding_token: end_token,
        ..WhisperConfig::default()
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::Architecture;

    /// The counts of `transformers`, which counts the encoder's positions, too.
    #[test]
    fn sizes_are_those_of_the_published_models() {
        let count = |name: &str| {
            let model: Box<dyn Architecture> = Box::new(preset(name).expect("known"));
            model.parameter_count().expect("builds")
        };
        assert_eq!(count("whisper_tiny"), 37_760_640);
        assert_eq!(count("whisper_tiny_en"), 37_760_256);
        assert_eq!(count("whisper_base"), 72_593_920);
        assert_eq!(count("whisper_small"), 241_734_912);
        assert_eq!(count("whisper_medium"), 763_857_920);
        assert_eq!(count("whisper_large_v2"), 1_543_304_960);
        assert_eq!(count("whisper_large_v3"), 1_543_490_560);
        assert_eq!(count("whisper_turbo"), 808_878_080);
    }
}
