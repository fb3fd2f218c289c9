//! Builds training steps from a loss: gradients, their norm, clipping, the optimizer's update, the moving average
//! (EMA).
//!
//! [`Graph::training_step`] puts all of it into one graph. For gradient accumulation, [`Graph::accumulation_step`] adds
//! the gradients of a micro-batch to the flat buffer, and [`Graph::update_step`] builds the graph that updates the
//! parameters after the last micro-batch; both share a state.

use crate::error::{Error, Result};
use crate::gradient::GradientOptions;
use crate::graph::{Graph, Parameter, Value, padded};
use crate::ops::muon::MuonSettings;
use crate::ops::{AccumulateGradient, AdamW, Ema, GradientNorm, Group, Lamb, Sgd, StoredGradient};
use crate::types::{DType, Shape};

/// The optimizer.
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
    /// Adam with a learning rate per layer, for large batches.
    Lamb {
        /// Decay of the first moment, usually 0.9.
        beta1: f64,
        /// Decay of the second moment, usually 0.999.
        beta2: f64,
        /// Usually 1e-6.
        eps: f64,
        /// Whether a layer's learning rate is only lowered, never raised.
        trust_clip: bool,
    },
    /// Momentum whose updates of hidden matrices are made orthogonal. Everything else (embeddings, heads, norms, biases,
    /// adapters) is updated as by AdamW.
    Muon {
        /// Decay of the momentum, usually 0.95.
        momentum: f64,
        /// Nesterov's variant, as usual.
        nesterov: bool,
        /// How large updates are.
        scale: MuonScale,
        /// AdamW's decay of the first moment.
        beta1: f64,
        /// AdamW's decay of the second moment.
        beta2: f64,
        /// AdamW's epsilon.
        eps: f64,
    },
}

/// How large Muon's updates are.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum MuonScale {
    /// As AdamW's, so that both can have one learning rate: `0.2 √max(out, in)` (Moonlight; PyTorch's
    /// `match_rms_adamw`).
    MatchAdamW,
    /// As its author has them: `√max(1, out / in)`.
    Original,
}

impl Optimizer {
    /// AdamW with the usual settings.
    pub fn adamw() -> Self {
        Optimizer::AdamW { beta1: 0.9, beta2: 0.999, eps: 1e-8 }
    }

    /// Muon with the usual settings.
    pub fn muon() -> Self {
        let (momentum, nesterov, scale) = (0.95, true, MuonScale::MatchAdamW);
        Optimizer::Muon { momentum, nesterov, scale, beta1: 0.9, beta2: 0.95, eps: 1e-8 }
    }

    /// LAMB with the usual settings.
    pub fn lamb() -> Self {
        Optimizer::Lamb { beta1: 0.9, beta2: 0.999, eps: 1e-6, trust_clip: false }
    }
}

/// Options of a training step.
pub struct StepOptions<'a> {
    /// The optimizer.
    pub optimizer: Optimizer,
    /// Weight decay and learning-rate factor of a parameter; `None` freezes it.
    pub group: &'a dyn Fn(&Parameter) -> Option<Group>,
    /// Maximum global gradient norm.
    pub clip: Option<f64>,
    /// Whether a moving average (EMA) of the parameters is kept.
    pub ema: bool,
    /// Options for taking gradients.
    pub gradient: GradientOptions,
}

/// The values that a training step adds to the graph.
#[derive(Clone, Copy, Debug)]
pub struct StepValues {
    /// The input `learning_rate`, a scalar.
    pub learning_rate: Value,
    /// The input `ema_decay`, a scalar, if an EMA is kept.
    pub ema_decay: Option<Value>,
    /// The input `gradient_scale`, a scalar, in the graph of an update: the factor of the accumulated gradients, 1/n
    /// for the mean of n micro-batches.
    pub gradient_scale: Option<Value>,
    /// The global gradient norm, scaled, before clipping. If it or the loss is not finite, nothing was updated.
    pub gradient_norm: Value,
}

/// Which parameters are trained, and with which settings.
struct Groups {
    by_parameter: Vec<Option<Group>>,
    trained: Vec<usize>,
}

