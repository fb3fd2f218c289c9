//! A model's decoder with its caches: some tokens for every slot at a time.

use vitreous_engine::{
    Caches, DType, Device, Executor, Graph, Mode, Plan, Precision, Result, ResultCopy, SlotCopy, Value,
};

use super::encoder::Encoder;
use super::search::NextTokens;
use crate::call::{CacheFormat, StepShape};
use crate::family::Architecture;
use crate::on_device::OnDevice;

/// A decoder with its caches. Plans for several numbers of slots and of tokens work on the same caches.
pub(super) struct Decoder<'m> {
    /// The shape of the caches: `batch` is the slots that they have.
    room: StepShape,
    caches: Caches,
    /// The names of the caches of targets' own keys and values.
    own: Vec<String>,
    /// The names of the caches of sources' keys and values.
    source: Vec<String>,
    /// Whether a step takes any number of tokens, and not one behind a source.
    reads_chunks: bool,
    /// The plans that are ready, the one that was run last at the end.
    plans: Vec<ReadyPlan>,
    /// The most plans that are kept.
    kept: usize,
    model: &'m dyn Architecture,
    precision: Precision,
}

/// What a plan computes.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) struct PlanShape {
    /// Slots.
    pub slots: usize,
    /// Tokens of each slot at once; of a model of pairs, the longest source.
    pub tokens: usize,
    /// What is wanted of their logits.
    pub output: StepOutput,
}

/// What is wanted of the logits of each slot's last token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum StepOutput {
    /// So many of the likeliest tokens, with their probabilities.
    Likeliest(usize),
    /// The likeliest token.
    Best,
    /// All of them.
    Logits,
}

/// A plan that can be run.
struct ReadyPlan {
    shape: PlanShape,
    executor: Executor,
    results: Results,
    /// Whether it has an input for the place of each token: models with learned positions.
    has_positions: bool,
    /// Whether it has an input for the row of each token in the cache: models with a sliding window.
    has_rows: bool,
    /// Whether it has an input for how far back each row of the cache lies: models with relative positions.
    has_distances: bool,
}

/// The results of a plan.
#[derive(Clone, Copy, Debug)]
enum Results {
    /// `[slots, candidates]` each.
    Likeliest { tokens: Value, probabilities: Value, candidates: usize },
    /// `[slots, 1]`.
    Best(Value),
    /// `[slots, vocabulary]`.
    Logits(Value),
}

/// What each slot of a model of pairs is given for a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SlotInput {
    /// The last token.
    pub token: u32,
    /// How many tokens came before it.
    pub place: usize,
    /// Tokens of the source.
    pub source_length: usize,
}

/// What a slot of a language model is given: tokens behind those that it has.
#[derive(Clone, Copy, Debug)]
pub(super) struct SlotTokens<'t> {
    /// The tokens, at most as many as the plan has room for.
    pub tokens: &'t [u32],
    /// How many tokens came before them.
    pub place: usize,
    /// How many of those are still in the cache: all, but with a sliding window.
    pub row: usize,
}

/// The format of caches: a GPU that computes in bf16 keeps them so. On the CPU, attention of one query reads f32 fastest.
pub(super) fn cache_format(device: &Device, precision: Precision) -> CacheFormat {
    if device.is_gpu() && precision == Precision::Bf16 { CacheFormat::Bf16 } else { CacheFormat::F32 }
}

/// A plan and its results, before memory is taken for it.
pub(super) struct Planned {
    pub graph: Graph,
    pub plan: Plan,
    results: Results,
}

