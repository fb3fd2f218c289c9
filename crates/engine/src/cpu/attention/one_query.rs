//! One query per head: a decoding step, and the last layer of models that use only a class token.
//!
//! Queries share nothing here, so the time is that of reading keys and values. Each of their rows is read once, for all
//! heads of a tile together, in memory order.

use std::ops::Range;

use half::bf16;

use super::super::memory::{FloatSlice, Shared};
use super::super::rows::{log_sum_exp, softmax};
use super::super::simd::{Lanes, simd_fn};
use super::super::team::Team;
use super::rows::{Region, copy_rows, padded, store_rows, take};
use super::small_product::Rows;
use super::{Attention, Heads, HeadsOut, TILE_MULTIPLICATIONS};

/// With fewer tiles of whole samples than this, the heads of a sample are split among tiles.
const ENOUGH_TILES: usize = 16;

/// Whether this file computes the attention; `both_f32` says whether keys and values are f32. For bf16, only potentially long inputs: KV caches, which have lengths or
/// offsets.
pub fn suits(attention: &Attention, both_f32: bool) -> bool {
    let plain = attention.key_mask.is_none() && attention.dropout.is_none();
    let has_ends = attention.key_lengths.is_some() || attention.offsets.is_some();
    attention.queries == 1 && plain && (both_f32 || has_ends)
}

/// Floats of scratch memory: a query, a result, and the weights of each head of a tile.
pub fn scratch(attention: &Attention) -> usize {
    let heads = attention.group() * Tiling::new(attention).kv_heads;
    2 * padded(heads * attention.head_dim) + heads * padded(attention.keys)
}

/// How samples and heads are split into tiles.
struct Tiling {
    samples: usize,
    /// Key/value heads per tile.
    kv_heads: usize,
    /// Tiles per sample.
    parts: usize,
}

impl Tiling {
    fn new(attention: &Attention) -> Tiling {
        let per_kv_head = (attention.keys * attention.group() * attention.head_dim).max(1);
        let samples = (TILE_MULTIPLICATIONS / (per_kv_head * attention.kv_heads)).max(1);
        let kv_heads = match attention.batch.div_ceil(samples) < ENOUGH_TILES {
            true => (TILE_MULTIPLICATIONS / per_kv_head).clamp(1, attention.kv_heads),
            false => attention.kv_heads,
        };
        Tiling { samples, kv_heads, parts: attention.kv_heads.div_ceil(kv_heads) }
    }
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
    let tiling = Tiling::new(attention);
    let (group, head_dim, weights_stride) = (attention.group(), attention.head_dim, padded(attention.keys));
    team.run(attention.batch.div_ceil(tiling.samples) * tiling.parts, &|tile, mut scratch| {
        let (samples, part) = (tile / tiling.parts, tile % tiling.parts);
        let first_kv = part * tiling.kv_heads;
        let heads = group * tiling.kv_heads.min(attention.kv_heads - first_kv);
        let (first_head, width) = (group * first_kv, heads * head_dim);
        let shape = Shape { heads, group, head_dim, weights_stride };
        let query = take(&mut scratch, width);
        let result = take(&mut scratch, width);
        let weights = take(&mut scratch, heads * weights_stride);
        for sample in samples * tiling.samples..((samples + 1) * tiling.samples).min(attention.batch) {
            let row = |offset: usize, stride: usize| {
                let start = offset + sample * stride + first_head * head_dim;
                Region { start, stride, rows: 1, columns: width }
            };
            copy_rows(q.values, row(q.offset, q.row_stride), query, padded(width));
            let first = sample * attention.heads + first_head;
            // SAFETY: no other tile has this sample's sums of these heads.
            let log_sums = unsafe { log_sums.range(first..first + heads) };
            let seen = attention.visible_keys(sample);
            result.fill(0.0);
            log_sums.fill(f32::INFINITY);
            if !seen.is_empty() {
                let first_row = sample * attention.keys + seen.start;
                let [keys, values] =
                    [k, v].map(|heads| KeyRows::new(heads, first_row, seen.len(), first_kv * head_dim));
                score_rows(&shape, query, &keys, attention.scale, weights);
                add_bias(attention, sample, first_head, seen.clone(), weights.chunks_exact_mut(weights_stride));
                for (weights, log_sum) in weights.chunks_exact_mut(weights_stride).zip(log_sums) {
                    *log_sum = log_sum_exp(&weights[..seen.len()]);
                    softmax(&mut weights[..seen.len()]);
                }
                mix_rows(&shape, weights, &values, result);
            }
            let result = Rows { values: result, stride: width };
            store_rows(result, None, &out.values, row(out.offset, out.row_stride));
        }
    });
}

