//! Rows by number: embedding, its gradient, rows written into a cache.

use super::kernel::{Kernel, rows_per_tile, tile_rows};
use super::quantised;
use super::rows;
use super::team::Team;

/// Columns of the table that one tile of the gradient adds up.
const COLUMN_BLOCK: usize = 64;

/// Floats of scratch per thread for the gradient: a block of a row that has to be widened.
pub(super) fn gradient_scratch(columns: usize) -> usize {
    columns.min(COLUMN_BLOCK)
}

/// Rows of a table.
pub(super) fn embedding(kernel: &Kernel, team: &mut Team) {
    if let Some(table) = kernel.quantised_weight() {
        return quantised::embedding(kernel, team, table);
    }
    let table = kernel.input(0);
    let numbers = kernel.input_i32(1);
    let output = kernel.output(0);
    let shape = &kernel.input_type(0).shape;
    let (vocabulary, columns) = (shape.rows(), shape.columns());
    let per_tile = rows_per_tile(numbers.len(), columns);
    team.run(numbers.len().div_ceil(per_tile), &|tile, scratch| {
        for position in tile_rows(tile, per_tile, numbers.len()) {
            let Some(row) = usize::try_from(numbers[position]).ok().filter(|&row| row < vocabulary) else {
                kernel.report_fault(position);
                continue;
            };
            let values = table.read(row * columns..(row + 1) * columns, scratch);
            // SAFETY: each row of the result is written by one tile only.
            unsafe { output.write(position * columns, values) };
        }
    });
}

/// Adds rows into the table's gradient. A tile owns some columns and walks all rows in order, so that rows which meet in
/// the table are always added in the same order.
pub(super) fn embedding_gradient(kernel: &Kernel, team: &mut Team, vocabulary: usize) {
    let dy = kernel.input(0);
    let numbers = kernel.input_i32(1);
    let output = kernel.output_raw::<f32>(0);
    let columns = kernel.input_type(0).shape.columns();
    let per_tile = rows_per_tile(vocabulary, columns);
    team.run(vocabulary.div_ceil(per_tile), &|tile, _| {
        let range = tile_rows(tile, per_tile, vocabulary);
        // SAFETY: each tile clears its own rows.
        unsafe { output.range(range.start * columns..range.end * columns) }.fill(0.0);
    });
    team.run(columns.div_ceil(COLUMN_BLOCK), &|tile, scratch| {
        let block = tile_rows(tile, COLUMN_BLOCK, columns);
        for (position, &number) in numbers.iter().enumerate() {
            let Some(row) = usize::try_from(number).ok().filter(|&row| row < vocabulary) else {
                kernel.report_fault(position);
                continue;
            };
            let from = position * columns;
            let values = dy.read(from + block.start..from + block.end, scratch);
            // SAFETY: each tile has its own columns.
            rows::add(unsafe { output.range(row * columns + block.start..row * columns + block.end) }, values);
        }
    });
}

/// Slots whose rows one tile writes: each is some misses of the cache.
const SLOTS_PER_TILE: usize = 16;

/// Puts rows into a cache: few, but each where nothing is in the processor's cache, so threads share them.
pub(super) fn write_rows(kernel: &Kernel, team: &mut Team) {
    let rows = kernel.input(1);
    let offsets = kernel.input_i32(2);
    let cache = kernel.output(0);
    let (cache_axes, row_axes) = (kernel.input_type(0).shape.axes(), kernel.input_type(1).shape.axes());
    let (capacity, count, dim) = (cache_axes[1], row_axes[1], cache_axes[2]);
    team.run(offsets.len().div_ceil(SLOTS_PER_TILE), &|tile, scratch| {
        for slot in tile_rows(tile, SLOTS_PER_TILE, offsets.len()) {
            let offset = usize::try_from(offsets[slot]).ok().filter(|offset| offset + count <= capacity);
            let Some(offset) = offset else {
                kernel.report_fault(slot);
                continue;
            };
            for row in 0..count {
                let from = (slot * count + row) * dim;
                let values = rows.read(from..from + dim, scratch);
                // SAFETY: each slot has its own part; the rows are a value of their own, beside the cache.
                unsafe { cache.write((slot * capacity + offset + row) * dim, values) };
            }
        }
    });
}
