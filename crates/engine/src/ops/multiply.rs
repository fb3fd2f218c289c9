//! Multiply: `y = a · b` elementwise, the smaller operand broadcast over the larger's leading axes.
//!
//! | | |
//! |---|---|
//! | shapes | one of `a`, `b` has the other's shape or its trailing axes |
//! | FLOPs | 1 per element |
//! | gradients | `da = dy · b`, `db = dy · a`, summed over the broadcast axes |

use crate::error::Result;
use crate::gradient::Backward;
use crate::graph::{Graph, Value};
use crate::ops::Step;

pub(super) fn gradient(backward: &mut Backward) -> Result<()> {
    let Some(dy) = backward.output_gradient(0) else { return Ok(()) };
    if backward.wants(0) {
        let b = backward.input(1)?;
        let da = backward.graph().multiply(dy, b)?;
        backward.give(0, da)?;
    }
    if backward.wants(1) {
        let a = backward.input(0)?;
        let shape = backward.input_type(1).shape.clone();
        let product = backward.graph().multiply(dy, a)?;
        let db = backward.graph().sum_to(product, &shape)?;
        backward.give(1, db)?;
    }
    Ok(())
}

impl Graph {
    /// `a · b` elementwise; one may have the other's trailing axes only.
    pub fn multiply(&mut self, a: Value, b: Value) -> Result<Value> {
        self.binary(Step::Multiply { input: 1 }, a, b)
    }
}
