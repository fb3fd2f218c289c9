//! A plan with its memory on a GPU.
//!
//! The first run starts its kernels one by one; the second records them, and from then on a run is one launch of what was recorded. Runs go on
//! while the host does other things: whoever asks for a result waits for it.

use std::sync::Arc;
use std::time::{Duration, Instant};

use cudarc::driver::result as driver;
use cudarc::driver::sys;
use half::bf16;

use super::compile::Kernels;
use super::cublaslt::{self, Prepared};
use super::design::{Design, sources};
use super::device::{Device, failed};
use super::exchange::Exchange;
use super::launch::{Address, Buffer, Launch};
use super::memory::DeviceBuffer;
use super::nccl::Reduction;
use super::products::Product;
use super::resident::Resident;
use super::start::{Begin, start_kernel};
use super::stream::{Event, Recorded, Stream};
use super::target::{Built, Task};
use super::weights::{Needs, SharedWeights, Weights};
use crate::cache::{CacheSlots, lend};
use crate::error::{Error, Result};
use crate::graph::{Parameter, Value};
use crate::not_finite::{NotFinite, NotFiniteKind, describe};
use crate::ops::Op;
use crate::plan::{Location, Plan};
use crate::precision::Precision;
use crate::random::Run;
use crate::state::State;
use crate::types::{DType, Type};
use crate::weights::WeightView;

enum Work {
    Launch { function: sys::CUfunction, launch: Launch, begin: Begin },
    Product { product: Box<Product>, prepared: Prepared },
}

impl Work {
    fn name(&self) -> &'static str {
        match self {
            Work::Launch { launch, .. } => launch.entry,
            Work::Product { .. } => "product",
        }
    }
}

/// Work, and the node that it belongs to.
struct NodeWork {
    node: usize,
    work: Work,
}

/// What a run works on besides the executor's own memory: a state or weights, and caches.
struct Lent<'l> {
    parameters: Parameters<'l>,
    /// Where the plan's caches begin.
    caches: Vec<u64>,
}

#[derive(Clone, Copy)]
enum Parameters<'l> {
    State(&'l Resident),
    Weights(&'l Weights),
}

impl Lent<'_> {
    fn address(&self, place: Address) -> u64 {
        match (place.buffer, self.parameters) {
            (Buffer::Cache(index), _) => self.caches[index as usize] + place.byte as u64,
            (buffer, Parameters::State(resident)) => resident.start(buffer) + place.byte as u64,
            (_, Parameters::Weights(weights)) => weights.address(place),
        }
    }

    /// What a recorded run depends on. Weights that do not change are the executor's own.
    fn addresses(&self) -> Vec<u64> {
        let state = match self.parameters {
            Parameters::State(resident) => resident.starts().to_vec(),
            Parameters::Weights(_) => Vec::new(),
        };
        [state, self.caches.clone()].concat()
    }
}

/// What is known of runs of a kind.
#[derive(Default)]
struct Record {
    /// A run that was recorded, and the addresses that it works on.
    recorded: Option<(Vec<u64>, Recorded)>,
    /// The addresses that the last run worked on: what is run again on the same ones is recorded.
    last_addresses: Option<Vec<u64>>,
}

/// A plan with its memory on a GPU.
pub struct Executor {
    plan: Plan,
    steps: Vec<NodeWork>,
    /// Runs by whether other GPUs take part.
    records: [Record; 2],
    /// What adds up the gradients of the second of them. Behind what was recorded with it.
    reduction: Option<Arc<Reduction>>,
    /// The parameters that kernels read, and in which formats.
    needs: Needs,
    /// Whether a run was started that nobody has waited for.
    running: bool,
    /// Whether a run changes the state.
    changes_state: bool,
    ended: Arc<Event>,
    /// Where it began, on the device and by the host's clock.
    began: Event,
    started: Option<Instant>,
    exchange: Exchange,
    stream: Stream,
    /// Plans that take turns share it.
    arena: Arc<DeviceBuffer>,
    constants: DeviceBuffer,
    tables: DeviceBuffer,
    workspace: Arc<DeviceBuffer>,
    /// The parameters, where no state has them.
    weights: Option<Weights>,
    products: cublaslt::Library,
    // Last, so that kernels outlive the work that calls them.
    _kernels: Kernels,
    device: Arc<Device>,
}

