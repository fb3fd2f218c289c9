//! The sizes of the paper, the smaller ones of "Well-Read Students Learn Better", and those of BERT's relatives.

use super::config::BertConfig;
use super::variant::Variant;

/// Name, variant, width, layers, heads, and vocabulary.
const SIZES: [(&str, Variant, usize, usize, usize, usize); 12] = [
    ("bert_tiny", Variant::Bert, 128, 2, 2, 30_522),
    ("bert_mini", Variant::Bert, 256, 4, 4, 30_522),
    ("bert_small", Variant::Bert, 512, 4, 8, 30_522),
    ("bert_medium", Variant::Bert, 512, 8, 8, 30_522),
    ("bert_base", Variant::Bert, 768, 12, 12, 30_522),
    ("bert_large", Variant::Bert, 1024, 24, 16, 30_522),
    ("roberta_base", Variant::Roberta, 768, 12, 12, 50_265),
    ("roberta_large", Variant::Roberta, 1024, 24, 16, 50_265),
    ("xlm_roberta_base", Variant::XlmRoberta, 768, 12, 12, 250_002),
    ("distilbert_base", Variant::Distilbert, 768, 6, 12, 30_522),
    ("electra_small", Variant::Electra, 256, 12, 4, 30_522),
    ("electra_base", Variant::Electra, 768, 12, 12, 30_522),
];

/// The names of the presets.
pub fn names() -> Vec<String> {
    SIZES.iter().map(|(name, ..)| name.to_string()).collect()
}

/// The model of a preset, if it exists.
pub fn preset(name: &str) -> Option<BertConfig> {
    let &(_, variant, dim, depth, heads, vocabulary) = SIZES.iter().find(|(known, ..)| *known == name)?;
    let sizes = BertConfig { variant, dim, depth, heads, vocabulary, mlp_dim: 4 * dim, ..BertConfig::default() };
    Some(match variant {
        Variant::Bert => sizes,
        Variant::Roberta | Variant::XlmRoberta | Variant::Camembert => {
            BertConfig { position_offset: 2, token_types: 1, norm_eps: 1e-5, ..sizes }
        }
        Variant::Distilbert => BertConfig { token_types: 0, pooler: false, ..sizes },
        // Only the small one has narrower embeddings.
        Variant::Electra => BertConfig { embedding_dim: (dim == 256).then_some(128), pooler: false, ..sizes },
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::{Architecture, Head};

    #[test]
    fn parameter_counts_are_those_of_transformers() {
        let count = |name: &str| preset(name).map(|config| (&config as &dyn Architecture).parameter_count());
        // Counted in transformers 5: the plain models, with a pooler if they have one.
        let counts = [
            ("bert_base", 109_482_240),
            ("bert_large", 335_141_888),
            ("bert_tiny", 4_385_920),
            ("roberta_base", 124_645_632),
            ("roberta_large", 355_359_744),
            ("xlm_roberta_base", 278_043_648),
            ("distilbert_base", 66_362_880),
            ("electra_small", 13_483_008),
            ("electra_base", 108_891_648),
        ];
        for (name, expected) in counts {
            assert_eq!(count(name), Some(Ok(expected)), "{name}");
        }
        // BertForMaskedLM, whose output matrix is tied.
        let masked = BertConfig { pooler: false, head: Head::MaskedTokens, ..BertConfig::default() };
        assert_eq!((&masked as &dyn Architecture).parameter_count(), Ok(109_514_298));
    }
}
