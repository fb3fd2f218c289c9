//! One update of a translator: a batch of pairs, or several whose gradients are added by their number of tokens.

use std::collections::HashMap;

use vitreous_data::text::{BatchShape, PADDING, PairBatch};
use vitreous_engine::{
    CrossEntropyOptions, DType, Device, Executor, GradientOptions, Graph, Group, Mode, Parameter, Plan, Run, Shape,
    State, StepOptions, Value,
};
use vitreous_models::transformer::{PairShape, transformer};

use crate::error::TrainError;
use crate::fits::{self, Order};
use crate::recipe::TranslationRecipe;
use crate::step::{StepResult, rule, set_rates, what_went_bad};

/// The plans of an update, one for each shape of a batch, in one memory.
pub(crate) struct PairStepper {
    /// Forward and backward pass; the update, too, unless gradients are added up.
    passes: Executor,
    /// The update of gradients that were added up, and its gradient norm.
    update: Option<(Executor, Value)>,
    /// The plan of each shape.
    places: HashMap<BatchShape, Place>,
}

#[derive(Clone, Copy)]
struct Place {
    plan: usize,
    loss: Value,
    gradient_norm: Option<Value>,
    flops: u64,
}

/// The plan of batches of one shape, before any memory is taken.
struct Pass {
    graph: Graph,
    plan: Plan,
    loss: Value,
    /// Unless gradients are added up.
    gradient_norm: Option<Value>,
}

impl Pass {
    fn new(
        recipe: &TranslationRecipe,
        shape: BatchShape,
        options: &StepOptions,
        device: &Device,
    ) -> Result<Pass, TrainError> {
        let mut graph = Graph::new(Mode::Training, recipe.train.precision.into());
        let loss = loss(&mut graph, recipe, shape)?;
        let mut outputs = vec![loss];
        let mut gradient_norm = None;
        if recipe.train.accumulate > 1 {
            let weight = graph.input("weight", Shape::scalar(), DType::F32)?;
            let weighted = graph.multiply(loss, weight)?;
            graph.accumulation_step(weighted, options)?;
        } else {
            gradient_norm = Some(graph.training_step(loss, options)?.gradient_norm);
            outputs.extend(gradient_norm);
        }
        let plan = device.plan(&graph, &outputs)?;
        Ok(Pass { graph, plan, loss, gradient_norm })
    }
}

/// Tokens of the longer side of a shape's pairs, of which a batch has as many as its tokens allow.
fn longer_side(shape: &BatchShape) -> usize {
    shape.source.max(shape.target)
}

impl PairStepper {
    /// Plans the updates of a recipe's model for batches of these shapes, and makes the state that they change.
    pub fn new(
        recipe: &TranslationRecipe,
        shapes: &[BatchShape],
        device: &Device,
    ) -> Result<(PairStepper, State), TrainError> {
        let (optimizer, train) = (&recipe.optimizer, &recipe.train);
        let group = |parameter: &Parameter| {
            let decays = optimizer.decay_all || parameter.shape.rank() > 1;
            Some(Group { decay: if decays { optimizer.weight_decay } else { 0.0 }, rate_factor: 1.0 })
        };
        let options = |recompute: bool| StepOptions {
            optimizer: rule(optimizer),
            group: &group,
            clip: Some(optimizer.clip).filter(|&limit| limit > 0.0),
            ema: false,
            gradient: GradientOptions { recompute },
        };
        let (mut plans, mut places, mut last) = (Vec::new(), HashMap::new(), None);
        for &shape in shapes {
            let Pass { graph, plan, loss, gradient_norm } =
                Pass::new(recipe, shape, &options(train.recompute), device)?;
            places.insert(shape, Place { plan: plans.len(), loss, gradient_norm, flops: plan.flops() });
            plans.push(plan);
            last = Some(graph);
        }
        let graph = last.ok_or_else(|| TrainError::Data("there is no batch to learn from".to_string()))?;
        let update = match train.accumulate > 1 {
            true => {
                let (graph, values) = graph.update_step(&options(train.recompute))?;
                let plan = device.plan(&graph, &[values.gradient_norm])?;
                Some((graph, plan, values.gradient_norm))
            }
            false => None,
        };
        let whole = update.as_ref().map_or(&graph, |(graph, ..)| graph);
        // One runs at a time, but all keep their constants.
        let of_passes = plans.iter().map(|plan| device.bytes_needed(plan)).zip(shapes);
        let (largest, largest_shape) = of_passes.max_by_key(|(bytes, _)| *bytes).expect("there is a shape");
        let constants: usize = plans.iter().map(Plan::constant_bytes).sum();
        let of_update = update.as_ref().map_or(0, |(_, plan, _)| device.bytes_needed(plan));
        let rest = constants + of_update + device.state_bytes_needed(whole);
        let order = Order {
            what: format!("training with train.tokens={}", train.tokens),
            setting: "train.tokens=",
            size: train.tokens,
            // The longest pair must fit into a batch.
            least: shapes.iter().map(longer_side).max().unwrap_or(1),
            bytes: largest.saturating_add(rest),
            recompute: (!train.recompute).then_some("train.recompute=true"),
        };
        // Of the shape that needs the most: planning all of them for each number of tokens would take too long.
        fits::check(device, &order, |tokens, recompute| {
            let shape = BatchShape { batch: (tokens / longer_side(largest_shape)).max(1), ..*largest_shape };
            let pass = Pass::new(recipe, shape, &options(train.recompute || recompute), device).ok()?;
            Some(device.bytes_needed(&pass.plan).saturating_add(rest))
        })?;
        let state = State::new(whole)?;
        let passes = Executor::for_turns(plans, device)?;
        let update = match update {
            None => None,
            Some((_, plan, gradient_norm)) => Some((Executor::new(plan, device)?, gradient_norm)),
        };
        Ok((PairStepper { passes, update, places }, state))
    }