// SAFETY: kernels and recorded work are handles that any thread with the context can use, one at a time.
unsafe impl Send for Executor {}

impl Executor {
    /// Takes the memory for a plan of [`Plan::for_cuda`] and compiles its kernels.
    pub fn new(plan: Plan, device: &Arc<Device>) -> Result<Executor> {
        let arena = Arc::new(DeviceBuffer::zeroed(device, plan.arena_bytes())?);
        let workspace = Arc::new(DeviceBuffer::new(device, cublaslt::WORKSPACE_BYTES)?);
        Executor::of(Design::new(plan, device, &arena, &workspace)?, device, &arena, &workspace)
    }

    /// As [`Executor::new`], one for each of some plans, in one memory: one of them runs at a time, and its inputs must be filled anew when
    /// another has run.
    pub fn for_turns(plans: Vec<Plan>, device: &Arc<Device>) -> Result<Vec<Executor>> {
        let bytes = plans.iter().map(Plan::arena_bytes).max().unwrap_or(0);
        let arena = Arc::new(DeviceBuffer::zeroed(device, bytes)?);
        let workspace = Arc::new(DeviceBuffer::new(device, cublaslt::WORKSPACE_BYTES)?);
        let each = plans.into_iter();
        let designs: Vec<Design> =
            each.map(|plan| Design::new(plan, device, &arena, &workspace)).collect::<Result<_>>()?;
        // All at once: one after another, each plan would wait for the kernel that takes longest to compile.
        let mut kernels = Kernels::new(Arc::clone(device));
        kernels.load_all(designs.iter().flat_map(Design::sources))?;
        designs.into_iter().map(|design| Executor::of(design, device, &arena, &workspace)).collect()
    }

    fn of(
        design: Design,
        device: &Arc<Device>,
        arena: &Arc<DeviceBuffer>,
        workspace: &Arc<DeviceBuffer>,
    ) -> Result<Executor> {
        device.bind()?;
        let Design { plan, mut kernels, products, built, tables } = design;
        kernels.load_all(sources(&built))?;
        let mut constants = DeviceBuffer::new(device, plan.constant_bytes())?;
        constants.write(0, &plan.constants())?;
        let mut on_device = DeviceBuffer::new(device, tables.len())?;
        on_device.write(0, &tables)?;
        let stream = Stream::new()?;
        let mut steps = Vec::new();
        let mut needs = Needs::new(plan.graph());
        let starts_early = device.can_start_early();
        for Task { node, built } in built {
            let work = match built {
                Built::Launch(launch) => {
                    needs.add_launch(plan.graph(), &launch);
                    let function = kernels.function(&launch.source, launch.entry, launch.shared_bytes)?;
                    let early = starts_early && launch.waits_itself();
                    Work::Launch { function, launch, begin: if early { Begin::Early } else { Begin::After } }
                }
                Built::Product(product) => {
                    needs.add_product(plan.graph(), &product);
                    Work::Product { prepared: products.prepare(&product)?, product }
                }
            };
            steps.push(NodeWork { node, work });
        }
        Ok(Executor {
            exchange: Exchange::new(device, &plan)?,
            changes_state: plan.graph().nodes().iter().any(|node| node.op.has_effect()),
            records: Default::default(),
            reduction: None,
            needs,
            running: false,
            ended: Arc::new(Event::timed()?),
            began: Event::timed()?,
            started: None,
            weights: None,
            _kernels: kernels,
            device: Arc::clone(device),
            tables: on_device,
            arena: Arc::clone(arena),
            constants,
            workspace: Arc::clone(workspace),
            stream,
            products,
            steps,
            plan,
        })
    }

