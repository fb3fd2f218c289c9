//! How long kernels take that do little but read and write memory, on the GPU at hand:
//! `cargo test -p vitreous-engine --lib time_rows -- --ignored --nocapture`.
//!
//! The kernels are those of a block of a model and of its optimiser's step. Launches are captured into a CUDA graph and replayed, so that
//! what is timed is the device's work and not the host's.

use std::collections::HashMap;
use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::{result as driver, sys};

use super::super::compile::Kernels;
use super::super::device::Device;
use super::super::launch::{Argument, Buffer, Launch, Place};
use super::super::memory::DeviceBuffer;
use super::super::products::{Choice, Epilogue, Product};
use super::super::target::{Built, work_of};
use crate::ops::{Activation, Group, Optimizer, StepOptions};
use crate::plan::Plan;
use crate::types::DType;
use crate::{GradientOptions, Graph, Mode, Precision};

/// Launches of a captured graph, and graphs that the median is taken over.
const LAUNCHES: usize = 10;
const REPLAYS: usize = 7;

/// Products do nothing besides, so that all else is launches.
struct Plain;

impl Choice for Plain {
    fn can_do(&self, product: &Product) -> bool {
        product.epilogue == Epilogue::Nothing && product.added.is_none()
    }

    fn is_faster(&self, _product: &Product, _other: &Product, _bytes: usize) -> bool {
        false
    }
}

fn launches_of(plan: &Plan) -> (Vec<Launch>, Vec<u8>) {
    let (tasks, tables) = work_of(plan, &Plain).expect("all can be done");
    let launches = tasks.into_iter().filter_map(|task| match task.built {
        Built::Launch(launch) => Some(launch),
        Built::Product(_) => None,
    });
    (launches.collect(), tables)
}

/// The second half of a block, between products: norm, GELU, residual, and all gradients.
fn half_a_block(rows: usize, columns: usize) -> Plan {
    let mut graph = Graph::new(Mode::Training, Precision::Bf16);
    let attended = graph.input("attended", [rows, columns], DType::Bf16).unwrap();
    let residual = graph.input("residual", [rows, columns], DType::F32).unwrap();
    let parameter = |graph: &mut Graph, name: &str, axes: &[usize]| graph.parameter(name, axes).unwrap();
    let proj = parameter(&mut graph, "proj", &[columns, columns]);
    let proj_bias = parameter(&mut graph, "proj_bias", &[columns]);
    let gamma = parameter(&mut graph, "gamma", &[columns]);
    let beta = parameter(&mut graph, "beta", &[columns]);
    let fc1 = parameter(&mut graph, "fc1", &[4 * columns, columns]);
    let fc1_bias = parameter(&mut graph, "fc1_bias", &[4 * columns]);
    let fc2 = parameter(&mut graph, "fc2", &[columns, 4 * columns]);
    let fc2_bias = parameter(&mut graph, "fc2_bias", &[columns]);
    let projected = graph.linear(attended, proj, Some(proj_bias)).unwrap();
    let x = graph.add(residual, projected).unwrap();
    let normal = graph.layer_norm(x, gamma, beta, 1e-6).unwrap();
    let hidden = graph.linear(normal, fc1, Some(fc1_bias)).unwrap();
    let hidden = graph.activation(hidden, Activation::Gelu).unwrap();
    let y = graph.linear(hidden, fc2, Some(fc2_bias)).unwrap();
    let y = graph.add(x, y).unwrap();
    let seed = graph.input("seed", [rows, columns], DType::F32).unwrap();
    let wanted = [proj, proj_bias, gamma, beta, fc1, fc1_bias, fc2, fc2_bias, residual, attended];
    let mut outputs = graph.gradients_from(y, seed, &wanted, GradientOptions::default()).unwrap();
    outputs.push(y);
    Plan::for_cuda(&graph, &outputs).unwrap()
}

