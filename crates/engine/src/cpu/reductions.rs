//! Sums over leading axes, and pooling over tokens.

use super::kernel::{Kernel, rows_per_tile, tile_rows};
use super::memory::{FloatSlice, Shared};
use super::rows;
use super::team::Team;

/// Columns per tile if rows are few and long.
const WIDE_COLUMNS: usize = 4096;
/// Rows per tile if rows are many and short; partial sums are added in order.
const ROW_BLOCK: usize = 256;

fn row_blocks(rows: usize, columns: usize) -> usize {
    if columns >= WIDE_COLUMNS { 1 } else { rows.div_ceil(ROW_BLOCK) }
}

/// Floats of workspace for [`sum_rows`].
pub(super) fn sum_workspace(rows: usize, columns: usize) -> usize {
    match row_blocks(rows, columns) {
        1 => 0,
        blocks => blocks * columns.next_multiple_of(16),
    }
}

/// Floats of scratch for [`sum_rows`]: a row, if it has to be widened.
pub(super) fn sum_scratch(columns: usize) -> usize {
    columns.min(WIDE_COLUMNS)
}

/// Sums the rows of `x [rows, columns]` in an order that depends on the shape alone.
pub(super) fn sum_rows(
    team: &mut Team,
    x: FloatSlice,
    rows: usize,
    columns: usize,
    partial: &mut [f32],
    output: Shared<f32>,
) {
    let blocks = row_blocks(rows, columns);
    if blocks == 1 {
        let width = columns.min(WIDE_COLUMNS);
        team.run(columns.div_ceil(width), &|tile, scratch| {
            let range = tile_rows(tile, width, columns);
            // SAFETY: each tile writes its own columns.
            let sums = unsafe { output.range(range.clone()) };
            sum_block(x, (0..rows, columns), range, sums, scratch);
        });
        return;
    }
    let stride = columns.next_multiple_of(16);
    let shared = Shared::new(partial);
    team.run(blocks, &|tile, scratch| {
        // SAFETY: each tile writes its own partial sums.
        let sums = unsafe { shared.range(tile * stride..tile * stride + columns) };
        sum_block(x, (tile_rows(tile, ROW_BLOCK, rows), columns), 0..columns, sums, scratch);
    });
    // SAFETY: all tiles have finished, and the output is this kernel's.
    let (partial, sums) = unsafe { (shared.range(0..blocks * stride), output.range(0..columns)) };
    sums.copy_from_slice(&partial[..columns]);
    for block in 1..blocks {
        rows::add(sums, &partial[block * stride..block * stride + columns]);
    }
}

fn sum_block(
    x: FloatSlice,
    (rows, stride): (std::ops::Range<usize>, usize),
    columns: std::ops::Range<usize>,
    sums: &mut [f32],
    scratch: &mut [f32],
) {
    sums.fill(0.0);
    if let (FloatSlice::F32(values), true) = (x, columns.len() == stride) {
        return rows::add_rows(sums, &values[rows.start * stride..rows.end * stride]);
    }
    for row in rows {
        let start = row * stride;
        rows::add(sums, x.read(start + columns.start..start + columns.end, scratch));
    }
}

/// Sum over leading axes.
pub(super) fn sum_leading(kernel: &Kernel, team: &mut Team, columns: usize) {
    let output = kernel.output_raw(0);
    let rows = kernel.input_type(0).shape.elements() / columns;
    let workspace = kernel.workspace();
    // SAFETY: this kernel owns its workspace.
    let partial = unsafe { workspace.range(0..workspace.len()) };
    sum_rows(team, kernel.input(0), rows, columns, partial, output);
}

/// (samples, tokens, columns) of `[.., tokens, columns]`.
fn token_sizes(kernel: &Kernel) -> (usize, usize, usize) {
    let shape = &kernel.input_type(0).shape;
    let tokens = shape.axes()[shape.rank() - 2];
    (shape.rows() / tokens, tokens, shape.columns())
}

