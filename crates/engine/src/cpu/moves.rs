//! Kernels that only move data: broadcast, transpose, concatenation, slice, pad, patchify.
//!
//! The values do not matter, so all but concatenation (which may convert) move plain 2- or 4-byte units.

use bytemuck::Pod;

use super::kernel::Kernel;
use super::memory::{FloatShared, FloatSlice, Shared};
use super::team::Team;
use crate::graph::Value;
use crate::ops::{Pad, Slice};

/// A plain unit of storage.
trait Unit: Pod + Send + Sync {}
impl Unit for u16 {}
impl Unit for u32 {}

/// Approximate number of elements per tile.
const TILE: usize = 32_768;

/// Calls a generic function with the storage unit of the first input.
macro_rules! by_unit {
    ($kernel:expr, $function:ident($($arg:expr),*)) => {
        match $kernel.input_type(0).dtype.bytes() {
            2 => $function::<u16>($kernel, $($arg),*),
            _ => $function::<u32>($kernel, $($arg),*),
        }
    };
}

/// The first input and the result, as plain units.
fn units<'a, T: Pod>(kernel: &Kernel<'a>) -> (&'a [T], Shared<'a, T>) {
    (kernel.memory.read_raw(kernel.node.inputs[0]), kernel.memory.write_raw(Value::new(kernel.index, 0)))
}

/// Copies runs of equal length from `from(run)` to `to(run)`, several per tile.
fn copy_runs<T: Unit>(
    team: &mut Team,
    (input, output): (&[T], Shared<T>),
    runs: usize,
    length: usize,
    places: &(dyn Fn(usize) -> (usize, usize) + Sync),
) {
    let per_tile = (TILE / length.max(1)).max(1);
    team.run(runs.div_ceil(per_tile), &|tile, _| {
        for run in tile * per_tile..((tile + 1) * per_tile).min(runs) {
            let (from, to) = places(run);
            // SAFETY: every run writes its own range of the result.
            unsafe { output.range(to..to + length) }.copy_from_slice(&input[from..from + length]);
        }
    });
}

/// Repeats over leading axes.
pub(super) fn broadcast(kernel: &Kernel, team: &mut Team) {
    by_unit!(kernel, broadcast_units(team));
}

fn broadcast_units<T: Unit>(kernel: &Kernel, team: &mut Team) {
    let length = kernel.input_type(0).shape.elements();
    let times = kernel.output_type(0).shape.elements() / length;
    copy_runs(team, units::<T>(kernel), times, length, &|run| (0, run * length));
}

/// Permutes the axes.
pub(super) fn transpose(kernel: &Kernel, team: &mut Team, order: &[usize]) {
    by_unit!(kernel, transpose_units(team, order));
}

fn transpose_units<T: Unit>(kernel: &Kernel, team: &mut Team, order: &[usize]) {
    let (from, to) = (kernel.input_type(0).shape.axes(), kernel.output_type(0).shape.axes());
    let (input, output) = units::<T>(kernel);
    let Some((&last, outer)) = order.split_last() else {
        return copy_runs(team, (input, output), 1, 1, &|_| (0, 0));
    };
    let stride = |axis: usize| from[axis + 1..].iter().product::<usize>();
    // Offset in the input of a run of the result's last axis.
    let start = |run: usize| {
        let (mut rest, mut place) = (run, 0);
        for axis in (0..outer.len()).rev() {
            place += rest % to[axis] * stride(outer[axis]);
            rest /= to[axis];
        }
        place
    };
    let length = to[to.len() - 1];
    let runs = output.len() / length;
    if last + 1 == from.len() {
        return copy_runs(team, (input, output), runs, length, &|run| (start(run), run * length));
    }
    let step = stride(last);
    let per_tile = (TILE / length).max(1);
    team.run(runs.div_ceil(per_tile), &|tile, _| {
        for run in tile * per_tile..((tile + 1) * per_tile).min(runs) {
            // SAFETY: every run writes its own range of the result.
            let row = unsafe { output.range(run * length..(run + 1) * length) };
            for (to, from) in row.iter_mut().zip(input[start(run)..].iter().step_by(step)) {
                *to = *from;
            }
        }
    });
}

/// Elements per index of the axes before `axis`.
fn inner(axes: &[usize], axis: usize) -> usize {
    axes[axis..].iter().product()
}

