//! The sizes of the paper, and the smaller ones of "Well-Read Students Learn Better".

use super::config::BertConfig;

/// Name, width, layers and heads.
const SIZES: [(&str, usize, usize, usize); 6] = [
    ("bert_tiny", 128, 2, 2),
    ("bert_mini", 256, 4, 4),
    ("bert_small", 512, 4, 8),
    ("bert_medium", 512, 8, 8),
    ("bert_base", 768, 12, 12),
    ("bert_large", 1024, 24, 16),
];

/// The names of the presets.
pub fn names() -> Vec<String> {
    SIZES.iter().map(|(name, ..)| name.to_string()).collect()
}

/// The model of a preset, if it exists.
pub fn preset(name: &str) -> Option<BertConfig> {
    let &(_, dim, depth, heads) = SIZES.iter().find(|(known, ..)| *known == name)?;
    Some(BertConfig { dim, depth, heads, mlp_dim: 4 * dim, ..BertConfig::default() })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Architecture, Head};

    #[test]
    fn parameter_counts_are_those_of_transformers() {
        let count = |config: &dyn Architecture| config.parameter_count().expect("builds");
        // Counted in transformers 5: BertModel with its pooler, and BertForMaskedLM, whose output matrix is tied.
        assert_eq!(count(&preset("bert_base").expect("known")), 109_482_240);
        assert_eq!(count(&preset("bert_large").expect("known")), 335_141_888);
        assert_eq!(count(&preset("bert_tiny").expect("known")), 4_385_920);
        let masked = BertConfig { pooler: false, head: Head::MaskedTokens, ..BertConfig::default() };
        assert_eq!(count(&masked), 109_514_298);
    }
}