    /// As [`Executor::new`], with parameters that do not change: `values` gives those of each that is read.
    pub fn with_weights<'w, E: From<Error>, V: Into<WeightView<'w>>>(
        plan: Plan,
        device: &Arc<Device>,
        values: impl FnMut(&Parameter) -> Result<V, E>,
    ) -> Result<Executor, E> {
        Executor::with_shared_weights(plan, device, &mut SharedWeights::new(device), values)
    }

    /// As [`Executor::with_weights`], with weights that other executors have, too: `values` is asked only for what is not there yet.
    pub(crate) fn with_shared_weights<'w, E: From<Error>, V: Into<WeightView<'w>>>(
        plan: Plan,
        device: &Arc<Device>,
        shared: &mut SharedWeights,
        values: impl FnMut(&Parameter) -> Result<V, E>,
    ) -> Result<Executor, E> {
        if !shared.is_on(device) {
            return Err(Error::Machine("these weights are on another GPU than the executor".to_string()).into());
        }
        let mut executor = Executor::new(plan, device)?;
        executor.weights = Some(shared.weights_for(executor.plan.graph(), &executor.needs, values)?);
        Ok(executor)
    }

    /// Takes other values of the parameters. Executors that share the ones before keep them.
    pub fn take_weights<'w, E: From<Error>, V: Into<WeightView<'w>>>(
        &mut self,
        values: impl FnMut(&Parameter) -> Result<V, E>,
    ) -> Result<(), E> {
        self.finish()?;
        // The old ones' memory goes before the new ones' comes.
        self.weights = None;
        self.records = Default::default();
        let mut own = SharedWeights::new(&self.device);
        self.weights = Some(own.weights_for(self.plan.graph(), &self.needs, values)?);
        Ok(())
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// What it runs on.
    pub fn device(&self) -> &Arc<Device> {
        &self.device
    }

    /// Bytes of the device that were taken for running, besides a state's.
    pub fn memory_bytes(&self) -> usize {
        let weights = self.weights.as_ref().map_or(0, Weights::bytes);
        let buffers = [&*self.arena, &self.constants, &self.tables, &self.workspace];
        buffers.iter().map(|buffer| buffer.bytes()).sum::<usize>() + self.exchange.device_bytes() + weights
    }

    /// Bytes of the device that [`Executor::new`] takes for a plan, about; without the state's.
    pub fn bytes_needed(plan: &Plan) -> usize {
        plan.arena_bytes() + plan.constant_bytes() + Exchange::device_bytes_needed(plan) + cublaslt::WORKSPACE_BYTES
    }

    fn is_narrow(&self) -> bool {
        self.plan.graph().precision() == Precision::Bf16
    }

    /// Starts a run of the plan with a state, which stays on the device. It goes on after this returns.
    pub fn run(&mut self, state: &mut State, run: Run) -> Result<()> {
        self.run_lending(state, None, run, None)
    }

    /// As [`Executor::run`], of a plan that accumulates gradients, which are added up over several GPUs while it goes on.
    pub fn run_reducing(&mut self, state: &mut State, run: Run, reduction: &Arc<Reduction>) -> Result<()> {
        if !reduction.is_on(&self.device) {
            return Err(Error::Machine("these gradients are added up on another GPU than the executor's".to_string()));
        }
        if self.reduction.as_ref().is_none_or(|known| !Arc::ptr_eq(known, reduction)) {
            self.finish()?;
            // What was recorded with the one before goes first.
            self.records[1] = Record::default();
            self.reduction = Some(Arc::clone(reduction));
        }
        self.run_lending(state, None, run, Some(reduction))
    }

    /// As [`Executor::run`], on caches that outlive the run.
    pub fn run_with<'c>(&mut self, state: &mut State, caches: impl Into<CacheSlots<'c>>, run: Run) -> Result<()> {
        self.run_lending(state, Some(caches.into()), run, None)
    }

    fn run_lending(
        &mut self,
        state: &mut State,
        caches: Option<CacheSlots>,
        run: Run,
        reduction: Option<&Arc<Reduction>>,
    ) -> Result<()> {
        self.finish()?;
        state.fits(self.plan.graph())?;
        let (narrow, changes) = (self.is_narrow(), self.changes_state);
        let resident = state.on_device(&self.device, narrow, changes)?;
        if let Some(last) = &resident.last_run {
            self.stream.wait_for(last)?;
        }
        self.start(run, Parameters::State(resident), caches, reduction)?;
        resident.last_run = Some(Arc::clone(&self.ended));
        Ok(())
    }

