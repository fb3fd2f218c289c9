//! Rows of activations as bytes: every 32 values have a scale of their own, so that a product with quantised weights is a dot
//! product of small integers.

use super::layout::{Layout, SLICE};
use crate::blocks::BlockFormat;
use crate::cpu::simd::{Lanes, simd_fn};

/// Where the parts of a quantised row lie, in bytes: integers, one scale per slice, one addend per group.
///
/// The addend corrects what the integers of weights have too much. Where they stand for `q - zero`, it is the whole number
/// `-zero Σ a`, the beginning of a dot product; where they have an offset, it is the float `scale Σ a`, which the offset is
/// multiplied by.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct RowLayout {
    pub scales: usize,
    pub addends: usize,
    /// Bytes of a row.
    pub bytes: usize,
}

impl RowLayout {
    pub fn of(layout: &Layout) -> RowLayout {
        let scales = layout.inputs.next_multiple_of(64);
        let addends = scales + 4 * layout.slices();
        let bytes = (addends + 4 * (layout.inputs / layout.format.group())).next_multiple_of(64);
        RowLayout { scales, addends, bytes }
    }
}

/// Quantises a row.
pub(super) fn quantise_row(layout: &Layout, values: &[f32], to: &mut [u8]) {
    let row = RowLayout::of(layout);
    assert!(values.len() == layout.inputs && to.len() == row.bytes);
    let (integers, rest) = to.split_at_mut(row.scales);
    let (scales, addends) = rest.split_at_mut(row.addends - row.scales);
    let scales: &mut [f32] = bytemuck::cast_slice_mut(scales);
    let addends: &mut [u32] = bytemuck::cast_slice_mut(addends);
    quantise_slices(values, bytemuck::cast_slice_mut(&mut integers[..layout.inputs]), scales);
    let zero = i32::from(layout.format.zero());
    let by_group = integers[..layout.inputs].chunks_exact(layout.format.group()).zip(addends).enumerate();
    for (group, (integers, addend)) in by_group {
        let sum: i32 = integers.iter().map(|&integer| i32::from(integer as i8)).sum();
        *addend = match layout.format {
            BlockFormat::Q4_0 | BlockFormat::Q5_0 | BlockFormat::Q8_0 | BlockFormat::Q6K => (-zero * sum) as u32,
            BlockFormat::Q4_1 | BlockFormat::Q5_1 | BlockFormat::Q4K | BlockFormat::Q5K => {
                (scales[group] * sum as f32).to_bits()
            }
        };
    }
}

simd_fn! {
    /// `integers = round(values / scale)`, of every 32 values with the scale that makes the largest 127. Where one is no number, the
    /// scale is none either, so that it is seen in the result.
    fn quantise_slices(values: &[f32], integers: &mut [i8], scales: &mut [f32]) = quantise_slices_body;
}

#[inline(always)]
unsafe fn quantise_slices_body<V: Lanes>(values: &[f32], integers: &mut [i8], scales: &mut [f32]) {
    assert!(values.len() == SLICE * scales.len() && integers.len() >= values.len());
    for slice in 0..scales.len() {
        // SAFETY: slices lie within the lengths that were just checked; vectors divide 32 values.
        unsafe {
            let from = values.as_ptr().add(slice * SLICE);
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
            let scale = largest * (1.0 / 127.0);
            let inverse = if largest > 0.0 { 127.0 / largest } else { 0.0 };
            *scales.as_mut_ptr().add(slice) = scale + nothing.sum();
            let to = integers.as_mut_ptr().add(slice * SLICE);
            // Adding 1.5 * 2^23 rounds to the nearest whole number, which the lowest bits then are.
            const MAGIC: f32 = 12_582_912.0;
            for index in 0..SLICE {
                let rounded = *from.add(index) * inverse + MAGIC;
                *to.add(index) = rounded.to_bits() as i8;
            }
        }
    }
}
