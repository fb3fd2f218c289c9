//! One update of the parameters: a batch, or several whose gradients are accumulated, through the model and the optimizer.
//!
//! The stepper takes any task's graph with its named inputs. It has a plan for each group of batches, all in one memory. On a GPU it
//! sends the next batch while the device computes.

mod cached;
mod on_gpus;
mod shared;

use std::collections::VecDeque;
use std::sync::Arc;

use vitreous_data::loader::{ArraySpec, ArrayValues, Batch};
use vitreous_engine::collective::{Wire, World};
use vitreous_engine::machine::refusal;
use vitreous_engine::{
    DType, Device, Executor, GradientOptions, Graph, Mode, MuonScale, NotFiniteKind, Optimizer, Parameter, Plan, Run,
    Shape, State, StepOptions, Value,
};

use crate::error::TrainError;
use crate::memory::{MemoryRequest, check_within};
use crate::ranks::{MemoryShare, Ranks, Reducer};
use crate::recipe::{OptimizerName, OptimizerSettings, PrecisionChoice, Recipe, ShardChoice};
use crate::task::{Correct, Objective, Task, Weighting};
use cached::{CachedPasses, CachedPlans};
use on_gpus::Carrier;
use shared::Shared;

/// The result of an update.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepResult {
    /// The mean loss.
    pub loss: f64,
    /// The norm of the gradient of all parameters, before clipping.
    pub grad_norm: f64,
    /// Right answers of the model as it is while training, with dropout and augmentation.
    pub correct: Correct,
    /// What the accumulated gradients in the state must be divided by to be those of the mean loss.
    pub gradient_sum_of: usize,
    /// Units (images, tokens) of all batches.
    pub units: u64,
    /// Floating-point operations.
    pub flops: u64,
    /// Whether the run stops after this update, because any of several ranks was asked to.
    pub stop: bool,
    /// Whether a checkpoint is due, on all ranks.
    pub save: bool,
}

/// The numbers that each update is given.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct StepSettings {
    /// How many batches it has, those of all ranks together.
    pub batches: usize,
    /// The learning rate.
    pub rate: f64,
    /// The decay of the moving average of the parameters, if one is kept.
    pub ema_decay: Option<f64>,
    /// Whether this process was asked to stop, and whether it is time for a checkpoint: told to all ranks.
    pub stop: bool,
    /// See `stop`.
    pub save: bool,
}

/// Gives the next batch, if there is one. It gets the executor that waits for it, to tell whether the device is idle.
pub type NextBatch<'n> = dyn FnMut(&Executor) -> Result<Option<Batch>, TrainError> + 'n;

/// The plans of updates, ready to run.
pub struct Stepper {
    /// Forward and backward pass for each group of batches; the update, too, unless gradients are accumulated. Of batches in chunks, the
    /// backward pass of a chunk.
    passes: Executor,
    /// What batches in chunks need besides.
    cached: Option<CachedPasses>,
    /// By group.
    groups: Vec<Pass>,
    /// The update with accumulated gradients, and its gradient norm.
    update: Option<(Executor, Value)>,
    weighting: Weighting,
    /// Whether batches are sent to the device while it computes the one before.
    sends_ahead: bool,
    /// How many batches must be there before the first of an update can run.
    batches_ahead: usize,
    /// Batches that were fetched and have not run.
    waiting: VecDeque<Batch>,
    /// Whether the first of them was sent to the device.
    sent: bool,
    /// The other ranks, if there are some.
    shared: Option<Shared>,
}

/// What is known of the plan for batches of one group.
#[derive(Clone, Debug)]
struct Pass {
    loss: Value,
    outputs: Vec<Value>,
    /// Unless gradients are accumulated.
    gradient_norm: Option<Value>,
    flops: u64,
}

/// The plan for batches of one group, before any memory is taken.
struct PassPlan {
    graph: Graph,
    plan: Plan,
    loss: Value,
    outputs: Vec<Value>,
    gradient_norm: Option<Value>,
}

