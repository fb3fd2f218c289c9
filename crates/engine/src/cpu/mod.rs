//! The CPU executor and its kernels.
//!
//! An [`Executor`] owns a plan, the memory that the plan says, and a team of threads; running the plan allocates nothing.
//! Kernels split their work into tiles by shapes alone and add partial sums in a fixed order, so results are the same
//! bits for any number of threads.

mod attend;
mod attention;
mod bind;
mod caches;
mod convert;
mod gemm;
mod kernel;
mod limit;
mod losses;
mod math;
mod memory;
mod moves;
mod norms;
mod notes;
mod prepare_images;
mod products;
pub(crate) mod quantised;
mod reductions;
mod rotary;
mod rows;
#[cfg(test)]
mod scratch_tests;
mod simd;
mod steps;
mod tables;
mod team;
mod top_k;
mod turns;
mod unfold;
mod updates;
mod watch;
mod weights;

use std::sync::atomic::AtomicUsize;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use half::bf16;

use crate::buffer::Floats;
use crate::cache::CacheSlots;
use crate::error::{Error, Result};
use crate::graph::{Graph, Node, Value};
use crate::machine::check_memory;
use crate::ops::{Op, Targets};
use crate::plan::{Chain, Location, Plan, Target};
use crate::random::Run;
use crate::shard::ShardLink;
use crate::state::State;
use crate::types::{DType, Shape, Type};
use bind::Memory;
use kernel::{Kernel, NO_FAULT};
use team::Team;
use watch::Watch;
use weights::Weights;

use notes::Notes;

pub(crate) use bind::CacheStart;
pub(crate) use caches::CacheMemory;
pub(crate) use convert::widen;
pub use limit::measured_limit;
pub use notes::GradientNote;
pub use simd::instruction_set;
pub(crate) use weights::SharedWeights;

/// The needs of the CPU's kernels.
struct CpuTarget {
    keeps_weights: bool,
    /// Whether weights are packed for products of few rows, too. Elsewhere these read weights as they are, with or without a state to
    /// the same bits; a step of decoding shares its weights with plans that read whole prompts, and should not want them twice.
    packs_few_rows: bool,
}

impl Target for CpuTarget {
    fn keeps_weights(&self) -> bool {
        self.keeps_weights
    }

    fn packed_weight_floats(&self, graph: &Graph, node: &Node) -> Option<usize> {
        if !self.keeps_weights {
            return None;
        }
        quantised::weight_floats(graph, node)
            .or_else(|| products::packed_weight_floats(graph, node, self.packs_few_rows))
    }

    fn workspace_bytes(&self, graph: &Graph, node: &Node) -> usize {
        if self.packed_weight_floats(graph, node).is_some() {
            return 4 * quantised::workspace_floats(graph, node).unwrap_or(0);
        }
        let floats = match &node.op {
            Op::Linear(_) | Op::LinearInputGradient(_) | Op::LinearWeightGradient(_) | Op::MatMul(_) => {
                products::workspace_floats(graph, node)
            }
            Op::SumLeading(op) => {
                let columns = op.shape.elements();
                reductions::sum_workspace(graph.shape_of(node.inputs[0]).elements() / columns, columns)
            }
            Op::LayerNormGradient(_) | Op::RmsNormGradient(_) => norms::workspace_floats(graph, node),
            Op::CrossEntropy(_) | Op::BinaryCrossEntropy(_) => graph.shape_of(node.inputs[0]).rows(),
            Op::GradientNorm(_) => updates::norm_workspace(graph.parameters()),
            Op::Lamb(_) => updates::lamb_workspace(graph.parameters()),
            Op::MuonDirection(_) => updates::muon_workspace(&node.outputs[0].shape),
            Op::Input(_) | Op::Parameter(_) | Op::Constant(_) | Op::Cache(_) | Op::StoredGradient(_) => 0,
            Op::Pointwise(_) | Op::Broadcast(_) | Op::Reshape(_) | Op::WriteRows(_) | Op::Transpose(_) => 0,
            Op::Concat(_) | Op::Slice(_) | Op::Pad(_) | Op::Patchify(_) | Op::Unpatchify(_) => 0,
            Op::Unfold(_) | Op::Fold(_) | Op::PrepareImages(_) | Op::Embedding(_) | Op::EmbeddingGradient(_) => 0,
            Op::LayerNorm(_) | Op::RmsNorm(_) | Op::Rotary(_) => 0,
            Op::Attention(_) | Op::AttentionWeights(_) | Op::AttentionGradient(_) => 0,
            Op::MeanTokens(_) | Op::MeanTokensGradient(_) | Op::MaxTokens(_) | Op::MaxTokensGradient(_) => 0,
            Op::Softmax(_) | Op::SoftmaxGradient(_) | Op::TopK(_) => 0,
            Op::CrossEntropyGradient(_) | Op::BinaryCrossEntropyGradient(_) => 0,
            Op::AdamW(_) | Op::Sgd(_) | Op::MuonUpdate(_) | Op::Ema(_) | Op::AccumulateGradient(_) => 0,
        };
        4 * floats
    }

