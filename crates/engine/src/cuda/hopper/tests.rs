//! Layers large enough for the kernel: their launches and, on a GPU that supports it, the results.

use std::collections::HashSet;
use std::sync::Arc;

use super::super::chip::Chip;
use super::super::chip::testing::H200;
use super::super::choice::Fastest;
use super::super::choice::testing::ALWAYS_OURS;
use super::super::compile::Kernels;
use super::super::compile::testing::compile_all;
use super::super::cublaslt::{Library, WORKSPACE_BYTES};
use super::super::device::{Device, gpus};
use super::super::executor;
use super::super::launch::Launch;
use super::super::memory::DeviceBuffer;
use super::super::products::{Choice, Product};
use super::super::target::{Built, work_of};
use super::super::warpgroup::CAPABILITY;
use super::ENTRY;
use crate::cpu;
use crate::gradient::GradientOptions;
use crate::graph::{Graph, Mode, Value};
use crate::ops::Activation;
use crate::plan::Plan;
use crate::precision::Precision;
use crate::random::Run;
use crate::state::State;
use crate::types::DType;

/// Uses the kernel wherever it applies.
struct Ours;

impl Choice for Ours {
    fn can_do(&self, _: &Product) -> bool {
        true
    }
    fn is_faster(&self, _: &Product, _: &Product, _: usize) -> bool {
        true
    }
    fn chip(&self) -> Chip {
        H200
    }
    fn kernel_is_faster(&self, _: &Launch, _: &Product, _: &[Launch], _: usize) -> bool {
        true
    }
}

#[derive(Clone, Copy, Debug)]
struct Case {
    rows: usize,
    depth: usize,
    hidden: usize,
    dropout: f32,
    /// Number of multiplications computed by the kernel.
    kernels: usize,
}

/// Whole tiles, fewer and more pieces than stages; an odd number of tile rows; rows, columns and depth that end inside
/// a tile; and columns that are not a multiple of 32, which only the gradient multiplications support.
const CASES: [Case; 4] = [
    Case { rows: 8448, depth: 256, hidden: 512, dropout: 0.0, kernels: 4 },
    Case { rows: 16_512, depth: 128, hidden: 128, dropout: 0.25, kernels: 4 },
    Case { rows: 9999, depth: 160, hidden: 1056, dropout: 0.1, kernels: 4 },
    Case { rows: 5003, depth: 264, hidden: 520, dropout: 0.0, kernels: 2 },
];

/// Two layers with GELU and a residual, and all gradients.
fn layers(case: Case) -> (Graph, Vec<Value>) {
    let Case { rows, depth, hidden, dropout, .. } = case;
    let mut graph = Graph::new(Mode::Training, Precision::Bf16);
    let x = graph.input("x", [rows, depth], DType::F32).unwrap();
    let seed = graph.input("seed", [rows, depth], DType::F32).unwrap();
    let weights = [("wide", [hidden, depth]), ("narrow", [depth, hidden])].map(|(name, shape)| {
        let weight = graph.parameter(&format!("{name}.weight"), shape).unwrap();
        (weight, graph.parameter(&format!("{name}.bias"), [shape[0]]).unwrap())
    });
    let y = graph.linear(x, weights[0].0, Some(weights[0].1)).unwrap();
    let y = graph.activation(y, Activation::Gelu).unwrap();
    let y = graph.dropout(y, dropout).unwrap();
    let y = graph.linear(y, weights[1].0, Some(weights[1].1)).unwrap();
    let y = graph.add(y, x).unwrap();
    let wanted = [x, weights[0].0, weights[0].1, weights[1].0, weights[1].1];
    let gradients = graph.gradients_from(y, seed, &wanted, GradientOptions::default()).unwrap();
    (graph, [y].into_iter().chain(gradients).collect())
}

/// The kernel's launches, and the number of multiplications left to cuBLASLt.
fn work(plan: &Plan, choice: &dyn Choice) -> (Vec<Launch>, usize) {
    let (mut kernels, mut products) = (Vec::new(), 0);
    for task in work_of(plan, choice).unwrap().0 {
        match task.built {
            Built::Launch(launch) if launch.entry == ENTRY => kernels.push(launch),
            Built::Launch(_) => {}
            Built::Product(_) => products += 1,
        }
    }
    (kernels, products)
}

#[test]
fn large_products_are_one_kernel_with_their_steps() {
    let mut texts = HashSet::new();
    for case in CASES {
        let (graph, outputs) = layers(case);
        let plan = Plan::for_cuda(&graph, &outputs).unwrap();
        let (kernels, products) = work(&plan, &Ours);
        // At most two in the forward pass and two input gradients; weight gradients never are.
        assert_eq!((kernels.len(), products), (case.kernels, 6 - case.kernels), "{case:?}");
        assert!(kernels.iter().all(|kernel| kernel.shared_bytes <= 226 << 10 && kernel.grid[0] <= 132));
        // GELU's derivative is a step of the gradient or, with dropout, of the multiplication before it.
        let has_slope = |kernel: &&Launch| {
            ["gelu_slope(other[i])", "gelu_slope(x) * f"].iter().any(|text| kernel.source.contains(text))
        };
        assert_eq!(kernels.iter().filter(has_slope).count(), 1, "{case:?}");
        texts.extend(kernels.into_iter().map(|kernel| kernel.source));
    }
    compile_all(&texts, &["sm_90a"]);
}

