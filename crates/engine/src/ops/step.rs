//! Makes training steps out of a loss: gradients, their norm, clipping, the update, the average.
//!
//! Two ways. [`Graph::training_step`] is all of it in one graph. For batches that do not fit memory, [`Graph::accumulation_step`]
//! adds the gradients of a micro-batch to the flat buffer, and [`Graph::update_step`] is the graph of what follows when enough
//! were added; both share a state.

use crate::error::{Error, Result};
use crate::gradient::GradientOptions;
use crate::graph::{Graph, Parameter, Value, padded};
use crate::ops::{AccumulateGradient, AdamW, Ema, GradientNorm, Group, Lamb, Sgd, StoredGradient};
use crate::types::{DType, Shape};

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
    /// Adam with a rate for each layer, for large batches.
    Lamb {
        /// Decay of the first moment, usually 0.9.
        beta1: f64,
        /// Decay of the second moment, usually 0.999.
        beta2: f64,
        /// Usually 1e-6.
        eps: f64,
        /// Whether a layer's rate is lowered only, never raised.
        trust_clip: bool,
    },
}

impl Optimizer {
    /// AdamW with the usual settings.
    pub fn adamw() -> Self {
        Optimizer::AdamW { beta1: 0.9, beta2: 0.999, eps: 1e-8 }
    }

    /// LAMB with the usual settings.
    pub fn lamb() -> Self {
        Optimizer::Lamb { beta1: 0.9, beta2: 0.999, eps: 1e-6, trust_clip: false }
    }
}

/// How a training step is made out of a loss.
pub struct StepOptions<'a> {
    /// The rule that moves the parameters.
    pub optimizer: Optimizer,
    /// Decay and rate factor of a parameter; `None` leaves it untrained.
    pub group: &'a dyn Fn(&Parameter) -> Option<Group>,
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
    /// The input `gradient_scale`, a single number, in the graph of an update: gradients that were added up are multiplied by it, by
    /// 1/n for the mean of n.
    pub gradient_scale: Option<Value>,
    /// The global gradient norm, scaled, before clipping. Where it or the loss is not finite, nothing was updated.
    pub gradient_norm: Value,
}

/// Which parameters are trained, and how.
struct Groups {
    by_parameter: Vec<Option<Group>>,
    trained: Vec<usize>,
}

impl Graph {
    /// Makes a training step of a loss: gradients, their norm, clipping, the update, the average. Running a plan of this
    /// graph then changes the parameters, unless the loss or the norm is not finite. The step's number, which AdamW and LAMB need, is
    /// given to each run.
    pub fn training_step(&mut self, loss: Value, options: &StepOptions) -> Result<StepValues> {
        let groups = self.groups(options)?;
        let (learning_rate, ema_decay) = self.step_inputs(options)?;
        let wanted = self.values_of(&groups.trained)?;
        let gradients = self.parameter_gradients(loss, &wanted, options.gradient)?;
        self.place_gradients(&groups.trained);
        // The loss that the gradients are of: the other one would be all of the last layer again.
        let loss = self.same_as(loss);
        let gradient_norm = self.finish_step((loss, false), &gradients, learning_rate, ema_decay, groups, options)?;
        Ok(StepValues { learning_rate, ema_decay, gradient_scale: None, gradient_norm })
    }

    /// Makes the first half of a step over several micro-batches: a run adds the gradients of the loss to the state's. The input
    /// `accumulate`, a single number, which is returned, must be 0 for the first micro-batch, whose gradients replace what was there, and 1 for the
    /// others. The second half is [`Graph::update_step`].
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

    /// The second half of a step over several micro-batches, as a graph of its own with the same parameters: norm, clipping,
    /// update and average of the gradients in the state, times the input `gradient_scale`.
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

    /// Norm, update and average. `first` is the loss, or, if its flag is set, what gradients are multiplied by.
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
                Optimizer::AdamW { beta1, beta2, eps } => graph.push(AdamW { beta1, beta2, eps, groups }, &inputs)?,
                Optimizer::Sgd { momentum, nesterov } => graph.push(Sgd { momentum, nesterov, groups }, &inputs)?,
                Optimizer::Lamb { beta1, beta2, eps, trust_clip } => {
                    graph.push(Lamb { beta1, beta2, eps, trust_clip, groups }, &inputs)?
                }
            };
            if let Some(decay) = ema_decay {
                graph.push(Ema, &[&[decay, factor], gradients].concat())?;
            }
            Ok(norm)
        })
        .and_then(|norm| self.name("gradient_norm", norm))
    }

    /// The numbers that each run of a step is given.
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

    /// Asks for every parameter's group, and checks them and the settings.
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
            Optimizer::AdamW { beta1, beta2, .. } | Optimizer::Lamb { beta1, beta2, .. }
                if !share(beta1) || !share(beta2) =>
            {
                format!("beta1 {beta1} and beta2 {beta2} must be at least 0 and under 1")
            }
            Optimizer::AdamW { eps, .. } | Optimizer::Lamb { eps, .. } if !(eps.is_finite() && eps > 0.0) => {
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
