//! One update: a batch, or several whose gradients are added, through the model and the optimiser.

use vitreous_data::loader::{Batch, Form, LoaderOptions, TargetKind};
use vitreous_engine::{
    CrossEntropyOptions, DType, Device, Executor, GradientOptions, Graph, Mode, NotFiniteKind, Optimizer, Plan,
    Precision, Run, State, StepOptions, Value,
};

use crate::error::TrainError;
use crate::evaluate::test_plan;
use crate::fits::{self, Order};
use crate::groups::group_of;
use crate::image_input::give_images;
use crate::recipe::{OptimizerName, OptimizerSettings, PrecisionChoice, Recipe};
use crate::subject::build;

/// What an update gave.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepResult {
    /// The mean loss.
    pub loss: f64,
    /// The length of the gradient of all parameters, before clipping.
    pub grad_norm: f64,
    /// Images whose class the model, as it is while learning, finds first.
    pub right: u64,
    /// How many batches' gradients the state has the sum of.
    pub batches: usize,
}

/// Gives the next batch, if there is one; it is shown the executor that waits for it.
pub type NextBatch<'n> = dyn FnMut(&Executor) -> Result<Option<Batch>, TrainError> + 'n;

/// The plans of an update, ready to run.
pub struct Stepper {
    /// Forward and backward pass; the update, too, unless gradients are added up.
    pass: Executor,
    /// Whether batches are given to the device while it computes the one before.
    ahead: bool,
    /// The batch that the device has been given, but has not begun.
    given: Option<Batch>,
    /// The update of gradients that were added up.
    update: Option<Executor>,
    loss: Value,
    logits: Value,
    gradient_norm: Value,
    targets: TargetKind,
    form: Form,
}

/// The same before any memory is taken.
struct Plans {
    pass: Plan,
    update: Option<Plan>,
    /// The graph whose state has all that both change.
    whole: Graph,
    loss: Value,
    logits: Value,
    gradient_norm: Value,
    /// Bytes of the device's memory that running them takes, with the state, and the tests of the model in between.
    bytes: usize,
}

impl Plans {
    fn new(
        recipe: &Recipe,
        targets: TargetKind,
        raw: Option<&LoaderOptions>,
        device: &Device,
    ) -> Result<Plans, TrainError> {
        let mut graph = Graph::new(Mode::Training, recipe.train.precision.into());
        let built = build(&mut graph, recipe, raw)?;
        let answers = built.logits.ok_or_else(|| TrainError::Data("the data has no classes".to_string()))?;
        let loss = loss(&mut graph, recipe, answers, targets)?;
        let optimizer = &recipe.optimizer;
        let options = StepOptions {
            optimizer: rule(optimizer),
            group: &|parameter| group_of(recipe, parameter),
            clip: Some(optimizer.clip).filter(|&limit| limit > 0.0),
            ema: recipe.train.ema > 0.0,
            gradient: GradientOptions { recompute: recipe.train.recompute },
        };
        let (pass, update, whole, logits, gradient_norm);
        if recipe.train.accumulate == 1 {
            gradient_norm = graph.training_step(loss, &options)?.gradient_norm;
            logits = graph.cast(answers, DType::F32)?;
            pass = device.plan(&graph, &[loss, logits, gradient_norm])?;
            (update, whole) = (None, graph);
        } else {
            graph.accumulation_step(loss, &options)?;
            logits = graph.cast(answers, DType::F32)?;
            pass = device.plan(&graph, &[loss, logits])?;
            let (of_update, values) = graph.update_step(&options)?;
            gradient_norm = values.gradient_norm;
            (update, whole) = (Some(device.plan(&of_update, &[gradient_norm])?), of_update);
        }
        let (test, _) = test_plan(&recipe.model, recipe.train.precision.into(), recipe.train.batch, raw, device)?;
        let parts = [
            device.bytes_needed(&pass),
            update.as_ref().map_or(0, |plan| device.bytes_needed(plan)),
            device.state_bytes_needed(&whole),
            device.bytes_needed_with_weights(&test),
        ];
        let bytes = parts.into_iter().fold(0, usize::saturating_add);
        Ok(Plans { pass, update, whole, loss, logits, gradient_norm, bytes })
    }
}