impl PassPlan {
    fn new(
        task: &dyn Task,
        arrays: &[ArraySpec],
        options: &StepOptions,
        device: &Device,
        memory: MemoryShare,
    ) -> Result<PassPlan, TrainError> {
        let recipe = task.recipe();
        let mut graph = Graph::new(Mode::Training, recipe.train.precision.into());
        let Objective { loss, outputs } = task.build(&mut graph, arrays)?;
        let mut gradient_norm = None;
        match (recipe.train.accumulate, task.facts().weighting) {
            (1, _) => gradient_norm = Some(graph.training_step(loss, options)?.gradient_norm),
            (_, Weighting::Equal) => _ = graph.accumulation_step(loss, options)?,
            (_, Weighting::ByUnits) => {
                let weight = graph.input("weight", Shape::scalar(), DType::F32)?;
                let weighted = graph.multiply(loss, weight)?;
                graph.accumulation_step(weighted, options)?;
            }
        }
        let outputs =
            outputs.into_iter().map(|output| graph.cast(output, DType::F32)).collect::<Result<Vec<_>, _>>()?;
        check_state(&graph, device, memory)?;
        let wanted: Vec<Value> = [loss].into_iter().chain(outputs.iter().copied()).chain(gradient_norm).collect();
        let plan = device.plan(&graph, &wanted)?;
        Ok(PassPlan { graph, plan, loss, outputs, gradient_norm })
    }
}

impl Stepper {
    /// Plans the updates of a task, and makes the state that they change. What does not fit into memory is refused before any is
    /// taken.
    pub fn new(task: &dyn Task, device: &Device) -> Result<(Stepper, State), TrainError> {
        Stepper::on_ranks(task, device, &Ranks::default())
    }

    /// As [`Stepper::new`], of updates that are shared out among ranks.
    pub fn on_ranks(task: &dyn Task, device: &Device, ranks: &Ranks) -> Result<(Stepper, State), TrainError> {
        check_ranks(task, device, ranks)?;
        let memory = MemoryShare::of(ranks, device)?;
        let (recipe, facts) = (task.recipe(), task.facts());
        let group = |parameter: &Parameter| task.group(parameter);
        let options = |recompute: bool| StepOptions {
            optimizer: optimizer(&recipe.optimizer),
            group: &group,
            clip: Some(recipe.optimizer.clip).filter(|&limit| limit > 0.0),
            ema: facts.averaging.ema > 0.0,
            gradient: GradientOptions { recompute },
        };
        let usual = options(recipe.train.recompute);
        let source = task.batches();
        if let Some(chunked) = task.chunked() {
            return Stepper::in_chunks(task, chunked, &usual, device);
        }
        let (mut plans, mut groups, mut last) = (Vec::new(), Vec::new(), None);
        for arrays in source.groups() {
            let PassPlan { graph, plan, loss, outputs, gradient_norm } =
                PassPlan::new(task, arrays, &usual, device, memory)?;
            groups.push(Pass { loss, outputs, gradient_norm, flops: plan.flops() });
            plans.push(plan);
            last = Some(graph);
        }
        let graph = last.ok_or_else(|| TrainError::Data("there is no batch to train on".to_string()))?;
        let update = match recipe.train.accumulate {
            1 => None,
            _ => {
                let (graph, values) = graph.update_step(&usual)?;
                let plan = device.plan(&graph, &[values.gradient_norm])?;
                Some((graph, plan, values.gradient_norm))
            }
        };
        let whole = update.as_ref().map_or(&graph, |(graph, ..)| graph);
        let update_bytes = update.as_ref().map_or(0, |(_, plan, _)| device.bytes_needed(plan));
        let reducer = ranks.world().map(|world| reducer(world, recipe, whole));
        let (floats, wire) = parcels(recipe);
        let carrier = ranks.world().map(|world| Carrier::find(world, device, whole.parameters(), floats, wire));
        let carrier = carrier.transpose()?.unwrap_or_default();
        let shard = reducer.as_ref().and_then(Reducer::shard);
        let through_host = reducer.as_ref().filter(|_| carrier.reduction.is_none());
        let on_the_way = through_host.map_or(0, |_| Reducer::bytes(whole.parameters(), ranks.size()));
        let elsewhere = State::bytes_needed(whole) - State::bytes_needed_with(whole, shard.as_ref());
        let state_bytes = device.state_bytes_needed(whole) - elsewhere;
        let rest = update_bytes.saturating_add(state_bytes).saturating_add(on_the_way);
        let sharding = ranks.world().filter(|_| shard.is_none() && !device.is_gpu()).map_or(0, |world| {
            let shard = Reducer::new(world.clone(), whole, floats, wire, true).shard();
            State::bytes_needed(whole) - State::bytes_needed_with(whole, shard.as_ref())
        });
        check_memory(task, (device, memory), &plans, rest, sharding, &options)?;
        let state = match shard {
            Some(shard) => State::sharded(whole, shard)?,
            None => State::new(whole)?,
        };
        let passes = Executor::for_turns(plans, device)?;
        let update = match update {
            None => None,
            Some((_, plan, gradient_norm)) => Some((Executor::new(plan, device)?, gradient_norm)),
        };
        let weighted = update.is_some() && facts.weighting == Weighting::ByUnits;
        let shared = reducer.map(|reducer| Shared { ranks: ranks.clone(), reducer, carrier });
        let own_batches = recipe.train.accumulate.min(source.batches_per_epoch()).div_ceil(ranks.size());
        let stepper = Stepper {
            passes,
            cached: None,
            groups,
            update,
            weighting: facts.weighting,
            sends_ahead: device.is_gpu(),
            batches_ahead: if weighted { own_batches } else { 1 },
            waiting: VecDeque::new(),
            sent: false,
            shared,
        };
        Ok((stepper, state))
    }

