//! One face for all executors: what a plan is run on is chosen once, and whoever runs it need not know.

use std::collections::HashSet;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use half::bf16;

use crate::cache::CacheSlots;
use crate::cpu;
use crate::cuda;
use crate::error::{Error, Result};
use crate::graph::{Graph, Parameter, Value};
use crate::machine;
use crate::not_finite::NotFinite;
use crate::plan::Plan;
use crate::precision::Precision;
use crate::random::Run;
use crate::shard::ShardLink;
use crate::state::State;
use crate::weights::{OnDevice, SharedWeights, WeightView};

/// What plans are made for and run on.
#[derive(Clone)]
pub enum Device {
    /// The processor, with so many threads.
    Cpu {
        /// At least 1; the calling thread is one of them.
        threads: usize,
    },
    /// A GPU.
    Cuda(Arc<cuda::Device>),
}

impl fmt::Debug for Device {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.name())
    }
}

impl Device {
    /// What it is called: `cpu`, or `cuda:0`.
    pub fn name(&self) -> String {
        match self {
            Device::Cpu { .. } => "cpu".to_string(),
            Device::Cuda(device) => format!("cuda:{}", device.gpu().ordinal),
        }
    }

    /// Whether it is a GPU: runs go on while the host does other things.
    pub fn is_gpu(&self) -> bool {
        matches!(self, Device::Cuda(_))
    }

    /// Plans for it: see [`Plan::new`].
    pub fn plan(&self, graph: &Graph, outputs: &[Value]) -> Result<Plan> {
        match self {
            Device::Cpu { .. } => Plan::for_cpu(graph, outputs),
            Device::Cuda(_) => Plan::for_cuda(graph, outputs),
        }
    }

    /// As [`Device::plan`], with weights that do not change.
    pub fn plan_with_fixed_weights(&self, graph: &Graph, outputs: &[Value]) -> Result<Plan> {
        match self {
            Device::Cpu { .. } => Plan::for_cpu_with_fixed_weights(graph, outputs),
            Device::Cuda(_) => Plan::for_cuda(graph, outputs),
        }
    }

    /// Bytes of its memory that running a plan takes, besides a state.
    pub fn bytes_needed(&self, plan: &Plan) -> usize {
        match self {
            Device::Cpu { threads } => plan.peak_bytes(*threads),
            Device::Cuda(_) => cuda::Executor::bytes_needed(plan),
        }
    }

    /// As [`Device::bytes_needed`], of a plan of [`Device::plan_with_fixed_weights`], with its weights.
    pub fn bytes_needed_with_weights(&self, plan: &Plan) -> usize {
        let graph = plan.graph();
        let weights = match self {
            // A plan for the processor has places for them.
            Device::Cpu { .. } => 0,
            Device::Cuda(_) => cuda::weight_bytes(graph),
        };
        self.bytes_needed(plan).saturating_add(weights)
    }

    /// As [`Device::bytes_needed_with_weights`], of several plans of one model whose executors share their weights: a form that
    /// several want is there once.
    pub fn bytes_needed_together(&self, plans: &[&Plan]) -> usize {
        let separate: Vec<usize> = plans.iter().map(|plan| self.bytes_needed_with_weights(plan)).collect();
        let mut known = HashSet::new();
        let mut shared = 0usize;
        for form in plans.iter().filter_map(|plan| plan.fixed_weights()).flat_map(|weights| weights.keys()) {
            if !known.insert(form) {
                shared = shared.saturating_add(4 * form.floats());
            }
        }
        let on_gpu = plans.iter().skip(1).map(|plan| self.bytes_needed_with_weights(plan) - self.bytes_needed(plan));
        let shared = if self.is_gpu() { on_gpu.sum() } else { shared };
        separate.iter().fold(0, |sum: usize, bytes| sum.saturating_add(*bytes)).saturating_sub(shared)
    }

