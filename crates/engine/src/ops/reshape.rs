//! Reshape: the same elements in the same order with other axes. It copies nothing: the result is a view of the input's
//! memory.
//!
//! | | |
//! |---|---|
//! | shapes | any with the same number of elements |
//! | FLOPs | 0 |
//! | gradients | `dx` is `dy` with x's axes |

use crate::error::Result;
use crate::gradient::Backward;
use crate::graph::{Graph, Value};
use crate::ops::{Broken, Rules, expect_inputs};
use crate::types::{Shape, Type};

/// The same elements with other axes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Reshape {
    /// The new axes.
    pub shape: Shape,
}

impl Rules for Reshape {
    fn name(&self) -> &'static str {
        "reshape"
    }

    fn infer(&self, inputs: &[Type]) -> Result<Vec<Type>, Broken> {
        let [x] = expect_inputs(inputs)?;
        if self.shape.checked_elements() != Some(x.shape.elements()) {
            return Err(format!("{} numbers do not fill the shape {}", x.shape.elements(), self.shape));
        }
        Ok(vec![Type::new(self.shape.clone(), x.dtype)])
    }

    fn gradient(&self, backward: &mut Backward) -> Result<()> {
        let shape = backward.input_type(0).shape.clone();
        backward.map_gradient(|graph, dy| graph.reshape(dy, shape))
    }
}

impl Graph {
    /// The same elements in the same order with other axes.
    pub fn reshape(&mut self, x: Value, shape: impl Into<Shape>) -> Result<Value> {
        self.push(Reshape { shape: shape.into() }, &[x])
    }
}