/// The update of so many matrices of ViT-B's size.
fn update(matrices: usize) -> Plan {
    let mut graph = Graph::new(Mode::Training, Precision::Bf16);
    let x = graph.input("x", [8, 768], DType::F32).unwrap();
    let mut y = x;
    for index in 0..matrices {
        let wide = graph.parameter(&format!("wide{index}"), [3072, 768]).unwrap();
        let narrow = graph.parameter(&format!("narrow{index}"), [768, 3072]).unwrap();
        let hidden = graph.linear(y, wide, None).unwrap();
        y = graph.linear(hidden, narrow, None).unwrap();
    }
    let group = |_: &crate::Parameter| Some(Group { decay: 0.05, rate_factor: 1.0 });
    let options = StepOptions {
        optimizer: Optimizer::adamw(),
        group: &group,
        clip: Some(1.0),
        ema: false,
        gradient: GradientOptions::default(),
    };
    let (update, _) = graph.update_step(&options).unwrap();
    Plan::for_cuda(&update, &[]).unwrap()
}

/// A plan's memory on the device, filled with numbers that have no order, of size one in either format.
struct Memory {
    buffers: HashMap<Buffer, DeviceBuffer>,
}

impl Memory {
    fn new(plan: &Plan, tables: &[u8], device: &Arc<Device>) -> Memory {
        let graph = plan.graph();
        let (parameters, gradients) = (4 * graph.parameter_floats(), 4 * graph.gradient_floats());
        let mut buffers = HashMap::new();
        let random = |i: u64| (i.wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as u16;
        // Exponents of numbers around 1, random signs and fractions: as bf16, and as the upper half of f32.
        let pattern: Vec<u16> = (0..1u64 << 22).map(|i| 0x3e00 | (random(i) & 0x81ff)).collect();
        for (buffer, bytes) in [
            (Buffer::Arena, plan.arena_bytes()),
            (Buffer::Parameters, parameters),
            (Buffer::NarrowParameters, parameters / 2),
            (Buffer::Gradients, gradients),
            (Buffer::First, gradients),
            (Buffer::Second, gradients),
        ] {
            let mut memory = DeviceBuffer::zeroed(device, bytes.max(16)).unwrap();
            if buffer != Buffer::Second {
                for start in (0..bytes).step_by(2 * pattern.len()) {
                    memory.write(start, &pattern[..pattern.len().min((bytes - start) / 2)]).unwrap();
                }
            }
            buffers.insert(buffer, memory);
        }
        let mut on_device = DeviceBuffer::zeroed(device, tables.len().max(16)).unwrap();
        on_device.write(0, tables).unwrap();
        buffers.insert(Buffer::Tables, on_device);
        buffers.insert(Buffer::Run, DeviceBuffer::zeroed(device, 32).unwrap());
        buffers.insert(Buffer::Constants, DeviceBuffer::zeroed(device, plan.constant_bytes().max(16)).unwrap());
        Memory { buffers }
    }

    fn address(&self, place: Place) -> u64 {
        self.buffers[&place.buffer].start() + place.byte as u64
    }

    fn start(&self, function: sys::CUfunction, launch: &Launch, stream: sys::CUstream) {
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
        let (blocks, threads, bytes) = ((x, y, z), (launch.block, 1, 1), launch.shared_bytes);
        // SAFETY: as the executor's launches.
        unsafe { driver::launch_kernel(function, blocks, threads, bytes, stream, &mut pointers) }.unwrap();
    }
}

/// Milliseconds of one launch.
fn time(memory: &Memory, function: sys::CUfunction, launch: &Launch, stream: sys::CUstream) -> f32 {
    memory.start(function, launch, stream);
    // SAFETY: handles are used between their creation and their destruction, by this thread alone.
    unsafe {
        driver::stream::synchronize(stream).unwrap();
        let mode = sys::CUstreamCaptureMode::CU_STREAM_CAPTURE_MODE_THREAD_LOCAL;
        driver::stream::begin_capture(stream, mode).unwrap();
        for _ in 0..LAUNCHES {
            memory.start(function, launch, stream);
        }
        let graph = driver::stream::end_capture(stream).unwrap();
        let flags = sys::CUgraphInstantiate_flags::CUDA_GRAPH_INSTANTIATE_FLAG_AUTO_FREE_ON_LAUNCH;
        let ready = driver::graph::instantiate(graph, flags).unwrap();
        let event = || driver::event::create(sys::CUevent_flags::CU_EVENT_DEFAULT).unwrap();
        let (begin, end) = (event(), event());
        driver::graph::launch(ready, stream).unwrap();
        let mut times: Vec<f32> = (0..REPLAYS)
            .map(|_| {
                driver::event::record(begin, stream).unwrap();
                driver::graph::launch(ready, stream).unwrap();
                driver::event::record(end, stream).unwrap();
                driver::event::synchronize(end).unwrap();
                driver::event::elapsed(begin, end).unwrap() / LAUNCHES as f32
            })
            .collect();
        times.sort_unstable_by(f32::total_cmp);
        driver::event::destroy(begin).unwrap();
        driver::event::destroy(end).unwrap();
        driver::graph::exec_destroy(ready).unwrap();
        driver::graph::destroy(graph).unwrap();
        times[REPLAYS / 2]
    }
}

/// Registers, bytes of local memory, and blocks that a processor holds.
fn resources(function: sys::CUfunction, launch: &Launch) -> String {
    use sys::CUfunction_attribute_enum as Attribute;
    // SAFETY: the function is loaded.
    unsafe {
        let attribute = |which| driver::function::get_function_attribute(function, which).unwrap();
        let shared_bytes = launch.shared_bytes as usize;
        let block = launch.block as i32;
        let held = driver::occupancy::max_active_block_per_multiprocessor(function, block, shared_bytes).unwrap();
        let (registers, local) = (Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS, Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES);
        format!(
            "{} blocks of {block}, {} registers, {} bytes local, {held} a processor",
            launch.grid[0],
            attribute(registers),
            attribute(local)
        )
    }
}

struct Bench {
    device: Arc<Device>,
    kernels: Kernels,
    stream: sys::CUstream,
}

impl Bench {
    /// Times a plan's kernels, which go over so many values each.
    fn run_all(&mut self, name: &str, plan: &Plan, values: impl Fn(&Launch) -> usize) {
        let (launches, tables) = launches_of(plan);
        let memory = Memory::new(plan, &tables, &self.device);
        for launch in &launches {
            self.run(&memory, name, launch, values(launch) * bytes_a_value(launch));
        }
    }

