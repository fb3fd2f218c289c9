//! Gradient caching ("Scaling Deep Contrastive Learning Batch Size under Memory Limited Setup"): the gradients of a loss over a whole batch
//! whose rows go through the model in chunks, so that only a chunk's activations are in memory.
//!
//! 1. The vectors of all chunks are computed without a backward pass.
//! 2. The loss of all vectors, and its gradient with respect to each.
//! 3. Chunk by chunk, the vectors again, and the gradients of `Σ vector · gradient`, which are accumulated.
//!
//! Random masks are functions of their position, so both passes of a chunk have the same ones.

use vitreous_data::loader::{ArraySpec, ArrayValues, Batch};
use vitreous_engine::{
    DType, Device, Executor, GradientOptions, Graph, Mode, Parameter, Plan, Precision, Run, Shape, State, StepOptions,
    Value,
};

use super::{StepResult, StepSettings, set_rates};
use crate::error::TrainError;
use crate::task::{Chunked, ChunkedLoss, Objective, Task};

/// The plans of a batch in chunks.
pub(super) struct CachedPasses {
    rows: usize,
    forward: Executor,
    /// Vectors of a chunk, then what is the same for all.
    carried: Vec<Value>,
    loss: Executor,
    loss_value: Value,
    outputs: Vec<Value>,
    /// The loss's gradients with respect to what is carried.
    gradients: Vec<Value>,
    /// How many of the carried values are rows of vectors.
    by_row: usize,
    /// The arrays of a batch that the loss reads as a whole; the others are rows of chunks.
    of_loss: Vec<&'static str>,
    flops: u64,
}

/// The plans before any memory is taken.
pub(super) struct CachedPlans {
    pub(super) graph: Graph,
    rows: usize,
    by_row: usize,
    forward: (Plan, Vec<Value>),
    loss: Plan,
    loss_value: Value,
    outputs: Vec<Value>,
    gradients: Vec<Value>,
    backward: Plan,
    of_loss: Vec<&'static str>,
    flops: u64,
}

fn name_of(part: &str, index: usize) -> String {
    format!("{part}_{index}")
}

impl CachedPlans {
    /// Plans a batch with these arrays.
    pub(super) fn new(
        of: &dyn ChunkedLoss,
        precision: Precision,
        arrays: &[ArraySpec],
        options: &StepOptions,
        device: &Device,
    ) -> Result<CachedPlans, TrainError> {
        let (rows, batch) =
            (of.chunk_rows(), arrays.first().and_then(|array| array.shape.first()).copied().unwrap_or(0));
        let chunk = super::with_rows(arrays, rows);
        let mut graph = Graph::new(Mode::Training, precision);
        let Chunked { vectors, numbers } = of.build_chunk(&mut graph, &chunk)?;
        let by_row = vectors.len();
        let vectors = vectors.iter().map(|&value| graph.cast(value, DType::F32)).collect::<Result<Vec<Value>, _>>()?;
        // A parameter itself cannot be asked for: it is the state's.
        let numbers = numbers.iter().map(|&value| graph.scale(value, 1.0)).collect::<Result<Vec<Value>, _>>()?;
        let carried = [vectors, numbers].concat();
        let shapes: Vec<Shape> = carried.iter().map(|&value| graph.shape_of(value).clone()).collect();
        let forward = device.plan(&graph, &carried)?;
        let forward_flops = forward.flops();

        let mut loss_graph = Graph::new(Mode::Training, Precision::F32);
        let mut inputs = Vec::new();
        for (index, shape) in shapes.iter().enumerate() {
            let mut axes = shape.axes().to_vec();
            if index < by_row {
                axes[0] = batch;
            }
            inputs.push(loss_graph.input(&name_of("carried", index), Shape::new(axes), DType::F32)?);
        }
        let Objective { loss: loss_value, outputs } =
            of.build_loss(&mut loss_graph, &inputs[..by_row], &inputs[by_row..])?;
        let gradients = loss_graph.gradients(loss_value, &inputs, GradientOptions::default())?;
        let reads = |array: &&ArraySpec| loss_graph.inputs().any(|(name, _)| name == array.name);
        let of_loss: Vec<&'static str> = arrays.iter().filter(reads).map(|array| array.name).collect();
        let wanted: Vec<Value> = [loss_value].iter().chain(&outputs).chain(&gradients).copied().collect();
        let loss = device.plan_with_fixed_weights(&loss_graph, &wanted)?;

        let mut sum = None;
        for (index, &value) in carried.iter().enumerate() {
            let shape = graph.shape_of(value).clone();
            let gradient = graph.input(&name_of("gradient", index), shape, DType::F32)?;
            let product = graph.multiply(value, gradient)?;
            let product = graph.sum_leading(product, Shape::scalar())?;
            sum = Some(match sum {
                None => product,
                Some(sum) => graph.add(sum, product)?,
            });
        }
        let sum = sum.ok_or_else(|| TrainError::Data("a chunk has no vectors".to_string()))?;
        graph.accumulation_step(sum, options)?;
        let backward = device.plan(&graph, &[sum])?;
        let chunks = (batch / rows) as u64;
        let flops = chunks * (forward_flops + backward.flops()) + loss.flops();
        Ok(CachedPlans {
            graph,
            rows,
            by_row,
            forward: (forward, carried),
            loss,
            loss_value,
            outputs,
            gradients,
            backward,
            of_loss,
            flops,
        })
    }

