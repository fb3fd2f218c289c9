//! What ends a training step: the global gradient norm, clipping, AdamW, SGD or LAMB, and an average of the parameters.
//!
//! These work on the flat buffers. Their inputs are all gradients, so that they run when every gradient is there.
//!
//! | op | formula | FLOPs a parameter |
//! |---|---|---|
//! | gradient norm | `n = s √Σ g²` over all parameters, and the factor `f = s · min(1, limit / (n + 1e-6))` | 2 |
//! | AdamW | `m = β₁m + (1-β₁)g`, `v = β₂v + (1-β₂)g²`, `p = p (1 - rate·decay) - rate · m̂ / (√v̂ + ε)`, `m̂ = m/(1-β₁ᵗ)`, `v̂ = v/(1-β₂ᵗ)` | 14 |
//! | SGD | `g += decay·p`, `u = momentum·u + g` (`u = g` in step 1), `p -= rate·u`, or `rate·(g + momentum·u)` with Nesterov | 6 |
//! | LAMB | m and v as AdamW's, `u = m̂ / (√v̂ + ε) + decay·p`, `p -= rate · r · u`, with `r = ‖p‖/‖u‖` for parameters that decay, else 1 | 24 |
//! | EMA | `a = d·a + (1-d)·p` | 3 |
//! | accumulation | `G = g` where the input `accumulate` is 0, else `G = G + g` | 1 |
//!
//! The gradients of the formulas are those of the buffer times f. s is 1, or, where gradients of several micro-batches were added
//! up, what their sum is to be multiplied by.
//!
//! **Where the loss or the norm is not finite, f is NaN, and updates and average leave everything as it is**: one bad batch does not
//! destroy what hours of training made, and what went bad can be looked for with the parameters that it happened with.
//!
//! None has a gradient. Their settings are f64, since `1 - β₂` of an f32 0.999 is off by 1e-5.

use crate::error::Result;
use crate::ops::{Broken, Rules};
use crate::types::{DType, Shape, Type};

/// Inputs: the loss (or, if `scaled`, what gradients are multiplied by), the gradients. Results: the norm, before clipping, and
/// what the update multiplies gradients by: NaN if there must be no update.
#[derive(Clone, Debug, PartialEq)]
pub struct GradientNorm {
    /// Gradients longer than this, all together, are shortened to it.
    pub clip: Option<f64>,
    /// Whether the first input is a factor of the gradients instead of the loss.
    pub scaled: bool,
}

impl GradientNorm {
    /// The norm, and what the update multiplies gradients by.
    pub(crate) fn results(&self, first_input: f64, norm: f64) -> (f64, f64) {
        let scale = if self.scaled { first_input } else { 1.0 };
        let norm = norm * scale;
        // Executors round the norm to f32, in which it must be finite too.
        let usable = first_input.is_finite() && (norm as f32).is_finite();
        let factor = scale * self.clip.map_or(1.0, |limit| (limit / (norm + 1e-6)).min(1.0));
        (norm, if usable { factor } else { f64::NAN })
    }
}

/// How a parameter is treated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Group {
    /// Weight decay.
    pub decay: f64,
    /// What the learning rate is multiplied by.
    pub rate_factor: f64,
}

/// AdamW. Inputs: the learning rate, what gradients are multiplied by, the gradients.
#[derive(Clone, Debug, PartialEq)]
pub struct AdamW {
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to √v̂.
    pub eps: f64,
    /// By parameter; `None` if it is not trained.
    pub groups: Vec<Option<Group>>,
}

/// SGD with momentum. Inputs as for [`AdamW`].
#[derive(Clone, Debug, PartialEq)]
pub struct Sgd {
    /// Decay of the velocity.
    pub momentum: f64,
    /// Nesterov's variant.
    pub nesterov: bool,
    /// By parameter; `None` if it is not trained.
    pub groups: Vec<Option<Group>>,
}

/// LAMB: Adam with a rate for each parameter that follows from its length and its update's. Inputs as for [`AdamW`].
#[derive(Clone, Debug, PartialEq)]
pub struct Lamb {
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to √v̂.
    pub eps: f64,
    /// Whether the ratio of lengths is at most 1.
    pub trust_clip: bool,
    /// By parameter; `None` if it is not trained.
    pub groups: Vec<Option<Group>>,
}

impl Lamb {
    /// The ratio of a parameter's length to its update's. It is 1 for parameters that do not decay (biases, norms), and where either
    /// is 0.
    pub(crate) fn trust(&self, group: &Group, parameter_squares: f64, update_squares: f64) -> f64 {
        if group.decay == 0.0 || parameter_squares <= 0.0 || update_squares <= 0.0 {
            return 1.0;
        }
        let ratio = (parameter_squares / update_squares).sqrt();
        if self.trust_clip { ratio.min(1.0) } else { ratio }
    }
}

/// Average of the parameters. Inputs: its decay d, what gradients are multiplied by (NaN if there was no update), then the
/// gradients (so that it comes after the update).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ema;

/// Adds a gradient to what the flat buffer has, or puts it there. Inputs: 0 to put, else to add; the gradient.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccumulateGradient {
    /// Of which parameter.
    pub parameter: usize,
}

/// A parameter's gradient as the flat buffer has it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredGradient {
    /// Of which parameter.
    pub parameter: usize,
    /// Its shape.
    pub shape: Shape,
}

impl Rules for GradientNorm {
    fn name(&self) -> &'static str {
        "gradient_norm"
    }

    fn infer(&self, inputs: &[Type]) -> Result<Vec<Type>, Broken> {
        match inputs.first() {
            Some(number) if number.shape.elements() == 1 && number.dtype.is_float() => {
                Ok(vec![Type::f32(Shape::scalar()); 2])
            }
            _ => Err("the loss or scale must be a single number".to_string()),
        }
    }

    fn flops(&self, inputs: &[&Type], _outputs: &[Type]) -> u64 {
        2 * elements(&inputs[1..])
    }
}

impl Rules for StoredGradient {
    fn name(&self) -> &'static str {
        "stored_gradient"
    }

    fn infer(&self, _inputs: &[Type]) -> Result<Vec<Type>, Broken> {
        Ok(vec![Type::f32(self.shape.clone())])
    }
}

fn elements(inputs: &[&Type]) -> u64 {
    inputs.iter().map(|input| input.shape.elements() as u64).sum()
}

fn is_number(input: &Type) -> bool {
    input.shape.elements() == 1 && input.dtype == DType::F32
}

/// The rules of ops whose first `$numbers` inputs are single numbers and the others gradients.
macro_rules! effect_rules {
    ($op:ident, $name:literal, $numbers:literal, $flops:literal) => {
        impl Rules for $op {
            fn name(&self) -> &'static str {
                $name
            }
            fn infer(&self, inputs: &[Type]) -> Result<Vec<Type>, Broken> {
                match inputs.get(..$numbers) {
                    Some(numbers) if numbers.iter().all(is_number) => Ok(Vec::new()),
                    _ => Err(format!("the first {} inputs must be single f32", $numbers)),
                }
            }
            fn flops(&self, inputs: &[&Type], _outputs: &[Type]) -> u64 {
                $flops * elements(&inputs[$numbers..])
            }
        }
    };
}

effect_rules!(AdamW, "adamw", 2, 14);
effect_rules!(Sgd, "sgd", 2, 6);
effect_rules!(Lamb, "lamb", 2, 24);
effect_rules!(Ema, "ema", 2, 3);
effect_rules!(AccumulateGradient, "accumulate_gradient", 1, 1);
