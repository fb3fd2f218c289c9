//! Softmax over the last axis: `y = e^(x - max) / Σ e^(x - max)`. A row in which every element is minus infinity gives
//! zeros.
//!
//! | | |
//! |---|---|
//! | shapes | y has x's shape, in f32 |
//! | FLOPs | 5 per element, by convention; 4 for the gradient |
//! | gradients | `dx = y (dy - Σ y dy)` |

use crate::error::Result;
use crate::gradient::Backward;
use crate::graph::{Graph, Value};
use crate::ops::{Broken, Rules, expect_float, expect_inputs};
use crate::types::Type;

/// Softmax over the last axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Softmax;

/// Its gradient. Inputs: dy, y.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct SoftmaxGradient;

impl Rules for Softmax {
    fn name(&self) -> &'static str {
        "softmax"
    }

    fn infer(&self, inputs: &[Type]) -> Result<Vec<Type>, Broken> {
        let [x] = expect_inputs(inputs)?;
        expect_float(x)?;
        if x.shape.rank() == 0 {
            return Err("needs at least one axis".to_string());
        }
        Ok(vec![Type::f32(x.shape.clone())])
    }

    fn flops(&self, inputs: &[&Type], _outputs: &[Type]) -> u64 {
        5 * inputs[0].shape.elements() as u64
    }

    fn gradient(&self, backward: &mut Backward) -> Result<()> {
        let y = backward.output(0)?;
        backward.map_gradient(|graph, dy| graph.push(SoftmaxGradient, &[dy, y]))
    }
}

impl Rules for SoftmaxGradient {
    fn name(&self) -> &'static str {
        "softmax_gradient"
    }

    fn infer(&self, inputs: &[Type]) -> Result<Vec<Type>, Broken> {
        let [dy, y] = expect_inputs(inputs)?;
        if dy.shape != y.shape {
            return Err("dy and y must be of one shape".to_string());
        }
        Ok(vec![Type::f32(y.shape.clone())])
    }

    fn flops(&self, inputs: &[&Type], _outputs: &[Type]) -> u64 {
        4 * inputs[0].shape.elements() as u64
    }
}

impl Graph {
    /// Softmax over the last axis.
    pub fn softmax(&mut self, x: Value) -> Result<Value> {
        self.push(Softmax, &[x])
    }
}