    /// Plans updates whose batches go through the model in chunks.
    fn in_chunks(
        task: &dyn Task,
        chunked: &dyn crate::task::ChunkedLoss,
        options: &StepOptions,
        device: &Device,
    ) -> Result<(Stepper, State), TrainError> {
        let source = task.batches();
        let [arrays] = source.groups() else {
            return Err(TrainError::Data("batches in chunks have one shape".to_string()));
        };
        let precision = task.recipe().train.precision.into();
        let plans = CachedPlans::new(chunked, precision, arrays, options, device)?;
        check_state(&plans.graph, device, MemoryShare::of(&Ranks::default(), device)?)?;
        let (graph, values) = plans.graph.update_step(options)?;
        let update = device.plan(&graph, &[values.gradient_norm])?;
        let rest = device.bytes_needed(&update).saturating_add(device.state_bytes_needed(&graph));
        let what = format!("training in chunks of {}", chunked.chunk_rows());
        device.check_memory(&what, plans.bytes(device).saturating_add(rest))?;
        let state = State::new(&graph)?;
        let (cached, passes) = plans.ready(device)?;
        let stepper = Stepper {
            passes,
            cached: Some(cached),
            groups: Vec::new(),
            update: Some((Executor::new(update, device)?, values.gradient_norm)),
            weighting: Weighting::Equal,
            sends_ahead: false,
            batches_ahead: 1,
            waiting: VecDeque::new(),
            sent: false,
            shared: None,
        };
        Ok((stepper, state))
    }

    /// Bytes that running takes, besides the state.
    pub fn bytes(&self) -> usize {
        self.cached.as_ref().map_or(0, CachedPasses::bytes)
            + self.passes.memory_bytes()
            + self.update.as_ref().map_or(0, |(update, _)| update.memory_bytes())
    }

    /// Floating-point operations of the largest batch.
    pub fn largest_flops(&self) -> u64 {
        let cached = self.cached.as_ref().map(CachedPasses::flops);
        self.groups.iter().map(|pass| pass.flops).chain(cached).max().unwrap_or(0)
    }

