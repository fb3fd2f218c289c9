//! Cross-entropy of logits against hard or soft targets, averaged over the rows that are not ignored.
//!
//! Hard targets t, label smoothing s, C classes: `loss = -(1-s) log p_t - s/C Σ log p_c`. Soft targets are smoothed as
//! `t (1-s) + s/C`, and `loss = -Σ t_c log p_c`. Rows whose hard target is the ignored index do not contribute; if all
//! rows are ignored, the loss is 0. With a factor z for the z-loss of PaLM (Chowdhery et al. 2022, section 5), which keeps logits
//! from drifting, `z (log Σ e^x)²` is added to the loss of each row.
//!
//! | | |
//! |---|---|
//! | shapes | `logits [.., C]`, hard targets `[..]` (i32) or soft targets `[.., C]` give a scalar, and log Σ e^x per row |
//! | FLOPs | 5 per element of the logits, by convention; 4 for the gradient |
//! | gradients | `(softmax(x) (Σt + 2 z log Σ e^x) - t) / number of rows that are not ignored`; targets and log-sums have none |
//!
//! The logits of a large vocabulary are larger than everything else in a training step. If they come from a linear layer, they
//! are never all stored: see [`crate::ops::loss_in_parts`].

use crate::error::Result;
use crate::gradient::Backward;
use crate::graph::{Graph, Value};
use crate::ops::{Broken, Rules, expect_float, expect_inputs};
use crate::types::{DType, Shape, Type};

/// The form of the targets.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Targets {
    /// One class index per row, i32.
    Hard,
    /// A distribution over classes per row.
    Soft,
}

/// Options of the loss.
#[derive(Clone, Copy, Debug, PartialEq, Default)]
pub struct CrossEntropyOptions {
    /// Label smoothing: the share of each target that is spread over all classes.
    pub label_smoothing: f32,
    /// Rows with this hard target are ignored.
    pub ignored_index: Option<i32>,
    /// Factor of the squared log-sum of each row.
    pub z_loss: f32,
}

/// Inputs: logits, targets. Results: the loss, and the log-sum of each row.
#[derive(Clone, Debug, PartialEq)]
pub struct CrossEntropy {
    /// Hard or soft.
    pub targets: Targets,
    /// Options.
    pub options: CrossEntropyOptions,
    /// If the logits `[rows, C]` are only a part of those that the hard targets are for: the target of their first row. The loss is what
    /// these rows contribute to the mean over all targets.
    pub first_row: Option<usize>,
}

/// Inputs: the loss's gradient (a scalar), logits, targets, log-sums. Result: the logits' gradient.
#[derive(Clone, Debug, PartialEq)]
pub struct CrossEntropyGradient {
    /// Hard or soft.
    pub targets: Targets,
    /// Options.
    pub options: CrossEntropyOptions,
    /// As in [`CrossEntropy`].
    pub first_row: Option<usize>,
}

impl Rules for CrossEntropy {
    fn name(&self) -> &'static str {
        "cross_entropy"
    }

    fn infer(&self, inputs: &[Type]) -> Result<Vec<Type>, Broken> {
        let [logits, targets] = expect_inputs(inputs)?;
        expect_float(logits)?;
        if logits.shape.rank() == 0 {
            return Err("logits must be [.., classes]".to_string());
        }
        let rows = Shape::new(&logits.shape.axes()[..logits.shape.rank() - 1]);
        match (self.targets, self.first_row) {
            (Targets::Hard, None) if targets.dtype != DType::I32 || targets.shape != rows => {
                return Err("hard targets must be i32, one per row of the logits".to_string());
            }
            (Targets::Hard, Some(first)) if !is_part(logits, targets, first) => {
                return Err(format!("hard targets must be i32, and more than {first} and the rows of the logits"));
            }
            (Targets::Soft, None) if !targets.dtype.is_float() || targets.shape != logits.shape => {
                return Err("soft targets must be floats of the logits' shape".to_string());
            }
            (Targets::Soft, Some(_)) => return Err("soft targets are for all logits".to_string()),
            _ => {}
        }
        if !(0.0..1.0).contains(&self.options.label_smoothing) {
            return Err(format!("label smoothing must be in 0..1, it is {}", self.options.label_smoothing));
        }
        if !self.options.z_loss.is_finite() || self.options.z_loss < 0.0 {
            return Err(format!("the factor of the z-loss must be 0 or more, it is {}", self.options.z_loss));
        }
        Ok(vec![Type::f32(Shape::scalar()), Type::f32(rows)])
    }

    fn flops(&self, inputs: &[&Type], _outputs: &[Type]) -> u64 {
        5 * inputs[0].shape.elements() as u64
    }

    fn gradient(&self, backward: &mut Backward) -> Result<()> {
        if backward.wants(1) {
            return backward.refuse("targets have no gradient");
        }
        if backward.output_gradient(1).is_some() {
            return backward.refuse("log-sums have no gradient; their squares are part of the loss with `z_loss`");
        }
        let inputs = [backward.input(0)?, backward.input(1)?, backward.output(1)?];
        let CrossEntropy { targets, options, first_row } = self.clone();
        let op = CrossEntropyGradient { targets, options, first_row };
        backward.map_gradient(|graph, d_loss| graph.push(op, &[d_loss, inputs[0], inputs[1], inputs[2]]))
    }
}

/// Whether logits `[rows, C]` belong to `rows` of the targets, from this one on.
fn is_part(logits: &Type, targets: &Type, first: usize) -> bool {
    let end = first.checked_add(logits.shape.rows());
    targets.dtype == DType::I32 && end.is_some_and(|end| end <= targets.shape.elements())
}

impl Rules for CrossEntropyGradient {
    fn name(&self) -> &'static str {
        "cross_entropy_gradient"
    }

    fn infer(&self, inputs: &[Type]) -> Result<Vec<Type>, Broken> {
        let [_, logits, _, _] = expect_inputs(inputs)?;
        Ok(vec![logits.clone()])
    }

    fn flops(&self, inputs: &[&Type], _outputs: &[Type]) -> u64 {
        4 * inputs[1].shape.elements() as u64
    }
}

impl Graph {
    /// Mean cross-entropy of `logits [.., classes]` against hard targets (i32 `[..]`) or soft ones (`[.., classes]`).
    pub fn cross_entropy(&mut self, logits: Value, targets: Value, options: CrossEntropyOptions) -> Result<Value> {
        match self.loss_rows_at_once(logits, targets) {
            Some(rows) => self.cross_entropy_in_parts(logits, targets, options, rows),
            None => Ok(self.cross_entropy_and_log_sums(logits, targets, options)?.0),
        }
    }

    /// As [`Graph::cross_entropy`], and log Σ e^x of each row of the logits `[..]`: less the logit of a row's target, it is the loss of
    /// that row.
    pub fn cross_entropy_and_log_sums(
        &mut self,
        logits: Value,
        targets: Value,
        options: CrossEntropyOptions,
    ) -> Result<(Value, Value)> {
        let hard = self.dtype_of(targets) == Some(DType::I32);
        let kind = if hard { Targets::Hard } else { Targets::Soft };
        let loss = self.push(CrossEntropy { targets: kind, options, first_row: None }, &[logits, targets])?;
        Ok((loss, Value::new(loss.node(), 1)))
    }
}
