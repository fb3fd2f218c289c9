//! The sizes of the papers: GPT-1, the four of GPT-2, and the eight of GPT-3 (table 2.1), whose sparse layers are dense here.

use super::config::Gpt2Config;
use crate::settings::NormOrder;

/// Name, width, layers, heads, and maximum length.
const SIZES: [(&str, usize, usize, usize, usize); 13] = [
    ("gpt1", 768, 12, 12, 512),
    ("gpt2", 768, 12, 12, 1024),
    ("gpt2_medium", 1024, 24, 16, 1024),
    ("gpt2_large", 1280, 36, 20, 1024),
    ("gpt2_xl", 1600, 48, 25, 1024),
    ("gpt3_small", 768, 12, 12, 2048),
    ("gpt3_medium", 1024, 24, 16, 2048),
    ("gpt3_large", 1536, 24, 16, 2048),
    ("gpt3_xl", 2048, 24, 16, 2048),
    ("gpt3_2.7b", 2560, 32, 32, 2048),
    ("gpt3_6.7b", 4096, 32, 32, 2048),
    ("gpt3_13b", 5120, 40, 40, 2048),
    ("gpt3_175b", 12_288, 96, 96, 2048),
];

/// The names of the presets.
pub fn names() -> Vec<String> {
    SIZES.iter().map(|(name, ..)| name.to_string()).collect()
}

/// The model of a preset, if it exists.
pub fn preset(name: &str) -> Option<Gpt2Config> {
    let &(_, dim, depth, heads, max_length) = SIZES.iter().find(|(known, ..)| *known == name)?;
    let sizes = Gpt2Config { dim, depth, heads, max_length, mlp_dim: 4 * dim, ..Gpt2Config::default() };
    Some(match name {
        "gpt1" => Gpt2Config { vocabulary: 40_478, norm_order: NormOrder::Post, ..sizes },
        _ => sizes,
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
            ("gpt1", 116_534_784),
            ("gpt2", 124_439_808),
            ("gpt2_medium", 354_823_168),
            ("gpt2_large", 774_030_080),
            ("gpt2_xl", 1_557_611_200),
            ("gpt3_175b", 174_604_259_328),
        ] {
            assert_eq!(count(name).map(Result::ok), Some(Some(expected)), "{name}");
        }
    }
}