    /// Bytes of its memory that a graph's state takes.
    pub fn state_bytes_needed(&self, graph: &Graph) -> usize {
        let rounded = match (self, graph.precision()) {
            (Device::Cuda(_), Precision::Bf16) => 2 * graph.parameter_floats(),
            _ => 0,
        };
        State::bytes_needed(graph) + rounded
    }

    /// Bytes of its memory that can be taken; `None` where the system does not tell.
    pub fn available_memory(&self) -> Result<Option<u64>> {
        match self {
            Device::Cpu { .. } => Ok(machine::available_memory()),
            Device::Cuda(device) => device.free_memory().map(Some),
        }
    }

    /// Refuses what would not fit: see [`machine::check_memory`].
    pub fn check_memory(&self, what: &str, bytes: usize) -> Result<()> {
        match self.available_memory()? {
            Some(available) => machine::fits(what, bytes as u64, available),
            None => Ok(()),
        }
    }

    /// Floating-point operations a second that it can do.
    pub fn measured_limit(&self, precision: Precision) -> Result<f64> {
        match self {
            Device::Cpu { threads } => cpu::measured_limit(precision, *threads),
            Device::Cuda(device) => cuda::measured_limit(device, precision),
        }
    }
}

/// A plan with its memory on a device.
pub enum Executor {
    /// On the processor.
    Cpu(Box<cpu::Executor>),
    /// On a GPU; plans that take turns are several.
    Cuda {
        /// One, or those that take turns.
        executors: Vec<cuda::Executor>,
        /// Whose turn it is.
        turn: usize,
    },
}

/// Calls the executor that there is.
macro_rules! either {
    ($self:ident, $executor:ident => $call:expr) => {
        match $self {
            Executor::Cpu($executor) => $call,
            Executor::Cuda { executors, turn } => {
                let $executor = &executors[*turn];
                $call
            }
        }
    };
    (mut $self:ident, $executor:ident => $call:expr) => {
        match $self {
            Executor::Cpu($executor) => $call,
            Executor::Cuda { executors, turn } => {
                let $executor = &mut executors[*turn];
                $call
            }
        }
    };
}

impl Executor {
    /// Takes the memory for a plan of [`Device::plan`].
    pub fn new(plan: Plan, device: &Device) -> Result<Executor> {
        Ok(match device {
            Device::Cpu { threads } => Executor::Cpu(Box::new(cpu::Executor::new(plan, *threads)?)),
            Device::Cuda(device) => Executor::on_gpu(cuda::Executor::new(plan, device)?),
        })
    }

    fn on_gpu(executor: cuda::Executor) -> Executor {
        Executor::Cuda { executors: vec![executor], turn: 0 }
    }

    /// Takes the memory for a plan of [`Device::plan_with_fixed_weights`], and the weights: `values` gives those of each parameter that is
    /// used.
    pub fn with_weights<'w, E: From<Error>, V: Into<WeightView<'w>>>(
        plan: Plan,
        device: &Device,
        values: impl FnMut(&Parameter) -> Result<V, E>,
    ) -> Result<Executor, E> {
        Ok(match device {
            Device::Cpu { threads } => Executor::Cpu(Box::new(cpu::Executor::with_weights(plan, *threads, values)?)),
            Device::Cuda(device) => Executor::on_gpu(cuda::Executor::with_weights(plan, device, values)?),
        })
    }

    /// As [`Executor::with_weights`], with weights that other executors have, too: plans of one model share what is on the device, and
    /// `values` is asked only for what none of them has taken in.
    pub fn with_shared_weights<'w, E: From<Error>, V: Into<WeightView<'w>>>(
        plan: Plan,
        device: &Device,
        shared: &mut SharedWeights,
        values: impl FnMut(&Parameter) -> Result<V, E>,
    ) -> Result<Executor, E> {
        Ok(match (device, &mut shared.of) {
            (Device::Cpu { threads }, OnDevice::Cpu(shared)) => {
                Executor::Cpu(Box::new(cpu::Executor::with_shared_weights(plan, *threads, shared, values)?))
            }
            (Device::Cuda(device), OnDevice::Cuda(shared)) => {
                Executor::on_gpu(cuda::Executor::with_shared_weights(plan, device, shared, values)?)
            }
            _ => {
                let message = "these weights are on another device than the executor: make them for its device";
                return Err(Error::Machine(message.to_string()).into());
            }
        })
    }

