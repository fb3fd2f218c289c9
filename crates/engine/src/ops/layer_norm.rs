//! LayerNorm over the last axis: `y = γ · (x - mean) / √(var + ε) + β`, with the biased variance.
//!
//! | | |
//! |---|---|
//! | shapes | `x [.., n]`, `γ [n]`, `β [n]` (both or neither) give y of x's shape, and mean and 1/√(var + ε) per row |
//! | FLOPs | 8 per element, by convention; 14 for the gradient |
//! | gradients | with `x̂ = (x - mean) r`, `r = 1/√(var + ε)`, `g = γ dy`: `dx = r (g - mean(g) - x̂ mean(g x̂))`, `dγ = Σ dy x̂`, `dβ = Σ dy` over the rows |

use crate::error::Result;
use crate::gradient::Backward;
use crate::graph::{Graph, Value};
use crate::ops::{Broken, Rules, expect_float};
use crate::types::{DType, Shape, Type};

/// LayerNorm. Inputs: x, then γ and β if affine. Results: y, mean, 1/√(var + ε).
#[derive(Clone, Debug, PartialEq)]
pub struct LayerNorm {
    /// Added to the variance.
    pub eps: f32,
    /// Whether there are γ and β.
    pub affine: bool,
}

/// Its gradient. Inputs: dy, x, mean, 1/√(var + ε), then γ if affine. Results: dx, then dγ and dβ if affine.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerNormGradient {
    /// Whether there are γ and β.
    pub affine: bool,
}

pub(super) fn check_norm(inputs: &[Type], vectors: usize, eps: f32) -> Result<Shape, Broken> {
    let rule = || format!("takes x [.., n] and {vectors} vectors [n] of f32");
    let (x, rest) = inputs.split_first().ok_or_else(rule)?;
    expect_float(x)?;
    let vector = Shape::from([x.shape.columns()]);
    if x.shape.rank() == 0 || rest.len() != vectors || rest.iter().any(|v| v.shape != vector || v.dtype != DType::F32) {
        return Err(rule());
    }
    if !(eps.is_finite() && eps >= 0.0) {
        return Err(format!("eps must be finite and not negative, it is {eps}"));
    }
    Ok(Shape::new(&x.shape.axes()[..x.shape.rank() - 1]))
}

impl Rules for LayerNorm {
    fn name(&self) -> &'static str {
        "layer_norm"
    }

    fn infer(&self, inputs: &[Type]) -> Result<Vec<Type>, Broken> {
        let rows = check_norm(inputs, if self.affine { 2 } else { 0 }, self.eps)?;
        Ok(vec![Type::f32(inputs[0].shape.clone()), Type::f32(rows.clone()), Type::f32(rows)])
    }

    fn flops(&self, inputs: &[&Type], _outputs: &[Type]) -> u64 {
        8 * inputs[0].shape.elements() as u64
    }

    fn gradient(&self, backward: &mut Backward) -> Result<()> {
        let Some(dy) = backward.output_gradient(0) else { return Ok(()) };
        let mut inputs = vec![dy, backward.input(0)?, backward.output(1)?, backward.output(2)?];
        if self.affine {
            inputs.push(backward.input(1)?);
        }
        let dx = backward.graph().push(LayerNormGradient { affine: self.affine }, &inputs)?;
        backward.give_wanted(dx)
    }
}

impl Rules for LayerNormGradient {
    fn name(&self) -> &'static str {
        "layer_norm_gradient"
    }

    fn infer(&self, inputs: &[Type]) -> Result<Vec<Type>, Broken> {
        let x = inputs.get(1).ok_or("takes dy, x, mean, inverse deviation and γ")?;
        let vector = Type::f32([x.shape.columns()]);
        let mut outputs = vec![Type::new(x.shape.clone(), x.dtype)];
        if self.affine {
            outputs.extend([vector.clone(), vector]);
        }
        Ok(outputs)
    }

    fn flops(&self, inputs: &[&Type], _outputs: &[Type]) -> u64 {
        14 * inputs[0].shape.elements() as u64
    }
}

impl Graph {
    /// LayerNorm over the last axis with scale `gamma [n]` and shift `beta [n]`.
    pub fn layer_norm(&mut self, x: Value, gamma: Value, beta: Value, eps: f32) -> Result<Value> {
        self.push(LayerNorm { eps, affine: true }, &[x, gamma, beta])
    }

    /// LayerNorm over the last axis without scale and shift.
    pub fn layer_norm_plain(&mut self, x: Value, eps: f32) -> Result<Value> {
        self.push(LayerNorm { eps, affine: false }, &[x])
    }
}