    /// The bytes that all of them take together.
    pub(super) fn bytes(&self, device: &Device) -> usize {
        [&self.forward.0, &self.backward].iter().map(|plan| device.bytes_needed(plan)).sum::<usize>()
            + device.bytes_needed_with_weights(&self.loss)
    }

    /// Takes memory: for the first two passes, and for the third, which accumulates gradients.
    pub(super) fn ready(self, device: &Device) -> Result<(CachedPasses, Executor), TrainError> {
        let none = |parameter: &Parameter| {
            let what = format!("the loss of a batch has a parameter, {}", parameter.name);
            Err::<&[f32], _>(vitreous_engine::Error::Machine(what))
        };
        let (forward, carried) = self.forward;
        let passes = CachedPasses {
            rows: self.rows,
            forward: Executor::new(forward, device)?,
            carried,
            loss: Executor::with_weights(self.loss, device, none)?,
            loss_value: self.loss_value,
            outputs: self.outputs,
            gradients: self.gradients,
            by_row: self.by_row,
            of_loss: self.of_loss,
            flops: self.flops,
        };
        Ok((passes, Executor::new(self.backward, device)?))
    }
}

impl CachedPasses {
    pub(super) fn bytes(&self) -> usize {
        self.forward.memory_bytes() + self.loss.memory_bytes()
    }

    pub(super) fn flops(&self) -> u64 {
        self.flops
    }

    /// Adds the gradients of a batch to the state's; those of the first batch of an update replace them. Returns the loss.
    fn run(
        &mut self,
        backward: &mut Executor,
        state: &mut State,
        batch: &Batch,
        index: usize,
        run: Run,
    ) -> Result<f32, TrainError> {
        let all = batch.arrays.first().and_then(|array| array.shape.first()).copied().unwrap_or(0);
        let chunks = all / self.rows;
        // Each chunk of each batch of an update has randomness of its own.
        let of_chunk = |chunk: usize| Run { step: (run.step << 20) + (index * chunks + chunk) as u64, ..run };
        for chunk in 0..chunks {
            fill_chunk(&mut self.forward, batch, &self.of_loss, chunk, self.rows)?;
            self.forward.run(state, of_chunk(chunk))?;
            self.forward.finish()?;
            for (index, &value) in self.carried.iter().enumerate() {
                let values = self.forward.output_slice(value)?;
                let to = self.loss.input(&name_of("carried", index))?;
                let place = if index < self.by_row { chunk * values.len() } else { 0 };
                to[place..place + values.len()].copy_from_slice(values);
            }
        }
        super::fill_inputs(&mut self.loss, batch, |name| self.of_loss.contains(&name))?;
        self.loss.infer()?;
        self.loss.finish()?;
        let loss = self.loss.number(self.loss_value)?;
        for chunk in 0..chunks {
            fill_chunk(backward, batch, &self.of_loss, chunk, self.rows)?;
            for (index, &gradient) in self.gradients.iter().enumerate() {
                let values = self.loss.output_slice(gradient)?;
                let to = backward.input(&name_of("gradient", index))?;
                match index < self.by_row {
                    true => {
                        let length = to.len();
                        to.copy_from_slice(&values[chunk * length..][..length]);
                    }
                    // What is the same for all chunks counts once.
                    false if chunk == 0 => to.copy_from_slice(values),
                    false => to.fill(0.0),
                }
            }
            backward.input("accumulate")?[0] = if index == 0 && chunk == 0 { 0.0 } else { 1.0 };
            backward.run(state, of_chunk(chunk))?;
            backward.finish()?;
        }
        Ok(loss)
    }