#[test]
fn small_products_and_those_of_f32_are_left_to_cublaslt() {
    let small = Case { rows: 1000, depth: 64, hidden: 128, dropout: 0.0, kernels: 0 };
    let odd = Case { rows: 20_000, depth: 60, hidden: 124, dropout: 0.0, kernels: 0 };
    for case in [small, odd] {
        let (graph, outputs) = layers(case);
        assert_eq!(work(&Plan::for_cuda(&graph, &outputs).unwrap(), &Ours).0.len(), case.kernels, "{case:?}");
    }
    let mut graph = Graph::new(Mode::Inference, Precision::F32);
    let x = graph.input("x", [20_000, 64], DType::F32).unwrap();
    let weight = graph.parameter("weight", [128, 64]).unwrap();
    let y = graph.linear(x, weight, None).unwrap();
    assert_eq!(work(&Plan::for_cuda(&graph, &[y]).unwrap(), &Ours).0.len(), 0);
}

/// Measures each kernel, ignoring the cache.
struct Tried<'f>(&'f Fastest<'f>);

impl Choice for Tried<'_> {
    fn can_do(&self, product: &Product) -> bool {
        self.0.can_do(product)
    }
    fn is_faster(&self, product: &Product, other: &Product, bytes: usize) -> bool {
        self.0.is_faster(product, other, bytes)
    }
    fn chip(&self) -> Chip {
        self.0.chip()
    }
    fn kernel_is_faster(&self, kernel: &Launch, product: &Product, after: &[Launch], largest: usize) -> bool {
        let seconds = self.0.measured(kernel, product, after, largest).unwrap();
        assert!(seconds.iter().all(|seconds| seconds.is_finite()), "{seconds:?}");
        true
    }
}

#[test]
fn kernels_are_tried_beside_cublaslt() {
    let Some(device) = device() else { return };
    for case in CASES {
        let (graph, outputs) = layers(case);
        let plan = Plan::for_cuda(&graph, &outputs).unwrap();
        let memory = |bytes: usize| Arc::new(DeviceBuffer::zeroed(&device, bytes).unwrap());
        let library = Library::open(&device, &memory(plan.arena_bytes()), &memory(WORKSPACE_BYTES)).unwrap();
        let mut kernels = Kernels::new(Arc::clone(&device));
        let fastest = Fastest::new(&plan, &device, &library, &mut kernels);
        assert_eq!(work(&plan, &Tried(&fastest)).0.len(), case.kernels, "{case:?}");
    }
}

/// A GPU that supports the kernel.
fn device() -> Option<Arc<Device>> {
    let hopper = gpus().ok().and_then(|all| all.into_iter().find(|gpu| gpu.capability == CAPABILITY));
    if hopper.is_none() {
        eprintln!("skipped: there is no GPU of compute capability 9.0");
    }
    hopper.map(|gpu| Device::open(gpu.ordinal).unwrap())
}

/// Deterministic values between -1 and 1.
fn numbers(seed: u32, count: usize) -> impl Iterator<Item = f32> {
    let mut state = seed;
    std::iter::repeat_with(move || {
        state = state.wrapping_mul(1_664_525).wrapping_add(1_013_904_223);
        (state >> 8) as f32 / (1 << 23) as f32 - 1.0
    })
    .take(count)
}

#[test]
fn the_kernel_computes_what_the_cpu_does() {
    let Some(device) = device() else { return };
    ALWAYS_OURS.set(true);
    for case in CASES {
        let (graph, outputs) = layers(case);
        let mut state = State::new(&graph).unwrap();
        let scale = (case.depth as f32).sqrt().recip();
        for (index, parameter) in state.table().to_vec().into_iter().enumerate() {
            let values = state.parameter_mut(&parameter.name).unwrap();
            let count = values.len();
            values.iter_mut().zip(numbers(index as u32 + 1, count)).for_each(|(to, x)| *to = scale * x);
        }
        let run = Run { seed: 3, step: 7 };
        let fill = |name: &str, to: &mut [f32]| {
            let count = to.len();
            to.iter_mut().zip(numbers(name.len() as u32 + 10, count)).for_each(|(to, x)| *to = x);
        };
        let mut on_cpu = cpu::Executor::new(Plan::for_cpu(&graph, &outputs).unwrap(), 2).unwrap();
        let mut on_gpu = executor::Executor::new(Plan::for_cuda(&graph, &outputs).unwrap(), &device).unwrap();
        for name in ["x", "seed"] {
            fill(name, on_cpu.input(name).unwrap());
            fill(name, on_gpu.input(name).unwrap());
        }
        let times = on_gpu.profile(Some(&mut state), run).unwrap();
        assert_eq!(times.iter().filter(|(_, name, _)| *name == ENTRY).count(), case.kernels, "{case:?}");
        on_cpu.run(&mut state, run).unwrap();
        let expected: Vec<Vec<f32>> = outputs.iter().map(|&value| on_cpu.output(value).unwrap()).collect();
        // The second run replays a recorded step (CUDA graph).
        for _ in 0..2 {
            on_gpu.run(&mut state, run).unwrap();
            for (index, (&value, expected)) in outputs.iter().zip(&expected).enumerate() {
                let got = on_gpu.output(value).unwrap();
                let largest = expected.iter().fold(0.0f32, |largest, x| largest.max(x.abs()));
                let apart = got.iter().zip(expected).fold(0.0f32, |apart, (x, y)| apart.max((x - y).abs()));
                assert!(got.len() == expected.len() && got.iter().all(|x| x.is_finite()));
                assert!(apart <= 1e-2 * largest, "{case:?}, result {index}: {apart} apart, the largest is {largest}");
            }
        }
    }
    ALWAYS_OURS.set(false);
}
