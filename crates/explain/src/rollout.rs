//! Rollout: how much of each patch reaches the answer, if a token is what attention mixes it of.
//!
//! After "Quantifying Attention Flow in Transformers" (Abnar and Zuidema, 2020). The heads of a layer are joined into one matrix
//! `A` (their mean, or the largest or smallest at each place); its smallest weights may be left out; the residual stream, which
//! passes every token on beside attention, counts as much as attention does:
//!
//! ```text
//! A' = A, with the smallest share `discard` of its tokens x tokens weights set to 0
//! M  = (A' + I) / 2, each row divided by its sum
//! rollout = reading · M_last · .. · M_first
//! ```
//!
//! `reading` is the row of the class token, or the mean of the patches' rows: see [`TokenGrid::reading`](crate::TokenGrid::reading).
//! Only this row is ever needed, so it is taken through the layers from the last to the first: a layer takes `tokens²` steps, and
//! no two matrices are multiplied.
//!
//! What is left out: with `k = discard · tokens²`, rounded, all weights are set to 0 that are smaller than the one that has `k`
//! before it when they are sorted. So `k` of them are, if no two are equal; of weights that are equal, either all go or all stay; and the largest always
//! stays. A `discard` of 0 leaves everything in.

use crate::explanation::Fusion;

/// The heads of one layer, joined while they come.
#[derive(Clone, Debug)]
pub struct Fused {
    fusion: Fusion,
    heads: usize,
    weights: Vec<f32>,
}

impl Fused {
    /// No head yet.
    pub fn new(fusion: Fusion) -> Fused {
        Fused { fusion, heads: 0, weights: Vec::new() }
    }

    /// Adds a head's weights, `[tokens, tokens]`.
    pub fn add(&mut self, head: &[f32]) {
        self.heads += 1;
        if self.heads == 1 {
            self.weights.clear();
            self.weights.extend_from_slice(head);
            return;
        }
        let join: fn(f32, f32) -> f32 = match self.fusion {
            Fusion::Mean => |joined, weight| joined + weight,
            Fusion::Max => f32::max,
            Fusion::Min => f32::min,
        };
        for (joined, &weight) in self.weights.iter_mut().zip(head) {
            *joined = join(*joined, weight);
        }
    }

    /// The joined weights of all heads that came; the next one is the first of another layer.
    pub fn finish(&mut self) -> &[f32] {
        if self.fusion == Fusion::Mean {
            let heads = self.heads.max(1) as f32;
            self.weights.iter_mut().for_each(|weight| *weight /= heads);
        }
        self.heads = 0;
        &self.weights
    }
}

/// The smallest weight that stays when this share is left out.
pub fn least_kept(weights: &[f32], discard: f32) -> f32 {
    let left_out = (f64::from(discard) * weights.len() as f64).round() as usize;
    if left_out == 0 || weights.is_empty() {
        return f32::NEG_INFINITY;
    }
    let mut sorted = weights.to_vec();
    let last = sorted.len() - 1;
    *sorted.select_nth_unstable_by(left_out.min(last), f32::total_cmp).1
}

/// A row times one layer's matrix: `row · M`, from its joined weights `[tokens, tokens]`, without those below `least`.
pub fn through_layer(row: &[f64], weights: &[f32], least: f32) -> Vec<f64> {
    // What is no number is kept, to be seen.
    let kept = |weight: f32| if weight < least { 0.0 } else { f64::from(weight) };
    let mut result = vec![0.0; row.len()];
    for (token, (&share, weights)) in row.iter().zip(weights.chunks_exact(row.len())).enumerate() {
        let sum = weights.iter().map(|&weight| kept(weight)).sum::<f64>() + 1.0;
        if share == 0.0 || sum == 0.0 {
            continue;
        }
        // Halving attention and residual stream is no matter once rows are made to sum to 1.
        let share = share / sum;
        for (result, &weight) in result.iter_mut().zip(weights) {
            *result += share * kept(weight);
        }
        result[token] += share;
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_smallest_are_left_out_and_equals_stay_together() {
        let weights = [0.4, 0.1, 0.3, 0.2];
        assert_eq!(least_kept(&weights, 0.0), f32::NEG_INFINITY);
        assert_eq!(least_kept(&weights, 0.25), 0.2);
        assert_eq!(least_kept(&weights, 0.5), 0.3);
        assert_eq!(least_kept(&weights, 0.999), 0.4);
        assert_eq!(least_kept(&[0.5; 4], 0.75), 0.5);
        // As a person counts, not as 0.9 is stored.
        let hundred: Vec<f32> = (0..100).map(|weight| weight as f32).collect();
        assert_eq!(least_kept(&hundred, 0.9), 90.0);
    }

    #[test]
    fn half_of_a_token_stays_where_it_is() {
        let weights = [0.25, 0.75, 1.0, 0.0];
        assert_eq!(through_layer(&[1.0, 0.0], &weights, f32::NEG_INFINITY), [0.625, 0.375]);
        // Without the quarter, the first row is 1 and 3/4, of which 4/7 and 3/7 are made.
        let row = through_layer(&[1.0, 0.0], &weights, 0.5);
        assert!((row[0] - 4.0 / 7.0).abs() < 1e-12 && (row[1] - 3.0 / 7.0).abs() < 1e-12);
    }

    #[test]
    fn no_number_does_not_stop_it() {
        let weights = [f32::NAN, 0.5, 0.5, f32::INFINITY];
        assert!(least_kept(&weights, 0.9).is_nan() || least_kept(&weights, 0.9) == f32::INFINITY);
        assert!(through_layer(&[0.5, 0.5], &weights, 0.1)[0].is_nan());
    }
}
