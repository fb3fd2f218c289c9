//! The sizes of the paper, with the vocabulary and the activation of version 2.

use super::config::AlbertConfig;

/// Name, width, layers and heads.
const SIZES: [(&str, usize, usize, usize); 4] = [
    ("albert_base", 768, 12, 12),
    ("albert_large", 1024, 24, 16),
    ("albert_xlarge", 2048, 24, 16),
    ("albert_xxlarge", 4096, 12, 64),
];

/// The names of the presets.
pub fn names() -> Vec<String> {
    SIZES.iter().map(|(name, ..)| name.to_string()).collect()
}

/// The model of a preset, if it exists.
pub fn preset(name: &str) -> Option<AlbertConfig> {
    let &(_, dim, depth, heads) = SIZES.iter().find(|(known, ..)| *known == name)?;
    Some(AlbertConfig { dim, depth, heads, mlp_dim: 4 * dim, ..AlbertConfig::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Architecture, Head};

    #[test]
    fn parameter_counts_are_those_of_transformers() {
        let count = |config: &dyn Architecture| config.parameter_count().expect("builds");
        // Counted in transformers 5: AlbertModel with its pooler, and AlbertForMaskedLM, whose output matrix is tied.
        let counts = ["albert_base", "albert_large", "albert_xlarge", "albert_xxlarge"];
        let counts = counts.map(|name| count(&preset(name).expect("known")));
        assert_eq!(counts, [11_683_584, 17_683_968, 58_724_864, 222_595_584]);
        let masked = AlbertConfig { pooler: false, head: Head::MaskedTokens, ..AlbertConfig::default() };
        assert_eq!(count(&masked), 11_221_680);
    }
}
