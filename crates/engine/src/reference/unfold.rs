//! Unfold and fold in naive f64.

use super::Tensor;
use crate::ops::{Fold, Unfold};

pub(super) fn unfold(op: &Unfold, x: &Tensor) -> Vec<f64> {
    let &[batch, time, channels] = x.shape.axes() else { return Vec::new() };
    let (kernel, stride, padding) = (op.sliding.kernel, op.sliding.stride, op.sliding.padding);
    let positions = (time + 2 * padding - kernel) / stride + 1;
    let mut out = Vec::new();
    for sample in 0..batch {
        for position in 0..positions {
            for channel in 0..channels {
                for k in 0..kernel {
                    let at = position * stride + k;
                    let inside = at >= padding && at - padding < time;
                    out.push(if inside { x.data[(sample * time + at - padding) * channels + channel] } else { 0.0 });
                }
            }
        }
    }
    out
}

pub(super) fn fold(op: &Fold, y: &Tensor) -> Vec<f64> {
    let &[batch, positions, columns] = y.shape.axes() else { return Vec::new() };
    let (kernel, stride, padding) = (op.sliding.kernel, op.sliding.stride, op.sliding.padding);
    let channels = columns / kernel;
    let mut out = vec![0.0; batch * op.time * channels];
    for sample in 0..batch {
        for position in 0..positions {
            for channel in 0..channels {
                for k in 0..kernel {
                    let at = position * stride + k;
                    if at >= padding && at - padding < op.time {
                        out[(sample * op.time + at - padding) * channels + channel] +=
                            y.data[(sample * positions + position) * columns + channel * kernel + k];
                    }
                }
            }
        }
    }
    out
}