impl Graph {
    /// Builds a training step: gradients of the loss, their norm, clipping, the update, the EMA. Running a plan of this
    /// graph then changes the parameters, unless the loss or the norm is not finite. The step number, which AdamW and
    /// LAMB need, is passed to each run.
    pub fn training_step(&mut self, loss: Value, options: &StepOptions) -> Result<StepValues> {
        let groups = self.groups(options)?;
        let (learning_rate, ema_decay) = self.step_inputs(options)?;
        let wanted = self.values_of(&groups.trained)?;
        let gradients = self.parameter_gradients(loss, &wanted, options.gradient)?;
        self.place_gradients(&groups.trained);
        // The loss that the gradients are taken of: the other one would compute the whole last layer again.
        let loss = self.same_as(loss);
        let gradient_norm = self.finish_step((loss, false), &gradients, learning_rate, ema_decay, groups, options)?;
        Ok(StepValues { learning_rate, ema_decay, gradient_scale: None, gradient_norm })
    }

    /// Builds the first half of a step with gradient accumulation: a run adds the gradients of the loss to the state's.
    /// Returns the input `accumulate`, a scalar, which must be 0 for the first micro-batch, whose gradients replace the
    /// old ones, and 1 for the others. The second half is [`Graph::update_step`].
    pub fn accumulation_step(&mut self, loss: Value, options: &StepOptions) -> Result<Value> {
        let groups = self.groups(options)?;
        let accumulate = self.detached("", |graph| graph.input("accumulate", Shape::scalar(), DType::F32))?;
        let wanted = self.values_of(&groups.trained)?;
        let loss = self.trimmed(loss)?;
        let gradients = self.gradients(loss, &wanted, options.gradient)?;
        self.place_gradients(&groups.trained);
        for (&parameter, &gradient) in groups.trained.iter().zip(&gradients) {
            self.detached("step", |graph| graph.push(AccumulateGradient { parameter }, &[accumulate, gradient]))?;
        }
        Ok(accumulate)
    }

    /// The second half of a step with gradient accumulation, as a graph of its own with the same parameters: norm,
    /// clipping, update and EMA from the gradients in the state, times the input `gradient_scale`.
    pub fn update_step(&self, options: &StepOptions) -> Result<(Graph, StepValues)> {
        let groups = self.groups(options)?;
        let mut graph = self.without_nodes();
        graph.constants.clear();
        graph.parameter_gradients.fill(None);
        let (learning_rate, ema_decay) = graph.step_inputs(options)?;
        let scale = graph.detached("", |graph| graph.input("gradient_scale", Shape::scalar(), DType::F32))?;
        graph.place_gradients(&groups.trained);
        let mut gradients = Vec::new();
        for &parameter in &groups.trained {
            let shape = graph.parameters[parameter].shape.clone();
            let gradient = graph.detached("gradient", |g| g.push(StoredGradient { parameter, shape }, &[]))?;
            graph.parameter_gradients[parameter] = Some(gradient);
            gradients.push(gradient);
        }
        let gradient_norm = graph.finish_step((scale, true), &gradients, learning_rate, ema_decay, groups, options)?;
        Ok((graph, StepValues { learning_rate, ema_decay, gradient_scale: Some(scale), gradient_norm }))
    }