impl From<PrecisionChoice> for Precision {
    fn from(choice: PrecisionChoice) -> Precision {
        match choice {
            PrecisionChoice::F32 => Precision::F32,
            PrecisionChoice::Bf16 => Precision::Bf16,
        }
    }
}

impl Stepper {
    /// Plans the update of a recipe's model, and makes the state that it changes. What does not fit into memory is refused
    /// before it is taken. Where batches come in raw form, `raw` says what is left to be done with their images.
    pub fn new(
        recipe: &Recipe,
        targets: TargetKind,
        raw: Option<&LoaderOptions>,
        device: &Device,
    ) -> Result<(Stepper, State), TrainError> {
        let plans = Plans::new(recipe, targets, raw, device)?;
        let train = &recipe.train;
        let order = Order {
            what: format!("training with train.batch={}", train.batch),
            setting: "train.batch=",
            size: train.batch,
            least: 1,
            bytes: plans.bytes,
            recompute: (!train.recompute).then_some("train.recompute=true"),
        };
        fits::check(device, &order, |batch, recompute| {
            let mut other = recipe.clone();
            (other.train.batch, other.train.recompute) = (batch, train.recompute || recompute);
            let raw = raw.map(|raw| LoaderOptions { batch, ..raw.clone() });
            Plans::new(&other, targets, raw.as_ref(), device).ok().map(|plans| plans.bytes)
        })?;
        let Plans { pass, update, whole, loss, logits, gradient_norm, bytes: _ } = plans;
        let state = State::new(&whole)?;
        let pass = Executor::new(pass, device)?;
        let update = update.map(|plan| Executor::new(plan, device)).transpose()?;
        let ahead = device.is_gpu();
        let form = if raw.is_some() { Form::Raw } else { Form::Prepared };
        Ok((Stepper { pass, ahead, given: None, update, loss, logits, gradient_norm, targets, form }, state))
    }

    /// Arithmetic of one batch.
    pub fn flops(&self) -> u64 {
        self.pass.plan().flops()
    }

    /// Bytes that running takes, besides the state.
    pub fn bytes(&self) -> usize {
        self.pass.memory_bytes() + self.update.as_ref().map_or(0, Executor::memory_bytes)
    }

    /// Makes an update of so many batches: that of the mean of their gradients. Where the loss or the gradient is not finite, nothing
    /// is changed, and the error says what went bad first. `next` gives batches until there are no more; a GPU is given the batch of the
    /// next update while it computes. The batches that were used come back.
    pub fn step(
        &mut self,
        state: &mut State,
        count: usize,
        next: &mut NextBatch,
        (rate, ema_decay): (f64, Option<f64>),
        run: Run,
    ) -> Result<(StepResult, Vec<Batch>), TrainError> {
        let mut result = StepResult { batches: count, ..StepResult::default() };
        let mut used = Vec::new();
        for index in 0..count {
            let batch = match self.given.take() {
                Some(batch) => batch,
                None => {
                    let batch = next(&self.pass)?.expect("a batch for every step");
                    self.give(&batch)?;
                    batch
                }
            };
            match self.update {
                None => set_rates(&mut self.pass, rate, ema_decay)?,
                Some(_) => self.pass.input("accumulate")?[0] = if index == 0 { 0.0 } else { 1.0 },
            }
            let run = self.run_of(run, index);
            self.pass.run(state, run)?;
            if self.ahead
                && let Some(batch) = next(&self.pass)?
            {
                self.give(&batch)?;
                self.given = Some(batch);
            }
            let loss = f64::from(self.pass.number(self.loss)?);
            if !loss.is_finite() {
                return Err(what_went_bad(&mut self.pass, state, run, &format!("the loss is {loss}"))?);
            }
            result.loss += loss / count as f64;
            let logits = self.pass.output_slice(self.logits)?;
            let rows = logits.chunks_exact(logits.len() / batch.labels.len());
            result.right += rows.zip(&batch.labels).filter(|(row, label)| is_first(row, **label)).count() as u64;
            used.push(batch);
        }
        let norm = match &mut self.update {
            None => self.pass.number(self.gradient_norm)?,
            Some(update) => {
                set_rates(update, rate, ema_decay)?;
                update.input("gradient_scale")?[0] = 1.0 / count as f32;
                update.run(state, run)?;
                update.number(self.gradient_norm)?
            }
        };
        result.grad_norm = f64::from(norm);
        if !norm.is_finite() {
            let run = self.run_of(run, count - 1);
            return Err(what_went_bad(&mut self.pass, state, run, &format!("the norm of the gradient is {norm}"))?);
        }
        Ok((result, used))
    }

