//! Elementwise steps on a row in cache, and the kernel of pointwise nodes.

use super::convert;
use super::kernel::{Kernel, rows_per_tile, tile_rows};
use super::memory::{FloatShared, FloatSlice};
use super::rows;
use super::team::Team;
use crate::ops::{Activation, Drop, Step};
use crate::random::{Mask, Stream};
use crate::types::DType;

/// Steps with a precomputed mask or operand; in longer chains the later ones compute theirs per row.
const READY_STEPS: usize = 12;

/// A node's steps, ready to be applied to any part of any row.
pub(super) struct Steps<'k, 'a> {
    kernel: &'k Kernel<'a>,
    columns: usize,
    rows_per_sample: usize,
    /// Rows of the whole value before this kernel's first: random numbers are indexed over all samples.
    first_row: usize,
    masks: [Option<Mask>; READY_STEPS],
    operands: [Option<FloatSlice<'a>>; READY_STEPS],
}

impl<'k, 'a> Steps<'k, 'a> {
    /// The steps of a node whose running value has the shape of its first output.
    pub fn new(kernel: &'k Kernel<'a>) -> Self {
        let shape = &kernel.output_type(0).shape;
        let samples = shape.axes().first().copied().unwrap_or(1);
        let (mut masks, mut operands) = ([None; READY_STEPS], [None; READY_STEPS]);
        for ((mask, operand), step) in masks.iter_mut().zip(&mut operands).zip(&kernel.node.steps) {
            if let Step::Dropout(drop) | Step::StochasticDepth(drop) | Step::DroppedActivation { drop, .. } = step {
                *mask = Some(mask_of(kernel, drop));
            }
            *operand = step.input().map(|input| kernel.input(input));
        }
        let rows_per_sample = shape.rows() / samples.min(shape.rows());
        let first_row = kernel.first_sample() * rows_per_sample;
        Steps { kernel, columns: shape.columns(), rows_per_sample, first_row, masks, operands }
    }

    /// Whether there are no steps.
    pub fn is_empty(&self) -> bool {
        self.kernel.node.steps.is_empty()
    }

    /// Applies the steps to `values`, columns `first_column ..` of `row`. `spare` is at least as long.
    pub fn apply(&self, row: usize, first_column: usize, values: &mut [f32], spare: &mut [f32]) {
        let spare = &mut spare[..values.len()];
        let steps = &self.kernel.node.steps;
        for (index, step) in steps.iter().enumerate() {
            match *step {
                Step::Add { input } => match self.operand(index, input, row, first_column, values.len(), spare) {
                    Other::Row(other) => rows::add(values, other),
                    Other::Number(number) => values.iter_mut().for_each(|value| *value += number),
                },
                Step::Multiply { input } => match self.operand(index, input, row, first_column, values.len(), spare) {
                    Other::Row(other) => rows::multiply(values, other),
                    Other::Number(number) => rows::scale(values, number),
                },
                Step::Scale(factor) => rows::scale(values, factor),
                Step::Activation(activation) => rows::activation(activation, values),
                Step::ActivationGradient { activation, input } => {
                    if let Other::Row(other) = self.operand(index, input, row, first_column, values.len(), spare) {
                        rows::activation_gradient(activation, values, other);
                    }
                }
                Step::Dropout(ref drop) => {
                    let row = (self.first_row + row) as u64;
                    rows::drop(&self.mask(index, drop), row, first_column, values);
                }
                Step::DroppedActivation { activation, ref drop, slope } => {
                    let mask = self.mask(index, drop);
                    self.dropped_activation(activation, &mask, slope, (row, first_column), values, spare);
                }
                Step::StochasticDepth(ref drop) => {
                    let sample = ((self.first_row + row) / self.rows_per_sample) as u64;
                    rows::scale(values, self.mask(index, drop).factor(sample, 0));
                }
                Step::Round if self.was_rounded(index) => {}
                Step::Round => convert::round(values),
                Step::Store { output } => self.store(output, index, row * self.columns + first_column, values),
            }
        }
    }