    /// Norm, update and EMA. `first` is the loss or, if its flag is set, the factor of the gradients.
    fn finish_step(
        &mut self,
        (first, scaled): (Value, bool),
        gradients: &[Value],
        learning_rate: Value,
        ema_decay: Option<Value>,
        groups: Groups,
        options: &StepOptions,
    ) -> Result<Value> {
        let groups = groups.by_parameter;
        self.detached("step", |graph| {
            let inputs = [&[first], gradients].concat();
            let norm = graph.push(GradientNorm { clip: options.clip, scaled }, &inputs)?;
            let factor = Value::new(norm.node(), 1);
            let inputs = [&[learning_rate, factor], gradients].concat();
            match options.optimizer {
                Optimizer::AdamW { beta1, beta2, eps } => {
                    graph.push(AdamW { beta1, beta2, eps, groups }, &inputs)?;
                }
                Optimizer::Sgd { momentum, nesterov } => {
                    graph.push(Sgd { momentum, nesterov, groups }, &inputs)?;
                }
                Optimizer::Lamb { beta1, beta2, eps, trust_clip } => {
                    graph.push(Lamb { beta1, beta2, eps, trust_clip, groups }, &inputs)?;
                }
                Optimizer::Muon { momentum, nesterov, scale, beta1, beta2, eps } => {
                    let others = AdamW { beta1, beta2, eps, groups };
                    let settings = MuonSettings { momentum, nesterov, scale };
                    graph.muon_step(settings, others, (learning_rate, factor), gradients)?;
                }
            }
            if let Some(decay) = ema_decay {
                graph.push(Ema, &[&[decay, factor], gradients].concat())?;
            }
            Ok(norm)
        })
        .and_then(|norm| self.name("gradient_norm", norm))
    }

    /// The scalars passed to each run of a step.
    fn step_inputs(&mut self, options: &StepOptions) -> Result<(Value, Option<Value>)> {
        self.detached("", |graph| {
            let learning_rate = graph.input("learning_rate", Shape::scalar(), DType::F32)?;
            let ema_decay = match options.ema {
                true => Some(graph.input("ema_decay", Shape::scalar(), DType::F32)?),
                false => None,
            };
            Ok((learning_rate, ema_decay))
        })
    }

    fn values_of(&self, parameters: &[usize]) -> Result<Vec<Value>> {
        parameters.iter().map(|&index| self.find(&self.parameters[index].name)).collect()
    }

    /// Queries the group of every parameter, and checks groups and settings.
    fn groups(&self, options: &StepOptions) -> Result<Groups> {
        let by_parameter: Vec<Option<Group>> = self.parameters().iter().map(options.group).collect();
        let trained: Vec<usize> = (0..by_parameter.len()).filter(|&index| by_parameter[index].is_some()).collect();
        if trained.is_empty() {
            let reason = "no parameter is trained: there is nothing to update".to_string();
            return Err(Error::NoGradient { op: "training_step", path: self.path_of("loss"), reason });
        }
        for (group, parameter) in by_parameter.iter().zip(self.parameters()) {
            let Some(Group { decay, rate_factor }) = *group else { continue };
            if !(decay.is_finite() && decay >= 0.0 && rate_factor.is_finite()) {
                let rule = format!("decay {decay} and rate factor {rate_factor} must be finite, decay not negative");
                let path = parameter.name.clone();
                return Err(Error::Rule { op: "training_step", path, inputs: Vec::new(), rule });
            }
        }
        self.check_settings(options)?;
        Ok(Groups { by_parameter, trained })
    }

    fn check_settings(&self, options: &StepOptions) -> Result<()> {
        let share = |value: f64| (0.0..1.0).contains(&value);
        let rule = match options.optimizer {
            Optimizer::AdamW { beta1, beta2, .. }
            | Optimizer::Lamb { beta1, beta2, .. }
            | Optimizer::Muon { beta1, beta2, .. }
                if !share(beta1) || !share(beta2) =>
            {
                format!("beta1 {beta1} and beta2 {beta2} must be at least 0 and under 1")
            }
            Optimizer::AdamW { eps, .. } | Optimizer::Lamb { eps, .. } | Optimizer::Muon { eps, .. }
                if !(eps.is_finite() && eps > 0.0) =>
            {
                format!("eps must be above 0, it is {eps}")
            }
            Optimizer::Sgd { momentum, .. } | Optimizer::Muon { momentum, .. } if !share(momentum) => {
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

    /// Assigns the gradients of the trained parameters their offsets in the flat buffer.
    fn place_gradients(&mut self, trained: &[usize]) {
        for parameter in &mut self.parameters {
            parameter.gradient_offset = None;
        }
        let mut offset = 0;
        for &index in trained {
            let parameter = &mut self.parameters[index];
            parameter.gradient_offset = Some(offset);
            offset += padded(parameter.shape.elements());
        }
    }
}
