//! Pooling over tokens, the second-to-last axis: mean and maximum.
//!
//! | | |
//! |---|---|
//! | shapes | `[.., tokens, n]` gives `[.., n]`; the maximum also gives its token index, the first of equals |
//! | FLOPs | 1 per element of the input |
//! | gradients | mean: `dy / tokens` for every token; maximum: dy for the token with the maximum, 0 for the others |

use crate::error::Result;
use crate::gradient::Backward;
use crate::graph::{Graph, Value};
use crate::ops::{Broken, Rules, expect_float, expect_inputs};
use crate::types::{DType, Shape, Type};

/// Mean over tokens.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeanTokens;

/// Its gradient. Input: dy.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MeanTokensGradient {
    /// Number of tokens.
    pub tokens: usize,
}

/// Maximum over tokens. Results: the maxima, and their token indices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaxTokens;

/// Its gradient. Inputs: dy, and the token indices of the maxima.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct MaxTokensGradient {
    /// Number of tokens.
    pub tokens: usize,
}

fn pooled(inputs: &[Type]) -> Result<Shape, Broken> {
    let [x] = expect_inputs(inputs)?;
    expect_float(x)?;
    let Some((leading, &[_, n])) = x.shape.axes().split_last_chunk::<2>() else {
        return Err("needs [.., tokens, n]".to_string());
    };
    Ok(Shape::new([leading, &[n]].concat()))
}

fn unpooled(dy: &Type, tokens: usize) -> Shape {
    let mut axes = dy.shape.axes().to_vec();
    axes.insert(axes.len().saturating_sub(1), tokens);
    Shape::new(axes)
}

impl Rules for MeanTokens {
    fn name(&self) -> &'static str {
        "mean_tokens"
    }

    fn infer(&self, inputs: &[Type]) -> Result<Vec<Type>, Broken> {
        Ok(vec![Type::f32(pooled(inputs)?)])
    }

    fn flops(&self, inputs: &[&Type], _outputs: &[Type]) -> u64 {
        inputs[0].shape.elements() as u64
    }

    fn gradient(&self, backward: &mut Backward) -> Result<()> {
        let shape = &backward.input_type(0).shape;
        let tokens = shape.axes()[shape.rank() - 2];
        backward.map_gradient(|graph, dy| graph.push(MeanTokensGradient { tokens }, &[dy]))
    }
}

impl Rules for MeanTokensGradient {
    fn name(&self) -> &'static str {
        "mean_tokens_gradient"
    }

    fn infer(&self, inputs: &[Type]) -> Result<Vec<Type>, Broken> {
        let [dy] = expect_inputs(inputs)?;
        Ok(vec![Type::new(unpooled(dy, self.tokens), dy.dtype)])
    }

    fn flops(&self, _inputs: &[&Type], outputs: &[Type]) -> u64 {
        outputs[0].shape.elements() as u64
    }
}

impl Rules for MaxTokens {
    fn name(&self) -> &'static str {
        "max_tokens"
    }

    fn infer(&self, inputs: &[Type]) -> Result<Vec<Type>, Broken> {
        let shape = pooled(inputs)?;
        Ok(vec![Type::f32(shape.clone()), Type::new(shape, DType::I32)])
    }

    fn flops(&self, inputs: &[&Type], _outputs: &[Type]) -> u64 {
        inputs[0].shape.elements() as u64
    }

    fn gradient(&self, backward: &mut Backward) -> Result<()> {
        let shape = &backward.input_type(0).shape;
        let tokens = shape.axes()[shape.rank() - 2];
        let winners = backward.output(1)?;
        backward.map_gradient(|graph, dy| graph.push(MaxTokensGradient { tokens }, &[dy, winners]))
    }
}

impl Rules for MaxTokensGradient {
    fn name(&self) -> &'static str {
        "max_tokens_gradient"
    }

    fn infer(&self, inputs: &[Type]) -> Result<Vec<Type>, Broken> {
        let [dy, winners] = expect_inputs(inputs)?;
        if dy.shape != winners.shape || winners.dtype != DType::I32 {
            return Err("dy and the winners must be of one shape".to_string());
        }
        Ok(vec![Type::new(unpooled(dy, self.tokens), dy.dtype)])
    }
}

impl Graph {
    /// Mean over the tokens of `[.., tokens, n]`.
    pub fn mean_tokens(&mut self, x: Value) -> Result<Value> {
        self.push(MeanTokens, &[x])
    }

    /// Maximum over the tokens of `[.., tokens, n]`.
    pub fn max_tokens(&mut self, x: Value) -> Result<Value> {
        self.push(MaxTokens, &[x])
    }
}
