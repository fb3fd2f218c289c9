//! Binary cross-entropy of logits against targets between 0 and 1, independently per class: for multi-label
//! classification.
//!
//! `l = max(x, 0) - x t + ln(1 + e^-|x|)`, which is `-t ln σ(x) - (1-t) ln(1-σ(x))` without overflow. The loss is the
//! mean over all elements, or the mean over rows of the sum over classes.
//!
//! | | |
//! |---|---|
//! | shapes | `logits [.., C]` and targets of the same shape give a scalar |
//! | FLOPs | 6 per element of the logits, by convention; 4 for the gradient |
//! | gradients | `(σ(x) - t) / count`; the targets have none |

use crate::error::Result;
use crate::gradient::Backward;
use crate::graph::{Graph, Value};
use crate::ops::{Broken, Rules, expect_float, expect_inputs};
use crate::types::{Shape, Type};

/// Inputs: logits, targets. Result: the loss.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BinaryCrossEntropy {
    /// Whether to sum over classes and average over rows only.
    pub sum_classes: bool,
}

/// Inputs: the loss's gradient (a scalar), logits, targets. Result: the logits' gradient.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct BinaryCrossEntropyGradient {
    /// Whether to sum over classes and average over rows only.
    pub sum_classes: bool,
}

impl BinaryCrossEntropy {
    /// The divisor of the sum over all elements.
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
    /// Binary cross-entropy of `logits [.., classes]` against targets of the same shape, averaged over all elements;
    /// with `sum_classes`, summed over classes and averaged over rows.
    pub fn binary_cross_entropy(&mut self, logits: Value, targets: Value, sum_classes: bool) -> Result<Value> {
        self.push(BinaryCrossEntropy { sum_classes }, &[logits, targets])
    }
}
