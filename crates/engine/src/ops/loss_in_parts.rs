//! Cross-entropy of a linear layer's results, some rows at a time: the logits of a large vocabulary never exist for a whole batch.
//!
//! A batch of 32 x 1,024 tokens has 1.6 billion logits with GPT-2's vocabulary of 50,257, more than all of its activations. But a row's
//! loss and the gradient of its logits need no other row. So for each part of the rows the forward pass computes
//!
//! ```text
//! logits = x Wᵀ    loss += Σ -log p_t / n    d = (softmax(logits) - t) / n    dx = d W    dW += dᵀ x
//! ```
//!
//! and the part's logits are gone before the next part's are computed. The gradients are those of a loss that nothing follows, which is what
//! training differentiates. They are noted in the graph (`Graph::known_gradients`), and taking the gradient of that loss takes them;
//! where only the loss is asked for they are dead code. If the loss is scaled or is not the end of the graph, each part is differentiated
//! as any other node.
//!
//! Rows of W are padded to a multiple of 64, with logits of -1e30: a GPU's matrix multiplications of an odd number of columns are slow.

use crate::error::Result;
use crate::graph::{Graph, Value};
use crate::ops::{
    CrossEntropy, CrossEntropyGradient, CrossEntropyOptions, LinearInputGradient, LinearWeightGradient, Op, Targets,
};
use crate::types::DType;

/// Logits of one part, at most: 256 MiB in f32.
const MOST_LOGITS: usize = 1 << 26;
/// What the number of columns is padded to, unless it is a multiple of `ALIGNED` already.
const PADDED: usize = 64;
const ALIGNED: usize = 8;
/// The logit of a column that is padding: no exponential of it is above 0.
const NEVER: f32 = -1e30;

impl Graph {
    /// How many rows of the logits are computed at once; `None` if all are, since they are few or not the results of a linear layer.
    pub(crate) fn loss_rows_at_once(&self, logits: Value, targets: Value) -> Option<usize> {
        let shape = &self.nodes().get(logits.node())?.outputs.get(logits.output())?.shape;
        let is_linear = matches!(self.node(logits).op, Op::Linear(_));
        let is_hard = self.dtype_of(targets) == Some(DType::I32);
        if !is_linear || !is_hard || shape.rank() == 0 || shape.elements() <= MOST_LOGITS {
            return None;
        }
        let parts = shape.elements().div_ceil(MOST_LOGITS);
        Some(shape.rows().div_ceil(parts))
    }

    /// [`Graph::cross_entropy`] of the results `[.., classes]` of a linear layer without a bias, against hard targets, with logits of at
    /// most `rows_at_once` rows at a time in place of those that are given.
    ///
    /// # Panics
    /// Panics if the logits do not come from a linear layer, or if they are of another graph.
    pub fn cross_entropy_in_parts(
        &mut self,
        logits: Value,
        targets: Value,
        options: CrossEntropyOptions,
        rows_at_once: usize,
    ) -> Result<Value> {
        // What is wrong with the whole is said of the whole.
        self.cross_entropy_and_log_sums(logits, targets, options)?;
        let node = self.node(logits);
        assert!(matches!(node.op, Op::Linear(_)), "logits must come from a linear layer");
        let (x, weight) = (node.inputs[0], node.inputs[1]);
        self.scope("loss_in_parts", |graph| {
            let mut parts = Parts::new(graph, (x, weight), targets, options)?;
            for first in (0..parts.rows).step_by(rows_at_once.max(1)) {
                let end = (first + rows_at_once.max(1)).min(parts.rows);
                parts.add(graph, first, end)?;
            }
            parts.finish(graph, (x, weight))
        })
    }
}

/// What is shared by the parts, and what was gathered of them so far.
struct Parts {
    rows: usize,
    /// `[rows, dim]`.
    x: Value,
    /// `[classes, dim]`, padded.
    weight: Value,
    /// Of the columns, if some are padding: `[classes]`.
    bias: Option<Value>,
    targets: Value,
    options: CrossEntropyOptions,
    /// The gradient of the loss.
    one: Value,
    loss: Option<Value>,
    d_weight: Option<Value>,
    d_x: Vec<Value>,
}

impl Parts {
    fn new(
        graph: &mut Graph,
        (x, weight): (Value, Value),
        targets: Value,
        options: CrossEntropyOptions,
    ) -> Result<Parts> {
        let (rows, dim) = (graph.shape_of(x).rows(), graph.shape_of(x).columns());
        let classes = graph.shape_of(weight).axes()[0];
        // Smoothing gives every column a part of the target.
        let pads = !classes.is_multiple_of(ALIGNED) && options.label_smoothing == 0.0;
        let padded = if pads { classes.next_multiple_of(PADDED) } else { classes };
        let x = graph.reshape(x, [rows, dim])?;
        let (mut all_weight, mut bias) = (weight, None);
        if padded > classes {
            let zeros = graph.constant("zeros", [padded - classes, dim], vec![0.0; (padded - classes) * dim])?;
            all_weight = graph.concat(&[weight, zeros], 0)?;
            let of_column = |column: usize| if column < classes { 0.0 } else { NEVER };
            bias = Some(graph.constant("padding", [padded], (0..padded).map(of_column).collect())?);
        }
        let one = graph.constant("one", [], vec![1.0])?;
        let (loss, d_weight, d_x) = (None, None, Vec::new());
        Ok(Parts { rows, x, weight: all_weight, bias, targets, options, one, loss, d_weight, d_x })
    }

    fn add(&mut self, graph: &mut Graph, first: usize, end: usize) -> Result<()> {
        let (precision, options, targets) = (graph.precision(), self.options, Targets::Hard);
        let first_row = Some(first);
        let x = graph.slice(self.x, 0, first, end)?; // [part, dim]
        let logits = graph.linear(x, self.weight, self.bias)?; // [part, classes]
        let loss = graph.push(CrossEntropy { targets, options, first_row }, &[logits, self.targets])?;
        let log_sums = Value::new(loss.node(), 1); // [part]
        let gradient = CrossEntropyGradient { targets, options, first_row };
        let d_logits = graph.push(gradient, &[self.one, logits, self.targets, log_sums])?; // [part, classes]
        self.d_x.push(graph.push(LinearInputGradient { precision }, &[d_logits, self.weight])?);
        let d_weight = graph.push(LinearWeightGradient { precision, bias: false }, &[d_logits, x])?;
        let plus = |graph: &mut Graph, before: Option<Value>, value: Value| match before {
            Some(before) => graph.add(before, value),
            None => Ok(value),
        };
        self.d_weight = Some(plus(graph, self.d_weight, d_weight)?);
        self.loss = Some(plus(graph, self.loss, loss)?);
        Ok(())
    }

    /// The loss, with its gradients noted.
    fn finish(self, graph: &mut Graph, (x, weight): (Value, Value)) -> Result<Value> {
        let (Some(loss), Some(d_weight)) = (self.loss, self.d_weight) else {
            unreachable!("there is at least one part")
        };
        let d_x = graph.concat(&self.d_x, 0)?;
        let d_x = graph.reshape(d_x, graph.shape_of(x).clone())?;
        let d_weight = match self.bias {
            Some(_) => graph.slice(d_weight, 0, 0, graph.shape_of(weight).axes()[0])?,
            None => d_weight,
        };
        graph.known_gradients.insert(loss, vec![(x, d_x), (weight, d_weight)]);
        Ok(loss)
    }
}
