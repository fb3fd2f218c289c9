//! Batched matrix multiplication: `y = A B`, optionally with either operand transposed.
//!
//! | | |
//! |---|---|
//! | shapes | `A [.., m, k]`, `B [.., k, n]` with equal leading axes give `[.., m, n]` (the last two axes of a transposed operand are swapped) |
//! | FLOPs | `2 · batch · m · n · k` |
//! | gradients | `dA = dy Bᵀ`, `dB = Aᵀ dy`, transposed if the operand was |

use crate::error::Result;
use crate::gradient::Backward;
use crate::graph::{Graph, Value};
use crate::ops::linear::product_dtype;
use crate::ops::{Broken, Rules, expect_float, expect_inputs};
use crate::precision::Precision;
use crate::types::{Shape, Type};

/// `y = A B`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MatMul {
    /// A is stored as `[.., k, m]`.
    pub transpose_a: bool,
    /// B is stored as `[.., n, k]`.
    pub transpose_b: bool,
    /// Precision of the multiplication.
    pub precision: Precision,
}

impl MatMul {
    /// (batch, m, n, k).
    pub(crate) fn sizes(&self, a: &Shape, b: &Shape) -> Option<(usize, usize, usize, usize)> {
        let (leading_a, &[mut m, mut k]) = a.axes().split_last_chunk::<2>()?;
        let (leading_b, &[mut inner, mut n]) = b.axes().split_last_chunk::<2>()?;
        if self.transpose_a {
            std::mem::swap(&mut m, &mut k);
        }
        if self.transpose_b {
            std::mem::swap(&mut inner, &mut n);
        }
        (leading_a == leading_b && inner == k).then(|| (leading_a.iter().product(), m, n, k))
    }
}

impl Rules for MatMul {
    fn name(&self) -> &'static str {
        "matmul"
    }

    fn infer(&self, inputs: &[Type]) -> Result<Vec<Type>, Broken> {
        let [a, b] = expect_inputs(inputs)?;
        expect_float(a)?;
        expect_float(b)?;
        let Some((_, m, n, _)) = self.sizes(&a.shape, &b.shape) else {
            let a = if self.transpose_a { "[.., k, m]" } else { "[.., m, k]" };
            let b = if self.transpose_b { "[.., n, k]" } else { "[.., k, n]" };
            return Err(format!("a must be {a} and b {b} with the same k and equal leading axes"));
        };
        let mut axes = a.shape.axes().to_vec();
        let rank = axes.len();
        axes[rank - 2] = m;
        axes[rank - 1] = n;
        Ok(vec![Type::new(Shape::new(axes), product_dtype(self.precision))])
    }

    fn flops(&self, inputs: &[&Type], _outputs: &[Type]) -> u64 {
        let (batch, m, n, k) = self.sizes(&inputs[0].shape, &inputs[1].shape).unwrap_or_default();
        2 * (batch * m * n) as u64 * k as u64
    }

    fn gradient(&self, backward: &mut Backward) -> Result<()> {
        let Some(dy) = backward.output_gradient(0) else { return Ok(()) };
        let precision = self.precision;
        let (ta, tb) = (self.transpose_a, self.transpose_b);
        if backward.wants(0) {
            let b = backward.input(1)?;
            let (inputs, transpose_a, transpose_b) = if ta { ([b, dy], tb, true) } else { ([dy, b], false, !tb) };
            let da = backward.graph().push(MatMul { transpose_a, transpose_b, precision }, &inputs)?;
            backward.give(0, da)?;
        }
        if backward.wants(1) {
            let a = backward.input(0)?;
            let (inputs, transpose_a, transpose_b) = if tb { ([dy, a], true, ta) } else { ([a, dy], !ta, false) };
            let db = backward.graph().push(MatMul { transpose_a, transpose_b, precision }, &inputs)?;
            backward.give(1, db)?;
        }
        Ok(())
    }
}

impl Graph {
    /// `A B` over equal leading axes; the last two axes of a transposed operand are swapped.
    pub fn matmul(&mut self, a: Value, b: Value, transpose_a: bool, transpose_b: bool) -> Result<Value> {
        let precision = self.precision();
        self.push(MatMul { transpose_a, transpose_b, precision }, &[a, b])
    }
}
