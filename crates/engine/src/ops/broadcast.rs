//! Broadcast: repeats a value over new leading axes. Sum over leading axes: the gradient of broadcast, and vice versa.
//!
//! | | |
//! |---|---|
//! | shapes | `[tail..]` gives `[leading.., tail..]`; the sum does the reverse |
//! | FLOPs | 0; the sum: 1 per element of its input |
//! | gradients | each is the other's |

use crate::error::Result;
use crate::gradient::Backward;
use crate::graph::{Graph, Value};
use crate::ops::{Broken, Rules, expect_float, expect_inputs};
use crate::types::{DType, Shape, Type};

/// Repeats a value over new leading axes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Broadcast {
    /// The result's shape.
    pub shape: Shape,
}

/// Sums over leading axes, in f32.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SumLeading {
    /// The result's shape: the remaining trailing axes.
    pub shape: Shape,
}

const RULE: &str = "the smaller shape must be the larger's trailing axes";

impl Rules for Broadcast {
    fn name(&self) -> &'static str {
        "broadcast"
    }

    fn infer(&self, inputs: &[Type]) -> Result<Vec<Type>, Broken> {
        let [x] = expect_inputs(inputs)?;
        expect_float(x)?;
        if !x.shape.is_suffix(&self.shape) {
            return Err(format!("{RULE}; asked for {}", self.shape));
        }
        Ok(vec![Type::new(self.shape.clone(), x.dtype)])
    }

    fn gradient(&self, backward: &mut Backward) -> Result<()> {
        let shape = backward.input_type(0).shape.clone();
        backward.map_gradient(|graph, dy| graph.sum_to(dy, &shape))
    }
}

impl Rules for SumLeading {
    fn name(&self) -> &'static str {
        "sum_leading"
    }

    fn infer(&self, inputs: &[Type]) -> Result<Vec<Type>, Broken> {
        let [x] = expect_inputs(inputs)?;
        expect_float(x)?;
        if !self.shape.is_suffix(&x.shape) {
            return Err(format!("{RULE}; asked for {}", self.shape));
        }
        Ok(vec![Type::new(self.shape.clone(), DType::F32)])
    }

    fn flops(&self, inputs: &[&Type], _outputs: &[Type]) -> u64 {
        inputs[0].shape.elements() as u64
    }

    fn gradient(&self, backward: &mut Backward) -> Result<()> {
        let shape = backward.input_type(0).shape.clone();
        backward.map_gradient(|graph, dy| graph.broadcast(dy, shape))
    }
}

impl Graph {
    /// Broadcasts `x` over new leading axes to `shape`.
    pub fn broadcast(&mut self, x: Value, shape: impl Into<Shape>) -> Result<Value> {
        self.push(Broadcast { shape: shape.into() }, &[x])
    }

    /// Sums `x` over its leading axes, down to `shape`, its trailing axes.
    pub fn sum_leading(&mut self, x: Value, shape: impl Into<Shape>) -> Result<Value> {
        self.push(SumLeading { shape: shape.into() }, &[x])
    }

    /// Sums over leading axes if there are any.
    pub(crate) fn sum_to(&mut self, x: Value, shape: &Shape) -> Result<Value> {
        if self.shape_of(x) == shape { Ok(x) } else { self.sum_leading(x, shape.clone()) }
    }
}