    /// Starts a run of the plan with the parameters that [`Executor::with_weights`] was given.
    pub fn infer(&mut self) -> Result<()> {
        self.infer_lending(None)
    }

    /// As [`Executor::infer`], on caches that outlive the run.
    pub fn infer_with<'c>(&mut self, caches: impl Into<CacheSlots<'c>>) -> Result<()> {
        self.infer_lending(Some(caches.into()))
    }

    fn infer_lending(&mut self, caches: Option<CacheSlots>) -> Result<()> {
        self.finish()?;
        let Some(weights) = self.weights.take() else {
            let message = "this executor has no weights of its own: run it with a state".to_string();
            return Err(Error::Machine(message));
        };
        let started = self.start(Run { seed: 0, step: 0 }, Parameters::Weights(&weights), caches, None);
        self.weights = Some(weights);
        started
    }

    /// Where the plan's caches begin. The stream waits for whatever works on them.
    fn take_caches(&self, caches: &mut Option<CacheSlots>) -> Result<Vec<u64>> {
        let mut starts = Vec::new();
        lend(&self.plan, caches, |slots, index| {
            starts.push(slots.cuda_start(index)?);
            Ok(())
        })?;
        if let (Some(slots), false) = (caches, starts.is_empty()) {
            let memory = slots.cuda_memory()?;
            if !memory.is_on(&self.device) {
                return Err(Error::Machine("these caches are on another GPU than the executor".to_string()));
            }
            memory.wait_on(&self.stream)?;
        }
        Ok(starts)
    }

    fn start(
        &mut self,
        run: Run,
        parameters: Parameters,
        mut caches: Option<CacheSlots>,
        reduction: Option<&Arc<Reduction>>,
    ) -> Result<()> {
        self.device.bind()?;
        let lent = Lent { parameters, caches: self.take_caches(&mut caches)? };
        self.exchange.set_run(run);
        self.exchange.deliver(&self.stream, &self.arena)?;
        let (addresses, kind) = (lent.addresses(), usize::from(reduction.is_some()));
        // Recording takes longer than a run, so it is done for what is run again on the same memory. Kernels have run once by then,
        // so that all of them are loaded, and GPUs are connected.
        let Record { recorded, last_addresses } = &self.records[kind];
        let is_recorded = recorded.as_ref().is_some_and(|(of, _)| *of == addresses);
        if !is_recorded && last_addresses.as_ref() == Some(&addresses) {
            let new = Recorded::new(&self.stream, || self.all_steps(&lent, reduction))?;
            self.records[kind].recorded = Some((addresses.clone(), new));
        }
        self.began.record(&self.stream)?;
        self.started = Some(Instant::now());
        match self.records[kind].recorded.as_ref().filter(|(of, _)| *of == addresses) {
            Some((_, recorded)) => recorded.start(&self.stream)?,
            None => self.all_steps(&lent, reduction)?,
        }
        self.ended.record(&self.stream)?;
        if let (Some(slots), false) = (&mut caches, lent.caches.is_empty()) {
            slots.cuda_memory()?.is_used_until(&self.ended);
        }
        self.running = true;
        self.records[kind].last_addresses = Some(addresses);
        Ok(())
    }

    /// Asks the stream for all of a run: its numbers, its steps, its results. Gradients are added up as soon as they are there.
    fn all_steps(&self, lent: &Lent, reduction: Option<&Arc<Reduction>>) -> Result<()> {
        self.exchange.send_run(&self.stream)?;
        let gradients = Address { buffer: Buffer::Gradients, byte: 0 };
        let mut progress = reduction.map(|reduction| reduction.follow(self.address(gradients, lent)));
        for (index, step) in self.steps.iter().enumerate() {
            self.one_step(&step.work, lent)?;
            let is_last = self.steps.get(index + 1).is_none_or(|next| next.node != step.node);
            if let (Some(progress), true) = (&mut progress, is_last)
                && let Op::AccumulateGradient(op) = &self.plan.graph().nodes()[step.node].op
            {
                progress.written(op.parameter, &self.stream)?;
            }
        }
        if let Some(progress) = progress {
            progress.finish(&self.stream)?;
        }
        self.exchange.fetch_results(&self.stream, |place| self.address(place, lent))
    }

    fn one_step(&self, work: &Work, lent: &Lent) -> Result<()> {
        let address = |place| self.address(place, lent);
        match work {
            // SAFETY: the plan's places lie inside the buffers, whose sizes are the plan's.
            Work::Launch { function, launch, begin } => unsafe {
                start_kernel(*function, launch, address, *begin, &self.stream)
            },
            // SAFETY: as above.
            Work::Product { product, prepared } => unsafe {
                self.products.run(prepared, product, address, &self.stream)
            },
        }
    }

    fn address(&self, place: Address, lent: &Lent) -> u64 {
        let start = match place.buffer {
            Buffer::Arena => self.arena.start(),
            Buffer::Constants => self.constants.start(),
            Buffer::Tables => self.tables.start(),
            Buffer::Run => self.exchange.run_start(),
            _ => return lent.address(place),
        };
        start + place.byte as u64
    }

    /// What asks for its work.
    pub(super) fn stream(&self) -> &Stream {
        &self.stream
    }

    /// Where a result lies on the device, and its type. What reads it there must be asked of [`Executor::stream`].
    pub(super) fn result_address(&self, value: Value) -> Result<(u64, &Type)> {
        let planned = self.plan.result(value)?;
        let start = match self.plan.location(planned) {
            Location::Arena(byte) => self.arena.start() + byte as u64,
            Location::Constants(float) => self.constants.start() + 4 * float as u64,
            _ => return Err(self.plan.is_no_result(planned)),
        };
        Ok((start, self.plan.type_of(planned)))
    }

    /// How long nothing has run; since when there was no run, for ever.
    pub fn idle_for(&self) -> Result<Duration> {
        let Some(started) = self.started.filter(|_| self.ended.is_reached()) else {
            return Ok(if self.started.is_none() { Duration::MAX } else { Duration::ZERO });
        };
        let ran = Duration::from_secs_f64(self.ended.seconds_since(&self.began)?.max(0.0));
        Ok(started.elapsed().saturating_sub(ran))
    }

    /// Waits until the run has ended.
    pub fn finish(&mut self) -> Result<()> {
        if self.running {
            self.running = false;
            self.wait()?;
        }
        Ok(())
    }

    fn wait(&self) -> Result<()> {
        self.ended.wait()?;
        match self.exchange.fault() {
            None => Ok(()),
            Some(position) => {
                Err(Error::Machine(format!("a whole number at position {position} of an input is out of its range")))
            }
        }
    }

    /// Seconds of each kernel of a run with a state, or with weights of its own, one after the other: the node's place in the plan, the
    /// kernel's name, the time.
    pub fn profile(&mut self, state: Option<&mut State>, run: Run) -> Result<Vec<(usize, &'static str, f64)>> {
        self.finish()?;
        self.device.wait()?;
        let weights = self.weights.take();
        let (narrow, changes) = (self.is_narrow(), self.changes_state);
        let times = match (state, &weights) {
            (Some(state), _) => {
                let resident = state.on_device(&self.device, narrow, changes)?;
                self.timed(Parameters::State(resident), run)
            }
            (None, Some(weights)) => self.timed(Parameters::Weights(weights), run),
            (None, None) => Err(Error::Machine("this executor has no weights of its own".to_string())),
        };
        self.weights = weights;
        times
    }

    fn timed(&mut self, parameters: Parameters, run: Run) -> Result<Vec<(usize, &'static str, f64)>> {
        let lent = Lent { parameters, caches: self.take_caches(&mut None)? };
        self.exchange.set_run(run);
        self.exchange.deliver(&self.stream, &self.arena)?;
        self.exchange.send_run(&self.stream)?;
        let mut events = vec![Event::timed()?];
        events[0].record(&self.stream)?;
        for step in &self.steps {
            self.one_step(&step.work, &lent)?;
            let event = Event::timed()?;
            event.record(&self.stream)?;
            events.push(event);
        }
        events[events.len() - 1].wait()?;
        let spans = self.steps.iter().zip(events.windows(2));
        spans.map(|(step, pair)| Ok((step.node, step.work.name(), pair[1].seconds_since(&pair[0])?))).collect()
    }

    /// An input of f32 numbers, to fill before a run. It keeps its contents from run to run, and may be filled while a run goes on: that
    /// has its own copy.
    pub fn input(&mut self, name: &str) -> Result<&mut [f32]> {
        let value = self.plan.input(name, DType::F32)?;
        Ok(bytemuck::cast_slice_mut(self.exchange.input(value)?))
    }

    /// An input of whole numbers.
    pub fn input_i32(&mut self, name: &str) -> Result<&mut [i32]> {
        let value = self.plan.input(name, DType::I32)?;
        Ok(bytemuck::cast_slice_mut(self.exchange.input(value)?))
    }

    /// An input of bf16 numbers.
    pub fn input_bf16(&mut self, name: &str) -> Result<&mut [bf16]> {
        let value = self.plan.input(name, DType::Bf16)?;
        Ok(bytemuck::cast_slice_mut(self.exchange.input(value)?))
    }

    /// Starts to copy the inputs that were filled since the last run, while that may still go on.
    pub fn send_inputs(&mut self) -> Result<()> {
        self.device.bind()?;
        self.exchange.send_inputs()
    }

    /// The bytes and type of a value that the plan was asked for, after the run has ended.
    fn result(&self, value: Value) -> Result<(&[u8], DType)> {
        if self.running {
            self.wait()?;
        }
        let planned = self.plan.result(value)?;
        match self.exchange.result(planned) {
            Some(bytes) => Ok((bytes, self.plan.type_of(planned).dtype)),
            None if self.plan.is_left_on_device(planned) => {
                Err(self.plan.is_no_slice(value, "a slice of what is left on the GPU"))
            }
            None => Err(self.plan.is_no_result(planned)),
        }
    }

    /// A value that the plan was asked for, as f32, after a run. Parameters and their gradients are in the [`State`].
    pub fn output(&self, value: Value) -> Result<Vec<f32>> {
        let planned = self.plan.result(value)?;
        if self.plan.is_left_on_device(planned) {
            return self.copied_output(value);
        }
        let (bytes, dtype) = self.result(value)?;
        Ok(as_floats(bytes, dtype))
    }

    /// A result that was left on the device.
    fn copied_output(&self, value: Value) -> Result<Vec<f32>> {
        if self.running {
            self.wait()?;
        }
        self.device.bind()?;
        self.stream.wait()?;
        let (from, value_type) = self.result_address(value)?;
        let mut words = vec![0u32; value_type.bytes().div_ceil(4)];
        let bytes = &mut bytemuck::cast_slice_mut::<u32, u8>(&mut words)[..value_type.bytes()];
        // SAFETY: the result has so many bytes there, and nothing runs.
        unsafe { driver::memcpy_dtoh_sync(bytes, from) }.map_err(|error| failed("copying from the GPU", error))?;
        Ok(as_floats(bytes, value_type.dtype))
    }

    /// An f32 value that the plan was asked for, without a copy.
    pub fn output_slice(&self, value: Value) -> Result<&[f32]> {
        let (bytes, dtype) = self.result(value)?;
        match dtype {
            DType::F32 => Ok(bytemuck::cast_slice(bytes)),
            _ => Err(self.plan.is_no_slice(value, "a slice of f32")),
        }
    }

    /// An i32 value that the plan was asked for, without a copy.
    pub fn output_i32(&self, value: Value) -> Result<&[i32]> {
        let (bytes, dtype) = self.result(value)?;
        match dtype {
            DType::I32 => Ok(bytemuck::cast_slice(bytes)),
            _ => Err(self.plan.is_no_slice(value, "a slice of i32")),
        }
    }

    /// Finds what went bad: see the CPU's. The inputs are those of the last run.
    pub fn find_non_finite(&mut self, state: &mut State, run: Run) -> Result<Option<NotFinite>> {
        self.finish()?;
        state.bring_home()?;
        let bad = |values: &[f32]| values.iter().position(|value| !value.is_finite());
        for parameter in state.table() {
            let values = state.parameter(&parameter.name)?;
            if let Some(index) = bad(values) {
                let (kind, path) = (NotFiniteKind::Parameter, parameter.name.clone());
                return Ok(Some(NotFinite { kind, path, index, value: values[index] }));
            }
        }
        let (narrow, device) = (self.is_narrow(), Arc::clone(&self.device));
        let resident = state.on_device(&device, narrow, false)?;
        let lent = Lent { parameters: Parameters::State(resident), caches: self.take_caches(&mut None)? };
        let graph = self.plan.graph();
        for (path, value) in graph.inputs() {
            if let Some((index, value)) = self.first_not_finite(value, &lent)? {
                let (kind, path) = (NotFiniteKind::Input, path.to_string());
                return Ok(Some(NotFinite { kind, path, index, value }));
            }
        }
        self.exchange.set_run(run);
        self.exchange.send_run(&self.stream)?;
        for (index, step) in self.steps.iter().enumerate() {
            let node = &graph.nodes()[step.node];
            if node.op.has_effect() {
                continue;
            }
            self.one_step(&step.work, &lent)?;
            if self.steps.get(index + 1).is_some_and(|next| next.node == step.node) {
                continue;
            }
            self.ended.record(&self.stream)?;
            self.ended.wait()?;
            // What attention keeps besides its result may be infinite where all keys are padding.
            let outputs = if matches!(node.op, Op::Attention(_)) { 1 } else { node.outputs.len() };
            for output in 0..outputs {
                let value = Value::new(step.node, output);
                if let Some((index, number)) = self.first_not_finite(value, &lent)? {
                    let (kind, path) = describe(graph, value);
                    return Ok(Some(NotFinite { kind, path, index, value: number }));
                }
            }
        }
        Ok(None)
    }

    fn first_not_finite(&self, value: Value, lent: &Lent) -> Result<Option<(usize, f32)>> {
        let value_type = self.plan.type_of(value);
        let place = match self.plan.location(value) {
            Location::Arena(byte) => Address { buffer: Buffer::Arena, byte },
            Location::Gradients(float) => Address { buffer: Buffer::Gradients, byte: 4 * float },
            _ => return Ok(None),
        };
        let from = self.address(place, lent);
        let mut bytes = vec![0u8; value_type.bytes()];
        // SAFETY: the value has so many bytes there, and nothing runs.
        unsafe { driver::memcpy_dtoh_sync(&mut bytes, from) }.map_err(|error| failed("copying from the GPU", error))?;
        let values = match value_type.dtype {
            DType::F32 | DType::Bf16 => as_floats(&bytes, value_type.dtype),
            DType::I32 => return Ok(None),
        };
        Ok(values.iter().position(|value| !value.is_finite()).map(|place| (place, values[place])))
    }
}

/// Bytes of a value as f32.
fn as_floats(bytes: &[u8], dtype: DType) -> Vec<f32> {
    match dtype {
        DType::F32 => bytes.chunks_exact(4).map(|b| f32::from_le_bytes([b[0], b[1], b[2], b[3]])).collect(),
        DType::Bf16 => bytes.chunks_exact(2).map(|b| bf16::from_le_bytes([b[0], b[1]]).to_f32()).collect(),
        DType::I32 => bytes.chunks_exact(4).map(|b| i32::from_le_bytes([b[0], b[1], b[2], b[3]]) as f32).collect(),
    }
}

impl Drop for Executor {
    fn drop(&mut self) {
        // What runs, or copies from it into a cache, still uses the memory that goes.
        let _ = self.device.bind();
        let _ = self.finish();
        let _ = self.stream.wait();
        let _ = self.exchange.finish();
    }
}