impl Planned {
    /// Plans a shape for caches of a shape.
    pub fn new(
        source: &OnDevice,
        model: &dyn Architecture,
        precision: Precision,
        room: StepShape,
        shape: PlanShape,
    ) -> Result<Planned> {
        let mut graph = Graph::new(Mode::Inference, precision);
        let call = StepShape { batch: shape.slots, source: shape.tokens, ..room };
        let logits = model.build(&mut graph, &call.into())?.need("logits")?; // [slots, vocabulary]
        let results = match shape.output {
            StepOutput::Likeliest(candidates) => {
                let candidates = candidates.min(graph.shape_of(logits).columns());
                let probabilities = graph.softmax(logits)?;
                let (probabilities, tokens) = graph.top_k(probabilities, candidates)?; // [slots, candidates]
                Results::Likeliest { tokens, probabilities, candidates }
            }
            StepOutput::Best => Results::Best(graph.top_k(logits, 1)?.1),
            StepOutput::Logits => Results::Logits(graph.cast(logits, DType::F32)?),
        };
        let wanted = match results {
            Results::Likeliest { tokens, probabilities, .. } => vec![tokens, probabilities],
            Results::Best(value) | Results::Logits(value) => vec![value],
        };
        let plan = source.plan(&mut graph, &wanted)?;
        Ok(Planned { graph, plan, results })
    }

    fn ready(self, source: &mut OnDevice, shape: PlanShape, there: Option<Executor>) -> Result<ReadyPlan> {
        let has = |input: &str| self.graph.inputs().any(|(name, _)| name == input);
        let (has_positions, has_rows, has_distances) = (has("positions"), has("row"), has("distances"));
        let executor = source.executor("generating", there, self.plan)?;
        Ok(ReadyPlan { shape, executor, results: self.results, has_positions, has_rows, has_distances })
    }
}