    /// Hands a batch to the device, for the run that comes next.
    fn give(&mut self, batch: &Batch) -> Result<(), TrainError> {
        give_images(&mut self.pass, batch, self.form)?;
        match self.targets {
            TargetKind::Class => self.pass.input_i32("targets")?.copy_from_slice(&batch.labels),
            _ => self.pass.input("targets")?.copy_from_slice(&batch.targets),
        }
        Ok(self.pass.send_inputs()?)
    }

    /// What randomness of a batch follows from. Batches of one update have their own.
    fn run_of(&self, run: Run, index: usize) -> Run {
        match self.update {
            None => run,
            Some(_) => Run { step: (run.step << 20) + index as u64, ..run },
        }
    }
}

/// An error that says what was not finite first.
pub(crate) fn what_went_bad(
    pass: &mut Executor,
    state: &mut State,
    run: Run,
    what: &str,
) -> Result<TrainError, TrainError> {
    let cause = match pass.find_non_finite(state, run)? {
        None => "; each value is finite, only their sum is not".to_string(),
        Some(found) => {
            let kind = match found.kind {
                NotFiniteKind::Parameter => "parameter",
                NotFiniteKind::Input => "input",
                NotFiniteKind::Activation => "activation",
                NotFiniteKind::Gradient => "gradient of",
            };
            format!("; the first value that is not finite is in the {kind} `{}`: {}", found.path, found.value)
        }
    };
    Ok(TrainError::NotFinite { step: 0, what: format!("{what}{cause}") })
}

fn loss(graph: &mut Graph, recipe: &Recipe, logits: Value, targets: TargetKind) -> Result<Value, TrainError> {
    let (batch, classes) = (recipe.train.batch, recipe.model.classes);
    let wanted = match targets {
        TargetKind::Class => graph.input("targets", [batch], DType::I32)?,
        _ => graph.input("targets", [batch, classes], DType::F32)?,
    };
    Ok(match targets {
        TargetKind::Class => {
            let options =
                CrossEntropyOptions { label_smoothing: recipe.loss.label_smoothing, ..CrossEntropyOptions::default() };
            graph.cross_entropy(logits, wanted, options)?
        }
        // The loader has smoothed these.
        TargetKind::Shares { .. } => graph.cross_entropy(logits, wanted, CrossEntropyOptions::default())?,
        TargetKind::Each { .. } => graph.binary_cross_entropy(logits, wanted, false)?,
    })
}

pub(crate) fn rule(settings: &OptimizerSettings) -> Optimizer {
    let OptimizerSettings { betas: [beta1, beta2], eps, momentum, nesterov, .. } = *settings;
    match settings.name {
        OptimizerName::Adamw => Optimizer::AdamW { beta1, beta2, eps },
        OptimizerName::Sgd => Optimizer::Sgd { momentum, nesterov },
        OptimizerName::Lamb => Optimizer::Lamb { beta1, beta2, eps, trust_clip: false },
    }
}

pub(crate) fn set_rates(executor: &mut Executor, rate: f64, ema_decay: Option<f64>) -> Result<(), TrainError> {
    executor.input("learning_rate")?[0] = rate as f32;
    if let Some(decay) = ema_decay {
        executor.input("ema_decay")?[0] = decay as f32;
    }
    Ok(())
}

/// Whether a class's number is the largest.
fn is_first(logits: &[f32], label: i32) -> bool {
    let own = logits[label as usize];
    logits.iter().enumerate().all(|(class, &other)| other < own || class == label as usize)
}
