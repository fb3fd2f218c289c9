//! Relevance: how much each patch of an image, or each token of a text, speaks for a class.
//!
//! After "Generic Attention-model Explainability for Interpreting Bi-Modal and Encoder-Decoder Transformers" (Chefer, Gur and
//! Wolf, 2021), for self-attention. With the weights `A` of a head, and the gradient `∇A` of the class' logit with respect to them,
//!
//! ```text
//! Ā = mean over heads of max(0, ∇A ⊙ A)
//! R = I;   R ← R + Ā R      from the first layer to the last
//! relevance = reading · R
//! ```
//!
//! Only one row of `R` is wanted, so it is taken from the last layer to the first: `r ← r + r Ā`. `reading` is as for rollout.
//!
//! Attention's output of a head is `O = A V`, so `∇A = dO Vᵀ`, with `dO` the logit's gradient with respect to that output: `A`'s
//! gradient is never a value of the graph.
//!
//! A model without a head has no logit; there it is half the squared length of its features whose gradient is taken.

use crate::backward::Backward;
use crate::error::ExplainError;
use crate::forward::Forward;
use crate::heads::Heads;
use crate::matrix::{copy_columns, turned};
use crate::parallel::pieces;
use crate::taps::Projection;

/// Rows of queries that are one piece of work: sums are added piece by piece, so that threads change no bit.
const PIECE: usize = 64;

/// One head of a layer.
#[derive(Clone, Copy, Debug)]
pub struct Head<'a> {
    /// Its weights, `[tokens, tokens]`.
    pub weights: &'a [f32],
    /// The gradient of its output, `[tokens, width]`.
    pub output_gradient: &'a [f32],
    /// Its values, turned: `[width, tokens]`.
    pub values: &'a [f32],
}

/// `reading · R`, from a forward pass and a backward pass for the outputs of all layers' attention.
pub(crate) fn through_layers(
    reading: Vec<f64>,
    forward: &Forward,
    backward: &Backward,
    heads: &mut Heads,
    threads: usize,
) -> Result<Vec<f64>, ExplainError> {
    let mut row = reading;
    let tokens = row.len();
    for (layer, tap) in forward.taps.iter().enumerate().rev() {
        let (count, dim, width) = (tap.op.heads, tap.dim, tap.head_width());
        let output_gradient = backward.gradient(layer)?;
        let mut sum = vec![0.0; tokens];
        let (mut d, mut values) = (vec![0.0; tokens * width], vec![0.0; tokens * width]);
        heads.of_layer(forward, layer, |heads, weights| {
            for (head, weights) in heads.zip(weights.chunks_exact(tokens * tokens)) {
                copy_columns(output_gradient, dim, head * width..(head + 1) * width, &mut d);
                forward.copy_heads(layer, Projection::Value, &(head..head + 1), &mut values)?;
                let head = Head { weights, output_gradient: &d, values: &turned(&values, width) };
                let part = through_head(&row, head, threads);
                sum.iter_mut().zip(part).for_each(|(sum, part)| *sum += part);
            }
            Ok(())
        })?;
        row.iter_mut().zip(sum).for_each(|(row, sum)| *row += sum / count as f64);
    }
    Ok(row)
}

/// A row times one head's part of a layer: `row · max(0, ∇A ⊙ A)`.
pub fn through_head(row: &[f64], head: Head, threads: usize) -> Vec<f64> {
    let tokens = row.len();
    let parts = pieces(tokens.div_ceil(PIECE), threads, |piece| {
        let queries = piece * PIECE..tokens.min((piece + 1) * PIECE);
        let mut sum = vec![0.0; tokens];
        let mut gradient = vec![0f32; tokens];
        // The class token's row alone has anything in the last layer.
        for query in queries.filter(|&query| row[query] != 0.0) {
            weight_gradient(head, query, &mut gradient);
            for ((sum, &gradient), &weight) in sum.iter_mut().zip(&gradient).zip(&head.weights[query * tokens..]) {
                let product = gradient * weight;
                // What is no number is kept, to be seen.
                *sum += if product < 0.0 { 0.0 } else { row[query] * f64::from(product) };
            }
        }
        sum
    });
    let mut result = vec![0.0; tokens];
    for part in parts {
        result.iter_mut().zip(part).for_each(|(result, part)| *result += part);
    }
    result
}

/// One row of `∇A = dO Vᵀ`.
fn weight_gradient(head: Head, query: usize, gradient: &mut [f32]) {
    let tokens = gradient.len();
    let width = head.values.len() / tokens;
    gradient.fill(0.0);
    let of_query = &head.output_gradient[query * width..][..width];
    for (&d, values) in of_query.iter().zip(head.values.chunks_exact(tokens)) {
        for (gradient, &value) in gradient.iter_mut().zip(values) {
            *gradient += d * value;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_speaks_against_the_class_counts_nothing() {
        // Two tokens, values 3 and -2, and a gradient of 1 and 2: ∇A = [3, -2; 6, -4].
        let head = Head { weights: &[0.5, 0.5, 0.25, 0.75], output_gradient: &[1.0, 2.0], values: &[3.0, -2.0] };
        assert_eq!(through_head(&[1.0, 0.0], head, 1), [1.5, 0.0]);
        assert_eq!(through_head(&[1.0, 2.0], head, 2), [4.5, 0.0]);
    }

    #[test]
    fn threads_change_no_bit() {
        let tokens = 150;
        let noise = |count: usize| (0..count).map(|i| ((i * 7919 % 1013) as f32 / 1013.0) - 0.4).collect::<Vec<f32>>();
        let (weights, output_gradient, values) = (noise(tokens * tokens), noise(tokens * 3), noise(3 * tokens));
        let head = Head { weights: &weights, output_gradient: &output_gradient, values: &values };
        let row: Vec<f64> = noise(tokens).into_iter().map(f64::from).collect();
        assert_eq!(through_head(&row, head, 1), through_head(&row, head, 3));
    }

    #[test]
    fn no_number_stays_none() {
        let head = Head { weights: &[f32::NAN; 4], output_gradient: &[1.0, 2.0], values: &[3.0, -2.0] };
        assert!(through_head(&[1.0, 0.0], head, 1)[0].is_nan());
    }
}
