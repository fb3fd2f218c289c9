//! Ops that only move values. Each is one kernel whose source maps each unit of the result to a unit of the input.

use super::launch::{Argument, Building, Launch, blocks, c_type, source, vector};
use crate::ops::{Op, Pad, Slice};
use crate::types::DType;

const KERNEL: &str = include_str!("kernels/move.cu");
const BLOCK: usize = 256;

/// A copy: number of units, values per unit, and two index expressions in `i`.
struct Movement {
    width: usize,
    count: usize,
    source: String,
    target: String,
}

/// A node that moves values.
pub(super) fn build(building: &Building) -> Vec<Launch> {
    let axes = |index: usize| building.input_type(index).shape.axes();
    let elements = building.output_type(0).shape.elements();
    let one = |width: usize, source: String| {
        let movement = Movement { width, count: elements / width, source, target: "i".to_string() };
        vec![launch(building, 0, building.output(0), &movement)]
    };
    match &building.node().op {
        Op::Broadcast(_) => {
            let length = building.input_type(0).shape.elements();
            let width = vector(length);
            one(width, format!("(i % {}ull)", length / width))
        }
        Op::Transpose(op) => transpose(building, &op.order),
        Op::Slice(op) => {
            let (width, source) = slice(axes(0), op);
            one(width, source)
        }
        Op::Pad(op) => {
            let (width, source) = pad(axes(0), op);
            one(width, source)
        }
        Op::Patchify(op) => {
            let (width, source) = patchify(axes(0), op.patch);
            one(width, source)
        }
        Op::Unpatchify(op) => {
            let (width, source) = unpatchify(op.images.axes(), op.patch);
            one(width, source)
        }
        Op::Concat(op) => concat(building, op.axis),
        _ => unreachable!("an op that moves"),
    }
}

fn launch(building: &Building, input: usize, to: Argument, movement: &Movement) -> Launch {
    // Integers are moved as bits.
    let stored = |dtype: DType| c_type(if dtype == DType::I32 { DType::F32 } else { dtype });
    let constants = [
        ("FROM", stored(building.input_type(input).dtype)),
        ("TO", stored(building.output_type(0).dtype)),
        ("VECTOR", movement.width.to_string()),
        ("COUNT", format!("{}ull", movement.count)),
        ("SOURCE_OF(i)", format!("(long long)({})", movement.source)),
        ("TARGET_OF(i)", format!("(uint64)({})", movement.target)),
    ];
    Launch {
        source: source(&constants, "", KERNEL),
        entry: "move",
        grid: [blocks(movement.count, BLOCK), 1, 1],
        block: BLOCK as u32,
        shared_bytes: 0,
        arguments: vec![building.input(input), to],
    }
}

/// Stride of an axis, in values.
fn inner(axes: &[usize], axis: usize) -> usize {
    axes[axis + 1..].iter().product()
}

/// The vector width that divides all of these.
fn width_of(lengths: &[usize]) -> usize {
    lengths.iter().map(|&length| vector(length)).min().unwrap_or(1)
}

fn slice(axes: &[usize], op: &Slice) -> (usize, String) {
    let one = inner(axes, op.axis);
    let (whole, start, length) = (axes[op.axis] * one, op.start * one, (op.end - op.start) * one);
    let width = width_of(&[whole, start, length]);
    let (whole, start, length) = (whole / width, start / width, length / width);
    (width, format!("i / {length}ull * {whole}ull + {start}ull + i % {length}ull"))
}

fn pad(axes: &[usize], op: &Pad) -> (usize, String) {
    let one = inner(axes, op.axis);
    let (whole, before, length) = (op.size * one, op.start * one, axes[op.axis] * one);
    let width = width_of(&[whole, before, length]);
    let (whole, before, length) = (whole / width, before / width, length / width);
    let inside = format!("i % {whole}ull >= {before}ull && i % {whole}ull < {}ull", before + length);
    (width, format!("({inside}) ? (long long)(i / {whole}ull * {length}ull + i % {whole}ull - {before}ull) : -1ll"))
}

