//! Attention weights as text for a page's script: two bytes each, so to 1/65535.

use crate::base64;
use serde_json::{Value, json};
use vitreous_explain::text::{TextAttention, TextExplanation};

/// The most characters of all heads' weights in a page. Beyond that a page holds only means over heads.
pub const BUDGET: usize = 6 << 20;

/// Whether a page has room for every head.
pub fn holds_heads(explanation: &TextExplanation, budget: usize) -> bool {
    let kinds = [&explanation.encoder, &explanation.decoder, &explanation.cross];
    let weights: usize = kinds.into_iter().flatten().map(|layer| layer.weights.len()).sum();
    weights.saturating_mul(8) / 3 <= budget
}

/// A layer: its number, its mean over heads, and its heads where there is room for them.
pub fn layer(attention: &TextAttention, with_heads: bool) -> Value {
    json!({
        "layer": attention.layer,
        "mean": weights(&attention.mean),
        "heads": with_heads.then(|| weights(&attention.weights)),
    })
}

/// Weights of 0 to 1, each as a share of 65535.
pub fn weights(weights: &[f32]) -> String {
    let bytes: Vec<u8> = weights.iter().flat_map(|weight| ((weight * 65535.0).round() as u16).to_le_bytes()).collect();
    base64(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

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
        assert_eq!(weights(&[0.0, 1.0]), base64(&[0, 0, 255, 255]));
    }
}
