//! The product of some rows of quantised activations with panels of quantised weights.

use std::ops::Range;

use super::activations::RowLayout;
use super::lanes::{PanelLanes, Portable};
use super::layout::{Layout, PANEL, SLICE};
use crate::blocks::BlockFormat;
#[cfg(target_arch = "x86_64")]
use crate::cpu::simd::{Isa, isa};

/// Some rows by some panels.
#[derive(Clone, Copy)]
pub(super) struct Tile<'a> {
    pub layout: &'a Layout,
    pub weights: &'a [u8],
    /// All of them, quantised.
    pub activations: &'a [u8],
    pub rows: (usize, usize),
    pub panels: (usize, usize),
}

/// `sums [rows, 16 * panels] = activations · weights`.
pub(super) fn multiply(tile: &Tile, sums: &mut [f32]) {
    let row = RowLayout::of(tile.layout);
    assert!(tile.rows.0 <= tile.rows.1 && tile.panels.0 <= tile.panels.1);
    assert!(tile.activations.len() >= tile.rows.1 * row.bytes);
    assert!(tile.weights.len() >= tile.panels.1 * tile.layout.panel_bytes());
    assert_eq!(sums.len(), (tile.rows.1 - tile.rows.0) * (tile.panels.1 - tile.panels.0) * PANEL);
    // SAFETY: the lengths were just checked, and the instructions are those that the CPU was detected to have.
    unsafe {
        #[cfg(target_arch = "x86_64")]
        match isa() {
            Isa::Avx512 | Isa::Avx512Bf16 | Isa::Amx if is_x86_feature_detected!("avx512vnni") => {
                return vnni(tile, &row, sums);
            }
            Isa::Avx2 | Isa::Avx512 | Isa::Avx512Bf16 | Isa::Amx if is_x86_feature_detected!("f16c") => {
                return avx2(tile, &row, sums);
            }
            _ => {}
        }
        multiply_body::<Portable>(tile, &row, sums);
    }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx512f,avx512bw,avx512dq,avx512vl,avx512vnni,avx2,fma,f16c")]
unsafe fn vnni(tile: &Tile, row: &RowLayout, sums: &mut [f32]) {
    // SAFETY: this function's own caller vouches for the instructions and the lengths.
    unsafe { multiply_body::<super::x86::Vnni>(tile, row, sums) }
}

#[cfg(target_arch = "x86_64")]
#[target_feature(enable = "avx2,fma,f16c")]
unsafe fn avx2(tile: &Tile, row: &RowLayout, sums: &mut [f32]) {
    // SAFETY: as above.
    unsafe { multiply_body::<super::x86::Avx2>(tile, row, sums) }
}

#[inline(always)]
unsafe fn multiply_body<L: PanelLanes>(tile: &Tile, row: &RowLayout, sums: &mut [f32]) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match tile.layout.format {
            BlockFormat::Q4_0 => panels::<L, 4, PLAIN>(tile, row, sums),
            BlockFormat::Q4_1 => panels::<L, 4, OFFSET>(tile, row, sums),
            BlockFormat::Q5_0 => panels::<L, 5, PLAIN>(tile, row, sums),
            BlockFormat::Q5_1 => panels::<L, 5, OFFSET>(tile, row, sums),
            BlockFormat::Q8_0 => panels::<L, 8, PLAIN>(tile, row, sums),
            BlockFormat::Q4K => panels::<L, 4, GROUPS_WITH_OFFSETS>(tile, row, sums),
            BlockFormat::Q5K => panels::<L, 5, GROUPS_WITH_OFFSETS>(tile, row, sums),
            BlockFormat::Q6K => panels::<L, 6, HALF_SLICES>(tile, row, sums),
        }
    }
}

// How the scales of a slice are stored.
/// One per slice.
const PLAIN: u8 = 0;
/// One per slice, and an offset.
const OFFSET: u8 = 1;
/// One of a block and its factor for the slice, both also of the offset.
const GROUPS_WITH_OFFSETS: u8 = 2;
/// One of a block, and a factor for each half of the slice.
const HALF_SLICES: u8 = 3;

/// Inputs of a slice come four at a time.
const QUADS: usize = SLICE / 4;

