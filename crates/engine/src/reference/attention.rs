//! Attention and its gradient in naive f64.

use super::{Tensor, mask_of, softmax};
use crate::ops::attention::{PaddingKind, Sizes};
use crate::ops::{Attention, AttentionGradient};
use crate::random::Run;
use crate::types::Shape;

/// q, k and v by (sample, token, query head, i), however they are stored.
struct Projections<'a> {
    inputs: &'a [Tensor],
    packed: bool,
    sizes: Sizes,
}

impl Projections<'_> {
    fn at(&self, which: usize, sample: usize, token: usize, head: usize, i: usize) -> f64 {
        let (input, index) = self.index(which, sample, token, head, i);
        self.inputs[input].data[index]
    }

    /// Input and offset of an element. A query head reads the keys and values of its group.
    fn index(&self, which: usize, sample: usize, token: usize, head: usize, i: usize) -> (usize, usize) {
        let s = &self.sizes;
        let (tokens, heads, head) =
            if which == 0 { (s.queries, s.heads, head) } else { (s.keys, s.kv_heads, head / (s.heads / s.kv_heads)) };
        let dim = heads * s.head_dim;
        let (input, row, offset) = if self.packed { (0, 3 * dim, which * dim) } else { (which, dim, 0) };
        (input, (sample * tokens + token) * row + offset + head * s.head_dim + i)
    }
}

fn sizes(op: &Attention, inputs: &[Tensor]) -> Sizes {
    op.sizes(inputs.len(), |input| &inputs[input].shape).expect("shapes were checked when the graph was built")
}

fn masked(op: &Attention, inputs: &[Tensor], s: &Sizes, sample: usize, query: usize, key: usize) -> bool {
    let padding = op.padding_input().map(|input| &inputs[input].data);
    let padded = match (op.padding, padding) {
        (PaddingKind::Lengths, Some(lengths)) => key as f64 >= lengths[sample],
        (PaddingKind::Mask, Some(mask)) => mask[sample * s.keys + key] == 0.0,
        _ => false,
    };
    let offset = op.offsets_input().map_or(s.keys as f64 - s.queries as f64, |input| inputs[input].data[sample]);
    // Distance of the key behind the query's position.
    let distance = offset + query as f64 - key as f64;
    let hidden = match (op.causal, op.window) {
        (true, None) => distance < 0.0,
        (true, Some(window)) => distance < 0.0 || distance >= window as f64,
        (false, None) => false,
        (false, Some(window)) => distance.abs() > window as f64,
    };
    padded || hidden
}

/// Offset of the bias of a score.
fn bias_index(bias: &Shape, sample: usize, head: usize, query: usize, key: usize) -> usize {
    let &[batch, heads, queries, keys] = bias.axes() else { return 0 };
    (((sample % batch) * heads + head % heads) * queries + query) * keys + key
}

/// The weights before dropout, and the log-sum of each row (infinite if every key is masked).
pub(super) fn weights(op: &Attention, inputs: &[Tensor]) -> (Vec<f64>, Vec<f64>) {
    let s = sizes(op, inputs);
    let x = Projections { inputs, packed: op.packed, sizes: s };
    let scale = f64::from(op.scale_for(s.head_dim));
    let (mut weights, mut log_sums) = (Vec::new(), Vec::new());
    for sample in 0..s.batch {
        for head in 0..s.heads {
            for query in 0..s.queries {
                let score = |key: usize| {
                    if masked(op, inputs, &s, sample, query, key) {
                        return f64::NEG_INFINITY;
                    }
                    let dot: f64 =
                        (0..s.head_dim).map(|i| x.at(0, sample, query, head, i) * x.at(1, sample, key, head, i)).sum();
                    let bias = op.bias_input().map_or(0.0, |input| {
                        inputs[input].data[bias_index(&inputs[input].shape, sample, head, query, key)]
                    });
                    scale * dot + bias
                };
                let scores: Vec<f64> = (0..s.keys).map(score).collect();
                let max = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
                let log_sum = max + scores.iter().map(|x| (x - max).exp()).sum::<f64>().ln();
                log_sums.push(if max == f64::NEG_INFINITY { f64::INFINITY } else { log_sum });
                weights.extend(softmax(&scores));
            }
        }
    }
    (weights, log_sums)
}