    fn rounds_operands(&self, op: &Op, first: &Shape, second: &Shape) -> bool {
        products::rounds_operands(op, first, second, self.packs_few_rows)
    }

    fn scratch_bytes(&self, graph: &Graph, node: &Node) -> usize {
        let columns = |index: usize| node.inputs.get(index).map_or(0, |&input| graph.shape_of(input).columns());
        // A row of an input, if it has to be widened.
        let widened = |index: usize| match node.inputs.get(index).map(|&input| graph.type_of(input).dtype) {
            Some(DType::Bf16) => columns(index),
            _ => 0,
        };
        let quantised = if self.keeps_weights { quantised::scratch_floats(graph, node) } else { None };
        let floats = match &node.op {
            _ if quantised.is_some() => quantised.unwrap_or(0),
            Op::Linear(_) | Op::LinearInputGradient(_) | Op::LinearWeightGradient(_) | Op::MatMul(_) => {
                products::scratch_floats(graph, node, self.packs_few_rows)
            }
            Op::Pointwise(_) => steps::scratch_floats(columns(0)),
            Op::LayerNorm(_) | Op::RmsNorm(_) => norms::forward_scratch(columns(0)),
            Op::LayerNormGradient(_) | Op::RmsNormGradient(_) => norms::gradient_scratch(columns(0)),
            Op::Attention(_) | Op::AttentionWeights(_) | Op::AttentionGradient(_) => {
                attend::scratch_floats(graph, node)
            }
            Op::Rotary(op) => rotary::scratch_floats(columns(0), op),
            Op::Fold(_) => unfold::fold_scratch(columns(0), node.outputs[0].shape.columns()),
            Op::SumLeading(op) => reductions::sum_scratch(op.shape.elements()),
            Op::MeanTokens(_) | Op::TopK(_) | Op::Embedding(_) => widened(0),
            Op::SoftmaxGradient(_) | Op::WriteRows(_) => widened(1),
            Op::EmbeddingGradient(_) => tables::gradient_scratch(widened(0)),
            // A row of the result.
            Op::MeanTokensGradient(_) => columns(0),
            Op::MaxTokensGradient(_) => columns(0) + widened(0),
            // The maxima and their tokens.
            Op::MaxTokens(_) => 2 * columns(0) + widened(0),
            Op::CrossEntropy(op) => losses::loss_scratch(columns(0), op.targets),
            Op::BinaryCrossEntropy(_) => losses::loss_scratch(columns(0), Targets::Soft),
            Op::CrossEntropyGradient(_) | Op::BinaryCrossEntropyGradient(_) => losses::gradient_scratch(columns(1)),
            Op::Concat(_) => moves::CONCAT_SCRATCH,
            Op::AccumulateGradient(_) => updates::ACCUMULATE_SCRATCH,
            Op::Input(_) | Op::Parameter(_) | Op::Constant(_) | Op::Cache(_) | Op::StoredGradient(_) => 0,
            Op::Broadcast(_) | Op::Reshape(_) | Op::Transpose(_) | Op::Slice(_) | Op::Pad(_) => 0,
            Op::Patchify(_) | Op::Unpatchify(_) | Op::Unfold(_) | Op::PrepareImages(_) | Op::Softmax(_) => 0,
            Op::GradientNorm(_) | Op::AdamW(_) | Op::Sgd(_) | Op::Lamb(_) | Op::Ema(_) => 0,
            Op::MuonDirection(_) | Op::MuonUpdate(_) => 0,
        };
        4 * floats.next_multiple_of(16)
    }
}

