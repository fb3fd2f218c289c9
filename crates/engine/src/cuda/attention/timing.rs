//! How long attention takes on the GPU at hand, kernel by kernel: `cargo test -p vitreous-engine --lib time_attention -- --ignored --nocapture`.
//!
//! Launches are captured into a CUDA graph and replayed, so that what is timed is the device's work and not the host's. The values of large
//! shapes do not fit into the device's cache; those of small ones do, as they would in a model.

use std::ffi::c_void;
use std::sync::Arc;

use cudarc::driver::{result as driver, sys};

use super::super::compile::Kernels;
use super::super::device::Device;
use super::super::launch::{Argument, Buffer, Launch, Place};
use super::super::memory::DeviceBuffer;
use super::tests::{Case, PLAIN, launches_of};
use crate::plan::{Location, Plan};
use crate::types::DType;

/// Launches of a captured graph, and graphs that the median is taken over.
const LAUNCHES: usize = 20;
const REPLAYS: usize = 9;

const VIT_B: Case =
    Case { batch: 256, heads: 12, queries: 197, keys: 197, head_dim: 64, packed: true, dtype: DType::Bf16, ..PLAIN };
const TRANSLATION: Case =
    Case { batch: 128, heads: 8, queries: 64, keys: 64, packed: false, lengths: true, causal: true, ..VIT_B };

const SHAPES: [(&str, Case); 18] = [
    ("ViT-B/16, b256", VIT_B),
    ("ViT-B/16, b256, dropout", Case { dropout: 0.1, ..VIT_B }),
    ("ViT-B/16, b1", Case { batch: 1, ..VIT_B }),
    ("ViT-B/16, b8", Case { batch: 8, ..VIT_B }),
    ("ViT-L/16, b128", Case { batch: 128, heads: 16, ..VIT_B }),
    ("small ViT, 16 tokens", SMALL),
    ("small ViT, no dropout", Case { dropout: 0.0, ..SMALL }),
    ("small ViT, 65 tokens", Case { queries: 65, keys: 65, ..SMALL }),
    ("cifar-strong, b512", Case { batch: 512, heads: 4, queries: 64, keys: 64, ..VIT_B }),
    ("cifar, 65 tokens", Case { batch: 512, heads: 4, queries: 65, keys: 65, ..VIT_B }),
    ("translation, 20 tokens", Case { queries: 20, keys: 20, ..TRANSLATION }),
    ("translation, 64 tokens", TRANSLATION),
    ("translation, 100 tokens", Case { queries: 100, keys: 100, ..TRANSLATION }),
    ("translation, cross", Case { queries: 64, keys: 100, causal: false, ..TRANSLATION }),
    ("translation, dropout", Case { dropout: 0.1, ..TRANSLATION }),
    ("head 128, 197 tokens", Case { batch: 128, heads: 8, head_dim: 128, ..VIT_B }),
    ("ViT-B/16 at 384, b32", Case { batch: 32, queries: 577, keys: 577, ..VIT_B }),
    ("causal, 1024 tokens", Case { batch: 16, queries: 1024, keys: 1024, causal: true, ..VIT_B }),
];

const SMALL: Case =
    Case { batch: 1024, heads: 4, queries: 16, keys: 16, head_dim: 32, packed: false, dropout: 0.1, ..VIT_B };

/// A plan's memory on the device, filled with values of size one.
struct Memory {
    arena: DeviceBuffer,
    run: DeviceBuffer,
}

impl Memory {
    fn new(plan: &Plan, device: &Arc<Device>) -> Memory {
        let mut arena = DeviceBuffer::zeroed(device, plan.arena_bytes()).unwrap();
        let graph = plan.graph();
        for (name, value) in graph.inputs() {
            let Location::Arena(byte) = plan.location(value) else { panic!("inputs live in the arena") };
            let value_type = graph.type_of(value);
            let count = value_type.shape.elements();
            let uniform = |i: usize| ((i as u64).wrapping_mul(0x9e37_79b9_7f4a_7c15) >> 40) as f32 / (1 << 24) as f32;
            match value_type.dtype {
                DType::Bf16 => {
                    let values: Vec<u16> =
                        (0..count).map(|i| half::bf16::from_f32(3.4 * uniform(i) - 1.7).to_bits()).collect();
                    arena.write(byte, &values).unwrap();
                }
                DType::F32 => {
                    arena.write(byte, &(0..count).map(|i| uniform(i) - 0.5).collect::<Vec<_>>()).unwrap();
                }
                DType::I32 => {
                    // Sentences are half as long as the longest, or more.
                    assert_eq!(name, "lengths");
                    let tokens =
                        graph.inputs().find(|(name, _)| *name == "k").map(|(_, k)| graph.shape_of(k).axes()[1]);
                    let tokens = tokens.expect("separate projections") as f32;
                    let lengths: Vec<i32> =
                        (0..count).map(|i| (tokens * (0.5 + 0.5 * uniform(i))).ceil() as i32).collect();
                    arena.write(byte, &lengths).unwrap();
                }
            }
        }
        Memory { arena, run: DeviceBuffer::zeroed(device, 32).unwrap() }
    }

    fn address(&self, place: Place) -> u64 {
        match place.buffer {
            Buffer::Arena => self.arena.start() + place.byte as u64,
            Buffer::Run => self.run.start() + place.byte as u64,
            other => panic!("attention does not reach {other:?}"),
        }
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
        let blocks = driver::occupancy::max_active_block_per_multiprocessor(
            function,
            launch.block as i32,
            launch.shared_bytes as usize,
        );
        format!(
            "{} blocks of {} threads, {} KB shared, {} registers, {} bytes local, {} a processor",
            launch.grid[0],
            launch.block,
            launch.shared_bytes >> 10,
            attribute(Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS),
            attribute(Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES),
            blocks.unwrap()
        )
    }
}

#[test]
#[ignore = "measures; it needs a GPU of its own"]
fn time_attention() {
    let device = Device::open(0).expect("a GPU");
    let mut kernels = Kernels::new(Arc::clone(&device));
    let mut table = String::new();
    for (name, case) in SHAPES {
        let plan = case.plan(false);
        let memory = Memory::new(&plan, &device);
        let stream = driver::stream::create(driver::stream::StreamKind::NonBlocking).unwrap();
        let (mut forward, mut backward) = (0.0, 0.0);
        for launch in launches_of(&plan) {
            let function = kernels.function(&launch.source, launch.entry, launch.shared_bytes).unwrap();
            let milliseconds = time(&memory, function, &launch, stream);
            println!("{name:26} {:28} {milliseconds:.4} ms; {}", launch.entry, resources(function, &launch));
            *(if launch.entry.contains("backward") { &mut backward } else { &mut forward }) += milliseconds;
        }
        table += &format!("{name:26} forward {forward:.4} ms, backward {backward:.4} ms\n");
        // SAFETY: nothing runs on it any more.
        unsafe { driver::stream::destroy(stream) }.unwrap();
    }
    println!("\n{table}");
}
