//! Softmax, cross-entropy, binary cross-entropy, and their gradients.

use super::kernel::{Kernel, rows_per_tile, tile_rows};
use super::rows;
use super::team::Team;
use crate::ops::{BinaryCrossEntropy, CrossEntropy, CrossEntropyGradient, CrossEntropyOptions, Targets};

/// Marks an ignored row in the list of losses.
const IGNORED: f32 = f32::NEG_INFINITY;

/// Floats of scratch per thread for a loss: a row of logits and, if they are soft, one of targets.
pub(super) fn loss_scratch(classes: usize, targets: Targets) -> usize {
    match targets {
        Targets::Hard => classes,
        Targets::Soft => 2 * classes,
    }
}

/// Floats of scratch per thread for a loss's gradient: a row of logits, one of targets, and one of the result.
pub(super) fn gradient_scratch(classes: usize) -> usize {
    3 * classes
}

/// Softmax over the last axis.
pub(super) fn softmax(kernel: &Kernel, team: &mut Team) {
    let (x, output) = (kernel.input(0), kernel.output_raw::<f32>(0));
    let columns = kernel.input_type(0).shape.columns();
    let row_count = x.len() / columns;
    let per_tile = rows_per_tile(row_count, columns);
    team.run(row_count.div_ceil(per_tile), &|tile, _| {
        for row in tile_rows(tile, per_tile, row_count) {
            let range = row * columns..(row + 1) * columns;
            // SAFETY: each row is written by one tile only.
            let values = unsafe { output.range(range.clone()) };
            x.copy_to(range, values);
            rows::softmax(values);
        }
    });
}

/// Gradient of the softmax.
pub(super) fn softmax_gradient(kernel: &Kernel, team: &mut Team) {
    let (dy, y, output) = (kernel.input(0), kernel.input(1), kernel.output_raw::<f32>(0));
    let columns = kernel.input_type(0).shape.columns();
    let row_count = dy.len() / columns;
    let per_tile = rows_per_tile(row_count, columns);
    team.run(row_count.div_ceil(per_tile), &|tile, scratch| {
        for row in tile_rows(tile, per_tile, row_count) {
            let range = row * columns..(row + 1) * columns;
            // SAFETY: each row is written by one tile only.
            let gradient = unsafe { output.range(range.clone()) };
            dy.copy_to(range.clone(), gradient);
            rows::softmax_gradient(y.read(range, scratch), gradient);
        }
    });
}

/// A hard target, if it is not ignored and in range.
fn hard_target(
    kernel: &Kernel,
    options: &CrossEntropyOptions,
    targets: &[i32],
    row: usize,
    classes: usize,
) -> Option<usize> {
    let target = targets[row];
    if options.ignored_index == Some(target) {
        return None;
    }
    let class = usize::try_from(target).ok().filter(|&class| class < classes);
    if class.is_none() {
        kernel.report_fault(row);
    }
    class
}

/// The mean loss. Each row's loss goes to the workspace, and they are summed in order.
pub(super) fn cross_entropy(kernel: &Kernel, team: &mut Team, op: &CrossEntropy) {
    let logits = kernel.input(0);
    let classes = kernel.input_type(0).shape.columns();
    let row_count = logits.len() / classes;
    let (losses, log_sums) = (kernel.workspace(), kernel.output_raw::<f32>(1));
    let CrossEntropyOptions { label_smoothing: smoothing, z_loss, .. } = op.options;
    let first_row = op.first_row.unwrap_or(0);
    let per_tile = rows_per_tile(row_count, classes);
    team.run(row_count.div_ceil(per_tile), &|tile, scratch| {
        let (first, second) = scratch.split_at_mut(classes);
        for row in tile_rows(tile, per_tile, row_count) {
            let range = row * classes..(row + 1) * classes;
            let x = logits.read(range.clone(), first);
            let log_sum = rows::log_sum_exp(x);
            let loss = match op.targets {
                Targets::Soft => rows::cross_entropy_soft(x, kernel.input(1).read(range, second), smoothing, log_sum),
                Targets::Hard => hard_target(kernel, &op.options, kernel.input_i32(1), first_row + row, classes)
                    .map_or(IGNORED, |target| rows::cross_entropy_hard(x, target, smoothing, log_sum)),
            };
            let loss = if z_loss > 0.0 { loss + z_loss * log_sum * log_sum } else { loss };
            // SAFETY: each row is written by one tile only.
            unsafe {
                losses.range(row..row + 1)[0] = loss;
                log_sums.range(row..row + 1)[0] = log_sum;
            }
        }
    });
    // SAFETY: all tiles have finished.
    let losses = unsafe { losses.range(0..row_count) };
    let sum = losses.iter().filter(|&&loss| loss != IGNORED).fold(0.0, |sum, &loss| sum + f64::from(loss));
    let counted = match op.targets {
        Targets::Hard => counted(&op.options, kernel.input_i32(1)),
        Targets::Soft => row_count,
    };
    // SAFETY: this kernel owns the result.
    unsafe { kernel.output_raw::<f32>(0).range(0..1)[0] = (sum / counted.max(1) as f64) as f32 };
}