#[inline(always)]
unsafe fn panels<L: PanelLanes, const BITS: usize, const SCALES: u8>(tile: &Tile, row: &RowLayout, sums: &mut [f32]) {
    let columns = (tile.panels.1 - tile.panels.0) * PANEL;
    for panel in tile.panels.0..tile.panels.1 {
        let column = (panel - tile.panels.0) * PANEL;
        let mut rows = tile.rows.0..tile.rows.1;
        // SAFETY: guaranteed by the caller; each call takes the next rows.
        unsafe {
            let start = |rows: &Range<usize>| (rows.start - tile.rows.0) * columns + column;
            while L::MOST_ROWS >= 12 && rows.len() >= 12 {
                let to = sums.as_mut_ptr().add(start(&rows));
                rows_of_panel::<L, BITS, SCALES, 12>(tile, row, panel, rows.start, to, columns);
                rows.start += 12;
            }
            while L::MOST_ROWS >= 4 && rows.len() >= 4 {
                let to = sums.as_mut_ptr().add(start(&rows));
                rows_of_panel::<L, BITS, SCALES, 4>(tile, row, panel, rows.start, to, columns);
                rows.start += 4;
            }
            while L::MOST_ROWS >= 2 && rows.len() >= 2 {
                let to = sums.as_mut_ptr().add(start(&rows));
                rows_of_panel::<L, BITS, SCALES, 2>(tile, row, panel, rows.start, to, columns);
                rows.start += 2;
            }
            while !rows.is_empty() {
                let to = sums.as_mut_ptr().add(start(&rows));
                rows_of_panel::<L, BITS, SCALES, 1>(tile, row, panel, rows.start, to, columns);
                rows.start += 1;
            }
        }
    }
}

/// `ROWS` rows by one panel.
#[inline(always)]
unsafe fn rows_of_panel<L: PanelLanes, const BITS: usize, const SCALES: u8, const ROWS: usize>(
    tile: &Tile,
    row: &RowLayout,
    panel: usize,
    first_row: usize,
    sums: *mut f32,
    columns: usize,
) {
    let layout = tile.layout;
    let (slice_bytes, scale_bytes, block_slices) = (layout.slice_bytes(), layout.scale_bytes(), layout.block_slices());
    // SAFETY: panel, rows and slices lie within the lengths that `multiply` has checked.
    unsafe {
        let integers = tile.weights.as_ptr().add(panel * layout.panel_bytes());
        let scales = integers.add(layout.integer_bytes());
        let activations = tile.activations.as_ptr().add(first_row * row.bytes);
        let mut totals = [L::splat(0.0); ROWS];
        for slice in 0..layout.slices() {
            let weights = unpack::<L, BITS>(integers.add(slice * slice_bytes));
            let of_block = scales.add(slice / block_slices * scale_bytes);
            let [scale, offset] = slice_scales::<L, SCALES>(of_block, slice % block_slices);
            for index in 0..ROWS {
                let at = activations.add(index * row.bytes);
                let quads = at.add(slice * SLICE).cast::<i8>();
                let factor = L::splat(*at.add(row.scales).cast::<f32>().add(slice));
                let addends = at.add(row.addends);
                if SCALES == HALF_SLICES {
                    let starts = addends.cast::<i32>().add(2 * slice);
                    let first = dots::<L, BITS, 0>(*starts, &weights, quads);
                    let second = dots::<L, BITS, { QUADS / 2 }>(*starts.add(1), &weights, quads);
                    let both = L::mul_add(scale, L::to_floats(first), L::mul(offset, L::to_floats(second)));
                    totals[index] = L::mul_add(both, factor, totals[index]);
                    continue;
                }
                let start = if SCALES == PLAIN { *addends.cast::<i32>().add(slice) } else { 0 };
                let sum = dots::<L, BITS, 0>(start, &weights, quads);
                totals[index] = L::mul_add(scale, L::mul(L::to_floats(sum), factor), totals[index]);
                if SCALES != PLAIN {
                    let addend = L::splat(*addends.cast::<f32>().add(slice));
                    totals[index] = L::mul_add(offset, addend, totals[index]);
                }
            }
        }
        for index in 0..ROWS {
            L::store(totals[index], sums.add(index * columns));
        }
    }
}

