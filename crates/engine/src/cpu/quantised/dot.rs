//! The product of some rows of quantised activations with panels of quantised weights.

use super::activations::{RowLayout, group_of};
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
    pub all_rows: usize,
    /// From one to another, whole groups of them.
    pub rows: (usize, usize),
    pub panels: (usize, usize),
}

/// The most rows that kernels multiply together.
pub(super) fn most_rows() -> usize {
    #[cfg(target_arch = "x86_64")]
    match instructions() {
        Instructions::Vnni => return super::x86::Vnni::MOST_ROWS,
        Instructions::Avx2 => return super::x86::Avx2::MOST_ROWS,
        Instructions::Portable => {}
    }
    Portable::MOST_ROWS
}

#[cfg(target_arch = "x86_64")]
enum Instructions {
    Vnni,
    Avx2,
    Portable,
}

#[cfg(target_arch = "x86_64")]
fn instructions() -> Instructions {
    match isa() {
        Isa::Avx512 | Isa::Avx512Bf16 | Isa::Amx if is_x86_feature_detected!("avx512vnni") => Instructions::Vnni,
        Isa::Avx2 | Isa::Avx512 | Isa::Avx512Bf16 | Isa::Amx if is_x86_feature_detected!("f16c") => Instructions::Avx2,
        _ => Instructions::Portable,
    }
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
        match instructions() {
            Instructions::Vnni => return vnni(tile, &row, sums),
            Instructions::Avx2 => return avx2(tile, &row, sums),
            Instructions::Portable => {}
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

/// Inputs of a slice come four at a time; vectors of four bits have those of both halves of it.
const QUADS: usize = SLICE / 4;
const VECTORS: usize = QUADS / 2;

#[inline(always)]
unsafe fn panels<L: PanelLanes, const BITS: usize, const SCALES: u8>(tile: &Tile, row: &RowLayout, sums: &mut [f32]) {
    let columns = (tile.panels.1 - tile.panels.0) * PANEL;
    let (panel_bytes, sums) = (tile.layout.panel_bytes(), sums.as_mut_ptr());
    for panel in tile.panels.0..tile.panels.1 {
        let column = (panel - tile.panels.0) * PANEL;
        let mut first = tile.rows.0;
        while first < tile.rows.1 {
            let (_, size) = group_of(first, tile.all_rows, L::MOST_ROWS);
            // SAFETY: guaranteed by the caller; groups follow one another.
            unsafe {
                let weights = tile.weights.as_ptr().add(panel * panel_bytes);
                let next = if panel + 1 < tile.panels.1 { weights.add(panel_bytes) } else { weights };
                let group = Group {
                    weights,
                    // Later groups find the panel in the cache.
                    next: (first == tile.rows.0).then_some(next),
                    rows: tile.activations.as_ptr().add(first * row.bytes),
                    sums: sums.add((first - tile.rows.0) * columns + column),
                    columns,
                };
                match size {
                    12 if L::MOST_ROWS >= 12 => group_of_panel::<L, BITS, SCALES, 12>(tile.layout, row, &group),
                    8 if L::MOST_ROWS >= 8 => group_of_panel::<L, BITS, SCALES, 8>(tile.layout, row, &group),
                    4 if L::MOST_ROWS >= 4 => group_of_panel::<L, BITS, SCALES, 4>(tile.layout, row, &group),
                    2 if L::MOST_ROWS >= 2 => group_of_panel::<L, BITS, SCALES, 2>(tile.layout, row, &group),
                    _ => group_of_panel::<L, BITS, SCALES, 1>(tile.layout, row, &group),
                }
            }
            first += size;
        }
    }
}

/// Where a panel, a group of rows and their sums lie.
struct Group {
    weights: *const u8,
    /// The panel behind it, if weights come from memory.
    next: Option<*const u8>,
    rows: *const u8,
    sums: *mut f32,
    columns: usize,
}

/// A group of rows by one panel. Everything that a slice needs stays in registers.
#[inline(always)]
unsafe fn group_of_panel<L: PanelLanes, const BITS: usize, const SCALES: u8, const ROWS: usize>(
    layout: &Layout,
    row: &RowLayout,
    group: &Group,
) {
    // SAFETY: panel, rows and slices lie within the lengths that `multiply` has checked.
    unsafe {
        let mut integers = group.weights;
        let mut scales = group.weights.add(layout.integer_bytes());
        let mut quads = group.rows.cast::<i8>();
        let mut factors = group.rows.add(ROWS * row.scales).cast::<f32>();
        let mut addends = group.rows.add(ROWS * row.addends).cast::<i32>();
        let block_slices = layout.block_slices();
        let mut totals = [L::splat(0.0); ROWS];
        for block in 0..layout.slices() / block_slices {
            for slice in 0..block_slices {
                if let Some(next) = group.next {
                    prefetch::<L>(layout, group.weights, next, block * block_slices + slice + SLICES_AHEAD);
                }
                let [scale, offset] = slice_scales::<L, SCALES>(scales, slice);
                if SCALES == HALF_SLICES {
                    let mut halves = [L::splat_int(0); ROWS];
                    start::<L, ROWS>(addends, &mut halves);
                    half_dots::<L, BITS, 0, ROWS>(integers, quads, &mut halves);
                    scale_and_add::<L, ROWS>(scale, &halves, factors, &mut totals);
                    start::<L, ROWS>(addends.add(ROWS), &mut halves);
                    half_dots::<L, BITS, 1, ROWS>(integers, quads, &mut halves);
                    scale_and_add::<L, ROWS>(offset, &halves, factors, &mut totals);
                    addends = addends.add(2 * ROWS);
                } else {
                    let mut dots = [L::splat_int(0); ROWS];
                    if SCALES == PLAIN {
                        start::<L, ROWS>(addends, &mut dots);
                    }
                    half_dots::<L, BITS, 0, ROWS>(integers, quads, &mut dots);
                    half_dots::<L, BITS, 1, ROWS>(integers, quads, &mut dots);
                    scale_and_add::<L, ROWS>(scale, &dots, factors, &mut totals);
                    if SCALES != PLAIN {
                        for index in 0..ROWS {
                            let addend = L::splat(*addends.cast::<f32>().add(index));
                            totals[index] = L::mul_add(offset, addend, totals[index]);
                        }
                    }
                    addends = addends.add(ROWS);
                }
                integers = integers.add(PANEL * SLICE * BITS / 8);
                quads = quads.add(ROWS * SLICE);
                factors = factors.add(ROWS);
            }
            scales = scales.add(layout.scale_bytes());
        }
        for index in 0..ROWS {
            L::store(totals[index], group.sums.add(index * group.columns));
        }
    }
}

/// Slices that are fetched before they are multiplied. With many rows, a slice takes so long that the CPU itself does not look far enough
/// ahead, and waits for memory at every one.
const SLICES_AHEAD: usize = 8;

/// Has a slice and its scales fetched, of a panel or of the one behind it.
#[inline(always)]
fn prefetch<L: PanelLanes>(layout: &Layout, panel: *const u8, next: *const u8, slice: usize) {
    let (panel, slice) = if slice < layout.slices() { (panel, slice) } else { (next, slice - layout.slices()) };
    let integers = panel.wrapping_add(slice * layout.slice_bytes());
    for line in 0..layout.slice_bytes().div_ceil(64) {
        L::prefetch(integers.wrapping_add(64 * line));
    }
    L::prefetch(panel.wrapping_add(layout.integer_bytes() + slice * layout.scale_bytes() / layout.block_slices()));
}

/// The beginning of every row's dot products.
#[inline(always)]
unsafe fn start<L: PanelLanes, const ROWS: usize>(addends: *const i32, sums: &mut [L::Ints; ROWS]) {
    for index in 0..ROWS {
        // SAFETY: guaranteed by the caller.
        sums[index] = unsafe { L::splat_int(*addends.add(index)) };
    }
}

/// `totals += scale * factor * sums`, with a factor of each row's own.
#[inline(always)]
unsafe fn scale_and_add<L: PanelLanes, const ROWS: usize>(
    scale: L::Floats,
    sums: &[L::Ints; ROWS],
    factors: *const f32,
    totals: &mut [L::Floats; ROWS],
) {
    for index in 0..ROWS {
        // SAFETY: guaranteed by the caller.
        unsafe {
            let factored = L::mul(L::to_floats(sums[index]), L::splat(*factors.add(index)));
            totals[index] = L::mul_add(scale, factored, totals[index]);
        }
    }
}

/// Adds the dot products of half a slice.
#[inline(always)]
unsafe fn half_dots<L: PanelLanes, const BITS: usize, const HALF: usize, const ROWS: usize>(
    slice: *const u8,
    quads: *const i8,
    sums: &mut [L::Ints; ROWS],
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        quad_dots::<L, BITS, HALF, 0, ROWS>(slice, quads, sums);
        quad_dots::<L, BITS, HALF, 1, ROWS>(slice, quads, sums);
        quad_dots::<L, BITS, HALF, 2, ROWS>(slice, quads, sums);
        quad_dots::<L, BITS, HALF, 3, ROWS>(slice, quads, sums);
    }
}

/// Adds the dot products of four inputs.
#[inline(always)]
unsafe fn quad_dots<L: PanelLanes, const BITS: usize, const HALF: usize, const VECTOR: usize, const ROWS: usize>(
    slice: *const u8,
    quads: *const i8,
    sums: &mut [L::Ints; ROWS],
) {
    let quad = VECTORS * HALF + VECTOR;
    // SAFETY: guaranteed by the caller.
    unsafe {
        let weights = unpack::<L, BITS, HALF, VECTOR>(slice);
        for index in 0..ROWS {
            let four = quads.add(index * SLICE + 4 * quad);
            sums[index] = match BITS {
                8 => L::dot::<true>(sums[index], weights, four),
                _ => L::dot::<false>(sums[index], weights, four),
            };
        }
    }
}

/// The integers of four inputs, a byte each.
#[inline(always)]
unsafe fn unpack<L: PanelLanes, const BITS: usize, const HALF: usize, const VECTOR: usize>(
    slice: *const u8,
) -> L::Bytes {
    let quad = VECTORS * HALF + VECTOR;
    // SAFETY: guaranteed by the caller.
    unsafe {
        if BITS == 8 {
            return L::load(slice.add(64 * quad));
        }
        let both = L::load(slice.add(64 * VECTOR));
        let four = if HALF == 0 { L::low(both) } else { L::high(both) };
        let above = slice.add(64 * VECTORS);
        match BITS {
            5 => L::with_fifth(four, u64::from_le(above.cast::<u64>().add(quad).read_unaligned())),
            6 => {
                let pairs = L::load(above.add(64 * HALF));
                match VECTOR {
                    0 => L::with_two::<0>(four, pairs),
                    1 => L::with_two::<1>(four, pairs),
                    2 => L::with_two::<2>(four, pairs),
                    _ => L::with_two::<3>(four, pairs),
                }
            }
            _ => four,
        }
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

/// For tests: a set of instructions, the most rows that it multiplies together, and what to call.
#[cfg(test)]
pub(super) type Set = (&'static str, usize, unsafe fn(&Tile, &RowLayout, &mut [f32]));

/// For tests: every set of instructions that this CPU has.
#[cfg(test)]
pub(super) fn every_set() -> Vec<Set> {
    unsafe fn portable(tile: &Tile, row: &RowLayout, sums: &mut [f32]) {
        // SAFETY: guaranteed by the caller.
        unsafe { multiply_body::<Portable>(tile, row, sums) }
    }
    #[cfg_attr(not(target_arch = "x86_64"), allow(unused_mut))]
    let mut sets: Vec<Set> = vec![("portable", Portable::MOST_ROWS, portable)];
    #[cfg(target_arch = "x86_64")]
    {
        let avx2_too = is_x86_feature_detected!("avx2") && is_x86_feature_detected!("fma");
        if avx2_too && is_x86_feature_detected!("f16c") {
            sets.push(("AVX2", super::x86::Avx2::MOST_ROWS, avx2));
        }
        if is_x86_feature_detected!("avx512vnni") && is_x86_feature_detected!("avx512bw") {
            sets.push(("AVX-512 VNNI", super::x86::Vnni::MOST_ROWS, vnni));
        }
    }
    sets
}