    /// Takes other weights in place of those that it was made with. Executors that share those keep them.
    pub fn take_weights<'w, E: From<Error>, V: Into<WeightView<'w>>>(
        &mut self,
        values: impl FnMut(&Parameter) -> Result<V, E>,
    ) -> Result<(), E> {
        either!(mut self, executor => executor.take_weights(values))
    }

    /// Whether it can go on with another plan, which wants the same weights as it has. On a GPU it cannot: there, executors of several
    /// plans share weights instead ([`Executor::with_shared_weights`]).
    pub fn can_change_to(&self, plan: &Plan) -> bool {
        match self {
            Executor::Cpu(executor) => executor.can_change_to(plan),
            Executor::Cuda { .. } => false,
        }
    }

    /// Goes on with another plan, with the same weights and threads, in the same memory where that is large enough. All inputs must be
    /// given anew. An error unless [`Executor::can_change_to`] it.
    pub fn change_to(&mut self, plan: Plan) -> Result<()> {
        match self {
            Executor::Cpu(executor) => executor.change_to(plan),
            Executor::Cuda { .. } => {
                Err(Error::Machine("an executor on a GPU has one plan: make another with shared weights".to_string()))
            }
        }
    }

    /// For plans of graphs that have the same parameters, in one memory. The first plan's turn comes first.
    pub fn for_turns(plans: Vec<Plan>, device: &Device) -> Result<Executor> {
        Ok(match device {
            Device::Cpu { threads } => Executor::Cpu(Box::new(cpu::Executor::for_turns(plans, *threads)?)),
            Device::Cuda(device) => Executor::Cuda { executors: cuda::Executor::for_turns(plans, device)?, turn: 0 },
        })
    }

    /// Makes it the turn of a plan, by its place among those given to [`Executor::for_turns`]. All inputs must be given anew.
    ///
    /// # Panics
    /// Panics if there is no such plan.
    pub fn choose(&mut self, plan: usize) {
        match self {
            Executor::Cpu(executor) => executor.choose(plan),
            Executor::Cuda { executors, turn } => {
                assert!(plan < executors.len(), "there are {} plans", executors.len());
                *turn = plan;
            }
        }
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        either!(self, executor => executor.plan())
    }

    /// Bytes of the device's memory that were taken, besides a state's.
    pub fn memory_bytes(&self) -> usize {
        either!(self, executor => executor.memory_bytes())
    }

    /// Runs the plan with a state. A GPU goes on after this returns; asking for a result waits.
    pub fn run(&mut self, state: &mut State, run: Run) -> Result<()> {
        either!(mut self, executor => executor.run(state, run))
    }

    /// As [`Executor::run`], of a plan that accumulates gradients. On a processor, `note` gets the number of each trained parameter and its
    /// gradient as soon as that is there. On a GPU it is not called: the gradients are in the state when the run has ended.
    pub fn run_noting(&mut self, state: &mut State, run: Run, note: &mut cpu::GradientNote) -> Result<()> {
        match self {
            Executor::Cpu(executor) => executor.run_noting(state, run, note),
            Executor::Cuda { executors, turn } => executors[*turn].run(state, run),
        }
    }

    /// As [`Executor::run`], of a plan that accumulates gradients, which are added up over several GPUs while it goes on.
    pub fn run_reducing(&mut self, state: &mut State, run: Run, reduction: &Arc<cuda::Reduction>) -> Result<()> {
        match self {
            Executor::Cpu(_) => Err(Error::Machine("NCCL adds up gradients of GPUs alone".to_string())),
            Executor::Cuda { executors, turn } => executors[*turn].run_reducing(state, run, reduction),
        }
    }

