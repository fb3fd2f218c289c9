//! One tile of the output, and one panel of packed B.

use std::ops::Range;

use half::bf16;

use super::micro::{Kernel, RowUnits, Target, kernel_fn};
use super::pack::{Lines, Packer, Stored};
use super::{Blocking, Finish, Operand, PACKED_ROWS, Product};
use crate::cpu::memory::{FloatShared, FloatSlice, Shared};
use crate::cpu::simd::Lanes;

/// Units of depth packed of one group of rows before the next group's: the rest of the cache lines that were read is
/// then still in the L1 cache.
const PACKED_DEPTH: usize = 16;

/// Rows of A that are adjacent in memory are read in place if one unit of depth is less than this many values from the
/// next: further apart, too few of them stay in the L1 cache until the next panel of B needs them.
const FAR: usize = 256;

kernel_fn! {
    /// Packs one panel of one block of B.
    ///
    /// # Safety
    /// The operands lie inside their values, `packed` has `blocking.packed_units()` units, and no other thread accesses
    /// this panel.
    pub unsafe fn pack_panel(kind, product: &Product, blocking: &Blocking, batch: usize, block: usize, panel: usize,
        packed: Shared<f32>) = pack_panel_body;
}

#[inline(always)]
unsafe fn pack_panel_body<K: Kernel>(
    product: &Product,
    blocking: &Blocking,
    batch: usize,
    block: usize,
    panel: usize,
    packed: Shared<f32>,
) {
    let units = blocking.block(block);
    let columns = blocking.panel(panel);
    let width = columns.len().next_multiple_of(K::Vector::COUNT);
    let start = blocking.panel_start(&units, panel);
    let depth = product.depth;
    // SAFETY: guaranteed by the caller; the panel's place is asserted to be inside by `range`.
    unsafe {
        let to = packed.range(start..start + units.len() * width).as_mut_ptr().cast();
        match product.b.values {
            FloatSlice::F32(values) => columns_of(&product.b, values, depth, batch * product.b_batch_stride)
                .pack_panel::<K::ColumnPacker>(
                columns.start,
                columns.len(),
                width,
                units.start,
                units.len(),
                to,
            ),
            FloatSlice::Bf16(values) => columns_of(&product.b, values, depth, batch * product.b_batch_stride)
                .pack_panel::<K::ColumnPacker>(
                columns.start,
                columns.len(),
                width,
                units.start,
                units.len(),
                to,
            ),
        }
    }
}

#[inline(always)]
fn columns_of<T>(operand: &Operand, values: &[T], depth: usize, skip: usize) -> Lines<T> {
    let start = values.as_ptr().wrapping_add(operand.offset + skip);
    Lines { start, stride: operand.column_stride, depth_stride: operand.row_stride, depth }
}

#[inline(always)]
fn rows_of<T>(operand: &Operand, values: &[T], depth: usize, skip: usize) -> Lines<T> {
    let start = values.as_ptr().wrapping_add(operand.offset + skip);
    Lines { start, stride: operand.row_stride, depth_stride: operand.column_stride, depth }
}

kernel_fn! {
    /// Computes one tile of the output, or accumulates into it: then the output must be f32, without an epilogue.
    ///
    /// # Safety
    /// Operands and output lie inside their values, B is packed, and no other thread accesses this tile of the output.
    pub unsafe fn compute(kind, product: &Product, blocking: &Blocking, batch: usize, tile: usize,
        accumulate: bool, packed: Shared<f32>, scratch: &mut [f32], claimed: usize, finish: Option<&Finish>) = compute_body;
}

#[inline(always)]
unsafe fn compute_body<K: Kernel>(
    product: &Product,
    blocking: &Blocking,
    batch: usize,
    tile: usize,
    accumulate: bool,
    packed: Shared<f32>,
    scratch: &mut [f32],
    claimed: usize,
    finish: Option<&Finish>,
) {
    // SAFETY: guaranteed by the caller.
    unsafe {
        match product.a.values {
            FloatSlice::F32(values) => {
                let rows = rows_of(&product.a, values, product.depth, batch * product.a_batch_stride);
                compute_with::<K, f32>(
                    &rows, product, blocking, batch, tile, accumulate, packed, scratch, claimed, finish,
                );
            }
            FloatSlice::Bf16(values) => {
                let rows = rows_of(&product.a, values, product.depth, batch * product.a_batch_stride);
                compute_with::<K, bf16>(
                    &rows, product, blocking, batch, tile, accumulate, packed, scratch, claimed, finish,
                );
            }
        }
    }
}

