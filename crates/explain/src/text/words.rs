//! Attention between words, where a model has it between pieces of words.

use std::ops::Range;

/// Weights between words: a word gets what all of its pieces get, and gives what its pieces give on average. So rows still sum to 1.
///
/// `weights` has a row for each piece that asks and `columns` pieces that are asked; words are ranges of them.
pub fn by_words(weights: &[f32], columns: usize, asking: &[Range<usize>], asked: &[Range<usize>]) -> Vec<f32> {
    let mut joined = Vec::with_capacity(asking.len() * asked.len());
    for rows in asking {
        for keys in asked {
            let of_row = |row: usize| weights[row * columns..][keys.clone()].iter().map(|&weight| f64::from(weight));
            let sum: f64 = rows.clone().flat_map(of_row).sum();
            joined.push((sum / rows.len().max(1) as f64) as f32);
        }
    }
    joined
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_asked_is_added_and_who_asks_is_averaged() {
        let weights = [0.1, 0.2, 0.7, 0.3, 0.3, 0.4, 0.0, 1.0, 0.0];
        let joined = by_words(&weights, 3, &[0..2, 2..3], &[0..2, 2..3]);
        for (got, expected) in joined.iter().zip([0.45, 0.55, 1.0, 0.0]) {
            assert!((got - expected).abs() < 1e-7, "{joined:?}");
        }
    }
}