/// Adds the bias of the keys that a query sees to the scores of some heads.
fn add_bias<'w>(
    attention: &Attention,
    sample: usize,
    first_head: usize,
    seen: Range<usize>,
    scores: impl Iterator<Item = &'w mut [f32]>,
) {
    let Some(bias) = attention.bias else { return };
    for (head, scores) in (first_head..attention.heads).zip(scores) {
        let row = bias.slice_of(sample, head) * attention.keys;
        let range = row + seen.start..row + seen.end;
        match bias.values {
            FloatSlice::F32(values) => scores.iter_mut().zip(&values[range]).for_each(|(score, bias)| *score += bias),
            FloatSlice::Bf16(values) => {
                scores.iter_mut().zip(&values[range]).for_each(|(score, bias)| *score += bias.to_f32());
            }
        }
    }
}

/// Rows of keys or values: row `i` begins at `start + i * stride`, with the tile's heads adjacent.
struct KeyRows<'a> {
    values: FloatSlice<'a>,
    start: usize,
    stride: usize,
    count: usize,
}

impl<'a> KeyRows<'a> {
    fn new(heads: Heads<'a>, first_row: usize, count: usize, column: usize) -> Self {
        let start = heads.offset + first_row * heads.row_stride + column;
        KeyRows { values: heads.values, start, stride: heads.row_stride, count }
    }
}

/// The heads of a row and their weights.
#[derive(Clone, Copy)]
struct Shape {
    heads: usize,
    group: usize,
    head_dim: usize,
    weights_stride: usize,
}

impl Shape {
    fn check(&self, row: &[f32], rows: &KeyRows, weights: &[f32]) {
        let width = self.heads / self.group * self.head_dim;
        assert!(row.len() >= self.heads * self.head_dim && rows.count > 0);
        assert!(rows.start + (rows.count - 1) * rows.stride + width <= rows.values.len());
        assert!(rows.count <= self.weights_stride && self.heads * self.weights_stride <= weights.len());
    }

    /// The first column of a head in a row of keys.
    #[inline(always)]
    fn column(&self, head: usize) -> usize {
        let kv_head = if self.group == 1 { head } else { head / self.group };
        kv_head * self.head_dim
    }
}

/// A value of a row, in its storage format.
trait Stored: Copy {
    /// # Safety
    /// As for [`Lanes`]: the CPU supports the instruction set, and the values are valid.
    unsafe fn load<V: Lanes>(from: *const Self) -> V;
    /// The first `count` lanes; the others are zero.
    ///
    /// # Safety
    /// As above.
    unsafe fn load_partial<V: Lanes>(from: *const Self, count: usize) -> V;
}

impl Stored for f32 {
    #[inline(always)]
    unsafe fn load<V: Lanes>(from: *const f32) -> V {
        // SAFETY: guaranteed by the caller.
        unsafe { V::load(from) }
    }

    #[inline(always)]
    unsafe fn load_partial<V: Lanes>(from: *const f32, count: usize) -> V {
        // SAFETY: guaranteed by the caller.
        unsafe { V::load_partial(from, count) }
    }
}

impl Stored for bf16 {
    #[inline(always)]
    unsafe fn load<V: Lanes>(from: *const bf16) -> V {
        // SAFETY: guaranteed by the caller.
        unsafe { V::load_bf16(from) }
    }

    #[inline(always)]
    unsafe fn load_partial<V: Lanes>(from: *const bf16, count: usize) -> V {
        let mut values = [bf16::ZERO; 16];
        // SAFETY: the caller's promise, and a vector has at most sixteen lanes.
        unsafe {
            std::ptr::copy_nonoverlapping(from, values.as_mut_ptr(), count);
            V::load_bf16(values.as_ptr())
        }
    }
}