/// The dropout factor of a weight: the random numbers of a head are ordered by key, then by query.
fn factor(op: &Attention, s: &Sizes, run: Run, row: usize, key: usize) -> f64 {
    let (pair, query) = ((row / s.queries) as u64, row % s.queries);
    op.dropout.as_ref().map_or(1.0, |drop| f64::from(mask_of(drop, run).factor(pair, key * s.queries + query)))
}

pub(super) fn forward(op: &Attention, inputs: &[Tensor], run: Run) -> Vec<Vec<f64>> {
    let s = sizes(op, inputs);
    let x = Projections { inputs, packed: op.packed, sizes: s };
    let (weights, log_sums) = weights(op, inputs);
    let dim = s.heads * s.head_dim;
    let mut out = vec![0.0; s.batch * s.queries * dim];
    for row in 0..s.batch * s.heads * s.queries {
        let (sample, head, query) = (row / s.queries / s.heads, row / s.queries % s.heads, row % s.queries);
        for key in 0..s.keys {
            let weight = weights[row * s.keys + key] * factor(op, &s, run, row, key);
            for i in 0..s.head_dim {
                out[(sample * s.queries + query) * dim + head * s.head_dim + i] +=
                    weight * x.at(2, sample, key, head, i);
            }
        }
    }
    vec![out, log_sums]
}

pub(super) fn gradient(op: &AttentionGradient, inputs: &[Tensor], run: Run) -> Vec<Vec<f64>> {
    let attention = &op.of;
    let s = sizes(attention, inputs);
    let x = Projections { inputs, packed: attention.packed, sizes: s };
    let (weights, _) = weights(attention, inputs);
    let d_out = &inputs[attention.input_count() + 2].data;
    let scale = f64::from(attention.scale_for(s.head_dim));
    let dim = s.heads * s.head_dim;
    let mut results: Vec<Vec<f64>> =
        inputs[..attention.projections()].iter().map(|input| vec![0.0; input.data.len()]).collect();
    let bias = attention.bias_input().filter(|_| op.bias_gradient);
    if let Some(bias) = bias {
        results.push(vec![0.0; inputs[bias].data.len()]);
    }
    for row in 0..s.batch * s.heads * s.queries {
        let (sample, head, query) = (row / s.queries / s.heads, row / s.queries % s.heads, row % s.queries);
        let d = |i: usize| d_out[(sample * s.queries + query) * dim + head * s.head_dim + i];
        // dP through dropout, then the gradient of the softmax.
        let dp: Vec<f64> = (0..s.keys)
            .map(|key| {
                let dot: f64 = (0..s.head_dim).map(|i| d(i) * x.at(2, sample, key, head, i)).sum();
                dot * factor(attention, &s, run, row, key)
            })
            .collect();
        let p = &weights[row * s.keys..(row + 1) * s.keys];
        let total: f64 = p.iter().zip(&dp).map(|(p, dp)| p * dp).sum();
        for key in 0..s.keys {
            let ds = p[key] * (dp[key] - total);
            let dropped = p[key] * factor(attention, &s, run, row, key);
            for i in 0..s.head_dim {
                let (tensor, at) = x.index(0, sample, query, head, i);
                results[tensor][at] += scale * ds * x.at(1, sample, key, head, i);
                let (tensor, at) = x.index(1, sample, key, head, i);
                results[tensor][at] += scale * ds * x.at(0, sample, query, head, i);
                let (tensor, at) = x.index(2, sample, key, head, i);
                results[tensor][at] += dropped * d(i);
            }
            if let Some(bias) = bias {
                let at = bias_index(&inputs[bias].shape, sample, head, query, key);
                results[attention.projections()][at] += ds;
            }
        }
    }
    results
}