impl Plan {
    /// Plans for the CPU: see [`Plan::new`]. The parameters are a [`State`]'s and may change from run to run.
    pub fn for_cpu(graph: &Graph, outputs: &[Value]) -> Result<Plan> {
        Plan::new(graph, outputs, &CpuTarget { keeps_weights: false, packs_few_rows: false })
    }

    /// Plans for the CPU and weights that do not change: [`Executor::with_weights`] takes them in once, as its kernels want
    /// them, and runs need no state.
    pub fn for_cpu_with_fixed_weights(graph: &Graph, outputs: &[Value]) -> Result<Plan> {
        let packs_few_rows = graph.caches().next().is_some();
        Plan::new(graph, outputs, &CpuTarget { keeps_weights: true, packs_few_rows })
    }
}

/// Takes each tile through all kernels of a chain, after B of all its products was packed.
fn run_chain(plan: &Plan, chain: &Chain, first: Kernel, team: &mut Team, watch: Option<&Watch>) {
    let seen = |memory, index, tile| Kernel {
        graph: &chain.graph,
        index,
        node: &chain.graph.nodes()[index],
        memory,
        tile: Some(tile),
        ..first
    };
    for index in chain.first..=chain.last {
        // Weights are no tile's, so the memory of all will do.
        products::pack(&seen(first.memory, index, 0), team);
    }
    let floats = |index: usize| plan.node_scratch_bytes(index) / 4;
    team.lend(chain.bytes / 4 + (chain.first..=chain.last).map(floats).max().unwrap_or(0));
    team.run(chain.tiles, &|tile, scratch| {
        let (own, rest) = scratch.split_at_mut(chain.bytes / 4);
        let memory = first.memory.of_tile(chain, tile, own);
        let mut alone = Team::alone(rest);
        for index in chain.first..=chain.last {
            // Ops that look numbers up, which may be out of range, are in no chain.
            let kernel = seen(memory, index, tile * chain.samples);
            alone.lend(floats(index));
            let result = kernel::run(&kernel, &mut alone, None);
            debug_assert!(result.is_ok());
            if let Some(watch) = watch {
                watch.look(&kernel);
            }
        }
    });
}

/// Threads that several executors may use, one after the other.
type SharedTeam = Arc<Mutex<Team<'static>>>;

/// The threads of an executor, for a run. Whoever panicked before has left nothing half done: every job begins anew.
fn lock<'t>(team: &'t SharedTeam) -> MutexGuard<'t, Team<'static>> {
    team.lock().unwrap_or_else(PoisonError::into_inner)
}

/// A plan with its memory and threads.
pub struct Executor {
    plan: Plan,
    /// Executors that share weights share threads, too: only one runs at a time, and threads of those that rest would poll for work on
    /// the cores of the one that runs.
    team: SharedTeam,
    threads: usize,
    arena: Floats,
    constants: Floats,
    /// The weights, if they do not change.
    weights: Weights,
    /// Where the caches of the run begin that is going on.
    caches: Vec<CacheStart>,
    pieces: Vec<updates::Piece>,
    /// Other plans that take turns with this one; its own place is empty.
    resting: Vec<Option<turns::Resting>>,
    turn: usize,
    /// Bytes of scratch a thread.
    scratch: usize,
}

impl Executor {
    /// Takes the memory and threads for a plan whose parameters a [`State`] has. `threads` counts the calling thread and is at
    /// least 1.
    pub fn new(plan: Plan, threads: usize) -> Result<Self> {
        if plan.fixed_weights().is_some() {
            let message = "this plan has fixed weights: give them to `Executor::with_weights`".to_string();
            return Err(Error::Machine(message));
        }
        Executor::without_weights(plan, threads)
    }

    fn without_weights(plan: Plan, threads: usize) -> Result<Self> {
        let (arena, scratch) = (plan.arena_bytes(), plan.scratch_bytes());
        Executor::with_memory(plan, threads, arena, scratch)
    }