impl<'m> Decoder<'m> {
    /// A decoder with caches of a shape, ready to run a plan. On the CPU at most `kept` plans are kept, on a GPU, where making one
    /// takes longer than a whole sequence, all of them. Where no more than a part of the caches will be used at the same time,
    /// `cache_bytes` says how much.
    pub fn new(
        source: &mut OnDevice,
        model: &'m dyn Architecture,
        precision: Precision,
        room: StepShape,
        shape: PlanShape,
        kept: usize,
        cache_bytes: Option<usize>,
    ) -> Result<Decoder<'m>> {
        let device = source.device().clone();
        let planned = Planned::new(source, model, precision, room, shape)?;
        let whole = caches_graph(model, precision, room)?;
        let names = |are_sources: bool| {
            let of_source = |name: &&str| name.rsplit('.').next().is_some_and(|last| last.starts_with("source_"));
            let caches = whole.caches().map(|(name, _)| name).filter(|name| of_source(name) == are_sources);
            caches.map(str::to_string).collect::<Vec<String>>()
        };
        let caches = Caches::bytes_needed(&[&whole])?;
        let needed = caches.min(cache_bytes.unwrap_or(caches)) + device.bytes_needed_with_weights(&planned.plan);
        device.check_memory("the decoder's caches", needed)?;
        let reads_chunks = whole.inputs().any(|(name, _)| name == "tokens");
        let plans = vec![planned.ready(source, shape, None)?];
        Ok(Decoder {
            reads_chunks,
            caches: Caches::new(&[&whole], &device)?,
            own: names(false),
            source: names(true),
            plans,
            kept: if device.is_gpu() { usize::MAX } else { kept },
            model,
            precision,
            room,
        })
    }

    /// Bytes of a device that [`Decoder::new`] takes.
    pub fn bytes_needed(
        source: &OnDevice,
        model: &dyn Architecture,
        precision: Precision,
        room: StepShape,
        shape: PlanShape,
    ) -> Result<usize> {
        let Planned { plan, .. } = Planned::new(source, model, precision, room, shape)?;
        Ok(Decoder::cache_bytes(model, precision, room)? + source.device().bytes_needed_with_weights(&plan))
    }

    /// Bytes of caches of a shape.
    pub fn cache_bytes(model: &dyn Architecture, precision: Precision, room: StepShape) -> Result<usize> {
        Caches::bytes_needed(&[&caches_graph(model, precision, room)?])
    }

    /// Whether its caches have room for a shape.
    pub fn has_room_for(&self, shape: StepShape) -> bool {
        let StepShape { batch, source, capacity, cache } = self.room;
        batch >= shape.batch && source >= shape.source && capacity >= shape.capacity && cache == shape.cache
    }

    /// The shape of its caches.
    pub fn room(&self) -> StepShape {
        self.room
    }

    /// Makes ready for a plan, of the first slots or of those from any one on.
    pub fn use_plan(&mut self, source: &mut OnDevice, shape: PlanShape) -> Result<()> {
        if self.plans.last().is_some_and(|plan| plan.shape == shape) {
            return Ok(());
        }
        let suits = |there: PlanShape| match source.device().is_gpu() {
            false => there == shape,
            // Chunks of tokens may not fit into other slots.
            true if self.reads_chunks && shape.tokens > 1 => there == shape,
            // Otherwise on a GPU also one for more slots, which is sooner run than another is made.
            true => there.slots >= shape.slots && PlanShape { slots: shape.slots, ..there } == shape,
        };
        let suiting = self.plans.iter().enumerate().filter(|(_, plan)| suits(plan.shape));
        if let Some((ready, _)) = suiting.min_by_key(|(_, plan)| plan.shape.slots) {
            let plan = self.plans.remove(ready);
            self.plans.push(plan);
            return Ok(());
        }
        let planned = Planned::new(source, self.model, self.precision, self.room, shape)?;
        // The executor of the plan that has rested longest goes on with the new one, if it can.
        let there = (self.plans.len() >= self.kept).then(|| self.plans.remove(0).executor);
        self.plans.push(planned.ready(source, shape, there)?);
        Ok(())
    }

    /// Slots of the plan in use.
    pub fn planned_slots(&self) -> usize {
        self.plans.last().map_or(0, |plan| plan.shape.slots)
    }

    /// The plan in use; it was made ready when the decoder was.
    fn ready(&self) -> Result<&ReadyPlan> {
        self.plans.last().ok_or_else(not_ready)
    }

    /// Computes the next tokens of the first slots of a model of pairs, as many as there are inputs.
    pub fn step_pairs(&mut self, inputs: &[SlotInput]) -> Result<()> {
        let capacity = self.room.capacity;
        let ReadyPlan { executor, has_distances, .. } = self.plans.last_mut().ok_or_else(not_ready)?;
        let mut fill = |name: &str, number: &dyn Fn(&SlotInput) -> usize| -> Result<()> {
            let to = executor.input_i32(name)?;
            to.iter_mut().zip(inputs).for_each(|(to, input)| *to = number(input) as i32);
            Ok(())
        };
        fill("token", &|input| input.token as usize)?;
        fill("place", &|input| input.place)?;
        fill("length", &|input| input.place + 1)?;
        fill("source_lengths", &|input| input.source_length)?;
        if *has_distances {
            for (row, input) in executor.input_i32("distances")?.chunks_exact_mut(capacity).zip(inputs) {
                row.iter_mut().enumerate().for_each(|(key, to)| *to = input.place.saturating_sub(key) as i32);
            }
        }
        executor.infer_with(&mut self.caches)
    }

    /// Reads the tokens of slots of a language model, from a slot on. What a slot has fewer of than the plan has room for is padded
    /// behind its last token: those rows of the cache are overwritten by what comes next.
    pub fn step(&mut self, first: usize, inputs: &[SlotTokens]) -> Result<()> {
        let capacity = self.room.capacity;
        let ReadyPlan { shape, executor, has_positions, has_rows, .. } = self.plans.last_mut().ok_or_else(not_ready)?;
        let width = shape.tokens;
        for (row, input) in executor.input_i32("tokens")?.chunks_exact_mut(width).zip(inputs) {
            row.fill(0);
            row.iter_mut().zip(input.tokens).for_each(|(to, &token)| *to = token as i32);
        }
        let mut fill = |name: &str, number: &dyn Fn(usize, &SlotTokens) -> usize| -> Result<()> {
            let to = executor.input_i32(name)?.iter_mut().zip(inputs.iter().enumerate());
            to.for_each(|(to, (slot, input))| *to = number(slot, input) as i32);
            Ok(())
        };
        fill("place", &|_, input| input.place)?;
        fill("length", &|_, input| input.row + input.tokens.len())?;
        if *has_rows {
            fill("row", &|_, input| input.row)?;
        }
        if width > 1 {
            fill("last", &|slot, input| slot * width + input.tokens.len() - 1)?;
        }
        if *has_positions {
            for (row, input) in executor.input_i32("positions")?.chunks_exact_mut(width).zip(inputs) {
                let places = (input.place..).map(|place| place.min(capacity - 1));
                row.iter_mut().zip(places).for_each(|(to, place)| *to = place as i32);
            }
        }
        executor.infer_with(self.caches.slots_from(first))
    }

    /// The likeliest next tokens of all slots, after a step of a plan that gives them.
    pub fn next_tokens(&self) -> Result<Vec<NextTokens<'_>>> {
        let ReadyPlan { executor, results, .. } = self.ready()?;
        let Results::Likeliest { tokens, probabilities, candidates } = results else { return Err(not_ready()) };
        let tokens = executor.output_i32(*tokens)?.chunks_exact(*candidates);
        let probabilities = executor.output_slice(*probabilities)?.chunks_exact(*candidates);
        Ok(tokens.zip(probabilities).map(|(tokens, probabilities)| NextTokens { tokens, probabilities }).collect())
    }

    /// The likeliest next token of each slot, below 0 where the logits are no numbers; `None` if the plan gives logits.
    pub fn best_tokens(&self) -> Result<Option<&[i32]>> {
        let ReadyPlan { executor, results, .. } = self.ready()?;
        match results {
            Results::Best(value) => executor.output_i32(*value).map(Some),
            Results::Likeliest { .. } | Results::Logits(_) => Ok(None),
        }
    }

    /// The logits of all slots, `[slots, vocabulary]`, after a step of a plan that gives them.
    pub fn logits(&self) -> Result<&[f32]> {
        let ReadyPlan { executor, results, .. } = self.ready()?;
        match results {
            Results::Logits(value) => executor.output_slice(*value),
            Results::Likeliest { .. } | Results::Best(_) => Err(not_ready()),
        }
    }

    /// Lets slots go on from what others have written.
    pub fn copy_own(&mut self, copies: &[SlotCopy]) -> Result<()> {
        self.caches.copy_slots(&self.own, copies)
    }

    /// Drops the first rows of a slot, of which `rows` behind them stay.
    pub fn drop_rows(&mut self, slot: usize, by: usize, rows: usize) -> Result<()> {
        self.caches.drop_rows(&self.own, slot, by, rows)
    }

    /// Gives the memory of a slot's rows from one on back.
    pub fn give_back(&mut self, slot: usize, row: usize) -> Result<()> {
        self.caches.give_back(&self.own, slot, row)
    }

    /// Copies the keys and values of slots' sources.
    pub fn copy_sources(&mut self, copies: &[SlotCopy]) -> Result<()> {
        self.caches.copy_slots(&self.source, copies)
    }

    /// Takes keys and values of sources from what an encoder has computed.
    pub fn take_sources(&mut self, encoder: &mut Encoder, copies: &[ResultCopy]) -> Result<()> {
        let results = encoder.keys_and_values().to_vec();
        let pairs: Vec<(Value, &String)> = results.iter().map(|(name, value)| (*value, name)).collect();
        self.caches.copy_results(encoder.executor(), &pairs, copies)
    }
}

/// A graph that declares caches of a shape, for their sizes.
fn caches_graph(model: &dyn Architecture, precision: Precision, room: StepShape) -> Result<Graph> {
    let mut graph = Graph::new(Mode::Inference, precision);
    model.build(&mut graph, &room.into())?;
    Ok(graph)
}

fn not_ready() -> vitreous_engine::Error {
    vitreous_engine::Error::Machine("the decoder has no such plan ready".to_string())
}
