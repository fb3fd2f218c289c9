//! How much of a sentence's attention a page holds.

use vitreous_explain::text::TextExplanation;

use crate::token_map::packed::characters;

/// Whether a page has room for every head.
pub fn holds_heads(explanation: &TextExplanation, budget: usize) -> bool {
    let kinds = [&explanation.encoder, &explanation.decoder, &explanation.cross];
    let weights: usize = kinds.into_iter().flatten().map(|layer| layer.weights.len()).sum();
    characters(weights) <= budget
}

#[cfg(test)]
mod tests {
    use super::*;
    use vitreous_explain::text::TextAttention;

    #[test]
    fn a_page_holds_as_much_as_its_budget_allows() {
        let layer = TextAttention { layer: 0, heads: vec![0], weights: vec![0.5; 30], mean: vec![0.5; 30] };
        let explanation = TextExplanation {
            source: Vec::new(),
            read: Vec::new(),
            written: Vec::new(),
            probabilities: Vec::new(),
            likeliest: Vec::new(),
            encoder: vec![layer.clone()],
            decoder: vec![layer.clone()],
            cross: vec![layer],
            cross_means: Vec::new(),
        };
        assert!(holds_heads(&explanation, 240) && !holds_heads(&explanation, 239));
    }
}
