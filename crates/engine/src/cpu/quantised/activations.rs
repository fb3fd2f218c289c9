//! Rows of activations as bytes: every 32 values have a scale of their own, so that a product with quantised weights is a dot
//! product of small integers.

use super::layout::{Layout, SLICE};
use crate::blocks::BlockFormat;
use crate::cpu::simd::{Lanes, simd_fn};

/// How quantised rows are stored. Some neighbouring rows are a group, which kernels multiply together: as many as their registers
/// have room for, and fewer at the end. Of a group of `R` rows come first the integers, `[slices, R, 32]`, then the scales,
/// `[slices, R]`, then the addends, `[groups of weights, R]`.
///
/// An addend corrects what the integers of weights have too much. Where they stand for `q - zero`, it is the whole number
/// `-zero Σ a`, the beginning of a dot product; where they have an offset, it is the float `scale Σ a`, which the offset is
/// multiplied by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowLayout {
    /// Bytes of a row until its scales, until its addends, and of all of it; a group has as many times that.
    pub scales: usize,
    pub addends: usize,
    pub bytes: usize,
}

/// Sizes of groups, in the order in which rows are divided.
const GROUP_SIZES: [usize; 5] = [12, 8, 4, 2, 1];

impl RowLayout {
    pub fn of(layout: &Layout) -> RowLayout {
        let scales = layout.inputs;
        let addends = scales + 4 * layout.slices();
        let bytes = (addends + 4 * (layout.inputs / layout.format.group())).next_multiple_of(64);
        RowLayout { scales, addends, bytes }
    }
}

/// The first row of the group that a row is in, and how many it has, if `rows` are divided from the first on into groups of at most
/// `most`.
pub(super) fn group_of(row: usize, rows: usize, most: usize) -> (usize, usize) {
    let mut first = 0;
    for size in GROUP_SIZES.into_iter().filter(|&size| size <= most) {
        let end = first + (rows - first) / size * size;
        if row < end {
            return (first + (row - first) / size * size, size);
        }
        first = end;
    }
    (row, 1)
}

/// Quantises a row into its place in a group.
pub(super) fn quantise_row(layout: &Layout, values: &[f32], place: usize, size: usize, group: &mut [u8]) {
    let row = RowLayout::of(layout);
    assert!(values.len() == layout.inputs && group.len() == size * row.bytes && place < size);
    let (integers, rest) = group.split_at_mut(size * row.scales);
    let (scales, addends) = rest.split_at_mut(size * (row.addends - row.scales));
    let scales: &mut [f32] = bytemuck::cast_slice_mut(scales);
    let addends: &mut [u32] = bytemuck::cast_slice_mut(addends);
    let zero = i32::from(layout.format.zero());
    let per_slice = SLICE / layout.format.group();
    for (slice, values) in values.chunks_exact(SLICE).enumerate() {
        let integers = &mut integers[(slice * size + place) * SLICE..][..SLICE];
        let scale = quantise_slice(values, bytemuck::cast_slice_mut(integers));
        scales[slice * size + place] = scale;
        for (part, integers) in integers.chunks_exact(layout.format.group()).enumerate() {
            let sum: i32 = integers.iter().map(|&integer| i32::from(integer as i8)).sum();
            addends[(slice * per_slice + part) * size + place] = match layout.format {
                BlockFormat::Q4_0 | BlockFormat::Q5_0 | BlockFormat::Q8_0 | BlockFormat::Q6K => (-zero * sum) as u32,
                BlockFormat::Q4_1 | BlockFormat::Q5_1 | BlockFormat::Q4K | BlockFormat::Q5K => {
                    (scale * sum as f32).to_bits()
                }
            };
        }
    }
}

simd_fn! {
    /// `integers = round(values / scale)` with the scale that makes the largest 127, which is returned. If a value is no number, the
    /// scale is none either, so that it is seen in the result.
    fn quantise_slice(values: &[f32], integers: &mut [i8]) -> f32 = quantise_slice_body;
}

#[inline(always)]
unsafe fn quantise_slice_body<V: Lanes>(values: &[f32], integers: &mut [i8]) -> f32 {
    assert!(values.len() == SLICE && integers.len() == SLICE);
    // SAFETY: the lengths were just checked; vectors divide 32 values.
    unsafe {
        let from = values.as_ptr();
        let mut largest = V::splat(0.0);
        let mut nothing = V::splat(0.0);
        let mut at = 0;
        while at < SLICE {
            let value = V::load(from.add(at));
            largest = largest.max(value.abs());
            // Infinity times zero is no number, too.
            nothing = value.mul_add(V::splat(0.0), nothing);
            at += V::COUNT;
        }
        let largest = largest.max_lane();
        let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
        // Adding 1.5 * 2^23 rounds to the nearest whole number, which the lowest bits then are.
        const MAGIC: f32 = 12_582_912.0;
        let to = integers.as_mut_ptr();
        for index in 0..SLICE {
            let rounded = *from.add(index) * inverse + MAGIC;
            *to.add(index) = rounded.to_bits() as i8;
        }
        largest * (1.0 / 127.0) + nothing.sum()
    }
}