/// Images `[n, channels, height, width]` to patches `[n, rows * columns, channels * ph * pw]`.
fn patchify(images: &[usize], [ph, pw]: [usize; 2]) -> (usize, String) {
    let &[_, channels, height, width] = images else { unreachable!("checked when the graph was built") };
    let unit = width_of(&[pw, width]);
    let (pw, width) = (pw / unit, width / unit);
    let (rows, columns) = (height / ph, width / pw);
    // i = ((((sample * rows + row) * columns + column) * channels + channel) * ph + line) * pw + x
    let line = format!("(i / {pw}ull % {ph}ull)");
    let channel = format!("(i / {}ull % {channels}ull)", pw * ph);
    let patch = pw * ph * channels;
    let column = format!("(i / {patch}ull % {columns}ull)");
    let row = format!("(i / {}ull % {rows}ull)", patch * columns);
    let sample = format!("(i / {}ull)", patch * columns * rows);
    let source = format!(
        "(({sample} * {channels}ull + {channel}) * {height}ull + {row} * {ph}ull + {line}) * {width}ull + {column} * {pw}ull + i % {pw}ull"
    );
    (unit, source)
}

/// The inverse.
fn unpatchify(images: &[usize], [ph, pw]: [usize; 2]) -> (usize, String) {
    let &[_, channels, height, width] = images else { unreachable!("checked when the graph was built") };
    let unit = width_of(&[pw, width]);
    let (pw, width) = (pw / unit, width / unit);
    let (rows, columns) = (height / ph, width / pw);
    // i = ((sample * channels + channel) * height + y) * width + x
    let (x, y) = (format!("(i % {width}ull)"), format!("(i / {width}ull % {height}ull)"));
    let channel = format!("(i / {}ull % {channels}ull)", width * height);
    let sample = format!("(i / {}ull)", width * height * channels);
    let patch = format!("(({sample} * {rows}ull + {y} / {ph}ull) * {columns}ull + {x} / {pw}ull)");
    (unit, format!("(({patch} * {channels}ull + {channel}) * {ph}ull + {y} % {ph}ull) * {pw}ull + {x} % {pw}ull"))
}

fn transpose(building: &Building, order: &[usize]) -> Vec<Launch> {
    let (from, to) = (building.input_type(0).shape.axes(), building.output_type(0).shape.axes());
    let keeps_last = order.last().is_none_or(|&last| last + 1 == from.len());
    let width = if keeps_last { vector(to.last().copied().unwrap_or(1)) } else { 1 };
    let (mut stride, mut terms) = (1, Vec::new());
    for (axis, &size) in to.iter().enumerate().rev() {
        let last = axis + 1 == to.len();
        let size = if last { size / width } else { size };
        let of_input = if keeps_last && last { 1 } else { inner(from, order[axis]) / width };
        terms.push(format!("i / {stride}ull % {size}ull * {of_input}ull"));
        stride *= size;
    }
    let source = if terms.is_empty() { "0".to_string() } else { terms.join(" + ") };
    let count = building.output_type(0).shape.elements() / width;
    let movement = Movement { width, count, source, target: "i".to_string() };
    vec![launch(building, 0, building.output(0), &movement)]
}

/// One copy per input.
fn concat(building: &Building, axis: usize) -> Vec<Launch> {
    let length_of = |axes: &[usize]| axes[axis] * inner(axes, axis);
    let whole = length_of(building.output_type(0).shape.axes());
    let lengths: Vec<usize> =
        (0..building.node().inputs.len()).map(|index| length_of(building.input_type(index).shape.axes())).collect();
    let mut first = 0;
    let mut launches = Vec::new();
    for (index, &length) in lengths.iter().enumerate() {
        let width = width_of(&[whole, length, first]);
        let count = building.input_type(index).shape.elements() / width;
        let (whole, length, before) = (whole / width, length / width, first / width);
        let target = format!("i / {length}ull * {whole}ull + {before}ull + i % {length}ull");
        if count > 0 {
            let movement = Movement { width, count, source: "i".to_string(), target };
            launches.push(launch(building, index, building.output(0), &movement));
        }
        first += length * width;
    }
    launches
}