    /// Stores the current values; if the next step rounds them, they are rounded at the same time.
    fn store(&self, output: usize, index: usize, start: usize, values: &mut [f32]) {
        match self.kernel.output(output) {
            FloatShared::Bf16(stored) if matches!(self.kernel.node.steps.get(index + 1), Some(Step::Round)) => {
                // SAFETY: this part of the stored value belongs to this part of this row.
                convert::round_and_narrow(values, unsafe { stored.range(start..start + values.len()) });
            }
            // SAFETY: as above.
            stored => unsafe { stored.write(start, values) },
        }
    }

    /// Applies an activation and its dropout, and stores the product of derivative and mask.
    fn dropped_activation(
        &self,
        activation: Activation,
        mask: &Mask,
        slope: usize,
        (row, first_column): (usize, usize),
        values: &mut [f32],
        spare: &mut [f32],
    ) {
        let start = row * self.columns + first_column;
        let stored = self.kernel.output(slope);
        let slopes = match &stored {
            // SAFETY: this part of the stored value belongs to this part of this row.
            FloatShared::F32(stored) => unsafe { stored.range(start..start + values.len()) },
            FloatShared::Bf16(_) => &mut *spare,
        };
        rows::mask_factors(mask, (self.first_row + row) as u64, first_column, slopes);
        rows::dropped_activation(activation, values, slopes);
        if let FloatShared::Bf16(_) = stored {
            // SAFETY: as above.
            unsafe { stored.write(start, slopes) };
        }
    }

    /// Whether the previous step stored the values as bf16, and rounded them.
    fn was_rounded(&self, index: usize) -> bool {
        match self.kernel.node.steps[..index] {
            [.., Step::Store { output }] => self.kernel.output_type(output).dtype == DType::Bf16,
            _ => false,
        }
    }

    fn mask(&self, index: usize, drop: &Drop) -> Mask {
        self.masks.get(index).copied().flatten().unwrap_or_else(|| mask_of(self.kernel, drop))
    }

    /// The part of an additional input for this part of the row: it is broadcast over the leading axes.
    fn operand<'b>(
        &self,
        step: usize,
        input: usize,
        row: usize,
        column: usize,
        len: usize,
        spare: &'b mut [f32],
    ) -> Other<'b>
    where
        'a: 'b,
    {
        let ready = self.operands.get(step).copied().flatten();
        let other: FloatSlice<'a> = ready.unwrap_or_else(|| self.kernel.input(input));
        if other.len() < self.columns {
            return Other::Number(other.read(0..1, spare)[0]);
        }
        let start = row % (other.len() / self.columns) * self.columns + column;
        Other::Row(other.read(start..start + len, spare))
    }
}

/// An additional input of a step, at a row.
enum Other<'b> {
    Row(&'b [f32]),
    Number(f32),
}

pub(super) fn mask_of(kernel: &Kernel, drop: &Drop) -> Mask {
    Mask::new(Stream::new(kernel.run.seed, kernel.run.step, drop.place), drop.rate)
}

/// Floats of scratch for a pointwise node: a row and the scratch of its steps.
pub(super) fn scratch_floats(columns: usize) -> usize {
    2 * columns.next_multiple_of(16)
}

/// The kernel of a pointwise node.
pub(super) fn pointwise(kernel: &Kernel, team: &mut Team) {
    let output = kernel.output(0);
    let shape = &kernel.output_type(0).shape;
    let (rows, columns) = (shape.rows(), shape.columns());
    let steps = Steps::new(kernel);
    let input = kernel.input(0);
    let per_tile = rows_per_tile(rows, columns);
    team.run(rows.div_ceil(per_tile), &|tile, scratch| {
        for row in tile_rows(tile, per_tile, rows) {
            pointwise_row(&steps, input, output, row, scratch);
        }
    });
}

fn pointwise_row(steps: &Steps, input: FloatSlice, output: FloatShared, row: usize, scratch: &mut [f32]) {
    let columns = steps.columns;
    let (values, spare) = scratch.split_at_mut(columns.next_multiple_of(16));
    let range = row * columns..(row + 1) * columns;
    if let FloatShared::F32(output) = output {
        // SAFETY: each row is written by one tile only.
        let out = unsafe { output.range(range.clone()) };
        input.copy_to(range, out);
        steps.apply(row, 0, out, spare);
        return;
    }
    let values = &mut values[..columns];
    input.copy_to(range.clone(), values);
    steps.apply(row, 0, values, spare);
    // SAFETY: each row is written by one tile only.
    unsafe { output.write(range.start, values) };
}
