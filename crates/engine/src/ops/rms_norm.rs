//! RMSNorm over the last axis: `y = γ · x / √(mean(x²) + ε)`.
//!
//! | | |
//! |---|---|
//! | shapes | `x [.., n]`, `γ [n]` give y of x's shape, and 1/√(mean(x²) + ε) per row |
//! | FLOPs | 5 per element, by convention; 10 for the gradient |
//! | gradients | with `r = 1/√(mean(x²) + ε)`, `x̂ = x r`, `g = γ dy`: `dx = r (g - x̂ mean(g x̂))`, `dγ = Σ dy x̂` over the rows |

use crate::error::Result;
use crate::gradient::Backward;
use crate::graph::{Graph, Value};
use crate::ops::layer_norm::check_norm;
use crate::ops::{Broken, Rules};
use crate::types::Type;

/// RMSNorm. Inputs: x, γ. Results: y, 1/√(mean(x²) + ε).
#[derive(Clone, Debug, PartialEq)]
pub struct RmsNorm {
    /// Added to the mean square.
    pub eps: f32,
}

/// Its gradient. Inputs: dy, x, 1/√(mean(x²) + ε), γ. Results: dx, dγ.
#[derive(Clone, Debug, PartialEq)]
pub struct RmsNormGradient;

impl Rules for RmsNorm {
    fn name(&self) -> &'static str {
        "rms_norm"
    }

    fn infer(&self, inputs: &[Type]) -> Result<Vec<Type>, Broken> {
        let rows = check_norm(inputs, 1, self.eps)?;
        Ok(vec![Type::f32(inputs[0].shape.clone()), Type::f32(rows)])
    }

    fn flops(&self, inputs: &[&Type], _outputs: &[Type]) -> u64 {
        5 * inputs[0].shape.elements() as u64
    }

    fn gradient(&self, backward: &mut Backward) -> Result<()> {
        let Some(dy) = backward.output_gradient(0) else { return Ok(()) };
        let inputs = [dy, backward.input(0)?, backward.output(1)?, backward.input(1)?];
        let dx = backward.graph().push(RmsNormGradient, &inputs)?;
        backward.give_wanted(dx)
    }
}

impl Rules for RmsNormGradient {
    fn name(&self) -> &'static str {
        "rms_norm_gradient"
    }

    fn infer(&self, inputs: &[Type]) -> Result<Vec<Type>, Broken> {
        let x = inputs.get(1).ok_or("takes dy, x, inverse root mean square and γ")?;
        Ok(vec![Type::new(x.shape.clone(), x.dtype), Type::f32([x.shape.columns()])])
    }

    fn flops(&self, inputs: &[&Type], _outputs: &[Type]) -> u64 {
        10 * inputs[0].shape.elements() as u64
    }
}

impl Graph {
    /// RMSNorm over the last axis with scale `gamma [n]`.
    pub fn rms_norm(&mut self, x: Value, gamma: Value, eps: f32) -> Result<Value> {
        self.push(RmsNorm { eps }, &[x, gamma])
    }
}