    fn run(&mut self, memory: &Memory, name: &str, launch: &Launch, bytes: usize) {
        let function = self.kernels.function(&launch.source, launch.entry, launch.shared_bytes).unwrap();
        let milliseconds = time(memory, function, launch, self.stream);
        let resources = resources(function, launch);
        let rate = bytes as f32 / milliseconds / 1e6;
        println!("{name:12} {:14} {milliseconds:.4} ms {rate:6.0} GB/s; {resources}", launch.entry);
    }
}

/// Rows and columns of models' norms.
const MODELS: [(&str, usize, usize); 5] = [
    ("ViT-B b256", 50_432, 768),
    ("ViT-S b512", 100_864, 384),
    ("ViT-L b128", 25_216, 1024),
    ("small b256", 4096, 128),
    ("small b1024", 16_384, 128),
];

/// Bytes that a launch must read and write at least, for each value of its rows.
fn bytes_a_value(launch: &Launch) -> usize {
    match launch.entry {
        // x; y in bf16.
        "normalize" => 6,
        // dy in bf16, x, the residual's gradient; dx in both formats.
        "norm_gradient" => 16,
        "sum_rows" if launch.source.contains("#define X_TYPE bf16") => 2,
        // g, m, v, p; m, v, p, p in bf16.
        "adamw" => 30,
        "square_sums" => 4,
        _ => 0,
    }
}

#[test]
#[ignore = "measures; it needs a GPU of its own"]
fn time_rows() {
    let device = Device::open(0).expect("a GPU");
    let stream = driver::stream::create(driver::stream::StreamKind::NonBlocking).unwrap();
    let mut bench = Bench { kernels: Kernels::new(Arc::clone(&device)), device, stream };
    for (name, rows, columns) in MODELS {
        bench.run_all(name, &half_a_block(rows, columns), |launch| {
            let wide = launch.source.contains(&format!("#define COLUMNS {}\n", 4 * columns));
            rows * columns * if wide { 4 } else { 1 }
        });
    }
    let plan = update(18);
    bench.run_all("85 M", &plan, |_| plan.graph().parameter_floats());
}
