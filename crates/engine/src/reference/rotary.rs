//! Rotary positions in naive f64, of angles that are f32 by definition.

use super::Tensor;
use crate::ops::Rotary;

pub(super) fn rotary(op: &Rotary, inputs: &[Tensor]) -> Vec<f64> {
    let x = &inputs[0];
    let &[batch, tokens, dim] = x.shape.axes() else { return Vec::new() };
    let (head_dim, factor) = (dim / op.heads, f64::from(op.factor));
    let mut out = x.data.clone();
    for sample in 0..batch {
        let offset = inputs.get(1).map_or(0.0, |offsets| offsets.data[sample]);
        for token in 0..tokens {
            for head in 0..op.heads {
                for pair in 0..op.frequencies.len() {
                    let angle = f64::from(op.angle(offset as i64 + token as i64, pair));
                    let start = (sample * tokens + token) * dim + head * head_dim;
                    let [first, second] = op.members(pair).map(|member| start + member);
                    let (a, b) = (x.data[first], x.data[second]);
                    out[first] = factor * (a * angle.cos() - b * angle.sin());
                    out[second] = factor * (b * angle.cos() + a * angle.sin());
                }
            }
        }
    }
    out
}
