//! A plan with its memory on a GPU.

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::result as driver;
use cudarc::driver::sys;
use half::bf16;

use super::compile::Kernels;
use super::device::{Device, failed};
use super::launch::{Argument, Buffer, Launch, Place};
use super::memory::DeviceBuffer;
use super::products::{self, Prepared, Product};
use super::target::{Built, work_of};
use crate::error::{Error, Result};
use crate::graph::Value;
use crate::plan::{Location, Plan};
use crate::precision::Precision;
use crate::random::Run;
use crate::state::State;
use crate::types::DType;

/// Bytes of the buffer that a run is given: `struct Run`, and behind it where kernels note faults.
const RUN_BYTES: usize = 32;

enum Work {
    Launch { function: sys::CUfunction, launch: Launch },
    Product { product: Box<Product>, prepared: Prepared },
}

/// A plan with its memory on a GPU.
pub struct Executor {
    plan: Plan,
    work: Vec<Work>,
    arena: DeviceBuffer,
    constants: DeviceBuffer,
    tables: DeviceBuffer,
    run: DeviceBuffer,
    parameters: DeviceBuffer,
    narrow: DeviceBuffer,
    gradients: DeviceBuffer,
    first: DeviceBuffer,
    second: DeviceBuffer,
    average: DeviceBuffer,
    workspace: DeviceBuffer,
    stream: Stream,
    products: products::Library,
    // Last, so that kernels outlive the work that calls them.
    _kernels: Kernels,
}

struct Stream {
    handle: sys::CUstream,
}

// SAFETY: a stream may be used by any thread, one at a time.
unsafe impl Send for Stream {}

impl Drop for Stream {
    fn drop(&mut self) {
        // SAFETY: created in `Executor::new`, destroyed once.
        let _ = unsafe { driver::stream::destroy(self.handle) };
    }
}

impl Executor {
    /// Takes the memory for a plan of [`Plan::for_cuda`] and compiles its kernels.
    pub fn new(plan: Plan, device: &Arc<Device>) -> Result<Executor> {
        device.bind()?;
        let mut kernels = Kernels::new(Arc::clone(device));
        let library = products::Library::open()?;
        let (built, tables) = work_of(&plan);
        let mut work = Vec::new();
        for one in built {
            work.push(match one {
                Built::Launch(launch) => {
                    let function = kernels.function(&launch.source, launch.entry, launch.shared_bytes)?;
                    Work::Launch { function, launch }
                }
                Built::Product(product) => Work::Product { prepared: library.prepare(&product)?, product },
            });
        }
        let graph = plan.graph();
        let floats = 4 * graph.parameter_floats();
        let narrow = if graph.precision() == Precision::Bf16 { floats / 2 } else { 0 };
        let [gradients, first, second, average] = State::buffers_needed(graph).map(|floats| 4 * floats);
        let mut constants = DeviceBuffer::new(device, plan.constant_bytes())?;
        constants.write(0, &plan.constants())?;
        let mut on_device = DeviceBuffer::new(device, tables.len())?;
        on_device.write(0, &tables)?;
        let stream = driver::stream::create(driver::stream::StreamKind::NonBlocking);
        Ok(Executor {
            arena: DeviceBuffer::zeroed(device, plan.arena_bytes())?,
            constants,
            tables: on_device,
            run: DeviceBuffer::zeroed(device, RUN_BYTES)?,
            parameters: DeviceBuffer::zeroed(device, floats)?,
            narrow: DeviceBuffer::zeroed(device, narrow)?,
            gradients: DeviceBuffer::zeroed(device, gradients)?,
            first: DeviceBuffer::zeroed(device, first)?,
            second: DeviceBuffer::zeroed(device, second)?,
            average: DeviceBuffer::zeroed(device, average)?,
            workspace: DeviceBuffer::new(device, products::WORKSPACE_BYTES)?,
            stream: Stream { handle: stream.map_err(|error| failed("making a stream", error))? },
            products: library,
            _kernels: kernels,
            work,
            plan,
        })
    }

    /// The plan.
    pub fn plan(&self) -> &Plan {
        &self.plan
    }

    /// Runs the plan once with what a state has, and brings back what it changed.
    pub fn run(&mut self, state: &mut State, run: Run) -> Result<()> {
        state.fits(self.plan.graph())?;
        self.upload(state)?;
        self.start(run)?;
        self.wait()?;
        self.download(state)
    }

    fn upload(&mut self, state: &State) -> Result<()> {
        self.parameters.write(0, state.parameters.as_slice())?;
        if self.narrow.bytes() > 0 {
            let narrow: Vec<bf16> = state.parameters.as_slice().iter().map(|&value| bf16::from_f32(value)).collect();
            self.narrow.write(0, &narrow)?;
        }
        self.gradients.write(0, state.gradients.as_slice())?;
        self.first.write(0, state.first.as_slice())?;
        self.second.write(0, state.second.as_slice())?;
        self.average.write(0, state.ema.as_slice())
    }

    fn download(&self, state: &mut State) -> Result<()> {
        self.parameters.read(0, state.parameters.as_mut_slice())?;
        self.gradients.read(0, state.gradients.as_mut_slice())?;
        self.first.read(0, state.first.as_mut_slice())?;
        self.second.read(0, state.second.as_mut_slice())?;
        self.average.read(0, state.ema.as_mut_slice())
    }