    /// Bytes that running takes, besides the state.
    pub fn bytes(&self) -> usize {
        self.passes.memory_bytes() + self.update.as_ref().map_or(0, |(update, _)| update.memory_bytes())
    }

    /// Arithmetic of a batch of this shape.
    pub fn flops(&self, shape: BatchShape) -> u64 {
        self.places.get(&shape).map_or(0, |place| place.flops)
    }

    /// Arithmetic of the largest batch.
    pub fn largest_flops(&self) -> u64 {
        self.places.values().map(|place| place.flops).max().unwrap_or(0)
    }

    /// Makes an update of the mean of the batches' gradients over all their tokens.
    pub fn step(
        &mut self,
        state: &mut State,
        batches: &[PairBatch],
        rate: f64,
        run: Run,
    ) -> Result<StepResult, TrainError> {
        let tokens: usize = batches.iter().map(|batch| batch.tokens).sum();
        let mut result = StepResult { batches: 1, ..StepResult::default() };
        let mut norm = f32::NAN;
        let mut last = run;
        for (index, batch) in batches.iter().enumerate() {
            let place = self.places[&batch.shape];
            self.passes.choose(place.plan);
            self.fill(batch)?;
            let share = batch.tokens as f64 / tokens as f64;
            last = match self.update {
                None => {
                    set_rates(&mut self.passes, rate, None)?;
                    run
                }
                Some(_) => {
                    self.passes.input("accumulate")?[0] = if index == 0 { 0.0 } else { 1.0 };
                    self.passes.input("weight")?[0] = share as f32;
                    Run { step: (run.step << 20) + index as u64, ..run }
                }
            };
            self.passes.run(state, last)?;
            let loss = f64::from(self.passes.number(place.loss)?);
            if !loss.is_finite() {
                return Err(what_went_bad(&mut self.passes, state, last, &format!("the loss is {loss}"))?);
            }
            result.loss += loss * share;
            if let Some(value) = place.gradient_norm {
                norm = self.passes.number(value)?;
            }
        }
        if let Some((update, gradient_norm)) = &mut self.update {
            set_rates(update, rate, None)?;
            update.input("gradient_scale")?[0] = 1.0;
            update.run(state, run)?;
            norm = update.number(*gradient_norm)?;
        }
        result.grad_norm = f64::from(norm);
        if !norm.is_finite() {
            let what = format!("the norm of the gradient is {norm}");
            return Err(what_went_bad(&mut self.passes, state, last, &what)?);
        }
        Ok(result)
    }

    fn fill(&mut self, batch: &PairBatch) -> Result<(), TrainError> {
        let inputs = [
            ("source", &batch.source),
            ("source_lengths", &batch.source_lengths),
            ("target", &batch.target),
            ("wanted", &batch.wanted),
        ];
        for (name, values) in inputs {
            self.passes.input_i32(name)?.copy_from_slice(values);
        }
        Ok(())
    }
}

/// The mean loss over the tokens that count.
fn loss(graph: &mut Graph, recipe: &TranslationRecipe, shape: BatchShape) -> Result<Value, TrainError> {
    let BatchShape { batch, source, target } = shape;
    let logits = transformer(graph, &recipe.model, PairShape { batch, source, target })?.logits;
    let wanted = graph.input("wanted", [batch, target], DType::I32)?;
    let options =
        CrossEntropyOptions { label_smoothing: recipe.loss.label_smoothing, ignored_index: Some(PADDING as i32) };
    Ok(graph.cross_entropy(logits, wanted, options)?)
}
