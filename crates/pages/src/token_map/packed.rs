//! Attention weights as text for a page's script: two bytes each, so to 1/65535.

use crate::base64;
use serde_json::{Value, json};
use vitreous_explain::text::TextAttention;

/// The most characters of weights in a page. Beyond that a page holds only means over heads.
pub(crate) const BUDGET: usize = 6 << 20;

/// The characters that so many weights take.
pub(crate) fn characters(weights: usize) -> usize {
    weights.saturating_mul(8) / 3
}

/// A layer: its number, its mean over heads, and its heads where there is room for them.
pub(crate) fn layer(attention: &TextAttention, with_heads: bool) -> Value {
    json!({
        "layer": attention.layer,
        "mean": weights(&attention.mean),
        "heads": with_heads.then(|| weights(&attention.weights)),
    })
}

/// Weights of 0 to 1, each as a share of 65535.
pub(crate) fn weights(weights: &[f32]) -> String {
    let bytes: Vec<u8> = weights.iter().flat_map(|weight| ((weight * 65535.0).round() as u16).to_le_bytes()).collect();
    base64(&bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_weight_is_two_bytes() {
        assert_eq!(weights(&[0.0, 1.0]), base64(&[0, 0, 255, 255]));
        assert_eq!(characters(30), 80);
    }
}
