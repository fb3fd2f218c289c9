//! Binary cross-entropy of logits against targets from 0 to 1, each class by itself: for images that may show several things.
//!
//! `l = max(x, 0) - x t + ln(1 + e^-|x|)`, which is `-t ln σ(x) - (1-t) ln(1-σ(x))` without overflow. The loss is the mean over
//! all numbers, or the mean over rows of the sum over classes.
//!
//! | | |
//! |---|---|
//! | shapes | `logits [.., C]` and targets of the same shape give a single number |
//! | FLOPs | 6 per element of the logits, by convention; the gradient 4 |
//! | gradients | `(σ(x) - t) / count`; the targets have none |

use crate::error::Result;
use crate::gradient::Backward;
use crate::graph::{Graph, Value};
use crate::ops::{Broken, Rules, expect_float, expect_inputs};
use crate::types::{Shape, Type};

/// Inputs: logits, targets. Result: the loss.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BinaryCrossEntropy {
    /// Whether classes are summed, and only rows averaged.
    pub sum_classes: bool,
}

/// Inputs: the loss's gradient (a single number), logits, targets. Result: the logits' gradient.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BinaryCrossEntropyGradient {
    /// Whether classes are summed, and only rows averaged.
    pub sum_classes: bool,
}

impl BinaryCrossEntropy {
    /// What the sum over all numbers is divided by.
    pub(crate) fn count(sum_classes: bool, logits: &Shape) -> usize {
        if sum_classes { logits.rows() } else { logits.elements() }
    }
}

impl Rules for BinaryCrossEntropy {
    fn name(&self) -> &'static str {
        "binary_cross_entropy"
    }

    fn infer(&self, inputs: &[Type]) -> Result<Vec<Type>, Broken> {
        let [logits, targets] = expect_inputs(inputs)?;
        expect_float(logits)?;
        if !targets.dtype.is_float() || targets.shape != logits.shape || logits.shape.rank() == 0 {
            return Err("logits must be [.., classes], and targets floats of the same shape".to_string());
        }
        Ok(vec![Type::f32(Shape::scalar())])
    }

    fn flops(&self, inputs: &[&Type], _outputs: &[Type]) -> u64 {
        6 * inputs[0].shape.elements() as u64
    }

    fn gradient(&self, backward: &mut Backward) -> Result<()> {
        if backward.wants(1) {
            return backward.refuse("targets have no gradient");
        }
        let (logits, targets) = (backward.input(0)?, backward.input(1)?);
        let op = BinaryCrossEntropyGradient { sum_classes: self.sum_classes };
        backward.map_gradient(|graph, d_loss| graph.push(op, &[d_loss, logits, targets]))
    }
}

impl Rules for BinaryCrossEntropyGradient {
    fn name(&self) -> &'static str {
        "binary_cross_entropy_gradient"
    }

    fn infer(&self, inputs: &[Type]) -> Result<Vec<Type>, Broken> {
        let [_, logits, _] = expect_inputs(inputs)?;
        Ok(vec![logits.clone()])
    }

    fn flops(&self, inputs: &[&Type], _outputs: &[Type]) -> u64 {
        4 * inputs[1].shape.elements() as u64
    }
}

impl Graph {
    /// Binary cross-entropy of `logits [.., classes]` against targets of the same shape, averaged over all numbers; with `sum_classes`,
    /// classes are summed and rows averaged.
    pub fn binary_cross_entropy(&mut self, logits: Value, targets: Value, sum_classes: bool) -> Result<Value> {
        self.push(BinaryCrossEntropy { sum_classes }, &[logits, targets])
    }
}
