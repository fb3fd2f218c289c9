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

/// Bytes behind the arena, where variants leave what they compute: sums, dx, and dx rounded.
const SLACK: usize = 512 << 20;
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
    let (tasks, tables) = work_of(plan, &Plain);
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
            (Buffer::Arena, plan.arena_bytes() + SLACK),
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

    /// What a norm's gradient left behind the arena: its sums, and its first and last rows, in both formats.
    fn results(&self, byte: usize, rows: usize, columns: usize) -> Vec<f32> {
        let arena = &self.buffers[&Buffer::Arena];
        let (some, mut all) = (1000 * columns, Vec::new());
        for (megabytes, first, count) in
            [(38, 0, columns), (39, 0, columns), (40, 0, some), (40, (rows - 1000) * columns, some)]
        {
            let mut values = vec![0f32; count];
            arena.read(byte + (megabytes << 20) + 4 * first, &mut values).unwrap();
            all.append(&mut values);
        }
        for first in [0, (rows - 1000) * columns] {
            let mut values = vec![0u16; some];
            arena.read(byte + (300 << 20) + 2 * first, &mut values).unwrap();
            all.extend(values.into_iter().map(|bits| half::bf16::from_bits(bits).to_f32()));
        }
        all
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
fn resources(function: sys::CUfunction, launch: &Launch) -> (String, usize) {
    use sys::CUfunction_attribute_enum as Attribute;
    // SAFETY: the function is loaded.
    unsafe {
        let attribute = |which| driver::function::get_function_attribute(function, which).unwrap();
        let blocks = driver::occupancy::max_active_block_per_multiprocessor(
            function,
            launch.block as i32,
            launch.shared_bytes as usize,
        );
        let blocks = blocks.unwrap() as usize;
        let text = format!(
            "{} blocks of {}, {} registers, {} local, {} a processor",
            launch.grid[0],
            launch.block,
            attribute(Attribute::CU_FUNC_ATTRIBUTE_NUM_REGS),
            attribute(Attribute::CU_FUNC_ATTRIBUTE_LOCAL_SIZE_BYTES),
            blocks
        );
        (text, blocks)
    }
}

struct Bench {
    device: Arc<Device>,
    kernels: Kernels,
    stream: sys::CUstream,
}

impl Bench {
    fn function(&mut self, launch: &Launch) -> sys::CUfunction {
        self.kernels.function(&launch.source, launch.entry, launch.shared_bytes).unwrap()
    }

    fn run(&mut self, memory: &Memory, name: &str, launch: &Launch, bytes: usize) {
        let function = self.function(launch);
        let milliseconds = time(memory, function, launch, self.stream);
        let (resources, _) = resources(function, launch);
        let rate = bytes as f32 / milliseconds / 1e6;
        println!("{name:44} {:14} {milliseconds:.4} ms {rate:6.0} GB/s; {resources}", launch.entry);
    }
}

fn define(source: &mut String, name: &str, value: usize) {
    let from = source.find(&format!("#define {name} ")).unwrap();
    let to = from + source[from..].find('\n').unwrap();
    source.replace_range(from..to, &format!("#define {name} {value}"));
}

/// The same with stores, and loads, that do not stay in the cache. For kernels that load and store nothing but global memory.
fn streaming(launch: &Launch, loads: bool) -> Launch {
    let mut source = launch.source.clone();
    for (from, to) in [
        (
            "*reinterpret_cast<float4*>(to + i) = make_float4(from[i], from[i + 1], from[i + 2], from[i + 3]);",
            "__stcs(reinterpret_cast<float4*>(to + i), make_float4(from[i], from[i + 1], from[i + 2], from[i + 3]));",
        ),
        (
            "*reinterpret_cast<uint4*>(to) = make_uint4(all[0], all[1], all[2], all[3]);",
            "__stcs(reinterpret_cast<uint4*>(to), make_uint4(all[0], all[1], all[2], all[3]));",
        ),
        ("*reinterpret_cast<uint2*>(to) = words;", "__stcs(reinterpret_cast<uint2*>(to), words);"),
    ] {
        assert!(source.contains(from));
        source = source.replace(from, to);
    }
    if loads {
        for (from, to) in [
            ("*reinterpret_cast<const float4*>(from + i)", "__ldcs(reinterpret_cast<const float4*>(from + i))"),
            ("*reinterpret_cast<const uint4*>(from)", "__ldcs(reinterpret_cast<const uint4*>(from))"),
            ("*reinterpret_cast<const uint2*>(from)", "__ldcs(reinterpret_cast<const uint2*>(from))"),
        ] {
            assert!(source.contains(from));
            source = source.replace(from, to);
        }
    }
    Launch { source, ..launch.clone() }
}

/// Threads a row, values that one takes at once, threads of a block, blocks that a processor must hold.
type Division = (usize, usize, usize, usize);

/// A norm's gradient, otherwise divided.
fn divided(launch: &Launch, rows: usize, (threads, vector, block, held): Division) -> Launch {
    let mut source = launch.source.clone();
    for (name, value) in [("THREADS", threads), ("VECTOR", vector), ("BLOCK", block), ("MIN_BLOCKS", held)] {
        define(&mut source, name, value);
    }
    with_grid(&Launch { source, block: block as u32, ..launch.clone() }, rows.div_ceil(block / threads).min(132 * held))
}

fn with_grid(launch: &Launch, grid: usize) -> Launch {
    let mut changed = Launch { grid: [grid as u32, 1, 1], ..launch.clone() };
    define(&mut changed.source, "PARTIALS", grid);
    changed
}

/// As it was: what steps read is read when they are done.
fn reading_late(launch: &Launch) -> Launch {
    let swapped = launch.source.replace("if constexpr (KEEPS) read_op", "if constexpr (LATER) read_op");
    let swapped = swapped.replace("if constexpr (!KEEPS) read_op", "if constexpr (KEEPS) read_op");
    let source = swapped.replace("if constexpr (LATER) read_op", "if constexpr (!KEEPS) read_op");
    assert_ne!(source, launch.source);
    Launch { source, ..launch.clone() }
}

fn divisions(columns: usize) -> Vec<Division> {
    match columns {
        768 => vec![
            (32, 8, 128, 3),
            (32, 8, 64, 6),
            (32, 4, 128, 3),
            (64, 4, 64, 10),
            (64, 4, 128, 5),
            (64, 4, 512, 1),
            (96, 8, 96, 8),
            (96, 8, 96, 9),
            (96, 8, 384, 2),
            (96, 8, 768, 1),
            (96, 4, 96, 8),
            (96, 4, 384, 2),
            (192, 4, 192, 6),
        ],
        384 => vec![
            (32, 8, 128, 3),
            (32, 8, 128, 4),
            (32, 4, 128, 4),
            (32, 4, 128, 5),
            (32, 4, 256, 2),
            (32, 4, 512, 1),
            (96, 4, 96, 12),
            (96, 4, 384, 3),
        ],
        1024 => vec![
            (32, 8, 128, 2),
            (64, 8, 64, 8),
            (64, 8, 512, 1),
            (64, 4, 128, 4),
            (128, 8, 128, 6),
            (128, 8, 384, 2),
            (128, 8, 128, 8),
            (128, 4, 128, 6),
            (256, 4, 256, 4),
        ],
        _ => vec![(16, 8, 64, 6), (16, 8, 128, 3), (16, 8, 128, 7), (16, 8, 256, 3), (32, 4, 64, 8), (32, 4, 128, 8)],
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

#[test]
#[ignore = "measures; it needs a GPU of its own"]
fn time_rows() {
    let device = Device::open(0).expect("a GPU");
    let stream = driver::stream::create(driver::stream::StreamKind::NonBlocking).unwrap();
    let mut bench = Bench { kernels: Kernels::new(Arc::clone(&device)), device, stream };
    for model in MODELS {
        norm_gradients(&mut bench, model);
    }
    updates(&mut bench);
    for model in MODELS {
        others(&mut bench, model);
    }
}

fn gradient_variants(launch: &Launch, name: &str, rows: usize, columns: usize) -> Vec<(String, Launch)> {
    let mut variants = vec![
        (format!("{name}: as it is"), launch.clone()),
        (format!("{name}: as it is, {columns} columns, reading late"), reading_late(launch)),
    ];
    for division in divisions(columns) {
        let variant = divided(launch, rows, division);
        let mut ahead = variant.clone();
        define(&mut ahead.source, "PREFETCH", 1);
        variants.extend([
            (format!("{name}: {division:?}, reading late"), reading_late(&variant)),
            (format!("{name}: {division:?}"), variant),
            (format!("{name}: {division:?}, prefetching"), ahead),
        ]);
    }
    variants
}

fn norm_gradients(bench: &mut Bench, (name, rows, columns): (&str, usize, usize)) {
    let plan = half_a_block(rows, columns);
    let (launches, tables) = launches_of(&plan);
    let memory = Memory::new(&plan, &tables, &bench.device);
    let launch = launches.iter().find(|launch| launch.entry == "norm_gradient").unwrap();
    let bytes = 16 * rows * columns;
    let variants = gradient_variants(launch, name, rows, columns);
    bench.kernels.load_all(variants.iter().map(|(_, launch)| launch.source.as_str())).unwrap();
    let mut expected: Option<Vec<f32>> = None;
    for (title, variant) in &variants {
        let mut variant = variant.clone();
        let slack = |megabytes: usize| {
            let byte = plan.arena_bytes().next_multiple_of(256) + (megabytes << 20);
            Argument::Place(Place { buffer: Buffer::Arena, byte })
        };
        assert_eq!(variant.arguments.len(), 10);
        (variant.arguments[6], variant.arguments[5], variant.arguments[9]) = (slack(0), slack(40), slack(300));
        bench.run(&memory, title, &variant, bytes);
        let grid = [(2 * columns).div_ceil(32) as u32, 1, 1];
        let arguments = vec![slack(0), slack(38), slack(39)];
        let adding = Launch { entry: "add_partials", grid, block: 512, arguments, ..variant.clone() };
        bench.run(&memory, "  and adding", &adding, 0);
        let found = memory.results(plan.arena_bytes().next_multiple_of(256), rows, columns);
        let expected = expected.get_or_insert_with(|| found.clone());
        let apart = expected.iter().zip(&found).map(|(a, b)| (a - b).abs() / (1.0 + a.abs()));
        // Not `max`, which loses NaN.
        let worst = apart.fold(0.0f32, |worst, x| if x <= worst { worst } else { x });
        println!("  differs by {worst:e}{}", if worst < 1e-2 { "" } else { ": WRONG" });
        if title.ends_with(')') || title.ends_with("is") {
            let function = bench.function(&variant);
            let twice = Launch { grid: [2 * variant.grid[0], 1, 1], ..variant };
            let milliseconds = time(&memory, function, &twice, bench.stream);
            println!("  twice the blocks {milliseconds:.4} ms");
        }
    }
}

fn updates(bench: &mut Bench) {
    let plan = update(18);
    let (launches, tables) = launches_of(&plan);
    let memory = Memory::new(&plan, &tables, &bench.device);
    let values = plan.graph().parameter_floats();
    for launch in &launches {
        let bytes = values
            * match launch.entry {
                "adamw" => 30,
                "square_sums" => 4,
                _ => 0,
            };
        for (at_once, held) in [(1, 1), (1, 8), (2, 1), (2, 4), (2, 5), (4, 2), (4, 3)] {
            let mut variant = launch.clone();
            define(&mut variant.source, "AT_ONCE", at_once);
            define(&mut variant.source, "MIN_BLOCKS", held);
            bench.run(&memory, &format!("update, {at_once} at once, {held} held"), &variant, bytes);
            if launch.entry == "adamw" && held > 1 {
                bench.run(&memory, "  stores that stream", &streaming(&variant, false), bytes);
                bench.run(&memory, "  loads and stores that stream", &streaming(&variant, true), bytes);
            }
        }
    }
}

/// Sums of rows, otherwise unrolled and by more blocks, and the rest as it is.
fn others(bench: &mut Bench, (name, rows, columns): (&str, usize, usize)) {
    let plan = half_a_block(rows, columns);
    let (launches, tables) = launches_of(&plan);
    let memory = Memory::new(&plan, &tables, &bench.device);
    for launch in &launches {
        let wide = launch.source.contains(&format!("#define COLUMNS {}\n", 4 * columns));
        let elements = rows * columns * if wide { 4 } else { 1 };
        let sums = launch.entry == "sum_rows" && launch.source.contains("#define X_TYPE bf16");
        let bytes = elements
            * match launch.entry {
                "normalize" => 6,
                "norm_gradient" => 16,
                "sum_rows" if sums => 2,
                _ => 0,
            };
        bench.run(&memory, &format!("{name}: as it is, wide {wide}"), launch, bytes);
        if !sums {
            continue;
        }
        for (unroll, times) in [(4, 2), (8, 1), (8, 2), (16, 1)] {
            let mut variant = spread_out(launch, times);
            define(&mut variant.source, "UNROLL", unroll);
            bench.run(&memory, &format!("  unrolled {unroll}, {times} times the blocks"), &variant, bytes);
        }
    }
}

/// A sum of rows by more blocks.
fn spread_out(launch: &Launch, times: usize) -> Launch {
    let mut source = launch.source.clone();
    let number = |name: &str| {
        let from = launch.source.find(&format!("#define {name} ")).unwrap() + name.len() + 9;
        launch.source[from..].split(|c: char| !c.is_ascii_digit()).next().unwrap().parse::<usize>().unwrap()
    };
    let group = number("GROUP").div_ceil(times);
    define(&mut source, "GROUP", group);
    let grid = number("ROWS").div_ceil(group) * number("COLUMNS").div_ceil(number("LANES") * number("VECTOR"));
    Launch { source, grid: [grid as u32, 1, 1], ..launch.clone() }
}