/// How a tile reads its rows of A.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// In place: they are units in memory already.
    InPlace,
    /// Each group of rows is converted to units.
    Converted,
    /// Rows are adjacent in memory: several groups are packed as panels.
    Panels,
    /// Each group of rows is packed as tiles of sixteen units.
    Tiles,
}

impl Reading {
    #[inline(always)]
    fn of<K: Kernel, T: Stored>(a: &Lines<T>) -> Self {
        if K::TILED_ROWS {
            return Reading::Tiles;
        }
        let units_in_memory = if K::VALUES == 2 { T::IS_BF16 && a.depth.is_multiple_of(2) } else { !T::IS_BF16 };
        match (a.depth_stride, a.stride) {
            (1, _) if units_in_memory => Reading::InPlace,
            (1, _) => Reading::Converted,
            (_, 1) if units_in_memory && K::VALUES == 1 && a.depth_stride < FAR => Reading::InPlace,
            (_, 1) => Reading::Panels,
            _ => Reading::Converted,
        }
    }
}

#[inline(always)]
unsafe fn compute_with<K: Kernel, T: Stored>(
    a: &Lines<T>,
    product: &Product,
    blocking: &Blocking,
    batch: usize,
    tile: usize,
    accumulate: bool,
    packed: Shared<f32>,
    scratch: &mut [f32],
    claimed: usize,
    finish: Option<&Finish>,
) {
    let (groups, panels) = blocking.tile(tile);
    let columns = blocking.tile_columns(&panels);
    let first_row = groups.start * K::ROWS;
    let end_row = (groups.end * K::ROWS).min(blocking.rows);
    let reading = Reading::of::<K, T>(a);
    let chunk_groups = match reading {
        Reading::InPlace | Reading::Converted | Reading::Tiles => 1,
        Reading::Panels => PACKED_ROWS / K::ROWS,
    };
    let (scratch, spare) = scratch.split_at_mut(claimed);
    let (row_units, sums) = scratch.split_at_mut(blocking.row_scratch());
    let row_units: *mut u32 = row_units.as_mut_ptr().cast();
    let sums_width = columns.len().next_multiple_of(K::Vector::COUNT);
    let output_row = batch * blocking.rows;
    let mut ready_for = 0;
    for block in 0..blocking.blocks {
        let units = blocking.block(block);
        let last = block + 1 == blocking.blocks;
        let mut group = groups.start;
        while group < groups.end {
            if (group - groups.start) % chunk_groups == 0 && reading == Reading::Panels {
                let chunk = group..(group + chunk_groups).min(groups.end);
                // SAFETY: the rows lie inside A; scratch has room for `PACKED_ROWS` of them.
                unsafe { pack_rows::<K, T>(a, blocking.rows, chunk, &units, row_units) };
            }
            let row = group * K::ROWS;
            let rows = K::ROWS.min(end_row - row);
            let index = (group - groups.start) % chunk_groups;
            // SAFETY: as above; a group in place is inside A, and so are `rows` rows.
            let rows_of_a = unsafe { group_rows::<K, T>(a, reading, row..row + rows, &units, row_units, index) };
            // SAFETY: the tile's own part of the output, or its scratch.
            let (to, stride) = unsafe {
                match product.output {
                    FloatShared::F32(output) => {
                        let start = (output_row + row) * blocking.columns + columns.start;
                        (output.as_ptr().add(start), blocking.columns)
                    }
                    // With a single block of depth, a group's sums are needed only until they are stored.
                    FloatShared::Bf16(_) if blocking.blocks == 1 => (sums.as_mut_ptr(), sums_width),
                    FloatShared::Bf16(_) => (sums.as_mut_ptr().add((row - first_row) * sums_width), sums_width),
                }
            };
            if rows != ready_for {
                // SAFETY: the CPU supports the kernel.
                unsafe { K::begin(rows) };
                ready_for = rows;
            }
            for panel in panels.clone() {
                let panel_columns = blocking.panel(panel);
                // SAFETY: B's panel was packed with this blocking, A and the target are as above.
                unsafe {
                    let target = Target {
                        start: to.add(panel_columns.start - columns.start),
                        stride,
                        rows,
                        columns: panel_columns.len(),
                        accumulate: accumulate || block > 0,
                    };
                    let b = packed.as_ptr().add(blocking.panel_start(&units, panel));
                    K::register_tile(units.len(), rows_of_a, b, target);
                }
            }
            if last {
                let complete = OutputRows { row: output_row + row, rows, columns: columns.clone(), to, stride };
                // SAFETY: the rows' pieces in the target, which has no other references, and the tile's own part of the
                // output.
                unsafe { finish_rows(complete, product, blocking, spare, finish) };
            }
            group += 1;
        }
    }
    // SAFETY: the CPU supports the kernel.
    unsafe { K::end() };
}

