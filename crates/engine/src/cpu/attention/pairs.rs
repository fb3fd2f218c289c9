//! Operands of bf16 pairs, for the forward pass.
//!
//! A unit of two bf16 values adjacent in depth is multiplied and accumulated in f32 by one instruction, at twice the
//! speed of single f32 values. For the scores `K Q^T` the depth is the head dimension: a key's pairs are the words of
//! the tensor, and nothing is copied; queries are transposed pair by pair. For the output `P^T V` the depth is the
//! keys: rows of values are interleaved two by two, once per (sample, head), and so are rows of weights, which are
//! rounded to bf16. The softmax's sums are those of the unrounded weights.

use super::super::gemm::micro::{Kernel, kernel_fn};
use super::super::gemm::pack::{Lines, Stored};
use super::super::memory::FloatSlice;
use super::rows::padded;
use super::scores::QueryBlock;
use super::small_product::{Rows, Strided, Unit};
use super::softmax::BlockShape;
use super::{Attention, Heads};

/// The unit of a forward pass: pairs if all operands are bf16, the head dimension is even, and the CPU supports them.
pub fn unit_of(attention: &Attention, operands: [&Heads; 3]) -> Unit {
    let narrow = operands.iter().all(|operand| matches!(operand.values, FloatSlice::Bf16(_)));
    if narrow && attention.head_dim.is_multiple_of(2) && Unit::has_pairs() { Unit::Pair } else { Unit::Single }
}

/// The values to pair: value `d` of a line is at `start + line * stride + d * depth_stride`.
#[derive(Clone, Copy)]
struct Places {
    start: usize,
    lines: usize,
    stride: usize,
    depth: usize,
    depth_stride: usize,
}

/// Pairs values adjacent in depth, and writes one row per pair of depths with one unit per line, rounded to bf16 if
/// necessary. Rows have `padded(lines)` units and are padded with zeros, as is an odd depth.
fn pack(from: FloatSlice, places: Places, to: &mut [f32]) {
    // SAFETY: the CPU supports the kernel, which is from `MicroKernel::best`; the body checks its arguments.
    unsafe { pack_by(Unit::Pair.kind(), from, places, to) }
}

kernel_fn! {
    unsafe fn pack_by(kind, from: FloatSlice, places: Places, to: &mut [f32]) = pack_body;
}

#[inline(always)]
unsafe fn pack_body<K: Kernel>(from: FloatSlice, places: Places, to: &mut [f32]) {
    // SAFETY: the caller vouches for the instruction set.
    unsafe {
        match from {
            FloatSlice::F32(values) => pack_values::<K, f32>(values, places, to),
            FloatSlice::Bf16(values) => pack_values::<K, half::bf16>(values, places, to),
        }
    }
}

#[inline(always)]
unsafe fn pack_values<K: Kernel, T: Stored>(from: &[T], places: Places, to: &mut [f32]) {
    let Places { start, lines, stride, depth, depth_stride } = places;
    if lines == 0 || depth == 0 {
        return;
    }
    let (width, units) = (padded(lines), depth.div_ceil(K::VALUES));
    assert!(start + (lines - 1) * stride + (depth - 1) * depth_stride < from.len() && units * width <= to.len());
    // SAFETY: every value of the lines lies inside `from`, every unit inside `to`, by the check above.
    unsafe {
        let lines_of = Lines { start: from.as_ptr().add(start), stride, depth_stride, depth };
        lines_of.pack_panel::<K::ColumnPacker>(0, lines, width, 0, units, to.as_mut_ptr().cast());
    }
}

/// Pairs the rows of a block of weights.
pub fn pack_weights(shape: BlockShape, weights: &[f32], to: &mut [f32]) {
    let BlockShape { keys, lanes } = shape;
    pack(FloatSlice::F32(weights), Places { start: 0, lines: lanes, stride: 1, depth: keys, depth_stride: lanes }, to);
}

impl Attention<'_> {
    /// The keys of a query head, in place.
    pub fn key_pairs<'a>(&self, from: &Heads<'a>, sample: usize, head: usize) -> Strided<'a> {
        let region = from.region(sample, self.kv_head(head), 0..self.keys, self.keys, self.head_dim);
        match from.values {
            FloatSlice::Bf16(values) => Strided::pairs_of_rows(&values[region.range()], region.stride),
            FloatSlice::F32(_) => unreachable!("pairs are of bf16 values"),
        }
    }

    /// The values of a query head, the rows of two keys interleaved. Rows of masked keys are zero, also in a pair with
    /// an unmasked one, as in [`Attention::key_rows`]: a zero weight times an arbitrary value might not be zero.
    pub fn value_pairs<'b>(&self, from: &Heads, sample: usize, head: usize, buffer: &'b mut [f32]) -> Rows<'b> {
        let visible = self.visible_keys(sample);
        let packed = Unit::Pair.whole_units(visible.clone());
        let region = from.region(sample, self.kv_head(head), packed.clone(), self.keys, self.head_dim);
        let places = Places {
            start: region.start,
            lines: region.columns,
            stride: 1,
            depth: packed.len(),
            depth_stride: region.stride,
        };
        let stride = padded(self.head_dim);
        pack(from.values, places, &mut buffer[packed.start / 2 * stride..]);
        for key in packed {
            if key < visible.start || self.is_hole(sample, key) {
                let other_half = if key % 2 == 0 { 0xffff_0000 } else { 0x0000_ffff };
                for unit in &mut buffer[key / 2 * stride..][..stride] {
                    *unit = f32::from_bits(unit.to_bits() & other_half);
                }
            }
        }
        Rows { values: buffer, stride }
    }

    /// One block of queries, transposed: one row per pair of head dimensions, one unit per query.
    pub fn query_pairs(&self, from: &Heads, block: &QueryBlock, to: &mut [f32]) {
        let queries = block.first..block.first + block.count;
        let region = from.region(block.sample, block.head, queries, self.queries, self.head_dim);
        let places = Places {
            start: region.start,
            lines: region.rows,
            stride: region.stride,
            depth: region.columns,
            depth_stride: 1,
        };
        pack(from.values, places, to);
    }
}