    /// Makes an update with the mean gradient of some batches, each weighted as the task says. Where the loss or the gradient is not
    /// finite, no parameter changes, and the error names the first value that is not finite. The used batches come back.
    pub fn step(
        &mut self,
        task: &dyn Task,
        state: &mut State,
        settings: StepSettings,
        next: &mut NextBatch,
        run: Run,
    ) -> Result<(StepResult, Vec<Batch>), TrainError> {
        if let Some(mut cached) = self.cached.take() {
            let stepped = self.step_in_chunks(&mut cached, task, state, settings, next, run);
            self.cached = Some(cached);
            return stepped;
        }
        if let Some(mut shared) = self.shared.take() {
            let stepped = self.step_shared(&mut shared, task, state, settings, next, run);
            self.shared = Some(shared);
            return stepped;
        }
        let count = settings.batches;
        let weighted = self.update.is_some() && self.weighting == Weighting::ByUnits;
        self.fetch(if weighted { count } else { 1 }, next)?;
        let units: usize = self.waiting.iter().take(count).map(|batch| batch.units).sum();
        let gradient_sum_of = if weighted { 1 } else { count };
        let StepSettings { stop, save, .. } = settings;
        let mut result = StepResult { gradient_sum_of, stop, save, ..StepResult::default() };
        let (mut used, mut norm, mut last) = (Vec::new(), f32::NAN, run);
        for index in 0..count {
            let batch = self.take(next)?;
            let share = match self.weighting {
                Weighting::Equal => 1.0 / count as f64,
                Weighting::ByUnits if weighted => batch.units as f64 / units as f64,
                Weighting::ByUnits => 1.0,
            };
            let pass = self.groups[batch.group].clone();
            last = self.run_pass(state, index, share, settings, run)?;
            self.send_next(next)?;
            self.passes.choose(batch.group);
            let loss = f64::from(self.passes.number(pass.loss)?);
            if !loss.is_finite() {
                return self.not_finite(state, &batch, last, &format!("the loss is {loss}"));
            }
            result.loss += match self.weighting {
                Weighting::Equal => loss / count as f64,
                Weighting::ByUnits => loss * share,
            };
            let outputs: Result<Vec<&[f32]>, _> =
                pass.outputs.iter().map(|&value| self.passes.output_slice(value)).collect();
            if let Some(Correct { right, total }) = task.correct(&batch, &outputs?) {
                result.correct.right += right;
                result.correct.total += total;
            }
            if let Some(value) = pass.gradient_norm {
                norm = self.passes.number(value)?;
            }
            result.units += batch.units as u64;
            result.flops += pass.flops;
            used.push(batch);
        }
        if let Some((update, gradient_norm)) = &mut self.update {
            set_rates(update, settings)?;
            update.input("gradient_scale")?[0] = 1.0 / result.gradient_sum_of as f32;
            update.run(state, run)?;
            norm = update.number(*gradient_norm)?;
        }
        result.grad_norm = f64::from(norm);
        match used.last() {
            Some(batch) if !norm.is_finite() => {
                self.not_finite(state, batch, last, &format!("the gradient norm is {norm}"))
            }
            _ => Ok((result, used)),
        }
    }

