//! Cross-entropy, binary cross-entropy and their gradients in naive f64.

use super::{Tensor, in_range};
use crate::error::Result;
use crate::graph::Node;
use crate::ops::{BinaryCrossEntropy, CrossEntropy, CrossEntropyGradient, CrossEntropyOptions, Targets};

/// The target distribution of a row, or `None` if the row is ignored.
fn target_of(
    node: &Node,
    (kind, options): (Targets, &CrossEntropyOptions),
    targets: &[f64],
    row: usize,
    classes: usize,
) -> Result<Option<Vec<f64>>> {
    let smoothing = f64::from(options.label_smoothing);
    let mut target = vec![0.0; classes];
    match kind {
        Targets::Soft => target.copy_from_slice(&targets[row * classes..(row + 1) * classes]),
        Targets::Hard if options.ignored_index.is_some_and(|ignored| f64::from(ignored) == targets[row]) => {
            return Ok(None);
        }
        Targets::Hard => target[in_range(node, row, targets[row], classes)?] = 1.0,
    }
    for t in &mut target {
        *t = *t * (1.0 - smoothing) + smoothing / classes as f64;
    }
    Ok(Some(target))
}

fn log_sum(row: &[f64]) -> f64 {
    let max = row.iter().copied().fold(f64::NEG_INFINITY, f64::max);
    max + row.iter().map(|x| (x - max).exp()).sum::<f64>().ln()
}

pub(super) fn forward(node: &Node, op: &CrossEntropy, inputs: &[Tensor]) -> Result<Vec<Vec<f64>>> {
    let classes = inputs[0].shape.columns();
    let (logits, targets) = (&inputs[0].data, &inputs[1].data);
    let (first, kind) = (op.first_row.unwrap_or(0), (op.targets, &op.options));
    let (mut total, mut log_sums) = (0.0, Vec::new());
    for (index, row) in logits.chunks(classes).enumerate() {
        let log_sum = log_sum(row);
        log_sums.push(log_sum);
        if let Some(target) = target_of(node, kind, targets, first + index, classes)? {
            total += row.iter().zip(&target).map(|(x, t)| t * (log_sum - x)).sum::<f64>();
            total += f64::from(op.options.z_loss) * log_sum * log_sum;
        }
    }
    Ok(vec![vec![total / counted(kind, targets, classes)], log_sums])
}

/// The number of rows that are not ignored, at least 1.
fn counted((kind, options): (Targets, &CrossEntropyOptions), targets: &[f64], classes: usize) -> f64 {
    let count = match (kind, options.ignored_index) {
        (Targets::Hard, Some(ignored)) => targets.iter().filter(|&&target| target != f64::from(ignored)).count(),
        (Targets::Hard, None) => targets.len(),
        (Targets::Soft, _) => targets.len() / classes,
    };
    count.max(1) as f64
}

pub(super) fn gradient(node: &Node, op: &CrossEntropyGradient, inputs: &[Tensor]) -> Result<Vec<f64>> {
    let [d_loss, logits, targets] = [0, 1, 2].map(|i| &inputs[i].data);
    let classes = inputs[1].shape.columns();
    let rows = logits.len() / classes;
    let (first, kind) = (op.first_row.unwrap_or(0), (op.targets, &op.options));
    let counted = counted(kind, targets, classes);
    let mut out = vec![0.0; logits.len()];
    for row in 0..rows {
        let Some(target) = target_of(node, kind, targets, first + row, classes)? else { continue };
        let x = &logits[row * classes..(row + 1) * classes];
        let log_sum = log_sum(x);
        let total = target.iter().sum::<f64>() + 2.0 * f64::from(op.options.z_loss) * log_sum;
        for i in 0..classes {
            out[row * classes + i] = d_loss[0] / counted * ((x[i] - log_sum).exp() * total - target[i]);
        }
    }
    Ok(out)
}

pub(super) fn binary(sum_classes: bool, inputs: &[Tensor]) -> Vec<f64> {
    let each = inputs[0].data.iter().zip(&inputs[1].data);
    let sum: f64 = each.map(|(x, t)| x.max(0.0) - x * t + (-x.abs()).exp().ln_1p()).sum();
    vec![sum / BinaryCrossEntropy::count(sum_classes, &inputs[0].shape) as f64]
}

pub(super) fn binary_gradient(sum_classes: bool, inputs: &[Tensor]) -> Vec<f64> {
    let factor = inputs[0].data[0] / BinaryCrossEntropy::count(sum_classes, &inputs[1].shape) as f64;
    let each = inputs[1].data.iter().zip(&inputs[2].data);
    each.map(|(x, t)| factor * (1.0 / (1.0 + (-x).exp()) - t)).collect()
}
