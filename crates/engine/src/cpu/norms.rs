//! LayerNorm and RMSNorm with preceding steps, and their gradients with following steps.

use super::kernel::{Kernel, rows_per_tile, tile_rows};
use super::memory::Shared;
use super::reductions::RowTiles;
use super::rows;
use super::steps::Steps;
use super::team::Team;
use crate::graph::{Graph, Node};
use crate::ops::Op;

/// Floats of scratch per thread: a row of x, of the result, and for the steps.
pub(super) fn forward_scratch(columns: usize) -> usize {
    3 * columns.next_multiple_of(16)
}

/// Floats of scratch per thread for the gradient: a row of dy, of x, of dx, and for the steps.
pub(super) fn gradient_scratch(columns: usize) -> usize {
    4 * columns.next_multiple_of(16)
}

/// Floats of workspace: each tile's sums of dγ and dβ.
pub(super) fn workspace_floats(graph: &Graph, node: &Node) -> usize {
    let shape = &graph.type_of(node.inputs[0]).shape;
    2 * RowTiles::new(shape.rows(), shape.columns()).tiles * shape.columns().next_multiple_of(16)
}

/// Splits scratch into rows of `columns`.
fn scratch_rows<const N: usize>(scratch: &mut [f32], columns: usize) -> [&mut [f32]; N] {
    let mut chunks = scratch.chunks_mut(columns.next_multiple_of(16));
    std::array::from_fn(|_| &mut chunks.next().expect("scratch was sized for this kernel")[..columns])
}

fn set(to: Shared<f32>, row: usize, value: f32) {
    // SAFETY: each row is written by one tile only.
    unsafe { to.range(row..row + 1)[0] = value };
}

/// LayerNorm or RMSNorm.
pub(super) fn forward(kernel: &Kernel, team: &mut Team) {
    let shape = &kernel.output_type(0).shape;
    let (row_count, columns) = (shape.rows(), shape.columns());
    let steps = Steps::new(kernel);
    let (x, output) = (kernel.input(0), kernel.output(0));
    let (affine, eps, layer) = match &kernel.node.op {
        Op::LayerNorm(op) => (op.affine, op.eps, true),
        Op::RmsNorm(op) => (true, op.eps, false),
        _ => unreachable!("a norm"),
    };
    let gamma = affine.then(|| kernel.input_f32(1));
    let beta = (affine && layer).then(|| kernel.input_f32(2));
    let statistics = [kernel.output_raw(1), kernel.output_raw(if layer { 2 } else { 1 })];
    let per_tile = rows_per_tile(row_count, columns);
    team.run(row_count.div_ceil(per_tile), &|tile, scratch| {
        let [values, result, spare] = scratch_rows(scratch, columns);
        for row in tile_rows(tile, per_tile, row_count) {
            let range = row * columns..(row + 1) * columns;
            let x: &[f32] = if steps.is_empty() {
                x.read(range, values)
            } else {
                x.copy_to(range, values);
                steps.apply(row, 0, values, spare);
                &*values
            };
            if layer {
                let (mean, inverse) = rows::layer_norm(x, gamma, beta, eps, result);
                set(statistics[0], row, mean);
                set(statistics[1], row, inverse);
            } else {
                set(statistics[0], row, rows::rms_norm(x, gamma, eps, result));
            }
            // SAFETY: each row is written by one tile only.
            unsafe { output.write(row * columns, result) };
        }
    });
}

/// Gradient of LayerNorm or RMSNorm.
pub(super) fn gradient(kernel: &Kernel, team: &mut Team) {
    let shape = &kernel.input_type(1).shape;
    let (row_count, columns) = (shape.rows(), shape.columns());
    let stride = columns.next_multiple_of(16);
    let steps = Steps::new(kernel);
    let (dy, x, dx) = (kernel.input(0), kernel.input(1), kernel.output(0));
    let (layer, affine) = match &kernel.node.op {
        Op::LayerNormGradient(op) => (true, op.affine),
        _ => (false, true),
    };
    let (means, inverses) =
        if layer { (Some(kernel.input_f32(2)), kernel.input_f32(3)) } else { (None, kernel.input_f32(2)) };
    let gamma = affine.then(|| kernel.input_f32(if layer { 4 } else { 3 }));
    let RowTiles { per_tile, tiles } = RowTiles::new(row_count, columns);
    let partial = kernel.workspace();
    team.run(tiles, &|tile, scratch| {
        let [dy_row, x_row, result, spare] = scratch_rows(scratch, columns);
        // SAFETY: each tile has its own partial sums.
        let sums = unsafe { partial.range(2 * tile * stride..2 * (tile + 1) * stride) };
        sums.fill(0.0);
        let (d_gamma, d_beta) = sums.split_at_mut(stride);
        let (d_gamma, d_beta) = (&mut d_gamma[..columns], &mut d_beta[..columns]);
        for row in tile_rows(tile, per_tile, row_count) {
            let range = row * columns..(row + 1) * columns;
            let (dy, x) = (dy.read(range.clone(), dy_row), x.read(range, x_row));
            match means {
                Some(means) => rows::layer_norm_gradient(
                    x,
                    gamma,
                    means[row],
                    inverses[row],
                    dy,
                    result,
                    affine.then_some(&mut *d_gamma),
                    affine.then_some(&mut *d_beta),
                ),
                None => rows::rms_norm_gradient(x, gamma, inverses[row], dy, result, Some(&mut *d_gamma)),
            }
            steps.apply(row, 0, result, spare);
            // SAFETY: each row is written by one tile only.
            unsafe { dx.write(row * columns, result) };
        }
    });
    if affine {
        // SAFETY: all tiles have finished.
        let partial = unsafe { partial.range(0..2 * tiles * stride) };
        add_partial(partial, stride, kernel.output_raw(1), 0);
        if layer {
            add_partial(partial, stride, kernel.output_raw(2), stride);
        }
    }
}

/// Sums the tiles' partial sums, in order.
fn add_partial(partial: &[f32], stride: usize, output: Shared<f32>, offset: usize) {
    // SAFETY: the result is this kernel's, and all tiles have finished.
    let sums = unsafe { output.range(0..output.len()) };
    sums.fill(0.0);
    for tile in partial.chunks(2 * stride) {
        rows::add(sums, &tile[offset..offset + sums.len()]);
    }
}
