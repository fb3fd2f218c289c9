//! A model's decoder, one token for every slot at a time.

use vitreous_engine::{Caches, Device, Executor, Graph, Mode, Plan, Precision, Result, ResultCopy, SlotCopy, Value};

use super::encoder::Encoder;
use super::search::NextTokens;
use crate::call::{CacheFormat, StepShape};
use crate::family::Architecture;
use crate::on_device::OnDevice;

/// A decoder with its caches. Plans for several numbers of slots work on the same caches.
pub(super) struct Decoder<'m> {
    /// The shape of the caches: `batch` is the slots that they have.
    room: StepShape,
    caches: Caches,
    /// The names of the caches of targets' own keys and values.
    own: Vec<String>,
    /// The names of the caches of sources' keys and values.
    source: Vec<String>,
    /// On a GPU, where making one takes longer than a whole sequence, every step that was made; otherwise the last one.
    steps: Vec<SlotsPlan>,
    /// Which of them is run.
    now: usize,
    model: &'m dyn Architecture,
    precision: Precision,
    candidates: usize,
}

/// A plan for a number of slots.
struct SlotsPlan {
    slots: usize,
    executor: Executor,
    /// The likeliest next tokens and their probabilities: `[slots, candidates]`.
    tokens: Value,
    probabilities: Value,
}

/// What each slot is given for a step.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub(super) struct SlotInput {
    /// The last token.
    pub token: u32,
    /// How many tokens came before it.
    pub place: usize,
    /// Tokens of the source.
    pub source_length: usize,
}

/// A step as a graph.
struct StepGraph {
    graph: Graph,
    tokens: Value,
    probabilities: Value,
    /// How many likeliest tokens it gives of each slot.
    candidates: usize,
}

/// The format of caches: a GPU that computes in bf16 keeps them so. On the CPU, attention of one query reads f32 fastest.
pub(super) fn cache_format(device: &Device, precision: Precision) -> CacheFormat {
    if device.is_gpu() && precision == Precision::Bf16 { CacheFormat::Bf16 } else { CacheFormat::F32 }
}

impl<'m> Decoder<'m> {
    /// A decoder with caches of a shape, and a step for all of their slots. A step gives so many of each slot's likeliest next tokens.
    pub fn new(
        source: &mut OnDevice,
        model: &'m dyn Architecture,
        precision: Precision,
        room: StepShape,
        candidates: usize,
    ) -> Result<Decoder<'m>> {
        let StepGraph { graph, tokens, probabilities, candidates } = step_graph(model, precision, room, candidates)?;
        let names = |are_sources: bool| {
            let of_source = |name: &&str| name.rsplit('.').next().is_some_and(|last| last.starts_with("source_"));
            let caches = graph.caches().map(|(name, _)| name).filter(|name| of_source(name) == are_sources);
            caches.map(str::to_string).collect::<Vec<String>>()
        };
        let plan = source.device().plan_with_fixed_weights(&graph, &[tokens, probabilities])?;
        let needed = Caches::bytes_needed(&[&graph])? + source.device().bytes_needed_with_weights(&plan);
        source.device().check_memory("the decoder's caches", needed)?;
        let executor = source.executor("generating", None, plan)?;
        Ok(Decoder {
            caches: Caches::new(&[&graph], source.device())?,
            own: names(false),
            source: names(true),
            steps: vec![SlotsPlan { slots: room.batch, executor, tokens, probabilities }],
            now: 0,
            model,
            precision,
            candidates,
            room,
        })
    }

    /// Bytes of a device that [`Decoder::new`] takes.
    pub fn bytes_needed(
        device: &Device,
        model: &dyn Architecture,
        precision: Precision,
        room: StepShape,
        candidates: usize,
    ) -> Result<usize> {
        let StepGraph { graph, tokens, probabilities, .. } = step_graph(model, precision, room, candidates)?;
        let plan: Plan = device.plan_with_fixed_weights(&graph, &[tokens, probabilities])?;
        Ok(Caches::bytes_needed(&[&graph])? + device.bytes_needed_with_weights(&plan))
    }

    /// Whether its caches have room for a shape.
    pub fn has_room_for(&self, shape: StepShape) -> bool {
        let StepShape { batch, source, capacity, cache } = self.room;
        batch >= shape.batch && source >= shape.source && capacity >= shape.capacity && cache == shape.cache
    }

    /// Makes ready for steps of the first so many slots.
    pub fn use_slots(&mut self, source: &mut OnDevice, slots: usize) -> Result<()> {
        // On a GPU also one for more slots, which is sooner run than another is made.
        let suits = |there: usize| if source.device().is_gpu() { there >= slots } else { there == slots };
        let suiting = self.steps.iter().enumerate().filter(|(_, step)| suits(step.slots));
        if let Some((ready, _)) = suiting.min_by_key(|(_, step)| step.slots) {
            self.now = ready;
            return Ok(());
        }
        let shape = StepShape { batch: slots, ..self.room };
        let StepGraph { graph, tokens, probabilities, .. } =
            step_graph(self.model, self.precision, shape, self.candidates)?;
        let plan = source.device().plan_with_fixed_weights(&graph, &[tokens, probabilities])?;
        let there = if source.device().is_gpu() { None } else { self.steps.pop().map(|step| step.executor) };
        let executor = source.executor("generating", there, plan)?;
        self.now = self.steps.len();
        self.steps.push(SlotsPlan { slots, executor, tokens, probabilities });
        Ok(())
    }

    /// Computes the next tokens of the first slots, as many as there are inputs.
    pub fn step(&mut self, inputs: &[SlotInput]) -> Result<()> {
        let executor = &mut self.steps[self.now].executor;
        let mut fill = |name: &str, number: &dyn Fn(&SlotInput) -> usize| -> Result<()> {
            let to = executor.input_i32(name)?;
            to.iter_mut().zip(inputs).for_each(|(to, input)| *to = number(input) as i32);
            Ok(())
        };
        fill("token", &|input| input.token as usize)?;
        fill("place", &|input| input.place)?;
        fill("length", &|input| input.place + 1)?;
        fill("source_lengths", &|input| input.source_length)?;
        executor.infer_with(&mut self.caches)
    }

    /// The likeliest next tokens of all slots, after a step.
    pub fn next_tokens(&self) -> Result<Vec<NextTokens<'_>>> {
        let SlotsPlan { executor, tokens, probabilities, .. } = &self.steps[self.now];
        let tokens = executor.output_i32(*tokens)?.chunks_exact(self.candidates);
        let probabilities = executor.output_slice(*probabilities)?.chunks_exact(self.candidates);
        Ok(tokens.zip(probabilities).map(|(tokens, probabilities)| NextTokens { tokens, probabilities }).collect())
    }

    /// Lets slots go on from what others have written.
    pub fn copy_own(&mut self, copies: &[SlotCopy]) -> Result<()> {
        self.caches.copy_slots(&self.own, copies)
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

fn step_graph(
    model: &dyn Architecture,
    precision: Precision,
    shape: StepShape,
    candidates: usize,
) -> Result<StepGraph> {
    let mut graph = Graph::new(Mode::Inference, precision);
    let logits = model.build(&mut graph, &shape.into())?.need("logits")?; // [slots, vocabulary]
    let candidates = candidates.min(graph.shape_of(logits).columns());
    let probabilities = graph.softmax(logits)?;
    let (probabilities, tokens) = graph.top_k(probabilities, candidates)?; // [slots, candidates]
    Ok(StepGraph { graph, tokens, probabilities, candidates })
}