    /// What the loss gives besides.
    pub(super) fn outputs(&self) -> Result<Vec<&[f32]>, TrainError> {
        Ok(self.outputs.iter().map(|&value| self.loss.output_slice(value)).collect::<Result<Vec<_>, _>>()?)
    }
}

/// Fills the inputs with the rows of a chunk.
fn fill_chunk(
    executor: &mut Executor,
    batch: &Batch,
    of_loss: &[&str],
    chunk: usize,
    rows: usize,
) -> Result<(), TrainError> {
    for array in batch.arrays.iter().filter(|array| !of_loss.contains(&array.name)) {
        let per_row: usize = array.shape[1..].iter().product();
        let range = chunk * rows * per_row..(chunk + 1) * rows * per_row;
        match &array.values {
            ArrayValues::F32(values) => executor.input(array.name)?.copy_from_slice(&values[range]),
            ArrayValues::I32(values) => {
                let to = executor.input_i32(array.name)?;
                to.copy_from_slice(&values[range]);
                // An index in the whole batch becomes one in the chunk.
                if array.name == vitreous_models::POOLED {
                    let length =
                        batch.arrays.iter().find(|array| array.name == "tokens").map_or(0, |array| array.shape[1]);
                    let before = (chunk * rows * length) as i32;
                    to.iter_mut().for_each(|place| *place -= before);
                }
            }
        }
    }
    Ok(())
}

impl super::Stepper {
    /// An update with the gradients of batches in chunks.
    pub(super) fn step_in_chunks(
        &mut self,
        cached: &mut CachedPasses,
        task: &dyn Task,
        state: &mut State,
        settings: StepSettings,
        next: &mut super::NextBatch,
        run: Run,
    ) -> Result<(StepResult, Vec<Batch>), TrainError> {
        let count = settings.batches;
        let StepSettings { stop, save, .. } = settings;
        let mut result = StepResult { gradient_sum_of: count, stop, save, ..StepResult::default() };
        let mut used = Vec::new();
        for index in 0..count {
            self.fetch(1, next)?;
            let batch = self.waiting.pop_front();
            let batch = batch.ok_or_else(|| TrainError::Data("the data ended before the epoch did".to_string()))?;
            let loss = f64::from(cached.run(&mut self.passes, state, &batch, index, run)?);
            if !loss.is_finite() {
                return Err(TrainError::NotFinite { step: 0, what: format!("the loss is {loss}") });
            }
            result.loss += loss / count as f64;
            if let Some(correct) = task.correct(&batch, &cached.outputs()?) {
                result.correct.right += correct.right;
                result.correct.total += correct.total;
            }
            result.units += batch.units as u64;
            result.flops += cached.flops();
            used.push(batch);
        }
        if let Some((update, gradient_norm)) = &mut self.update {
            set_rates(update, settings)?;
            update.input("gradient_scale")?[0] = 1.0 / count as f32;
            update.run(state, run)?;
            result.grad_norm = f64::from(update.number(*gradient_norm)?);
        }
        match result.grad_norm.is_finite() {
            true => Ok((result, used)),
            false => {
                let what = format!("the gradient norm is {}", result.grad_norm);
                Err(TrainError::NotFinite { step: 0, what })
            }
        }
    }
}
