//! GPUs in a build without the feature `cuda`: there are none. Types that cannot exist keep everybody else free of conditions.

use std::convert::Infallible;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;
use std::time::Duration;

use half::bf16;

use crate::buffer::Floats;
use crate::cache::{Axes, CacheSlots, ResultCopy, SlotCopy};
use crate::collective::{Collective, Wire, World};
use crate::error::{Error, Result};
pub use crate::gpu::{Gpu, Libraries, Library};
use crate::graph::{Graph, Parameter, Value};
use crate::not_finite::NotFinite;
use crate::plan::Plan;
use crate::precision::Precision;
use crate::random::Run;
use crate::state::State;
use crate::types::Type;
use crate::weights::WeightView;

const REMEDY: &str = "this build computes on the CPU alone; build it with the feature `cuda` to use GPUs";

fn absent() -> Error {
    Error::Machine(REMEDY.to_string())
}

/// A GPU that was opened to run on.
pub enum Device {}

/// Bytes of the weights that a plan's kernels read.
pub(crate) fn weight_bytes(_graph: &Graph) -> usize {
    0
}

/// The GPUs of this machine: an error that says how to build for them.
pub fn gpus() -> Result<Vec<Gpu>> {
    Err(absent())
}

/// Bytes of a GPU's memory that are free.
pub fn free_memory(_gpu: &Gpu) -> Result<u64> {
    Err(absent())
}

/// Where compiled kernels would be kept: nowhere.
pub fn cache_folder() -> Option<PathBuf> {
    None
}

/// Floating-point operations per second that a GPU can do.
pub fn measured_limit(device: &Device, _precision: Precision) -> Result<f64> {
    match *device {}
}

impl Libraries {
    /// None of them is looked for.
    pub fn find() -> Libraries {
        Libraries { needed: ["NVIDIA's driver", "NVRTC", "cuBLASLt"].map(|name| Library::new(name, None, REMEDY)) }
    }

    /// NCCL and the CUDA runtime.
    pub fn others() -> [Library; 2] {
        ["NCCL", "CUDA runtime"].map(|name| Library::new(name, None, REMEDY))
    }
}

impl Plan {
    /// Plans for a GPU: see [`Plan::new`].
    pub fn for_cuda(_graph: &Graph, _outputs: &[Value]) -> Result<Plan> {
        Err(absent())
    }
}

impl Device {
    /// Opens a GPU by its number.
    pub fn open(_ordinal: usize) -> Result<Arc<Device>> {
        Err(absent())
    }

    /// What it is.
    pub fn gpu(&self) -> &Gpu {
        match *self {}
    }

    /// Bytes of its memory that are free now.
    pub fn free_memory(&self) -> Result<u64> {
        match *self {}
    }

    /// Lets products of f32 round their operands to TF32.
    pub fn allow_tf32(&self) {
        match *self {}
    }

    /// Whether products of f32 round their operands.
    pub fn allows_tf32(&self) -> bool {
        match *self {}
    }
}

/// A state's buffers on a GPU.
#[derive(Debug)]
pub(crate) struct Resident {
    never: Infallible,
    pub host_is_behind: bool,
    pub device_is_behind: bool,
}

impl Resident {
    pub fn new(device: &Arc<Device>, _floats: [usize; 5]) -> Result<Resident> {
        match **device {}
    }

    pub fn is_on(&self, _device: &Arc<Device>) -> bool {
        match self.never {}
    }

    pub fn bring(&mut self, _narrow: bool, _host: [&Floats; 5]) -> Result<()> {
        match self.never {}
    }

    pub fn take_home(&mut self, _host: [&mut Floats; 5]) -> Result<()> {
        match self.never {}
    }

    pub fn forget_narrow(&mut self) -> Result<()> {
        match self.never {}
    }
}

/// The gradients of a model, in buckets that GPUs add up.
#[derive(Debug)]
pub enum Reduction {}

impl Reduction {
    /// Over the GPUs of all ranks.
    pub fn start(
        _world: &World,
        device: &Arc<Device>,
        _table: &[Parameter],
        _floats: usize,
        _wire: Wire,
    ) -> Result<Result<Arc<Reduction>, String>> {
        match **device {}
    }

    /// For one GPU alone.
    pub fn alone(
        device: &Arc<Device>,
        _table: &[Parameter],
        _floats: usize,
        _wire: Wire,
        _times: usize,
    ) -> Result<Arc<Reduction>> {
        match **device {}
    }

    /// The library that adds up.
    pub fn library(&self) -> &str {
        match *self {}
    }

    /// The parts of the flat buffer of gradients that travel together.
    pub fn buckets(&self) -> &[Range<usize>] {
        match *self {}
    }

    /// What has arrived in the other memory.
    pub fn landed(&self) -> Result<Vec<f32>> {
        match *self {}
    }

    /// Adds up the gradients of a state as they are.
    pub fn reduce(&self, _state: &mut State, _none: bool) -> Result<()> {
        match *self {}
    }

    /// Waits for the sums.
    pub fn finish(&self) -> Result<()> {
        match *self {}
    }
}

/// Finds other ranks with NCCL.
pub(crate) fn open_link(
    _rank: (usize, usize),
    _address: (&str, u16),
    device: &Arc<Device>,
) -> Result<Box<dyn Collective>> {
    match **device {}
}

/// One rank with NCCL.
pub(crate) fn link_alone(device: &Arc<Device>) -> Result<Box<dyn Collective>> {
    match **device {}
}

/// Caches in a GPU's memory.
pub(crate) enum CacheMemory {}

impl CacheMemory {
    pub const ALIGNMENT: usize = 16;