/// The number of hard targets that are not ignored.
fn counted(options: &CrossEntropyOptions, targets: &[i32]) -> usize {
    match options.ignored_index {
        Some(ignored) => targets.iter().filter(|&&target| target != ignored).count(),
        None => targets.len(),
    }
}

/// The logits' gradient.
pub(super) fn cross_entropy_gradient(kernel: &Kernel, team: &mut Team, op: &CrossEntropyGradient) {
    let (logits, output) = (kernel.input(1), kernel.output(0));
    let classes = kernel.input_type(1).shape.columns();
    let row_count = logits.len() / classes;
    let log_sums = kernel.input_f32(3);
    let counted = match op.targets {
        Targets::Hard => counted(&op.options, kernel.input_i32(2)),
        Targets::Soft => row_count,
    };
    let mut number = [0.0];
    let factor = kernel.input(0).read(0..1, &mut number)[0] / counted.max(1) as f32;
    let CrossEntropyOptions { label_smoothing: smoothing, z_loss, .. } = op.options;
    let first_row = op.first_row.unwrap_or(0);
    let per_tile = rows_per_tile(row_count, classes);
    team.run(row_count.div_ceil(per_tile), &|tile, scratch| {
        let (first, rest) = scratch.split_at_mut(classes);
        let (second, result) = rest.split_at_mut(classes);
        let result = &mut result[..classes];
        for row in tile_rows(tile, per_tile, row_count) {
            let range = row * classes..(row + 1) * classes;
            let x = logits.read(range.clone(), first);
            let (log_sum, z_slope) = (log_sums[row], 2.0 * z_loss * log_sums[row]);
            match op.targets {
                Targets::Soft => {
                    let targets = kernel.input(2).read(range.clone(), second);
                    rows::cross_entropy_soft_gradient(x, targets, smoothing, log_sum, z_slope, factor, result);
                }
                Targets::Hard => {
                    match hard_target(kernel, &op.options, kernel.input_i32(2), first_row + row, classes) {
                        Some(target) => {
                            rows::cross_entropy_hard_gradient(x, target, smoothing, log_sum, z_slope, factor, result);
                        }
                        None => result.fill(0.0),
                    }
                }
            }
            // SAFETY: each row is written by one tile only.
            unsafe { output.write(range.start, result) };
        }
    });
}

/// The mean over all classes, or over rows. Each row's loss goes to the workspace, and they are summed in order.
pub(super) fn binary_cross_entropy(kernel: &Kernel, team: &mut Team, sum_classes: bool) {
    let (logits, targets) = (kernel.input(0), kernel.input(1));
    let shape = &kernel.input_type(0).shape;
    let (row_count, classes) = (shape.rows(), shape.columns());
    let losses = kernel.workspace();
    let per_tile = rows_per_tile(row_count, classes);
    team.run(row_count.div_ceil(per_tile), &|tile, scratch| {
        let (first, second) = scratch.split_at_mut(classes);
        for row in tile_rows(tile, per_tile, row_count) {
            let range = row * classes..(row + 1) * classes;
            let (x, t) = (logits.read(range.clone(), first), targets.read(range, second));
            let loss = |(&x, &t): (&f32, &f32)| f64::from(x.max(0.0) - x * t + (-x.abs()).exp().ln_1p());
            // SAFETY: each row is written by one tile only.
            unsafe { losses.range(row..row + 1)[0] = x.iter().zip(t).map(loss).sum::<f64>() as f32 };
        }
    });
    // SAFETY: all tiles have finished.
    let sum: f64 = unsafe { losses.range(0..row_count) }.iter().map(|&loss| f64::from(loss)).sum();
    let mean = sum / BinaryCrossEntropy::count(sum_classes, shape) as f64;
    // SAFETY: this kernel owns the result.
    unsafe { kernel.output_raw::<f32>(0).range(0..1)[0] = mean as f32 };
}

/// The logits' gradient.
pub(super) fn binary_cross_entropy_gradient(kernel: &Kernel, team: &mut Team, sum_classes: bool) {
    let (logits, targets, output) = (kernel.input(1), kernel.input(2), kernel.output(0));
    let shape = &kernel.input_type(1).shape;
    let (row_count, classes) = (shape.rows(), shape.columns());
    let mut number = [0.0];
    let factor = kernel.input(0).read(0..1, &mut number)[0] / BinaryCrossEntropy::count(sum_classes, shape) as f32;
    let per_tile = rows_per_tile(row_count, classes);
    team.run(row_count.div_ceil(per_tile), &|tile, scratch| {
        let (first, rest) = scratch.split_at_mut(classes);
        let (second, result) = rest.split_at_mut(classes);
        for row in tile_rows(tile, per_tile, row_count) {
            let range = row * classes..(row + 1) * classes;
            let (x, t) = (logits.read(range.clone(), first), targets.read(range.clone(), second));
            for ((result, x), t) in result.iter_mut().zip(x).zip(t) {
                *result = factor * (1.0 / (1.0 + (-x).exp()) - t);
            }
            // SAFETY: each row is written by one tile only.
            unsafe { output.write(range.start, &result[..classes]) };
        }
    });
}
