//! The end of a training step: global gradient norm, clipping, AdamW, SGD, LAMB or Muon, and a moving average (EMA) of
//! the parameters.
//!
//! These ops work on the flat buffers. Their inputs are all gradients, so that they run once every gradient is
//! available.
//!
//! | op | formula | FLOPs per parameter |
//! |---|---|---|
//! | gradient norm | `n = s √Σ g²` over all parameters, and the factor `f = s · min(1, limit / (n + 1e-6))` | 2 |
//! | AdamW | `m = β₁m + (1-β₁)g`, `v = β₂v + (1-β₂)g²`, `p = p (1 - rate·decay) - rate · m̂ / (√v̂ + ε)`, `m̂ = m/(1-β₁ᵗ)`, `v̂ = v/(1-β₂ᵗ)` | 14 |
//! | SGD | `g += decay·p`, `u = momentum·u + g` (`u = g` in step 1), `p -= rate·u`, or `rate·(g + momentum·u)` with Nesterov | 6 |
//! | LAMB | m and v as in AdamW, `u = m̂ / (√v̂ + ε) + decay·p`, `p -= rate · r · u`, with `r = ‖p‖/‖u‖` for parameters with weight decay, else 1 | 24 |
//! | Muon, direction | `m = βm + (1-β)g`, `u = m`, or `u = (1-β)g + βm` with Nesterov; `u / max(‖u‖, 1e-7)`, for each matrix that is stacked in the parameter | 6 |
//! | Muon, update | `m = βm + (1-β)g`, `p = p (1 - rate·decay) - rate · scale · o`, with o the direction made orthogonal | 6 |
//! | EMA | `a = d·a + (1-d)·p` | 3 |
//! | accumulation | `G = g` if the input `accumulate` is 0, else `G = G + g` | 1 |
//!
//! The gradients in the formulas are those of the buffer times f. s is 1 or, with gradient accumulation over
//! micro-batches, the factor of their sum.
//!
//! **If the loss or the norm is not finite, f is NaN, and updates and EMA leave everything unchanged**: one bad batch
//! does not destroy hours of training, and its cause can be diagnosed with the parameters that produced it.
//!
//! None has a gradient. Their settings are f64, since `1 - β₂` of an f32 0.999 is off by 1e-5.

use crate::error::Result;
use crate::ops::{Broken, Rules, expect_inputs};
use crate::types::{DType, Shape, Type};

/// Inputs: the loss (or, if `scaled`, the factor of the gradients), the gradients. Results: the norm before clipping,
/// and the factor that the update applies to gradients: NaN if there must be no update.
#[derive(Clone, Debug, PartialEq)]
pub struct GradientNorm {
    /// Maximum global gradient norm.
    pub clip: Option<f64>,
    /// Whether the first input is a factor of the gradients instead of the loss.
    pub scaled: bool,
}

impl GradientNorm {
    /// The norm, and the factor that the update applies to gradients.
    pub(crate) fn results(&self, first_input: f64, norm: f64) -> (f64, f64) {
        let scale = if self.scaled { first_input } else { 1.0 };
        let norm = norm * scale;
        // Executors round the norm to f32, in which it must be finite too.
        let usable = first_input.is_finite() && (norm as f32).is_finite();
        let factor = scale * self.clip.map_or(1.0, |limit| (limit / (norm + 1e-6)).min(1.0));
        (norm, if usable { factor } else { f64::NAN })
    }
}

/// The optimizer settings of a parameter.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Group {
    /// Weight decay.
    pub decay: f64,
    /// Factor of the learning rate.
    pub rate_factor: f64,
}

/// AdamW. Inputs: the learning rate, the factor of the gradients, the gradients.
#[derive(Clone, Debug, PartialEq)]
pub struct AdamW {
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to √v̂.
    pub eps: f64,
    /// Per parameter; `None` if it is frozen.
    pub groups: Vec<Option<Group>>,
}

/// SGD with momentum. Inputs as for [`AdamW`].
#[derive(Clone, Debug, PartialEq)]
pub struct Sgd {
    /// Decay of the velocity.
    pub momentum: f64,
    /// Nesterov's variant.
    pub nesterov: bool,
    /// Per parameter; `None` if it is frozen.
    pub groups: Vec<Option<Group>>,
}