    /// As [`Executor::run`], of an update of a state whose moments are shared out: on a processor.
    pub fn run_sharded(&mut self, state: &mut State, run: Run, link: &mut dyn ShardLink) -> Result<()> {
        match self {
            Executor::Cpu(executor) => executor.run_sharded(state, run, link),
            Executor::Cuda { .. } => {
                Err(Error::Machine("moments are shared out among processors alone, not yet among GPUs".to_string()))
            }
        }
    }

    /// Runs the plan with the weights that [`Executor::with_weights`] was given.
    pub fn infer(&mut self) -> Result<()> {
        either!(mut self, executor => executor.infer())
    }

    /// As [`Executor::run`], on caches that outlive the run: those that the graph declared.
    pub fn run_with<'c>(&mut self, state: &mut State, caches: impl Into<CacheSlots<'c>>, run: Run) -> Result<()> {
        either!(mut self, executor => executor.run_with(state, caches, run))
    }

    /// As [`Executor::infer`], on caches that outlive the run: those that the graph declared.
    pub fn infer_with<'c>(&mut self, caches: impl Into<CacheSlots<'c>>) -> Result<()> {
        either!(mut self, executor => executor.infer_with(caches))
    }

    /// How long nothing has run: on a processor, where nothing goes on between runs, for ever.
    pub fn idle_for(&self) -> Result<Duration> {
        match self {
            Executor::Cpu(_) => Ok(Duration::MAX),
            Executor::Cuda { executors, turn } => executors[*turn].idle_for(),
        }
    }

    /// Waits until a run has ended.
    pub fn finish(&mut self) -> Result<()> {
        match self {
            Executor::Cpu(_) => Ok(()),
            Executor::Cuda { executors, turn } => executors[*turn].finish(),
        }
    }

    /// An input of f32 numbers, to fill before a run. It keeps its contents from run to run. A GPU's may be filled for the next run while one
    /// goes on.
    pub fn input(&mut self, name: &str) -> Result<&mut [f32]> {
        either!(mut self, executor => executor.input(name))
    }

    /// An input of whole numbers, to fill before a run.
    pub fn input_i32(&mut self, name: &str) -> Result<&mut [i32]> {
        either!(mut self, executor => executor.input_i32(name))
    }

    /// An input of bf16 numbers, to fill before a run.
    pub fn input_bf16(&mut self, name: &str) -> Result<&mut [bf16]> {
        either!(mut self, executor => executor.input_bf16(name))
    }

    /// Starts to copy inputs that were filled to the device, while a run may go on.
    pub fn send_inputs(&mut self) -> Result<()> {
        match self {
            Executor::Cpu(_) => Ok(()),
            Executor::Cuda { executors, turn } => executors[*turn].send_inputs(),
        }
    }

    /// A value that the plan was asked for, as f32, after a run. Parameters and their gradients are in the [`State`].
    pub fn output(&self, value: Value) -> Result<Vec<f32>> {
        either!(self, executor => executor.output(value))
    }

    /// A single number that the plan was asked for, such as the loss.
    pub fn number(&self, value: Value) -> Result<f32> {
        match self.output_slice(value) {
            Ok(&[number]) => Ok(number),
            Ok(_) => Err(self.plan().is_no_slice(value, "a single f32")),
            Err(error) => Err(error),
        }
    }

    /// An f32 value that the plan was asked for, without a copy.
    pub fn output_slice(&self, value: Value) -> Result<&[f32]> {
        either!(self, executor => executor.output_slice(value))
    }

    /// An i32 value that the plan was asked for, without a copy.
    pub fn output_i32(&self, value: Value) -> Result<&[i32]> {
        either!(self, executor => executor.output_i32(value))
    }

    /// The first value of a run that is not finite; the state is left as it is.
    pub fn find_non_finite(&mut self, state: &mut State, run: Run) -> Result<Option<NotFinite>> {
        either!(mut self, executor => executor.find_non_finite(state, run))
    }
}
