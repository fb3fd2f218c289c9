//! What ends a training step: the global gradient norm, clipping, AdamW or SGD, and an average of the parameters.
//!
//! These work on the flat buffers. Their inputs are all gradients, so that they run when every gradient is there.
//!
//! | op | formula | FLOPs a parameter |
//! |---|---|---|
//! | gradient norm | `√Σ g²` over all parameters | 2 |
//! | clipping | gradients times `min(1, limit / (norm + 1e-6))`, inside the update | 1 |
//! | AdamW | `m = β₁m + (1-β₁)g`, `v = β₂v + (1-β₂)g²`, `p = p (1 - rate·decay) - rate · m̂ / (√v̂ + ε)`, `m̂ = m/(1-β₁ᵗ)`, `v̂ = v/(1-β₂ᵗ)` | 14 |
//! | SGD | `g += decay·p`, `u = momentum·u + g` (`u = g` in step 1), `p -= rate·u`, or `rate·(g + momentum·u)` with Nesterov | 6 |
//! | EMA | `a = d·a + (1-d)·p` | 3 |
//!
//! None has a gradient. Their settings are f64, since `1 - β₂` of an f32 0.999 is off by 1e-5.

use crate::error::{Error, Result};
use crate::gradient::GradientOptions;
use crate::graph::{Graph, Value, padded};
use crate::ops::{Broken, Rules};
use crate::types::{DType, Shape, Type};

/// `√Σ g²` over all gradients. Inputs: the gradients.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct GradientNorm;

/// How a parameter is treated.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Group {
    /// Weight decay.
    pub decay: f64,
    /// What the learning rate is multiplied by.
    pub rate_factor: f64,
}

/// AdamW. Inputs: the learning rate, the gradient norm if clipping, the gradients.
#[derive(Clone, Debug, PartialEq)]
pub struct AdamW {
    /// Decay of the first moment.
    pub beta1: f64,
    /// Decay of the second moment.
    pub beta2: f64,
    /// Added to √v̂.
    pub eps: f64,
    /// Gradients longer than this, all together, are shortened to it.
    pub clip: Option<f64>,
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
    /// Gradients longer than this, all together, are shortened to it.
    pub clip: Option<f64>,
    /// By parameter; `None` if it is not trained.
    pub groups: Vec<Option<Group>>,
}

/// Average of the parameters. Inputs: its decay d, then the gradients (so that it comes after the update).
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Ema;

impl Rules for GradientNorm {
    fn name(&self) -> &'static str {
        "gradient_norm"
    }

    fn infer(&self, _inputs: &[Type]) -> Result<Vec<Type>, Broken> {
        Ok(vec![Type::f32(Shape::scalar())])
    }

    fn flops(&self, inputs: &[&Type], _outputs: &[Type]) -> u64 {
        2 * elements(inputs)
    }
}

fn elements(inputs: &[&Type]) -> u64 {
    inputs.iter().map(|input| input.shape.elements() as u64).sum()
}

macro_rules! update_rules {
    ($op:ident, $name:literal, $flops:literal) => {
        impl Rules for $op {
            fn name(&self) -> &'static str {
                $name
            }
            fn infer(&self, inputs: &[Type]) -> Result<Vec<Type>, Broken> {
                match inputs.first() {
                    Some(rate) if rate.shape.elements() == 1 && rate.dtype == DType::F32 => Ok(Vec::new()),
                    _ => Err("the rate must be a single f32".to_string()),
                }
            }
            fn flops(&self, inputs: &[&Type], _outputs: &[Type]) -> u64 {
                $flops * elements(&inputs[1..])
            }
        }
    };
}

update_rules!(AdamW, "adamw", 14);
update_rules!(Sgd, "sgd", 6);
update_rules!(Ema, "ema", 3);

/// The rule that moves the parameters.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Optimizer {
    /// Adam with decoupled weight decay.
    AdamW {
        /// Decay of the first moment, usually 0.9.
        beta1: f64,
        /// Decay of the second moment, usually 0.999.
        beta2: f64,
        /// Usually 1e-8.
        eps: f64,
    },
    /// Stochastic gradient descent.
    Sgd {
        /// Usually 0.9.
        momentum: f64,
        /// Nesterov's variant.
        nesterov: bool,
    },
}

impl Optimizer {
    /// AdamW with the usual settings.
    pub fn adamw() -> Self {
        Optimizer::AdamW { beta1: 0.9, beta2: 0.999, eps: 1e-8 }
    }
}

/// How a training step is made out of a loss.
pub struct StepOptions<'a> {
    /// The rule that moves the parameters.
    pub optimizer: Optimizer,
    /// Decay and rate factor of a parameter; `None` leaves it untrained.
    pub group: &'a dyn Fn(&crate::graph::Parameter) -> Option<Group>,
    /// Limit of the global gradient norm.
    pub clip: Option<f64>,
    /// Whether an average of the parameters is kept.
    pub ema: bool,
    /// How gradients are taken.
    pub gradient: GradientOptions,
}

