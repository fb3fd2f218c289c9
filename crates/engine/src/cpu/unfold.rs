//! Unfold and fold: both gather, a row of the result at a time, so that no two threads write the same value.

use bytemuck::Pod;

use super::kernel::{Kernel, rows_per_tile, tile_rows};
use super::team::Team;
use crate::ops::{Fold, Unfold};

/// Floats of scratch memory per thread for fold: a row of dy, and the sums of a row.
pub(super) fn fold_scratch(columns: usize, channels: usize) -> usize {
    columns.next_multiple_of(16) + channels
}

/// The values under each position of a kernel, side by side. They are not looked at, so plain units are moved.
pub(super) fn unfold(kernel: &Kernel, team: &mut Team, op: &Unfold) {
    match kernel.input_type(0).dtype.bytes() {
        2 => unfold_units::<u16>(kernel, team, op),
        _ => unfold_units::<u32>(kernel, team, op),
    }
}

fn unfold_units<T: Pod + Send + Sync>(kernel: &Kernel, team: &mut Team, op: &Unfold) {
    let &[_, time, channels] = kernel.input_type(0).shape.axes() else { return };
    let shape = &kernel.output_type(0).shape;
    let (rows, columns, positions) = (shape.rows(), shape.columns(), shape.axes()[1]);
    let x: &[T] = kernel.memory.read_raw(kernel.node.inputs[0]);
    let output = kernel.output_raw::<T>(0);
    let per_tile = rows_per_tile(rows, columns);
    team.run(rows.div_ceil(per_tile), &|tile, _| {
        for row in tile_rows(tile, per_tile, rows) {
            let (sample, position) = (row / positions, row % positions);
            // SAFETY: each row is written by one tile only.
            let to = unsafe { output.range(row * columns..(row + 1) * columns) };
            for k in 0..op.sliding.kernel {
                let to = to[k..].iter_mut().step_by(op.sliding.kernel);
                match op.sliding.source(position, k, time) {
                    Some(source) => {
                        let from = &x[(sample * time + source) * channels..][..channels];
                        to.zip(from).for_each(|(to, from)| *to = *from);
                    }
                    None => to.for_each(|to| *to = T::zeroed()),
                }
            }
        }
    });
}

/// Adds values up where unfold took them from, in the order of the kernel's columns.
pub(super) fn fold(kernel: &Kernel, team: &mut Team, op: &Fold) {
    let &[_, positions, columns] = kernel.input_type(0).shape.axes() else { return };
    let shape = &kernel.output_type(0).shape;
    let (rows, channels) = (shape.rows(), shape.columns());
    let (dy, output) = (kernel.input(0), kernel.output(0));
    let per_tile = rows_per_tile(rows, columns);
    team.run(rows.div_ceil(per_tile), &|tile, scratch| {
        let (row_of_dy, sums) = scratch.split_at_mut(columns.next_multiple_of(16));
        let sums = &mut sums[..channels];
        for row in tile_rows(tile, per_tile, rows) {
            let (sample, source) = (row / op.time, row % op.time);
            sums.fill(0.0);
            for k in 0..op.sliding.kernel {
                let Some(position) = op.sliding.position(source, k, positions) else { continue };
                let first = (sample * positions + position) * columns;
                let values = dy.read(first..first + columns, row_of_dy);
                for (sum, value) in sums.iter_mut().zip(values[k..].iter().step_by(op.sliding.kernel)) {
                    *sum += value;
                }
            }
            // SAFETY: each row is written by one tile only.
            unsafe { output.write(row * channels, sums) };
        }
    });
}