/// LAMB: Adam with a learning rate per parameter that depends on the norms of the parameter and of its update. Inputs
/// as for [`AdamW`].
#[derive(Clone, Debug, PartialEq)]
pub struct Lamb {
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to √v̂.
    pub eps: f64,
    /// Whether the trust ratio is at most 1.
    pub trust_clip: bool,
    /// Per parameter; `None` if it is frozen.
    pub groups: Vec<Option<Group>>,
}

impl Lamb {
    /// The trust ratio: the norm of a parameter over the norm of its update. It is 1 for parameters without weight
    /// decay (biases, norms), and if either norm is 0.
    pub(crate) fn trust(&self, group: &Group, parameter_squares: f64, update_squares: f64) -> f64 {
        if group.decay == 0.0 || parameter_squares <= 0.0 || update_squares <= 0.0 {
            return 1.0;
        }
        let ratio = (parameter_squares / update_squares).sqrt();
        if self.trust_clip { ratio.min(1.0) } else { ratio }
    }
}

/// The first half of Muon, of one parameter: the direction of its update, normalised, before it is made orthogonal. It
/// reads the momentum in the state and leaves it as it is. Inputs: the factor of the gradients, the gradient. Result: the
/// direction, or zeros if there must be no update.
#[derive(Clone, Debug, PartialEq)]
pub struct MuonDirection {
    /// Index of the parameter.
    pub parameter: usize,
    /// Decay of the momentum.
    pub momentum: f64,
    /// Nesterov's variant.
    pub nesterov: bool,
    /// Matrices that are stacked in the parameter.
    pub matrices: usize,
}

impl MuonDirection {
    /// What a direction is divided by, by the sum of its squares.
    pub(crate) fn divisor(squares: f64) -> f64 {
        squares.sqrt().max(1e-7)
    }
}

/// The second half of Muon, of one parameter. Inputs: the learning rate, the factor of the gradients, the orthogonal
/// direction, the gradient.
#[derive(Clone, Debug, PartialEq)]
pub struct MuonUpdate {
    /// Index of the parameter.
    pub parameter: usize,
    /// Decay of the momentum.
    pub momentum: f64,
    /// Weight decay and factor of the learning rate.
    pub group: Group,
    /// Factor of the direction.
    pub scale: f64,
}

/// Moving average of the parameters. Inputs: its decay d, the factor of the gradients (NaN if there was no update),
/// then the gradients (so that it runs after the update).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ema;

/// Adds a gradient to the flat buffer, or overwrites it. Inputs: 0 to overwrite, else to add; the gradient.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct AccumulateGradient {
    /// Index of the parameter.
    pub parameter: usize,
}

/// A parameter's gradient, read from the flat buffer.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct StoredGradient {
    /// Index of the parameter.
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

impl Rules for MuonDirection {
    fn name(&self) -> &'static str {
        "muon_direction"
    }

    fn infer(&self, inputs: &[Type]) -> Result<Vec<Type>, Broken> {
        let [factor, gradient] = expect_inputs(inputs)?;
        match *gradient.shape.axes() {
            [rows, columns] if is_number(factor) && self.matrices > 0 && rows % self.matrices == 0 => {
                Ok(vec![Type::f32(Shape::new([self.matrices, rows / self.matrices, columns]))])
            }
            _ => Err("needs a single f32 and the gradient of a matrix, or of several that are stacked".to_string()),
        }
    }

    fn flops(&self, inputs: &[&Type], _outputs: &[Type]) -> u64 {
        6 * elements(&inputs[1..])
    }
}

impl Rules for MuonUpdate {
    fn name(&self) -> &'static str {
        "muon"
    }

    fn infer(&self, inputs: &[Type]) -> Result<Vec<Type>, Broken> {
        let [rate, factor, direction, gradient] = expect_inputs(inputs)?;
        let fits = direction.dtype == DType::F32 && direction.shape.elements() == gradient.shape.elements();
        match is_number(rate) && is_number(factor) && fits {
            true => Ok(Vec::new()),
            false => Err("needs two single f32, and an f32 direction of the gradient's size".to_string()),
        }
    }

    fn flops(&self, inputs: &[&Type], _outputs: &[Type]) -> u64 {
        6 * elements(&inputs[3..])
    }
}

fn elements(inputs: &[&Type]) -> u64 {
    inputs.iter().map(|input| input.shape.elements() as u64).sum()
}

fn is_number(input: &Type) -> bool {
    input.shape.elements() == 1 && input.dtype == DType::F32
}

/// The rules of ops whose first `$numbers` inputs are scalars and the others gradients.
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
