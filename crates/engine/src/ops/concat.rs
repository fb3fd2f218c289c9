//! Concatenation along one axis.
//!
//! | | |
//! |---|---|
//! | shapes | equal except for the axis, whose sizes add up |
//! | FLOPs | 0 |
//! | gradients | each input gets its slice of dy |

use crate::error::Result;
use crate::gradient::Backward;
use crate::graph::{Graph, Value, wider};
use crate::ops::{Broken, Rules};
use crate::types::{Shape, Type};

/// Concatenates values along an axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Concat {
    /// The axis.
    pub axis: usize,
}

impl Rules for Concat {
    fn name(&self) -> &'static str {
        "concat"
    }

    fn infer(&self, inputs: &[Type]) -> Result<Vec<Type>, Broken> {
        let first = inputs.first().ok_or("needs at least one input")?;
        if self.axis >= first.shape.rank() {
            return Err(format!("there is no axis {}", self.axis));
        }
        let mut axes = first.shape.axes().to_vec();
        let mut dtype = first.dtype;
        for other in &inputs[1..] {
            let same = other.shape.rank() == axes.len()
                && (0..axes.len()).all(|axis| axis == self.axis || other.shape.axes()[axis] == axes[axis]);
            if !same || other.dtype.is_float() != dtype.is_float() {
                return Err(format!("shapes must be equal but for axis {}", self.axis));
            }
            let size = axes[self.axis].checked_add(other.shape.axes()[self.axis]);
            axes[self.axis] = size.ok_or("the axis would overflow")?;
            dtype = wider(dtype, other.dtype);
        }
        Ok(vec![Type::new(Shape::new(axes), dtype)])
    }

    fn gradient(&self, backward: &mut Backward) -> Result<()> {
        let Some(dy) = backward.output_gradient(0) else { return Ok(()) };
        let mut start = 0;
        for index in 0..backward.input_count() {
            let size = backward.input_type(index).shape.axes()[self.axis];
            if backward.wants(index) {
                let part = backward.graph().slice(dy, self.axis, start, start + size)?;
                backward.give(index, part)?;
            }
            start += size;
        }
        Ok(())
    }
}

impl Graph {
    /// Concatenates the values along `axis`.
    pub fn concat(&mut self, values: &[Value], axis: usize) -> Result<Value> {
        self.push(Concat { axis }, values)
    }
}