    /// With so many bytes of arena, and of scratch a thread.
    fn with_memory(plan: Plan, threads: usize, arena: usize, scratch: usize) -> Result<Self> {
        let needed = threads.saturating_mul(scratch).saturating_add(arena).saturating_add(plan.constant_bytes());
        check_memory("this graph is refused: running it", needed)?;
        let team = Arc::new(Mutex::new(Team::new(threads, scratch / 4)?));
        Executor::with_team(plan, team, arena, scratch)
    }

    /// With threads that have so many bytes of scratch each.
    fn with_team(plan: Plan, team: SharedTeam, arena: usize, scratch: usize) -> Result<Self> {
        let threads = lock(&team).threads();
        let pieces = updates::pieces(plan.graph().parameters(), None);
        let constants = Floats::holding(&plan.constants())?;
        let (weights, caches) = (Weights::default(), Vec::with_capacity(plan.caches().count()));
        let arena = Floats::zeroed(arena / 4)?;
        let resting = Vec::new();
        Ok(Executor { team, threads, arena, constants, weights, caches, pieces, plan, resting, turn: 0, scratch })
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Number of threads.
    pub fn threads(&self) -> usize {
        self.threads
    }

    /// The bytes that were taken for running: what [`Plan::peak_bytes`] said, or more where other plans take turns or came before.
    pub fn memory_bytes(&self) -> usize {
        let resting: usize = self.resting.iter().flatten().map(|resting| resting.constants.len()).sum();
        4 * (self.arena.len() + self.constants.len() + self.weights.floats() + resting) + self.threads() * self.scratch
    }

    /// Runs the plan once. What training changes is in `state`, made by [`State::new`] of the same graph.
    pub fn run(&mut self, state: &mut State, run: Run) -> Result<()> {
        self.run_lending(state, None, run)
    }

    /// As [`Executor::run`], on caches that outlive the run.
    pub fn run_with<'c>(&mut self, state: &mut State, caches: impl Into<CacheSlots<'c>>, run: Run) -> Result<()> {
        self.run_lending(state, Some(caches.into()), run)
    }

    /// As [`Executor::run`], of a plan that accumulates gradients: `note` gets the number of each trained parameter and its gradient as
    /// soon as that is there, while the run goes on.
    pub fn run_noting(&mut self, state: &mut State, run: Run, note: &mut GradientNote) -> Result<()> {
        self.check_state(state)?;
        let notes = Notes::new(&self.plan, note);
        self.run_on(state, None, run, Some(notes))
    }

    /// As [`Executor::run`], of an update of a state whose moments are shared out.
    pub fn run_sharded(&mut self, state: &mut State, run: Run, link: &mut dyn ShardLink) -> Result<()> {
        self.check_state(state)?;
        let graph = self.plan.graph();
        let pieces = updates::pieces(graph.parameters(), state.shard());
        let nodes = updates::of_others(graph, &pieces);
        // An average is taken of all parameters, and completes them first.
        let averages = graph.nodes().iter().any(|node| matches!(node.op, Op::Ema(_)));
        let link = Mutex::new(link);
        let others = updates::Others { link: &link, nodes: &nodes };
        let buffers = updates::Buffers::new(state, &pieces, Some(others));
        self.run_nodes(Some(&buffers), None, run, None, None)?;
        if !averages {
            buffers.complete_parameters();
        }
        Ok(())
    }

    fn run_lending(&mut self, state: &mut State, caches: Option<CacheSlots>, run: Run) -> Result<()> {
        self.check_state(state)?;
        self.run_on(state, caches, run, None)
    }

    fn run_on(&mut self, state: &mut State, caches: Option<CacheSlots>, run: Run, notes: Option<Notes>) -> Result<()> {
        let pieces = std::mem::take(&mut self.pieces);
        let result = self.run_nodes(Some(&updates::Buffers::new(state, &pieces, None)), caches, run, None, notes);
        self.pieces = pieces;
        result
    }

    fn check_state(&self, state: &mut State) -> Result<()> {
        state.fits(self.plan.graph())?;
        state.take_over()?;
        if self.plan.fixed_weights().is_some() {
            let message = "this executor has its weights: run it with `Executor::infer`, without a state".to_string();
            return Err(Error::Machine(message));
        }
        Ok(())
    }