/// The rows of A of a register tile, converted if necessary.
///
/// # Safety
/// `rows` and `units` must lie inside A. `row_units` must have room for the group's rows and, if rows are read from
/// packed panels, contain them.
#[inline(always)]
unsafe fn group_rows<K: Kernel, T: Stored>(
    a: &Lines<T>,
    reading: Reading,
    rows: Range<usize>,
    units: &Range<usize>,
    row_units: *mut u32,
    index: usize,
) -> RowUnits {
    match reading {
        Reading::InPlace => {
            let start = a.start.wrapping_add(rows.start * a.stride + units.start * K::VALUES * a.depth_stride);
            RowUnits {
                start: start.cast(),
                row_bytes: a.stride * size_of::<T>(),
                unit_bytes: a.depth_stride * K::VALUES * size_of::<T>(),
            }
        }
        Reading::Converted => {
            for (i, row) in rows.enumerate() {
                // SAFETY: guaranteed by the caller.
                unsafe { a.pack_line::<K::RowPacker>(row, units.start, units.len(), row_units.add(i * units.len())) };
            }
            RowUnits { start: row_units.cast(), row_bytes: units.len() * 4, unit_bytes: 4 }
        }
        Reading::Panels => {
            let start = row_units.wrapping_add(index * K::ROWS * units.len());
            RowUnits { start: start.cast(), row_bytes: 4, unit_bytes: K::ROWS * 4 }
        }
        Reading::Tiles => {
            // SAFETY: guaranteed by the caller; scratch has room for whole tiles, as a block's units are.
            unsafe { a.pack_tiles::<K::ColumnPacker>(rows.start, rows.len(), K::ROWS, units, row_units) };
            RowUnits { start: row_units.cast(), row_bytes: K::Vector::COUNT * 4, unit_bytes: K::ROWS * 4 }
        }
    }
}

/// Complete sums of some output rows.
struct OutputRows {
    row: usize,
    rows: usize,
    columns: Range<usize>,
    to: *mut f32,
    stride: usize,
}

/// Runs the epilogue on complete rows and stores them in the output's dtype.
///
/// # Safety
/// The sums must be valid for their rows and columns and not be aliased, and the same holds for that part of the
/// output.
#[inline(always)]
unsafe fn finish_rows(
    sums: OutputRows,
    product: &Product,
    blocking: &Blocking,
    spare: &mut [f32],
    finish: Option<&Finish>,
) {
    for i in 0..sums.rows {
        let row = sums.row + i;
        // SAFETY: guaranteed by the caller.
        let values = unsafe { std::slice::from_raw_parts_mut(sums.to.add(i * sums.stride), sums.columns.len()) };
        if let Some(finish) = finish {
            finish(row, sums.columns.start, values, spare);
        }
        if let FloatShared::Bf16(_) = product.output {
            // SAFETY: guaranteed by the caller.
            unsafe { product.output.write(row * blocking.columns + sums.columns.start, values) };
        }
    }
}

/// Packs groups of rows that are adjacent in memory, one panel per group.
#[inline(always)]
unsafe fn pack_rows<K: Kernel, T: Stored>(
    a: &Lines<T>,
    rows: usize,
    groups: Range<usize>,
    units: &Range<usize>,
    to: *mut u32,
) {
    let mut done = 0;
    while done < units.len() {
        let some = PACKED_DEPTH.min(units.len() - done);
        for (index, group) in groups.clone().enumerate() {
            let row = group * K::ROWS;
            let count = K::ROWS.min(rows - row);
            // SAFETY: guaranteed by the caller: rows and units inside A, room for all groups.
            unsafe {
                let to = to.add((index * units.len() + done) * K::ROWS);
                a.pack_panel::<K::RowPacker>(row, count, K::RowPacker::COUNT, units.start + done, some, to);
            }
        }
        done += some;
    }
}