    /// Starts all work of a run; it goes on after this returns.
    fn start(&mut self, run: Run) -> Result<()> {
        self.run.write(0, &[run.seed, run.step])?;
        self.run.write(16, &[i32::MAX])?;
        for work in &self.work {
            match work {
                Work::Launch { function, launch } => self.launch(*function, launch)?,
                // SAFETY: the plan's places lie inside the buffers, whose sizes are the plan's.
                Work::Product { product, prepared } => unsafe {
                    let address = |place| self.address(place);
                    self.products.run(prepared, product, address, self.workspace.start(), self.stream.handle)?;
                },
            }
        }
        Ok(())
    }

    fn launch(&self, function: sys::CUfunction, launch: &Launch) -> Result<()> {
        // Each argument as the eight bytes that its parameter is read from.
        let values: Vec<u64> = launch
            .arguments
            .iter()
            .map(|argument| match *argument {
                Argument::Place(place) => self.address(place),
                Argument::Nothing => 0,
                Argument::U32(value) => u64::from(value),
                Argument::U64(value) => value,
            })
            .collect();
        let mut pointers: Vec<*mut c_void> =
            values.iter().map(|value| std::ptr::from_ref(value).cast_mut().cast()).collect();
        let [x, y, z] = launch.grid;
        // SAFETY: the kernel's parameters are these, and its places lie inside the buffers.
        let result = unsafe {
            driver::launch_kernel(
                function,
                (x, y, z),
                (launch.block, 1, 1),
                launch.shared_bytes,
                self.stream.handle,
                &mut pointers,
            )
        };
        result.map_err(|error| failed(&format!("starting {}", launch.entry), error))
    }

    fn buffer(&self, buffer: Buffer) -> &DeviceBuffer {
        match buffer {
            Buffer::Arena => &self.arena,
            Buffer::Constants => &self.constants,
            Buffer::Parameters => &self.parameters,
            Buffer::NarrowParameters => &self.narrow,
            Buffer::Gradients => &self.gradients,
            Buffer::First => &self.first,
            Buffer::Second => &self.second,
            Buffer::Average => &self.average,
            Buffer::Run => &self.run,
            Buffer::Tables => &self.tables,
        }
    }

    fn address(&self, place: Place) -> u64 {
        self.buffer(place.buffer).start() + place.byte as u64
    }

    /// Waits until all work has ended.
    fn wait(&self) -> Result<()> {
        // SAFETY: the stream is alive.
        unsafe { driver::stream::synchronize(self.stream.handle) }.map_err(|error| failed("running", error))?;
        let mut fault = [0i32];
        self.run.read(16, &mut fault)?;
        match fault[0] {
            i32::MAX => Ok(()),
            position => {
                Err(Error::Machine(format!("a whole number at position {position} of an input is out of its range")))
            }
        }
    }

    fn place_of(&self, value: Value) -> Option<Place> {
        let (buffer, byte) = match self.plan.location(value) {
            Location::Arena(byte) => (Buffer::Arena, byte),
            Location::Constants(float) => (Buffer::Constants, 4 * float),
            _ => return None,
        };
        Some(Place { buffer, byte })
    }

    /// Gives an input of f32 or whole numbers (as their bits) its values.
    pub fn set_input<T: bytemuck::Pod>(&mut self, name: &str, values: &[T]) -> Result<()> {
        let graph = self.plan.graph();
        let Some(value) = graph.inputs().find(|(path, _)| *path == name).map(|(_, value)| value) else {
            let known = graph.inputs().map(|(path, _)| path.to_string()).collect();
            return Err(Error::Unknown { what: "input of this plan", name: name.to_string(), known });
        };
        let expected = graph.type_of(value);
        if expected.bytes() != size_of_val(values) {
            let got = format!("{} bytes", size_of_val(values));
            return Err(Error::Data { what: "input", name: name.to_string(), expected: expected.to_string(), got });
        }
        let place = self.place_of(value).expect("inputs live in the arena");
        self.arena.write(place.byte, values)
    }

    /// A value that the plan was asked for, as f32, after a run.
    pub fn output(&self, value: Value) -> Result<Vec<f32>> {
        let unknown = || Error::Unknown {
            what: "result of this plan",
            name: format!("{value:?}"),
            known: self.plan.output_paths(),
        };
        let value = self.plan.output(value).ok_or_else(unknown)?;
        let place = self.place_of(value).ok_or_else(unknown)?;
        let value_type = self.plan.type_of(value);
        let count = value_type.shape.elements();
        let buffer = self.buffer(place.buffer);
        match value_type.dtype {
            DType::F32 => {
                let mut values = vec![0.0f32; count];
                buffer.read(place.byte, &mut values)?;
                Ok(values)
            }
            DType::Bf16 => {
                let mut values = vec![bf16::ZERO; count];
                buffer.read(place.byte, &mut values)?;
                Ok(values.into_iter().map(bf16::to_f32).collect())
            }
            DType::I32 => {
                let mut values = vec![0i32; count];
                buffer.read(place.byte, &mut values)?;
                Ok(values.into_iter().map(|value| value as f32).collect())
            }
        }
    }
}