    pub fn new(_types: &[&Type], device: &Arc<Device>) -> Result<CacheMemory> {
        match **device {}
    }

    pub fn start(&self, _index: usize) -> u64 {
        match *self {}
    }

    pub fn copy_slots(&mut self, _caches: &[(usize, Axes)], _copies: &[SlotCopy]) -> Result<()> {
        match *self {}
    }

    pub fn copy_results(
        &mut self,
        _executor: &mut Executor,
        _pairs: &[(Value, usize, Axes)],
        _copies: &[ResultCopy],
    ) -> Result<()> {
        match *self {}
    }

    pub fn drop_rows(&mut self, _caches: &[(usize, Axes)], _slot: usize, _by: usize, _rows: usize) -> Result<()> {
        match *self {}
    }

    pub fn zero(&mut self, _indices: &[usize]) -> Result<()> {
        match *self {}
    }

    pub fn read(&self, _index: usize, _axes: Axes) -> Result<Vec<f32>> {
        match *self {}
    }

    pub fn write(&mut self, _index: usize, _axes: Axes, _byte: usize, _values: &[f32]) -> Result<()> {
        match *self {}
    }
}

/// Weights in a GPU's memory.
pub(crate) enum SharedWeights {}

impl SharedWeights {
    pub fn new(device: &Arc<Device>) -> SharedWeights {
        match **device {}
    }

    pub fn bytes(&self) -> usize {
        match *self {}
    }
}

/// A plan with its memory on a GPU.
pub enum Executor {}

impl Executor {
    /// Takes the memory for a plan.
    pub fn new(_plan: Plan, device: &Arc<Device>) -> Result<Executor> {
        match **device {}
    }

    /// As [`Executor::new`], one for each of some plans.
    pub fn for_turns(_plans: Vec<Plan>, device: &Arc<Device>) -> Result<Vec<Executor>> {
        match **device {}
    }

    /// As [`Executor::new`], with parameters that do not change.
    pub fn with_weights<'w, E: From<Error>, V: Into<WeightView<'w>>>(
        _plan: Plan,
        device: &Arc<Device>,
        _values: impl FnMut(&Parameter) -> Result<V, E>,
    ) -> Result<Executor, E> {
        match **device {}
    }

    pub(crate) fn with_shared_weights<'w, E: From<Error>, V: Into<WeightView<'w>>>(
        _plan: Plan,
        device: &Arc<Device>,
        _shared: &mut SharedWeights,
        _values: impl FnMut(&Parameter) -> Result<V, E>,
    ) -> Result<Executor, E> {
        match **device {}
    }

    /// Takes other values of the parameters.
    pub fn take_weights<'w, E: From<Error>, V: Into<WeightView<'w>>>(
        &mut self,
        _values: impl FnMut(&Parameter) -> Result<V, E>,
    ) -> Result<(), E> {
        match *self {}
    }

    /// Bytes of a device that a plan takes.
    pub fn bytes_needed(_plan: &Plan) -> usize {
        0
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        match *self {}
    }

    /// What it runs on.
    pub fn device(&self) -> &Arc<Device> {
        match *self {}
    }

    /// Bytes of the device that were taken.
    pub fn memory_bytes(&self) -> usize {
        match *self {}
    }

    /// Starts a run with a state.
    pub fn run(&mut self, _state: &mut State, _run: Run) -> Result<()> {
        match *self {}
    }

    /// As [`Executor::run`], on caches.
    pub fn run_with<'c>(&mut self, _state: &mut State, _caches: impl Into<CacheSlots<'c>>, _run: Run) -> Result<()> {
        match *self {}
    }

    /// As [`Executor::run`], with gradients that are added up over several GPUs.
    pub fn run_reducing(&mut self, _state: &mut State, _run: Run, _reduction: &Arc<Reduction>) -> Result<()> {
        match *self {}
    }

    /// Starts a run with weights that do not change.
    pub fn infer(&mut self) -> Result<()> {
        match *self {}
    }

    /// As [`Executor::infer`], on caches.
    pub fn infer_with<'c>(&mut self, _caches: impl Into<CacheSlots<'c>>) -> Result<()> {
        match *self {}
    }

    /// How long nothing has run.
    pub fn idle_for(&self) -> Result<Duration> {
        match *self {}
    }

    /// Waits until the run has ended.
    pub fn finish(&mut self) -> Result<()> {
        match *self {}
    }

    /// Seconds of each kernel of a run.
    pub fn profile(&mut self, _state: Option<&mut State>, _run: Run) -> Result<Vec<(usize, &'static str, f64)>> {
        match *self {}
    }

    /// An input of f32 numbers.
    pub fn input(&mut self, _name: &str) -> Result<&mut [f32]> {
        match *self {}
    }

    /// An input of whole numbers.
    pub fn input_i32(&mut self, _name: &str) -> Result<&mut [i32]> {
        match *self {}
    }

    /// An input of bf16 numbers.
    pub fn input_bf16(&mut self, _name: &str) -> Result<&mut [bf16]> {
        match *self {}
    }

    /// Starts to copy the inputs that were filled.
    pub fn send_inputs(&mut self) -> Result<()> {
        match *self {}
    }

    /// A result as f32.
    pub fn output(&self, _value: Value) -> Result<Vec<f32>> {
        match *self {}
    }

    /// An f32 result.
    pub fn output_slice(&self, _value: Value) -> Result<&[f32]> {
        match *self {}
    }

    /// An i32 result.
    pub fn output_i32(&self, _value: Value) -> Result<&[i32]> {
        match *self {}
    }

    /// The first value of a run that is not finite.
    pub fn find_non_finite(&mut self, _state: &mut State, _run: Run) -> Result<Option<NotFinite>> {
        match *self {}
    }
}
