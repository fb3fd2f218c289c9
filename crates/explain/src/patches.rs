//! What the final tokens of the patches say about the image, for models that were trained without classes (figures 1 and 9 of
//! "DINOv2: Learning Robust Visual Features without Supervision", Oquab et al., 2024).
//!
//! With the tokens `X [patches, dim]`: the scores of the first three principal components, `(X - mean) v_k`, and the cosine
//! similarity between every two patches.

use vitreous_engine::machine::check_memory;

use crate::error::ExplainError;
use crate::explanation::PatchFeatures;
use crate::principal::{centred, components};
use crate::similarity::similarity;

/// Computes both from the patches' tokens, `[patches, dim]`.
pub fn patch_features(tokens: Vec<f32>, dim: usize) -> Result<PatchFeatures, ExplainError> {
    let patches = tokens.len().checked_div(dim).unwrap_or(0);
    let bytes = patches.saturating_pow(2).saturating_mul(4);
    check_memory(&format!("comparing {patches} patches"), bytes)?;
    let components = components(&tokens, dim, 3);
    let centred = centred(&tokens, dim);
    let score = |row: &[f64], place: usize| {
        let direction = components.get(place).map_or(&[][..], |component| &component.direction);
        row.iter().zip(direction).map(|(x, v)| x * v).sum::<f64>() as f32
    };
    let scores = centred.chunks_exact(dim.max(1)).map(|row| [0, 1, 2].map(|place| score(row, place))).collect();
    let shares = [0, 1, 2].map(|place| components.get(place).map_or(0.0, |component| component.share));
    let similarity = similarity(&tokens, dim);
    Ok(PatchFeatures { tokens, dim, scores, shares, similarity })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fewer_than_three_components_leave_scores_of_zero() {
        // Three patches on one line: the mean is [2, 2], the direction [3, 4] / 5.
        let features = patch_features(vec![-1.0, -2.0, 2.0, 2.0, 5.0, 6.0], 2).expect("features");
        let expected = [[-5.0, 0.0, 0.0], [0.0; 3], [5.0, 0.0, 0.0]];
        for (scores, expected) in features.scores.iter().zip(expected) {
            assert!(scores.iter().zip(expected).all(|(a, b): (&f32, f32)| (a - b).abs() < 1e-5), "{scores:?}");
        }
        assert!((features.shares[0] - 1.0).abs() < 1e-12 && features.shares[1..] == [0.0, 0.0]);
        assert_eq!(features.similarity.len(), 9);
    }

    #[test]
    fn values_that_are_not_finite_have_no_components() {
        let features = patch_features(vec![1.0, f32::NAN, 2.0, 3.0], 2).expect("features");
        assert_eq!((features.shares, features.scores.len()), ([0.0; 3], 2));
    }
}