/// Dot products of a slice, or, of weights of six bits, of half of it.
#[inline(always)]
unsafe fn dots<L: PanelLanes, const BITS: usize, const FIRST: usize>(
    start: i32,
    weights: &[L::Bytes; QUADS],
    quads: *const i8,
) -> L::Ints {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let mut sum = L::splat_int(start);
        let last = if BITS == 6 { FIRST + QUADS / 2 } else { QUADS };
        for quad in FIRST..last {
            sum = match BITS {
                8 => L::dot::<true>(sum, weights[quad], quads.add(4 * quad)),
                _ => L::dot::<false>(sum, weights[quad], quads.add(4 * quad)),
            };
        }
        sum
    }
}

/// The integers of a slice, a byte each.
#[inline(always)]
unsafe fn unpack<L: PanelLanes, const BITS: usize>(slice: *const u8) -> [L::Bytes; QUADS] {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let first = L::load(slice);
        let mut weights = [first; QUADS];
        if BITS == 8 {
            for quad in 0..QUADS {
                weights[quad] = L::load(slice.add(64 * quad));
            }
            return weights;
        }
        for vector in 0..QUADS / 2 {
            let bytes = L::load(slice.add(64 * vector));
            weights[vector] = L::low(bytes);
            weights[vector + QUADS / 2] = L::high(bytes);
        }
        let above = slice.add(256);
        if BITS == 5 {
            for quad in 0..QUADS {
                let bits = u64::from_le(above.cast::<u64>().add(quad).read_unaligned());
                weights[quad] = L::with_fifth(weights[quad], bits);
            }
        }
        if BITS == 6 {
            for half in 0..2 {
                let pairs = L::load(above.add(64 * half));
                let of_half = &mut weights[4 * half..4 * half + 4];
                of_half[0] = L::with_two::<0>(of_half[0], pairs);
                of_half[1] = L::with_two::<1>(of_half[1], pairs);
                of_half[2] = L::with_two::<2>(of_half[2], pairs);
                of_half[3] = L::with_two::<3>(of_half[3], pairs);
            }
        }
        weights
    }
}

/// Scale and offset of a slice; or the scales of its halves.
#[inline(always)]
unsafe fn slice_scales<L: PanelLanes, const SCALES: u8>(of_block: *const u8, slice: usize) -> [L::Floats; 2] {
    // SAFETY: guaranteed by the caller.
    unsafe {
        let scale = L::load_f16(of_block);
        match SCALES {
            PLAIN => [scale; 2],
            OFFSET => [scale, L::load_f16(of_block.add(2 * PANEL))],
            GROUPS_WITH_OFFSETS => {
                let offset = L::mul(L::load_f16(of_block.add(2 * PANEL)), L::splat(-1.0));
                let factors = of_block.add(4 * PANEL);
                let factor = L::load_u8(factors.add(slice * PANEL));
                let shift = L::load_u8(factors.add((8 + slice) * PANEL));
                [L::mul(scale, factor), L::mul(offset, shift)]
            }
            _ => {
                let factors = of_block.add(2 * PANEL + 2 * slice * PANEL);
                [L::mul(scale, L::load_i8(factors)), L::mul(scale, L::load_i8(factors.add(PANEL)))]
            }
        }
    }
}

/// For tests: the product with every set of instructions that this CPU has.
#[cfg(test)]
pub(super) fn multiply_with_every_set(tile: &Tile, mut check: impl FnMut(&str, &[f32])) {
    let row = RowLayout::of(tile.layout);
    let count = (tile.rows.1 - tile.rows.0) * (tile.panels.1 - tile.panels.0) * PANEL;
    let mut sums = vec![f32::NAN; count];
    // SAFETY: the caller's tile is whole, and the instructions are detected.
    unsafe {
        multiply_body::<Portable>(tile, &row, &mut sums);
        check("portable", &sums);
        #[cfg(target_arch = "x86_64")]
        {
            if is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma") && is_x86_feature_detected!("f16c") {
                sums.fill(f32::NAN);
                avx2(tile, &row, &mut sums);
                check("AVX2", &sums);
            }
            if is_x86_feature_detected!("avx512vnni") && is_x86_feature_detected!("avx512bw") {
                sums.fill(f32::NAN);
                vnni(tile, &row, &mut sums);
                check("AVX-512 VNNI", &sums);
            }
        }
    }
}