/// Mean over tokens.
pub(super) fn mean_tokens(kernel: &Kernel, team: &mut Team) {
    let output = kernel.output_raw::<f32>(0);
    let (samples, tokens, columns) = token_sizes(kernel);
    let x = kernel.input(0);
    team.run(samples, &|sample, scratch| {
        // SAFETY: each tile writes its own sample.
        let mean = unsafe { output.range(sample * columns..(sample + 1) * columns) };
        sum_block(x, (sample * tokens..(sample + 1) * tokens, columns), 0..columns, mean, scratch);
        rows::scale(mean, 1.0 / tokens as f32);
    });
}

/// Gradient of the mean over tokens.
pub(super) fn mean_tokens_gradient(kernel: &Kernel, team: &mut Team, tokens: usize) {
    let output = kernel.output(0);
    let columns = kernel.input_type(0).shape.columns();
    let dy = kernel.input(0);
    team.run(dy.len() / columns, &|sample, scratch| {
        let row = &mut scratch[..columns];
        dy.copy_to(sample * columns..(sample + 1) * columns, row);
        rows::scale(row, 1.0 / tokens as f32);
        for token in 0..tokens {
            // SAFETY: each tile writes its own sample.
            unsafe { output.write((sample * tokens + token) * columns, row) };
        }
    });
}

/// Maximum over tokens, and its token index.
pub(super) fn max_tokens(kernel: &Kernel, team: &mut Team) {
    let maxima = kernel.output_raw::<f32>(0);
    let winners = kernel.output_raw::<i32>(1);
    let (samples, tokens, columns) = token_sizes(kernel);
    let x = kernel.input(0);
    team.run(samples, &|sample, scratch| {
        let range = sample * columns..(sample + 1) * columns;
        let (values, rest) = scratch.split_at_mut(columns);
        let (who, row) = rest.split_at_mut(columns);
        let who: &mut [i32] = bytemuck::cast_slice_mut(who);
        values.fill(f32::NEG_INFINITY);
        who.fill(0);
        for token in 0..tokens {
            let start = (sample * tokens + token) * columns;
            rows::max_rows(values, who, x.read(start..start + columns, row), token as i32);
        }
        // SAFETY: each tile writes its own sample.
        unsafe {
            maxima.range(range.clone()).copy_from_slice(values);
            winners.range(range).copy_from_slice(who);
        }
    });
}

/// Gradient of the maximum over tokens.
pub(super) fn max_tokens_gradient(kernel: &Kernel, team: &mut Team, tokens: usize) {
    let output = kernel.output(0);
    let columns = kernel.input_type(0).shape.columns();
    let (dy, winners) = (kernel.input(0), kernel.input_i32(1));
    team.run(dy.len() / columns, &|sample, scratch| {
        let range = sample * columns..(sample + 1) * columns;
        let (row, rest) = scratch.split_at_mut(columns);
        let gradient = dy.read(range.clone(), rest);
        for token in 0..tokens {
            for ((to, from), &winner) in row.iter_mut().zip(gradient).zip(&winners[range.clone()]) {
                *to = if winner as usize == token { *from } else { 0.0 };
            }
            // SAFETY: each tile writes its own sample.
            unsafe { output.write((sample * tokens + token) * columns, row) };
        }
    });
}

/// The tiles of a kernel that also sums over its rows: few enough to add their partial sums quickly.
pub(super) struct RowTiles {
    /// Rows per tile.
    pub per_tile: usize,
    /// Number of tiles.
    pub tiles: usize,
}

impl RowTiles {
    /// The tiles of a `[rows, columns]` kernel.
    pub fn new(rows: usize, columns: usize) -> Self {
        let per_tile = rows_per_tile(rows, columns).max(rows.div_ceil(64));
        RowTiles { per_tile, tiles: rows.div_ceil(per_tile) }
    }
}
