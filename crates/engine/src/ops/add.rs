//! Add: `y = a + b`, the smaller operand broadcast over the larger's leading axes.
//!
//! | | |
//! |---|---|
//! | shapes | one of `a`, `b` has the other's shape or its trailing axes |
//! | FLOPs | 1 per element |
//! | gradients | `da = dy`, `db = dy`, summed over the broadcast axes |

use crate::error::Result;
use crate::gradient::Backward;
use crate::graph::{Graph, Value, wider};
use crate::ops::{Op, Pointwise, Step};
use crate::types::DType;

pub(super) fn gradient(backward: &mut Backward) -> Result<()> {
    let Some(dy) = backward.output_gradient(0) else { return Ok(()) };
    if backward.wants(0) {
        backward.give(0, dy)?;
    }
    if backward.wants(1) {
        let shape = backward.input_type(1).shape.clone();
        let db = backward.graph().sum_to(dy, &shape)?;
        backward.give(1, db)?;
    }
    Ok(())
}

impl Graph {
    /// `a + b`; one may have the other's trailing axes only.
    pub fn add(&mut self, a: Value, b: Value) -> Result<Value> {
        self.binary(Step::Add { input: 1 }, a, b)
    }

    /// Adds a bias and stores the result in the dtype of matrix multiplications.
    pub(crate) fn add_bias(&mut self, y: Value, bias: Value, dtype: DType) -> Result<Value> {
        self.add_op(Op::Pointwise(Pointwise { dtype }), &[y, bias], vec![Step::Add { input: 1 }])
    }

    /// A commutative step on two values, the larger first.
    pub(super) fn binary(&mut self, step: Step, a: Value, b: Value) -> Result<Value> {
        let known = |value: Value| self.dtype_of(value).is_some();
        // A value of another graph is reported by the check of the inputs.
        let (large, small, dtype) = if known(a) && known(b) {
            let swap = self.shape_of(a).rank() < self.shape_of(b).rank();
            let dtype = wider(self.type_of(a).dtype, self.type_of(b).dtype);
            if swap { (b, a, dtype) } else { (a, b, dtype) }
        } else {
            (a, b, DType::F32)
        };
        self.add_op(Op::Pointwise(Pointwise { dtype }), &[large, small], vec![step])
    }

    /// A step on one value, stored in the value's own dtype.
    pub(crate) fn unary(&mut self, step: Step, x: Value) -> Result<Value> {
        let dtype = self.dtype_of(x).unwrap_or(DType::F32);
        self.add_op(Op::Pointwise(Pointwise { dtype }), &[x], vec![step])
    }
}