    /// Runs a batch again to find the first value that is not finite, and fails with its name.
    fn not_finite<T>(&mut self, state: &mut State, batch: &Batch, run: Run, what: &str) -> Result<T, TrainError> {
        self.passes.choose(batch.group);
        // The inputs may be those of the next batch by now.
        fill_inputs(&mut self.passes, batch, |_| true)?;
        let cause = match self.passes.find_non_finite(state, run)? {
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
        Err(TrainError::NotFinite { step: 0, what: format!("{what}{cause}") })
    }

    /// Runs the batch whose inputs were filled. Returns what its randomness followed from.
    fn run_pass(
        &mut self,
        state: &mut State,
        index: usize,
        share: f64,
        settings: StepSettings,
        run: Run,
    ) -> Result<Run, TrainError> {
        let run = match self.update {
            None => {
                set_rates(&mut self.passes, settings)?;
                run
            }
            Some(_) => {
                self.passes.input("accumulate")?[0] = if index == 0 { 0.0 } else { 1.0 };
                if self.weighting == Weighting::ByUnits {
                    self.passes.input("weight")?[0] = share as f32;
                }
                self.run_of(index, run)
            }
        };
        self.passes.run(state, run)?;
        Ok(run)
    }

    /// Each batch of an update has randomness of its own.
    fn run_of(&self, index: usize, run: Run) -> Run {
        Run { step: (run.step << 20) + index as u64, ..run }
    }

    /// Fetches batches until this many wait, or there are no more.
    fn fetch(&mut self, count: usize, next: &mut NextBatch) -> Result<(), TrainError> {
        while self.waiting.len() < count {
            match next(&self.passes)? {
                Some(batch) => self.waiting.push_back(batch),
                None => break,
            }
        }
        Ok(())
    }

    /// The next batch, with its inputs filled.
    fn take(&mut self, next: &mut NextBatch) -> Result<Batch, TrainError> {
        self.fetch(1, next)?;
        if !self.sent {
            self.send_first()?;
        }
        self.sent = false;
        let batch = self.waiting.pop_front();
        let batch = batch.ok_or_else(|| TrainError::Data("the data ended before the epoch did".to_string()))?;
        self.passes.choose(batch.group);
        Ok(batch)
    }

    /// Sends the next batch while the device computes.
    fn send_next(&mut self, next: &mut NextBatch) -> Result<(), TrainError> {
        if !self.sends_ahead {
            return Ok(());
        }
        self.fetch(self.batches_ahead, next)?;
        self.send_first()
    }

    /// Fills the inputs with the first batch that waits, and starts to send them to the device.
    fn send_first(&mut self) -> Result<(), TrainError> {
        let Some(batch) = self.waiting.front() else { return Ok(()) };
        self.passes.choose(batch.group);
        fill_inputs(&mut self.passes, batch, |_| true)?;
        self.passes.send_inputs()?;
        self.sent = true;
        Ok(())
    }
}

/// Copies the arrays of a batch to the inputs of their names; only those that the graph has, as `takes` says.
pub(crate) fn fill_inputs(
    executor: &mut Executor,
    batch: &Batch,
    takes: impl Fn(&str) -> bool,
) -> Result<(), TrainError> {
    for array in batch.arrays.iter().filter(|array| takes(array.name)) {
        match &array.values {
            ArrayValues::F32(values) => executor.input(array.name)?.copy_from_slice(values),
            ArrayValues::I32(values) => executor.input_i32(array.name)?.copy_from_slice(values),
        }
    }
    Ok(())
}

/// The same arrays for another number of rows.
fn with_rows(arrays: &[ArraySpec], rows: usize) -> Vec<ArraySpec> {
    let mut arrays = arrays.to_vec();
    arrays.iter_mut().filter_map(|array| array.shape.first_mut()).for_each(|first| *first = rows);
    arrays
}

/// How many gradients travel together, and in which form.
fn parcels(recipe: &Recipe) -> (usize, Wire) {
    let wire = match recipe.train.wire {
        PrecisionChoice::F32 => Wire::F32,
        PrecisionChoice::Bf16 => Wire::Bf16,
    };
    ((recipe.train.bucket * f64::from(1 << 18)) as usize, wire)
}

/// How the gradients of these parameters are added up.
fn reducer(world: &Arc<World>, recipe: &Recipe, update: &Graph) -> Reducer {
    let (floats, wire) = parcels(recipe);
    Reducer::new(world.clone(), update, floats, wire, recipe.train.shard == ShardChoice::Optimizer)
}

/// Refuses to share out what cannot be shared.
fn check_ranks(task: &dyn Task, device: &Device, ranks: &Ranks) -> Result<(), TrainError> {
    if ranks.size() == 1 {
        return Ok(());
    }
    if task.recipe().train.shard == ShardChoice::Optimizer && device.is_gpu() {
        return Err(TrainError::Ranks(
            "train.shard=optimizer: moments are shared out among processes on CPUs alone, not yet among GPUs; use train.shard=none"
                .to_string(),
        ));
    }
    if task.chunked().is_some() {
        return Err(TrainError::Ranks(
            "a batch that goes through the model in chunks has one loss over all of its rows, and cannot be shared out among ranks: \
             train without chunks, or with one process"
                .to_string(),
        ));
    }
    let (batches, size) = (task.recipe().train.accumulate, ranks.size());
    match batches < size {
        true => Err(TrainError::Ranks(format!(
            "an update of this run has {batches} batches (train.accumulate in its recipe.toml), so at most {batches} ranks \
             can share it, and there are {size}: start fewer"
        ))),
        false => Ok(()),
    }
}

/// Refuses a model whose state alone does not fit into the device's memory, before it is planned: no other batch would help.
fn check_state(graph: &Graph, device: &Device, memory: MemoryShare) -> Result<(), TrainError> {
    let needed = device.state_bytes_needed(graph) as u64;
    match memory.available {
        Some(available) if needed > available => {
            let parameters: usize = graph.parameters().iter().map(|parameter| parameter.shape.elements()).sum();
            let what = format!("training a model of {parameters} parameters, with their gradients and moments,");
            let what = memory.purpose(&what);
            Err(TrainError::TooLarge(refusal(&what, needed, available, "take a smaller model").to_string()))
        }
        _ => Ok(()),
    }
}

/// Refuses plans that do not fit into the device's memory, and says what would. `rest` is what the update and the state take, and
/// `sharding` by how much less that would be if ranks shared out the moments.
fn check_memory<'o>(
    task: &dyn Task,
    (device, memory): (&Device, MemoryShare),
    plans: &[Plan],
    rest: usize,
    sharding: usize,
    options: &dyn Fn(bool) -> StepOptions<'o>,
) -> Result<(), TrainError> {
    let (recipe, facts, source) = (task.recipe(), task.facts(), task.batches());
    let needed = plans.iter().map(|plan| device.bytes_needed(plan)).enumerate();
    let Some((group, largest)) = needed.max_by_key(|(_, bytes)| *bytes) else { return Ok(()) };
    let (arrays, row_size) = (&source.groups()[group], facts.row_sizes[group]);
    // One plan runs at a time, but all keep their constants.
    let constants: usize = plans.iter().map(Plan::constant_bytes).sum();
    let rest = rest.saturating_add(constants - plans[group].constant_bytes());
    let (setting, size) = facts.batch_size;
    let rows_of = |size: usize| (size / row_size).max(1);
    let total = |pass: usize, size: usize| -> Result<usize, TrainError> {
        Ok(pass.saturating_add(rest).saturating_add(task.evaluation_bytes(rows_of(size))?))
    };
    let setting = format!("{setting}=");
    let request = MemoryRequest {
        purpose: memory.purpose(&format!("training with {setting}{size}")),
        setting: &setting,
        size,
        // The longest sample must fit into a batch.
        least: facts.row_sizes.iter().copied().max().unwrap_or(1),
        bytes: total(largest, size)?,
        recompute: (!recipe.train.recompute).then_some("train.recompute=true"),
        other: (sharding > 0).then_some(("train.shard=optimizer", sharding)),
    };
    // Only the group that needs the most: planning all of them for each size would take too long.
    check_within(memory.available, &request, |size, recompute| {
        let options = options(recipe.train.recompute || recompute);
        let pass = PassPlan::new(task, &with_rows(arrays, rows_of(size)), &options, device, memory).ok()?;
        total(device.bytes_needed(&pass.plan), size).ok()
    })?;
    Ok(())
}

fn optimizer(settings: &OptimizerSettings) -> Optimizer {
    let OptimizerSettings { betas: [beta1, beta2], eps, momentum, nesterov, .. } = *settings;
    match settings.name {
        OptimizerName::Adamw => Optimizer::AdamW { beta1, beta2, eps },
        OptimizerName::Sgd => Optimizer::Sgd { momentum, nesterov },
        OptimizerName::Lamb => Optimizer::Lamb { beta1, beta2, eps, trust_clip: false },
        // Updates as large as AdamW's, so that one learning rate does for both.
        OptimizerName::Muon => Optimizer::Muon { momentum, nesterov, scale: MuonScale::MatchAdamW, beta1, beta2, eps },
    }
}

fn set_rates(executor: &mut Executor, settings: StepSettings) -> Result<(), TrainError> {
    executor.input("learning_rate")?[0] = settings.rate as f32;
    if let Some(decay) = settings.ema_decay {
        executor.input("ema_decay")?[0] = decay as f32;
    }
    Ok(())
}