/// Floats of scratch per thread for concatenation: bf16 values are widened piece by piece.
pub(super) const CONCAT_SCRATCH: usize = 1024;

/// Concatenation along an axis; dtypes may differ.
pub(super) fn concat(kernel: &Kernel, team: &mut Team, axis: usize) {
    let output = kernel.output(0);
    let whole = inner(kernel.output_type(0).shape.axes(), axis);
    let mut place = 0;
    for index in 0..kernel.node.inputs.len() {
        let input = kernel.input(index);
        let length = inner(kernel.input_type(index).shape.axes(), axis);
        let first = place;
        team.run(input.len() / length, &|run, scratch| {
            // SAFETY: every run writes its own range of the result.
            unsafe { copy_converted(input, output, run * length, run * whole + first, length, scratch) };
        });
        place += length;
    }
}

/// # Safety
/// The part written must be this tile's own.
unsafe fn copy_converted(
    input: FloatSlice,
    output: FloatShared,
    from: usize,
    to: usize,
    length: usize,
    scratch: &mut [f32],
) {
    let most = match input {
        FloatSlice::F32(_) => length,
        FloatSlice::Bf16(_) => scratch.len(),
    };
    let mut done = 0;
    while done < length {
        let count = most.min(length - done);
        let piece = input.read(from + done..from + done + count, scratch);
        // SAFETY: guaranteed by the caller.
        unsafe { output.write(to + done, piece) };
        done += count;
    }
}

/// A range of an axis.
pub(super) fn slice(kernel: &Kernel, team: &mut Team, op: &Slice) {
    by_unit!(kernel, slice_units(team, op));
}

fn slice_units<T: Unit>(kernel: &Kernel, team: &mut Team, op: &Slice) {
    let axes = kernel.input_type(0).shape.axes();
    let (whole, one) = (inner(axes, op.axis), inner(axes, op.axis) / axes[op.axis]);
    let length = (op.end - op.start) * one;
    let (input, output) = units::<T>(kernel);
    let places = |run: usize| (run * whole + op.start * one, run * length);
    copy_runs(team, (input, output), input.len() / whole, length, &places);
}

/// Pads an axis with zeros.
pub(super) fn pad(kernel: &Kernel, team: &mut Team, op: &Pad) {
    by_unit!(kernel, pad_units(team, op));
}

fn pad_units<T: Unit>(kernel: &Kernel, team: &mut Team, op: &Pad) {
    let axes = kernel.input_type(0).shape.axes();
    let length = inner(axes, op.axis);
    let one = length / axes[op.axis];
    let (whole, before) = (op.size * one, op.start * one);
    let (input, output) = units::<T>(kernel);
    team.run(input.len() / length, &|run, _| {
        // SAFETY: every run writes its own range of the result.
        let to = unsafe { output.range(run * whole..(run + 1) * whole) };
        to[..before].fill(T::zeroed());
        to[before..before + length].copy_from_slice(&input[run * length..(run + 1) * length]);
        to[before + length..].fill(T::zeroed());
    });
}

/// Images to patches.
pub(super) fn patchify(kernel: &Kernel, team: &mut Team, patch: [usize; 2]) {
    by_unit!(kernel, patch_units(team, kernel.input_type(0).shape.axes(), patch, false));
}

/// Patches to images.
pub(super) fn unpatchify(kernel: &Kernel, team: &mut Team, patch: [usize; 2]) {
    by_unit!(kernel, patch_units(team, kernel.output_type(0).shape.axes(), patch, true));
}

/// Copies one line of one patch per run. Both directions visit patches in order, line by line.
fn patch_units<T: Unit>(kernel: &Kernel, team: &mut Team, images: &[usize], [ph, pw]: [usize; 2], back: bool) {
    let &[n, channels, height, width] = images else { return };
    let (grid_h, grid_w) = (height / ph, width / pw);
    let runs = n * grid_h * grid_w * channels * ph;
    let places = |run: usize| {
        let (line, channel, patch) = (run % ph, run / ph % channels, run / ph / channels);
        let (column, row, sample) = (patch % grid_w, patch / grid_w % grid_h, patch / grid_w / grid_h);
        let image = ((sample * channels + channel) * height + row * ph + line) * width + column * pw;
        if back { (run * pw, image) } else { (image, run * pw) }
    };
    copy_runs(team, units::<T>(kernel), runs, pw, &places);
}
