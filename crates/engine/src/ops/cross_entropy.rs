//! Cross-entropy of logits against hard or soft targets, averaged over the rows that are not ignored.
//!
//! Hard targets t, label smoothing s, C classes: `loss = -(1-s) log p_t - s/C Σ log p_c`. Soft targets are smoothed as
//! `t (1-s) + s/C`, and `loss = -Σ t_c log p_c`. Rows whose hard target is the ignored index do not contribute; if all
//! rows are ignored, the loss is 0.
//!
//! | | |
//! |---|---|
//! | shapes | `logits [.., C]`, hard targets `[..]` (i32) or soft targets `[.., C]` give a scalar, and log Σ e^x per row |
//! | FLOPs | 5 per element of the logits, by convention; 4 for the gradient |
//! | gradients | of the loss `(softmax(x) Σt - t) / number of rows that are not ignored`, of the log-sum of a row `softmax(x)`; the targets have none |

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
}

/// Inputs: logits, targets. Results: the loss, and the log-sum of each row.
#[derive(Clone, Debug, PartialEq)]
pub struct CrossEntropy {
    /// Hard or soft.
    pub targets: Targets,
    /// Options.
    pub options: CrossEntropyOptions,
}

/// Inputs: the loss's gradient (a scalar), logits, targets, log-sums. Result: the logits' gradient.
#[derive(Clone, Debug, PartialEq)]
pub struct CrossEntropyGradient {
    /// Hard or soft.
    pub targets: Targets,
    /// Options.
    pub options: CrossEntropyOptions,
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
        match self.targets {
            Targets::Hard if targets.dtype != DType::I32 || targets.shape != rows => {
                return Err("hard targets must be i32, one a row of the logits".to_string());
            }
            Targets::Soft if !targets.dtype.is_float() || targets.shape != logits.shape => {
                return Err("soft targets must be floats of the logits' shape".to_string());
            }
            _ => {}
        }
        if !(0.0..1.0).contains(&self.options.label_smoothing) {
            return Err(format!("label smoothing must be in 0..1, it is {}", self.options.label_smoothing));
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
        self.log_sum_gradient(backward)?;
        let inputs = [backward.input(0)?, backward.input(1)?, backward.output(1)?];
        let op = CrossEntropyGradient { targets: self.targets, options: self.options };
        backward.map_gradient(|graph, d_loss| graph.push(op, &[d_loss, inputs[0], inputs[1], inputs[2]]))
    }
}

impl CrossEntropy {
    /// What the log-sums contribute to the gradient of the logits, where a loss depends on them: softmax, each row times
    /// its own number.
    fn log_sum_gradient(&self, backward: &mut Backward) -> Result<()> {
        let Some(d_log_sums) = backward.output_gradient(1).filter(|_| backward.wants(0)) else { return Ok(()) };
        let logits = backward.input(0)?;
        let graph = backward.graph();
        let shape = graph.shape_of(logits).clone();
        let (rows, classes) = (shape.rows(), shape.columns());
        let weights = graph.softmax(logits)?;
        let weights = graph.reshape(weights, [rows, classes])?;
        // A factor of each column is one of a vector; of each row it is one of the transpose.
        let columns = graph.transpose(weights, &[1, 0])?;
        let factors = graph.reshape(d_log_sums, [rows])?;
        let columns = graph.multiply(columns, factors)?;
        let weights = graph.transpose(columns, &[1, 0])?;
        let weights = graph.reshape(weights, shape)?;
        backward.give(0, weights)
    }
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
        let hard = self.dtype_of(targets) == Some(DType::I32);
        let kind = if hard { Targets::Hard } else { Targets::Soft };
        self.push(CrossEntropy { targets: kind, options }, &[logits, targets])
    }

    /// As [`Graph::cross_entropy`], and log Σ e^x of each row of the logits `[..]`: less the logit of a row's target, it is the loss of
    /// that row.
    pub fn cross_entropy_and_log_sums(
        &mut self,
        logits: Value,
        targets: Value,
        options: CrossEntropyOptions,
    ) -> Result<(Value, Value)> {
        let loss = self.cross_entropy(logits, targets, options)?;
        Ok((loss, Value::new(loss.node(), 1)))
    }
}
