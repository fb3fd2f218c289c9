//! Linear: `y = x Wᵀ + b`, the weight stored as `[out, in]` as in PyTorch.
//!
//! | | |
//! |---|---|
//! | shapes | `x [.., in]`, `W [out, in]`, `b [out]` give `y [.., out]` |
//! | FLOPs | `2 · rows · in · out` (and `rows · out` for the bias, which is an add step) |
//! | gradients | `dx = dy W`, `dW = dyᵀ x`, `db = Σ dy` over the rows |
//!
//! With bf16 precision x, W and dy are rounded to bf16, products are accumulated in f32, y and dx are stored as bf16,
//! and dW is f32.

use crate::error::{Error, Result};
use crate::gradient::Backward;
use crate::graph::{Graph, Value};
use crate::ops::{Broken, Rules, expect_float, expect_inputs};
use crate::precision::Precision;
use crate::types::{DType, Shape, Type};

/// `y = x Wᵀ`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Linear {
    /// Precision of the multiplication.
    pub precision: Precision,
    /// Dtype of the result: f32 if a bias is added afterwards, so that the sum is rounded once.
    pub output: DType,
}

/// `dx = dy W`.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinearInputGradient {
    /// Precision of the multiplication.
    pub precision: Precision,
}

/// `dW = dyᵀ x` and, once the planner has fused it in, the bias gradient `db`, the sum of dy's rows, as a second
/// result.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct LinearWeightGradient {
    /// Precision of the multiplication.
    pub precision: Precision,
    /// Whether the bias gradient is computed in the same pass.
    pub bias: bool,
}

pub(crate) fn product_dtype(precision: Precision) -> DType {
    match precision {
        Precision::F32 => DType::F32,
        Precision::Bf16 => DType::Bf16,
    }
}

/// Checks `[.., columns]` against an axis of the weight.
fn product_shape(x: &Type, weight: &Type, contracted: usize, rule: &str) -> Result<Shape, Broken> {
    expect_float(x)?;
    expect_float(weight)?;
    match *weight.shape.axes() {
        [out, inner] if x.shape.rank() >= 1 && x.shape.columns() == [out, inner][contracted] => {
            Ok(x.shape.with_columns([out, inner][1 - contracted]))
        }
        _ => Err(rule.to_string()),
    }
}

impl Rules for Linear {
    fn name(&self) -> &'static str {
        "linear"
    }

    fn infer(&self, inputs: &[Type]) -> Result<Vec<Type>, Broken> {
        let [x, weight] = expect_inputs(inputs)?;
        let rule = "x must be [.., in] and the weight [out, in] with the same `in`";
        let shape = product_shape(x, weight, 1, rule)?;
        Ok(vec![Type::new(shape, self.output)])
    }

    fn flops(&self, inputs: &[&Type], _outputs: &[Type]) -> u64 {
        2 * inputs[0].shape.rows() as u64 * inputs[1].shape.elements() as u64
    }

    fn gradient(&self, backward: &mut Backward) -> Result<()> {
        let Some(dy) = backward.output_gradient(0) else { return Ok(()) };
        let precision = self.precision;
        if backward.wants(0) {
            let weight = backward.input(1)?;
            let dx = backward.graph().push(LinearInputGradient { precision }, &[dy, weight])?;
            backward.give(0, dx)?;
        }
        if backward.wants(1) {
            let x = backward.input(0)?;
            let dw = backward.graph().push(LinearWeightGradient { precision, bias: false }, &[dy, x])?;
            backward.give(1, dw)?;
        }
        Ok(())
    }
}

impl Rules for LinearInputGradient {
    fn name(&self) -> &'static str {
        "linear_input_gradient"
    }

    fn infer(&self, inputs: &[Type]) -> Result<Vec<Type>, Broken> {
        let [dy, weight] = expect_inputs(inputs)?;
        let shape = product_shape(dy, weight, 0, "dy must be [.., out] and the weight [out, in]")?;
        Ok(vec![Type::new(shape, product_dtype(self.precision))])
    }

    fn flops(&self, inputs: &[&Type], _outputs: &[Type]) -> u64 {
        2 * inputs[0].shape.rows() as u64 * inputs[1].shape.elements() as u64
    }
}

impl Rules for LinearWeightGradient {
    fn name(&self) -> &'static str {
        "linear_weight_gradient"
    }

    fn infer(&self, inputs: &[Type]) -> Result<Vec<Type>, Broken> {
        let [dy, x] = expect_inputs(inputs)?;
        if dy.shape.rank() == 0 || x.shape.rank() == 0 || dy.shape.rows() != x.shape.rows() {
            return Err("dy and x must have the same number of rows".to_string());
        }
        let mut outputs = vec![Type::f32([dy.shape.columns(), x.shape.columns()])];
        if self.bias {
            outputs.push(Type::f32([dy.shape.columns()]));
        }
        Ok(outputs)
    }

    fn flops(&self, inputs: &[&Type], outputs: &[Type]) -> u64 {
        let rows = inputs[0].shape.rows() as u64;
        let bias = if self.bias { inputs[0].shape.elements() as u64 } else { 0 };
        2 * rows * outputs[0].shape.elements() as u64 + bias
    }
}

impl Graph {
    /// `x Wᵀ + b`: `x [.., in]`, `weight [out, in]`, `bias [out]`.
    pub fn linear(&mut self, x: Value, weight: Value, bias: Option<Value>) -> Result<Value> {
        let precision = self.precision();
        if let Some(bias) = bias {
            self.check_bias(x, weight, bias)?;
        }
        let dtype = product_dtype(precision);
        let output = if bias.is_some() { DType::F32 } else { dtype };
        let y = self.push(Linear { precision, output }, &[x, weight])?;
        match bias {
            Some(bias) => self.add_bias(y, bias, dtype),
            None => Ok(y),
        }
    }

    /// A bias must be `[out]`: a scalar or a matrix would be valid for an add.
    fn check_bias(&self, x: Value, weight: Value, bias: Value) -> Result<()> {
        let of = |value: Value| self.nodes().get(value.node()).and_then(|node| node.outputs.get(value.output()));
        match (of(x), of(weight), of(bias)) {
            (Some(x), Some(weight), Some(bias))
                if Some(&bias.shape.columns()) != weight.shape.axes().first() || bias.shape.rank() != 1 =>
            {
                let inputs = vec![x.clone(), weight.clone(), bias.clone()];
                let rule = "the bias must be [out], as many as the weight [out, in] has rows".to_string();
                Err(Error::Rule { op: "linear", path: self.next_path("linear"), inputs, rule })
            }
            // Values of another graph are reported by the multiplication and the add.
            _ => Ok(()),
        }
    }
}