/// What a training step adds to the graph.
#[derive(Clone, Copy, Debug)]
pub struct StepValues {
    /// The input `learning_rate`, a single number.
    pub learning_rate: Value,
    /// The input `ema_decay`, a single number, if an average is kept.
    pub ema_decay: Option<Value>,
    /// The global gradient norm, before clipping. Without clipping it is computed only if the plan is asked for it.
    pub gradient_norm: Value,
}

impl Graph {
    /// Makes a training step of a loss: gradients, their norm, clipping, the update, the average. Running a plan of this
    /// graph then changes the parameters. The step's number, which AdamW needs, is given to each run.
    pub fn training_step(&mut self, loss: Value, options: &StepOptions) -> Result<StepValues> {
        let groups: Vec<Option<Group>> = self.parameters().iter().map(options.group).collect();
        let names: Vec<String> = self.parameters().iter().map(|parameter| parameter.name.clone()).collect();
        let trained: Vec<usize> = (0..groups.len()).filter(|&index| groups[index].is_some()).collect();
        if trained.is_empty() {
            let reason = "no parameter is trained: there is nothing to update".to_string();
            return Err(Error::NoGradient { op: "training_step", path: self.path_of("loss"), reason });
        }
        check_groups(&groups, &names)?;
        self.check_settings(options)?;
        let learning_rate = self.detached("", |graph| graph.input("learning_rate", Shape::scalar(), DType::F32))?;
        let ema_decay = match options.ema {
            true => Some(self.detached("", |graph| graph.input("ema_decay", Shape::scalar(), DType::F32))?),
            false => None,
        };
        let wanted = trained.iter().map(|&index| self.find(&names[index])).collect::<Result<Vec<_>>>()?;
        let gradients = self.parameter_gradients(loss, &wanted, options.gradient)?;
        self.place_gradients(&trained);

        let gradient_norm = self.detached("step", |graph| graph.push(GradientNorm, &gradients))?;
        self.name("gradient_norm", gradient_norm)?;
        let clip = options.clip;
        let mut inputs = vec![learning_rate];
        // The norm costs a pass over all gradients: it is taken where it is used or asked for.
        inputs.extend(clip.map(|_| gradient_norm));
        inputs.extend(&gradients);
        self.detached("step", |graph| match options.optimizer {
            Optimizer::AdamW { beta1, beta2, eps } => graph.push(AdamW { beta1, beta2, eps, clip, groups }, &inputs),
            Optimizer::Sgd { momentum, nesterov } => graph.push(Sgd { momentum, nesterov, clip, groups }, &inputs),
        })?;
        if let Some(decay) = ema_decay {
            inputs = [vec![decay], gradients].concat();
            self.detached("step", |graph| graph.push(Ema, &inputs))?;
        }
        Ok(StepValues { learning_rate, ema_decay, gradient_norm })
    }

    fn check_settings(&self, options: &StepOptions) -> Result<()> {
        let share = |value: f64| (0.0..1.0).contains(&value);
        let rule = match options.optimizer {
            Optimizer::AdamW { beta1, beta2, .. } if !share(beta1) || !share(beta2) => {
                format!("beta1 {beta1} and beta2 {beta2} must be at least 0 and under 1")
            }
            Optimizer::AdamW { eps, .. } if !(eps.is_finite() && eps > 0.0) => {
                format!("eps must be above 0, it is {eps}")
            }
            Optimizer::Sgd { momentum, .. } if !share(momentum) => {
                format!("momentum must be at least 0 and under 1, it is {momentum}")
            }
            _ => match options.clip {
                Some(limit) if !(limit.is_finite() && limit > 0.0) => {
                    format!("the limit of the gradient norm must be above 0, it is {limit}")
                }
                _ => return Ok(()),
            },
        };
        Err(Error::Rule { op: "training_step", path: self.path_of("step"), inputs: Vec::new(), rule })
    }

    /// Lays the gradients of the trained parameters out in their flat buffer.
    fn place_gradients(&mut self, trained: &[usize]) {
        let mut offset = 0;
        for &index in trained {
            let parameter = &mut self.parameters[index];
            parameter.gradient_offset = Some(offset);
            offset += padded(parameter.shape.elements());
        }
    }
}

fn check_groups(groups: &[Option<Group>], names: &[String]) -> Result<()> {
    for (group, name) in groups.iter().zip(names) {
        let Some(Group { decay, rate_factor }) = *group else { continue };
        if !(decay.is_finite() && decay >= 0.0 && rate_factor.is_finite()) {
            let rule = format!("decay {decay} and rate factor {rate_factor} must be finite, decay not negative");
            return Err(Error::Rule { op: "training_step", path: name.clone(), inputs: Vec::new(), rule });
        }
    }
    Ok(())
}