    /// Runs the plan once with the weights that [`Executor::with_weights`] was given.
    pub fn infer(&mut self) -> Result<()> {
        self.infer_lending(None)
    }

    /// As [`Executor::infer`], on caches that outlive the run.
    pub fn infer_with<'c>(&mut self, caches: impl Into<CacheSlots<'c>>) -> Result<()> {
        self.infer_lending(Some(caches.into()))
    }

    fn infer_lending(&mut self, caches: Option<CacheSlots>) -> Result<()> {
        let Some(wanted) = self.plan.fixed_weights() else {
            let message = "this executor has no weights of its own: run it with a state".to_string();
            return Err(Error::Machine(message));
        };
        if self.weights.forms().len() != wanted.forms.len() {
            let message = "this executor has lost its weights: taking others in has failed".to_string();
            return Err(Error::Machine(message));
        }
        self.run_nodes(None, caches, Run { seed: 0, step: 0 }, None, None)
    }

    /// Runs every node; with a watch, those without effects, until it has found something.
    fn run_nodes(
        &mut self,
        buffers: Option<&updates::Buffers>,
        caches: Option<CacheSlots>,
        run: Run,
        watch: Option<&Watch>,
        mut notes: Option<Notes>,
    ) -> Result<()> {
        // What was lent stays borrowed until the run is over.
        let mut caches = caches;
        self.caches.clear();
        crate::cache::lend(&self.plan, &mut caches, |slots, index| {
            self.caches.push(slots.cpu_start(index)?);
            Ok(())
        })?;
        let fault = AtomicUsize::new(NO_FAULT);
        let mut team = lock(&self.team);
        // Kernels read parameters and gradients through the memory, updates change them through the buffers: the same
        // pointers, never in one kernel.
        let memory =
            Memory::new(&self.plan, [&mut self.arena, &mut self.constants], &self.weights, buffers, &self.caches);
        let graph = self.plan.graph();
        let mut chains = self.plan.chains().iter().peekable();
        let mut index = 0;
        while index < graph.nodes().len() && !watch.is_some_and(Watch::has_found) {
            let kernel_of =
                |index| Kernel { graph, index, node: &graph.nodes()[index], memory, run, tile: None, fault: &fault };
            let kernel = kernel_of(index);
            let is_elsewhere = |index: usize| buffers.is_some_and(|buffers| buffers.is_elsewhere(index));
            match chains.next_if(|chain| chain.first == index) {
                Some(chain) if (chain.first..=chain.last).all(is_elsewhere) => index = chain.last,
                Some(chain) => {
                    run_chain(&self.plan, chain, kernel, &mut team, watch);
                    index = chain.last;
                }
                None if watch.is_some() && kernel.node.op.has_effect() => {}
                None if is_elsewhere(index) => {}
                // It has run already.
                None if notes.as_ref().is_some_and(|notes| notes.has_run(index)) => {}
                None => {
                    team.lend(self.plan.node_scratch_bytes(index) / 4);
                    kernel::run(&kernel, &mut team, buffers)?;
                    if let Some(watch) = watch {
                        watch.look(&kernel);
                    }
                }
            }
            if let Some(notes) = &mut notes {
                for &ready in notes.ready_after(index) {
                    team.lend(self.plan.node_scratch_bytes(ready) / 4);
                    kernel::run(&kernel_of(ready), &mut team, buffers)?;
                }
                notes.tell(index, graph, buffers);
            }
            index += 1;
        }
        Ok(())
    }

    /// An input of f32 numbers, to fill before a run. It keeps its contents from run to run.
    pub fn input(&mut self, name: &str) -> Result<&mut [f32]> {
        let value = self.plan.input(name, DType::F32)?;
        self.arena_part(value)
    }

    /// An input of whole numbers, to fill before a run.
    pub fn input_i32(&mut self, name: &str) -> Result<&mut [i32]> {
        let value = self.plan.input(name, DType::I32)?;
        Ok(bytemuck::cast_slice_mut(self.arena_part(value)?))
    }

    /// An input of bf16 numbers, to fill before a run.
    pub fn input_bf16(&mut self, name: &str) -> Result<&mut [bf16]> {
        let value = self.plan.input(name, DType::Bf16)?;
        let count = self.plan.type_of(value).shape.elements();
        Ok(&mut bytemuck::cast_slice_mut(self.arena_part(value)?)[..count])
    }

    fn arena_part(&mut self, value: Value) -> Result<&mut [f32]> {
        let floats = self.plan.type_of(value).bytes().div_ceil(4);
        match self.plan.location(value) {
            Location::Arena(byte) => Ok(&mut self.arena.as_mut_slice()[byte / 4..byte / 4 + floats]),
            _ => unreachable!("inputs live in the arena"),
        }
    }

    /// The memory of a value that the plan was asked for, after a run.
    fn result(&self, value: Value) -> Result<(&[f32], DType, usize)> {
        let value = self.plan.result(value)?;
        let value_type = self.plan.type_of(value);
        let floats = value_type.bytes().div_ceil(4);
        match self.plan.location(value) {
            Location::Arena(byte) => {
                let slice = &self.arena.as_slice()[byte / 4..byte / 4 + floats];
                Ok((slice, value_type.dtype, value_type.shape.elements()))
            }
            Location::Constants(start) => {
                Ok((&self.constants.as_slice()[start..start + floats], value_type.dtype, floats))
            }
            _ => Err(self.plan.is_no_result(value)),
        }
    }

    /// A value that the plan was asked for, as f32, after a run. Parameters and their gradients are in the [`State`].
    pub fn output(&self, value: Value) -> Result<Vec<f32>> {
        let (floats, dtype, count) = self.result(value)?;
        Ok(match dtype {
            DType::F32 => floats.to_vec(),
            DType::Bf16 => bytemuck::cast_slice::<f32, bf16>(floats)[..count].iter().map(|x| x.to_f32()).collect(),
            DType::I32 => bytemuck::cast_slice::<f32, i32>(floats).iter().map(|&x| x as f32).collect(),
        })
    }

    /// A single number that the plan was asked for, such as the loss.
    pub fn number(&self, value: Value) -> Result<f32> {
        let (floats, dtype, count) = self.result(value)?;
        match (dtype, count) {
            (DType::F32, 1) => Ok(floats[0]),
            _ => Err(self.plan.is_no_slice(value, "a single f32")),
        }
    }

    /// An f32 value that the plan was asked for, without a copy.
    pub fn output_slice(&self, value: Value) -> Result<&[f32]> {
        let (floats, dtype, _) = self.result(value)?;
        match dtype {
            DType::F32 => Ok(floats),
            _ => Err(self.plan.is_no_slice(value, "a slice of f32")),
        }
    }

    /// An i32 value that the plan was asked for, without a copy.
    pub fn output_i32(&self, value: Value) -> Result<&[i32]> {
        let (floats, dtype, _) = self.result(value)?;
        match dtype {
            DType::I32 => Ok(bytemuck::cast_slice(floats)),
            _ => Err(self.plan.is_no_slice(value, "a slice of i32")),
        }
    }

    /// The memory of a value that the plan was asked for, with its type.
    pub(crate) fn result_memory(&self, value: Value) -> Result<(&[f32], &Type)> {
        let planned = self.plan.result(value)?;
        Ok((self.result(value)?.0, self.plan.type_of(planned)))
    }

    /// Fills the arena but for the inputs, and the threads' scratch, with NaN: for tests that want to see what a kernel forgot
    /// to write.
    #[doc(hidden)]
    pub fn poison(&mut self) {
        let inputs: Vec<(usize, usize)> = self
            .plan
            .graph()
            .inputs()
            .filter_map(|(_, value)| match self.plan.location(value) {
                Location::Arena(byte) => Some((byte / 4, self.plan.type_of(value).bytes().div_ceil(4))),
                _ => None,
            })
            .collect();
        let mut team = lock(&self.team);
        team.lend(self.scratch / 4);
        // More tiles than threads, so that each thread gets some.
        team.run(16 * self.threads, &|_, scratch| scratch.fill(f32::NAN));
        for (index, float) in self.arena.as_mut_slice().iter_mut().enumerate() {
            if !inputs.iter().any(|&(start, count)| (start..start + count).contains(&index)) {
                *float = f32::NAN;
            }
        }
    }
}
