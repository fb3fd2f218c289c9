//! One query a head: a step of decoding, and the last layer of models that only read a class token.
//!
//! Queries share nothing here, so the time is that of reading keys and values. Each of their rows is read once, whole, for all
//! heads together, in the order of memory.

use super::super::memory::{FloatSlice, Shared};
use super::super::rows::{log_sum_exp, softmax};
use super::super::simd::{Lanes, simd_fn};
use super::super::team::Team;
use super::rows::{Region, copy_rows, padded, store_rows, take};
use super::small_product::Rows;
use super::{Attention, Heads, HeadsOut, TILE_MULTIPLICATIONS};

/// Whether an attention is one that this file computes.
pub fn suits(attention: &Attention, k: &Heads, v: &Heads) -> bool {
    let plain = attention.key_mask.is_none() && attention.bias.is_none() && attention.dropout.is_none();
    let both_f32 = matches!((k.values, v.values), (FloatSlice::F32(_), FloatSlice::F32(_)));
    attention.queries == 1 && plain && both_f32
}

/// Floats of scratch: a query, a result, and the weights of each head.
pub fn scratch(attention: &Attention) -> usize {
    2 * padded(attention.heads * attention.head_dim) + attention.heads * padded(attention.keys)
}

/// As [`super::forward`].
pub fn forward(
    team: &mut Team,
    attention: &Attention,
    q: Heads,
    [k, v]: [Heads; 2],
    out: HeadsOut,
    log_sums: Shared<f32>,
) {
    let (heads, width) = (attention.heads, attention.heads * attention.head_dim);
    let group = (TILE_MULTIPLICATIONS / (attention.keys * width).max(1)).max(1);
    let shape = Shape { heads, head_dim: attention.head_dim, weights_stride: padded(attention.keys) };
    team.run(attention.batch.div_ceil(group), &|tile, mut scratch| {
        let query = take(&mut scratch, width);
        let result = take(&mut scratch, width);
        let weights = take(&mut scratch, heads * shape.weights_stride);
        for sample in tile * group..((tile + 1) * group).min(attention.batch) {
            let row = |start: usize, stride: usize| Region {
                start: start + sample * stride,
                stride,
                rows: 1,
                columns: width,
            };
            copy_rows(q.values, row(q.offset, q.row_stride), query, padded(width));
            // SAFETY: this sample's sums are no other's.
            let log_sums = unsafe { log_sums.range(sample * heads..(sample + 1) * heads) };
            let seen = attention.visible_keys(sample);
            result.fill(0.0);
            log_sums.fill(f32::INFINITY);
            if seen > 0 {
                let keys = rows_of(&k, sample * attention.keys, seen, width);
                score_rows(&shape, query, keys, seen, attention.scale, weights);
                for (weights, log_sum) in weights.chunks_exact_mut(shape.weights_stride).zip(log_sums) {
                    *log_sum = log_sum_exp(&weights[..seen]);
                    softmax(&mut weights[..seen]);
                }
                mix_rows(&shape, weights, rows_of(&v, sample * attention.keys, seen, width), seen, result);
            }
            let result = Rows { values: result, stride: width };
            store_rows(result, None, &out.values, row(out.offset, out.row_stride));
        }
    });
}

/// Rows of all heads, from one on.
///
/// # Panics
/// Panics if they do not lie inside, or are not f32.
fn rows_of<'a>(heads: &Heads<'a>, first: usize, count: usize, width: usize) -> Rows<'a> {
    let FloatSlice::F32(values) = heads.values else { unreachable!("asked before") };
    let start = heads.offset + first * heads.row_stride;
    Rows { values: &values[start..start + (count - 1) * heads.row_stride + width], stride: heads.row_stride }
}

/// How the heads lie in a row, and their weights.
#[derive(Clone, Copy)]
struct Shape {
    heads: usize,
    head_dim: usize,
    weights_stride: usize,
}

impl Shape {
    fn check(&self, row: &[f32], rows: Rows, count: usize, weights: &[f32]) {
        let width = self.heads * self.head_dim;
        assert!(row.len() >= width && count > 0 && (count - 1) * rows.stride + width <= rows.values.len());
        assert!(count <= self.weights_stride && self.heads * self.weights_stride <= weights.len());
    }
}

simd_fn! {
    /// `scores[head][key] = scale * query[head] . keys[key][head]`
    fn score_rows(shape: &Shape, query: &[f32], keys: Rows, count: usize, scale: f32, scores: &mut [f32]) = score_rows_body;
}

#[inline(always)]
unsafe fn score_rows_body<V: Lanes>(
    shape: &Shape,
    query: &[f32],
    keys: Rows,
    count: usize,
    scale: f32,
    scores: &mut [f32],
) {
    shape.check(query, keys, count, scores);
    let Shape { heads, head_dim, weights_stride } = *shape;
    let (whole, rest) = (head_dim / V::COUNT * V::COUNT, head_dim % V::COUNT);
    for key in 0..count {
        for head in 0..heads {
            // SAFETY: `check` saw that every row has all heads, and that every head has a score for every key.
            unsafe {
                let query = query.as_ptr().add(head * head_dim);
                let row = keys.values.as_ptr().add(key * keys.stride + head * head_dim);
                let mut sum = V::splat(0.0);
                let mut i = 0;
                while i < whole {
                    sum = V::load(row.add(i)).mul_add(V::load(query.add(i)), sum);
                    i += V::COUNT;
                }
                if rest > 0 {
                    sum = V::load_partial(row.add(i), rest).mul_add(V::load_partial(query.add(i), rest), sum);
                }
                *scores.get_unchecked_mut(head * weights_stride + key) = scale * sum.sum();
            }
        }
    }
}

simd_fn! {
    /// `out[head] += sum of weights[head][key] * values[key][head]`
    fn mix_rows(shape: &Shape, weights: &[f32], values: Rows, count: usize, out: &mut [f32]) = mix_rows_body;
}

#[inline(always)]
unsafe fn mix_rows_body<V: Lanes>(shape: &Shape, weights: &[f32], values: Rows, count: usize, out: &mut [f32]) {
    shape.check(out, values, count, weights);
    let Shape { heads, head_dim, weights_stride } = *shape;
    let (whole, rest) = (head_dim / V::COUNT * V::COUNT, head_dim % V::COUNT);
    for key in 0..count {
        for head in 0..heads {
            // SAFETY: as in `score_rows_body`.
            unsafe {
                let weight = V::splat(*weights.get_unchecked(head * weights_stride + key));
                let row = values.values.as_ptr().add(key * values.stride + head * head_dim);
                let out = out.as_mut_ptr().add(head * head_dim);
                let mut i = 0;
                while i < whole {
                    V::load(row.add(i)).mul_add(weight, V::load(out.add(i))).store(out.add(i));
                    i += V::COUNT;
                }
                if rest > 0 {
                    let sum = V::load_partial(row.add(i), rest).mul_add(weight, V::load_partial(out.add(i), rest));
                    sum.store_partial(out.add(i), rest);
                }
            }
        }
    }
}
