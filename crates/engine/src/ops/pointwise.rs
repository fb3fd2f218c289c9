//! Pointwise: a list of elementwise steps on a value. The builder adds nodes with one step each; the planner fuses
//! them.
//!
//! | | |
//! |---|---|
//! | shapes | the result has the first input's shape; further inputs have that shape or its trailing axes |
//! | FLOPs | per element, by step |
//! | gradients | by step, in the step's file |

use crate::error::Result;
use crate::gradient::Backward;
use crate::ops::{
    Activation, Broken, Drop, Rules, activation, add, dropout, expect_float, multiply, scale, stochastic_depth,
};
use crate::types::{DType, Type};

/// The steps of its node, applied to the first input.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pointwise {
    /// Dtype of the result.
    pub dtype: DType,
}

/// One elementwise step on the running value `v`. `input` is an index into the node's inputs.
#[derive(Clone, Debug, PartialEq)]
pub enum Step {
    /// `v + input`
    Add {
        /// The addend, with v's shape or its trailing axes.
        input: usize,
    },
    /// `v · input`
    Multiply {
        /// The factor, with v's shape or its trailing axes.
        input: usize,
    },
    /// `v · factor`
    Scale(f32),
    /// `f(v)`
    Activation(Activation),
    /// `v · f'(input)`
    ActivationGradient {
        /// Which f.
        activation: Activation,
        /// The input of f.
        input: usize,
    },
    /// Zeroes values at random and scales the others.
    Dropout(Drop),
    /// `f(v) · mask`; stores `f'(v) · mask`, which is all that the backward pass needs, as an additional output.
    DroppedActivation {
        /// Which f.
        activation: Activation,
        /// The mask, of 0 and 1/(1 - rate).
        drop: Drop,
        /// Index of the additional output in the node's outputs.
        slope: usize,
    },
    /// Zeroes whole samples (first axis) at random and scales the others.
    StochasticDepth(Drop),
    /// Rounds v to bf16. The f64 reference, which has no dtypes, skips it.
    Round,
    /// Stores v as an additional output.
    Store {
        /// Index into the node's outputs.
        output: usize,
    },
}

impl Step {
    /// Its name in paths, plans and errors.
    pub fn name(&self) -> &'static str {
        match self {
            Step::Add { .. } => "add",
            Step::Multiply { .. } => "multiply",
            Step::Scale(_) => "scale",
            Step::Activation(activation) => activation.name(),
            Step::ActivationGradient { activation, .. } => activation.gradient_name(),
            Step::Dropout(_) => "dropout",
            Step::DroppedActivation { .. } => "dropped_activation",
            Step::StochasticDepth(_) => "stochastic_depth",
            Step::Round => "round",
            Step::Store { .. } => "store",
        }
    }

    /// The additional input that it reads.
    pub(crate) fn input(&self) -> Option<usize> {
        match *self {
            Step::Add { input } | Step::Multiply { input } | Step::ActivationGradient { input, .. } => Some(input),
            _ => None,
        }
    }

    pub(crate) fn set_input(&mut self, new: usize) {
        if let Step::Add { input } | Step::Multiply { input } | Step::ActivationGradient { input, .. } = self {
            *input = new;
        }
    }

    pub(crate) fn flops_per_element(&self) -> u64 {
        match self {
            Step::Activation(activation) => activation.flops(),
            Step::ActivationGradient { activation, .. } => activation.flops() + 1,
            Step::DroppedActivation { activation, .. } => 2 * (activation.flops() + 1),
            Step::Store { .. } | Step::Round => 0,
            _ => 1,
        }
    }

    pub(crate) fn check(&self, inputs: &[Type]) -> Result<(), Broken> {
        let shape = &inputs[0].shape;
        match self {
            Step::ActivationGradient { input, .. } if inputs[*input].shape != *shape => {
                Err("the gradient and the activation's input must be of one shape".to_string())
            }
            Step::Dropout(drop) | Step::StochasticDepth(drop) | Step::DroppedActivation { drop, .. }
                if !(0.0..1.0).contains(&drop.rate) =>
            {
                Err(format!("the rate must be at least 0 and under 1, it is {}", drop.rate))
            }
            Step::StochasticDepth(_) if shape.rank() < 2 => {
                Err("needs [samples, ..]: at least two axes, the first of which is the sample".to_string())
            }
            Step::Scale(factor) if !factor.is_finite() => Err(format!("the factor must be finite, it is {factor}")),
            _ => match self.input().map(|input| &inputs[input]) {
                Some(other) if !other.shape.is_suffix(shape) => {
                    Err("one shape must be the other's trailing axes (it is repeated over the leading ones)"
                        .to_string())
                }
                Some(other) => expect_float(other),
                None => Ok(()),
            },
        }
    }
}

impl Rules for Pointwise {
    fn name(&self) -> &'static str {
        ""
    }

    fn infer(&self, inputs: &[Type]) -> Result<Vec<Type>, Broken> {
        let first = inputs.first().ok_or("needs an input")?;
        expect_float(first)?;
        if !self.dtype.is_float() {
            return Err("the result must be stored as f32 or bf16".to_string());
        }
        Ok(vec![Type::new(first.shape.clone(), self.dtype)])
    }

    fn gradient(&self, backward: &mut Backward) -> Result<()> {
        let step = match backward.steps() {
            // No steps: a copy, or a conversion to f32.
            [] => return backward.pass_gradient(0),
            [step] => step.clone(),
            _ => return backward.refuse("gradients are taken before nodes are fused"),
        };
        match step {
            Step::Add { .. } => add::gradient(backward),
            Step::Multiply { .. } => multiply::gradient(backward),
            Step::Scale(factor) => scale::gradient(backward, factor),
            Step::Activation(kind) => activation::gradient(backward, kind),
            Step::Dropout(drop) => dropout::gradient(backward, drop),
            Step::StochasticDepth(drop) => stochastic_depth::gradient(backward, drop),
            Step::Round => backward.pass_gradient(0),
            Step::ActivationGradient { .. } => backward.refuse("second derivatives of activations are not available"),
            Step::Store { .. } | Step::DroppedActivation { .. } => {
                backward.refuse("gradients are taken before nodes are fused")
            }
        }
    }
}