simd_fn! {
    /// `scores[head][key] = scale * query[head] . keys[key][head]`
    fn score_rows(shape: &Shape, query: &[f32], keys: &KeyRows, scale: f32, scores: &mut [f32]) = score_rows_body;
}

#[inline(always)]
unsafe fn score_rows_body<V: Lanes>(shape: &Shape, query: &[f32], keys: &KeyRows, scale: f32, scores: &mut [f32]) {
    shape.check(query, keys, scores);
    // SAFETY: `check` saw that every row has all heads, and that every head has a score for every key.
    unsafe {
        match keys.values {
            FloatSlice::F32(values) => score_values::<V, f32>(shape, query, values.as_ptr(), keys, scale, scores),
            FloatSlice::Bf16(values) => score_values::<V, bf16>(shape, query, values.as_ptr(), keys, scale, scores),
        }
    }
}

#[inline(always)]
unsafe fn score_values<V: Lanes, T: Stored>(
    shape: &Shape,
    query: &[f32],
    values: *const T,
    keys: &KeyRows,
    scale: f32,
    scores: &mut [f32],
) {
    let (whole, rest) = (shape.head_dim / V::COUNT * V::COUNT, shape.head_dim % V::COUNT);
    for key in 0..keys.count {
        for head in 0..shape.heads {
            // SAFETY: guaranteed by the caller.
            unsafe {
                let query = query.as_ptr().add(head * shape.head_dim);
                let row = values.add(keys.start + key * keys.stride + shape.column(head));
                let mut sum = V::splat(0.0);
                let mut i = 0;
                while i < whole {
                    sum = T::load::<V>(row.add(i)).mul_add(V::load(query.add(i)), sum);
                    i += V::COUNT;
                }
                if rest > 0 {
                    sum = T::load_partial::<V>(row.add(i), rest).mul_add(V::load_partial(query.add(i), rest), sum);
                }
                *scores.get_unchecked_mut(head * shape.weights_stride + key) = scale * sum.sum();
            }
        }
    }
}

simd_fn! {
    /// `out[head] += sum of weights[head][key] * values[key][head]`
    fn mix_rows(shape: &Shape, weights: &[f32], values: &KeyRows, out: &mut [f32]) = mix_rows_body;
}

#[inline(always)]
unsafe fn mix_rows_body<V: Lanes>(shape: &Shape, weights: &[f32], values: &KeyRows, out: &mut [f32]) {
    shape.check(out, values, weights);
    // SAFETY: as in `score_rows_body`.
    unsafe {
        match values.values {
            FloatSlice::F32(rows) => mix_values::<V, f32>(shape, weights, rows.as_ptr(), values, out),
            FloatSlice::Bf16(rows) => mix_values::<V, bf16>(shape, weights, rows.as_ptr(), values, out),
        }
    }
}

#[inline(always)]
unsafe fn mix_values<V: Lanes, T: Stored>(
    shape: &Shape,
    weights: &[f32],
    values: *const T,
    rows: &KeyRows,
    out: &mut [f32],
) {
    let (whole, rest) = (shape.head_dim / V::COUNT * V::COUNT, shape.head_dim % V::COUNT);
    for key in 0..rows.count {
        for head in 0..shape.heads {
            // SAFETY: guaranteed by the caller.
            unsafe {
                let weight = V::splat(*weights.get_unchecked(head * shape.weights_stride + key));
                let row = values.add(rows.start + key * rows.stride + shape.column(head));
                let out = out.as_mut_ptr().add(head * shape.head_dim);
                let mut i = 0;
                while i < whole {
                    T::load::<V>(row.add(i)).mul_add(weight, V::load(out.add(i))).store(out.add(i));
                    i += V::COUNT;
                }
                if rest > 0 {
                    let values = T::load_partial::<V>(row.add(i), rest);
                    values.mul_add(weight, V::load_partial(out.add(i), rest)).store_partial(out.add(i), rest);
                }
            }
        }
    }
}
