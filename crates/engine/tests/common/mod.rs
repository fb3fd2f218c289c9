//! The harness that every op goes through: the CPU against the f64 reference, gradients against finite differences.

#![allow(dead_code)] // each test binary uses a part of it

pub mod encoder;

use std::cell::Cell;
use std::collections::HashMap;
use std::sync::{Arc, OnceLock};

use vitreous_engine::cpu::Executor;
use vitreous_engine::cuda;
use vitreous_engine::random::Run;
use vitreous_engine::random::{Stream, place_of};
use vitreous_engine::reference::Reference;
use vitreous_engine::{DType, GradientOptions, Graph, Mode, Plan, Precision, Result, State, Value};

/// Builds the graph under test and returns the value that is checked.
pub type Build<'a> = dyn Fn(&mut Graph) -> Result<Value> + 'a;
/// Whole numbers for an input: (name, position) to value.
pub type Numbers<'a> = dyn Fn(&str, usize) -> i32 + 'a;

/// Limits of the relative error in norm.
pub const F32_LIMIT: f64 = 1e-5;
pub const BF16_LIMIT: f64 = 1e-2;

/// Random numbers around zero that are exactly representable in bf16 and f32, a pure function of name and position.
pub fn random_values(name: &str, count: usize) -> Vec<f64> {
    let stream = Stream::new(7, 0, place_of(name));
    (0..count)
        .map(|i| {
            let words = stream.four(i as u64);
            let uniform = |word: u32| f64::from(word) / f64::from(u32::MAX) - 0.5;
            // The sum of four uniforms is close enough to normal.
            f64::from(words.into_iter().map(uniform).sum::<f64>() as f32 * 1.7)
        })
        .collect()
}

/// Relative error in norm; NaN anywhere is infinite. Results whose root mean square is below `least` are judged as if it were
/// that: terms of size one have cancelled in them.
pub fn relative_error(got: &[f32], expected: &[f64], least: f64) -> f64 {
    assert_eq!(got.len(), expected.len());
    let difference: f64 = got.iter().zip(expected).map(|(g, e)| (f64::from(*g) - e).powi(2)).sum::<f64>().sqrt();
    let norm: f64 = expected.iter().map(|e| e * e).sum::<f64>().sqrt();
    let error = difference / norm.max(least * (expected.len() as f64).sqrt());
    if error.is_nan() { f64::INFINITY } else { error }
}

/// A graph with the gradient of `Σ y · weights` for all its float inputs and parameters.
pub struct Subject {
    pub graph: Graph,
    pub y: Value,
    /// (name, value, gradient), inputs and parameters.
    pub gradients: Vec<(String, Value, Value)>,
}

pub fn subject(build: &Build, precision: Precision, with_gradient: bool) -> Subject {
    let mut graph = Graph::new(Mode::Training, precision);
    let y = build(&mut graph).expect("the graph is right");
    let mut gradients = Vec::new();
    if with_gradient {
        let wanted: Vec<(String, Value)> = leaves(&graph);
        let shape = graph.shape_of(y).clone();
        let weights = random_values("weights of the result", shape.elements()).iter().map(|&w| w as f32).collect();
        let seed = graph.constant("seed", shape, weights).expect("a constant");
        let values: Vec<Value> = wanted.iter().map(|(_, value)| *value).collect();
        let found = graph.gradients_from(y, seed, &values, GradientOptions::default()).expect("gradients");
        gradients = wanted.into_iter().zip(found).map(|((name, value), gradient)| (name, value, gradient)).collect();
    }
    Subject { graph, y, gradients }
}

/// Float inputs and parameters.
fn leaves(graph: &Graph) -> Vec<(String, Value)> {
    let inputs = graph.inputs().filter(|(_, value)| graph.type_of(*value).dtype == DType::F32);
    let mut found: Vec<(String, Value)> = inputs.map(|(name, value)| (name.to_string(), value)).collect();
    for parameter in graph.parameters() {
        found.push((parameter.name.clone(), graph.find(&parameter.name).expect("a parameter")));
    }
    found
}

/// The leaves' values: random, or the whole numbers given.
pub fn leaf_values(graph: &Graph, numbers: &Numbers) -> HashMap<String, Vec<f64>> {
    let mut values = HashMap::new();
    for (name, value) in graph.inputs() {
        let value_type = graph.type_of(value);
        let count = value_type.shape.elements();
        let data = match value_type.dtype {
            DType::I32 => (0..count).map(|i| f64::from(numbers(name, i))).collect(),
            _ => random_values(name, count),
        };
        values.insert(name.to_string(), data);
    }
    for parameter in graph.parameters() {
        values.insert(parameter.name.clone(), random_values(&parameter.name, parameter.shape.elements()));
    }
    values
}

pub fn reference_for(graph: &Graph, values: &HashMap<String, Vec<f64>>) -> Reference {
    let mut reference = Reference::new(graph);
    reference.inputs = values.clone();
    for (index, parameter) in graph.parameters().iter().enumerate() {
        reference.parameters[index].clone_from(&values[&parameter.name]);
    }
    reference
}

pub const RUN: Run = Run { seed: 11, step: 5 };

/// Runs a graph on the CPU, with poisoned memory, and returns the wanted values.
pub fn run_cpu(graph: &Graph, wanted: &[Value], values: &HashMap<String, Vec<f64>>, threads: usize) -> Vec<Vec<f32>> {
    let plan = Plan::for_cpu(graph, wanted).expect("a plan");
    let mut executor = Executor::new(plan, threads).expect("an executor");
    let mut state = State::new(graph).unwrap();
    fill(&mut executor, &mut state, graph, values);
    executor.poison();
    executor.run(&mut state, RUN).expect("a run");
    wanted.iter().map(|&value| executor.output(value).expect("a result")).collect()
}

/// The GPU, if there is one; that there is none is said once.
pub fn gpu() -> Option<&'static Arc<cuda::Device>> {
    static GPU: OnceLock<Option<Arc<cuda::Device>>> = OnceLock::new();
    // Runs for other instruction sets of the CPU have nothing to tell of a GPU.
    if std::env::var_os("VITREOUS_ISA").is_some() {
        return None;
    }
    let found = GPU.get_or_init(|| {
        let device = cuda::Device::open(0);
        if let Err(error) = &device {
            eprintln!("skipped on the GPU: {error}");
        }
        device.ok()
    });
    found.as_ref()
}

/// Whether this is one of the first checks of a test.
fn is_among_the_first() -> bool {
    const MOST: usize = 12;
    // Each test has a thread of its own.
    thread_local! { static CHECKS: Cell<usize> = const { Cell::new(0) } }
    CHECKS.replace(CHECKS.get() + 1) < MOST
}

/// Runs a graph on a GPU and returns the wanted values.
pub fn run_cuda(
    graph: &Graph,
    wanted: &[Value],
    values: &HashMap<String, Vec<f64>>,
    device: &Arc<cuda::Device>,
) -> Vec<Vec<f32>> {
    let plan = Plan::for_cuda(graph, wanted).expect("a plan");
    let mut executor = cuda::Executor::new(plan, device).expect("an executor");
    let mut state = State::new(graph).unwrap();
    fill_parameters(&mut state, graph, values);
    let present = inputs_of(executor.plan());
    for (name, dtype) in present {
        let given = &values[&name];
        if dtype == DType::I32 {
            let target = executor.input_i32(&name).expect("an input").iter_mut();
            target.zip(given).for_each(|(to, from)| *to = *from as i32);
        } else {
            let target = executor.input(&name).expect("an input").iter_mut();
            target.zip(given).for_each(|(to, from)| *to = *from as f32);
        }
    }
    // Started one by one, recorded, and started from the record.
    for _ in 0..3 {
        executor.run(&mut state, RUN).expect("a run");
    }
    wanted.iter().map(|&value| executor.output(value).expect("a result")).collect()
}

fn fill_parameters(state: &mut State, graph: &Graph, values: &HashMap<String, Vec<f64>>) {
    for parameter in graph.parameters() {
        let target = state.parameter_mut(&parameter.name).expect("a parameter");
        for (to, from) in target.iter_mut().zip(&values[&parameter.name]) {
            *to = *from as f32;
        }
    }
}

/// The inputs that a plan has left, by name.
fn inputs_of(plan: &Plan) -> Vec<(String, DType)> {
    let graph = plan.graph();
    graph.inputs().map(|(name, value)| (name.to_string(), graph.type_of(value).dtype)).collect()
}

pub fn fill(executor: &mut Executor, state: &mut State, graph: &Graph, values: &HashMap<String, Vec<f64>>) {
    fill_parameters(state, graph, values);
    let present = inputs_of(executor.plan());
    for (name, dtype) in present {
        if dtype == DType::I32 {
            let target = executor.input_i32(&name).expect("an input");
            for (to, from) in target.iter_mut().zip(&values[&name]) {
                *to = *from as i32;
            }
        } else {
            let target = executor.input(&name).expect("an input");
            for (to, from) in target.iter_mut().zip(&values[&name]) {
                *to = *from as f32;
            }
        }
    }
}

/// What is checked of an op.
#[derive(Clone, Copy)]
pub struct Checks {
    pub gradient: bool,
    /// The largest relative error in f32.
    pub f32: f64,
    /// Limit of the relative error in bf16; `None` leaves bf16 out.
    pub bf16: Option<f64>,
    /// See [`relative_error`].
    pub least: f64,
    /// Coordinates of each leaf that finite differences are taken at.
    pub differences: usize,
    /// Whether a GPU gets every check of a test, and not only some: random shapes each compile kernels of their own.
    pub all_on_gpu: bool,
}

impl Default for Checks {
    fn default() -> Self {
        Checks {
            gradient: true,
            f32: F32_LIMIT,
            bf16: Some(BF16_LIMIT),
            least: 1e-3,
            differences: 6,
            all_on_gpu: false,
        }
    }
}

/// Puts an op through everything.
pub fn check(build: &Build, numbers: &Numbers, checks: Checks) {
    let plain = subject(build, Precision::F32, checks.gradient);
    let values = leaf_values(&plain.graph, numbers);
    let mut reference = reference_for(&plain.graph, &values);
    let truth = reference.run(&plain.graph, RUN).expect("the reference");
    if checks.gradient {
        finite_differences(&plain, &values, checks.differences);
    }
    let limits = [(Precision::F32, Some(checks.f32)), (Precision::Bf16, checks.bf16)];
    for (precision, limit) in limits.into_iter().filter_map(|(precision, limit)| Some((precision, limit?))) {
        let subject = subject(build, precision, checks.gradient);
        let wanted: Vec<Value> =
            std::iter::once(subject.y).chain(subject.gradients.iter().map(|(_, _, gradient)| *gradient)).collect();
        fused_is_equal(&subject.graph, &wanted, &values);
        let results = run_cpu(&subject.graph, &wanted, &values, 2);
        let names = std::iter::once("result").chain(subject.gradients.iter().map(|(name, _, _)| name.as_str()));
        let plain_values = std::iter::once(plain.y).chain(plain.gradients.iter().map(|(_, _, gradient)| *gradient));
        for ((name, plain_value), got) in names.zip(plain_values).zip(&results) {
            let error = relative_error(got, &truth.get(plain_value).data, checks.least);
            assert!(error < limit, "{precision:?} {name}: relative error {error:e}, limit {limit:e}");
        }
        if let Some(device) = gpu().filter(|_| is_among_the_first() || checks.all_on_gpu) {
            // Products of few rows round their operands there, which the CPU's do not; sums have another order.
            let limit = if precision == Precision::Bf16 { 5.0 * limit } else { 2.0 * limit };
            let on_gpu = run_cuda(&subject.graph, &wanted, &values, device);
            let names = std::iter::once("result").chain(subject.gradients.iter().map(|(name, _, _)| name.as_str()));
            let plain_values = std::iter::once(plain.y).chain(plain.gradients.iter().map(|(_, _, gradient)| *gradient));
            for ((name, plain_value), got) in names.zip(plain_values).zip(&on_gpu) {
                let error = relative_error(got, &truth.get(plain_value).data, checks.least);
                assert!(error < limit, "CUDA, {precision:?} {name}: relative error {error:e}, limit {limit:e}");
            }
        }
        for threads in [1, 4] {
            let again = run_cpu(&subject.graph, &wanted, &values, threads);
            let bits = |lists: &[Vec<f32>]| lists.iter().flatten().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert!(bits(&again) == bits(&results), "{precision:?}: {threads} threads give other bits than 2");
        }
    }
}

/// The planner's rewriting must not change what is computed: the reference runs both graphs.
fn fused_is_equal(graph: &Graph, wanted: &[Value], values: &HashMap<String, Vec<f64>>) {
    let plan = Plan::for_cpu(graph, wanted).expect("a plan");
    let before = reference_for(graph, values).run(graph, RUN).expect("the reference");
    let after = reference_for(plan.graph(), values).run(plan.graph(), RUN).expect("the reference on the fused graph");
    for &value in wanted {
        let (a, b) = (before.get(value), after.get(plan.value(value).expect("kept")));
        assert_eq!(a.shape, b.shape);
        for (a, b) in a.data.iter().zip(&b.data) {
            assert!((a - b).abs() <= 1e-12 * (1.0 + a.abs()), "fusing changed {a} into {b}");
        }
    }
}

/// Central differences of `Σ y · weights` in f64 against the gradient nodes run by the reference.
fn finite_differences(subject: &Subject, values: &HashMap<String, Vec<f64>>, coordinates: usize) {
    let graph = &subject.graph;
    let weights = random_values("weights of the result", graph.shape_of(subject.y).elements());
    let objective = |values: &HashMap<String, Vec<f64>>| -> f64 {
        let result = reference_for(graph, values).run(graph, RUN).expect("the reference");
        result.get(subject.y).data.iter().zip(&weights).map(|(y, w)| y * f64::from(*w as f32)).sum()
    };
    let truth = reference_for(graph, values).run(graph, RUN).expect("the reference");
    for (name, _, gradient) in &subject.gradients {
        let gradient = &truth.get(*gradient).data;
        let scale = gradient.iter().map(|g| g.abs()).fold(1e-3, f64::max);
        for trial in 0..coordinates.min(gradient.len()) {
            let at = (trial * 7919 + trial * trial * 31) % gradient.len();
            let h = 1e-5;
            let mut moved = values.clone();
            let mut value_at = |delta: f64| {
                moved.get_mut(name).expect("a leaf")[at] = values[name][at] + delta;
                objective(&moved)
            };
            let numeric = (value_at(h) - value_at(-h)) / (2.0 * h);
            let error = (numeric - gradient[at]).abs() / scale;
            assert!(error < 1e-6, "{name}[{at}]: gradient {} but differences say {numeric}", gradient[at]);
        }
    }
}

/// No whole numbers.
pub fn no_numbers(name: &str, _position: usize) -> i32 {
    panic!("the op takes no whole numbers, but has an input {name}")
}

/// Cases of a property test: fewer where the whole binary is run again for another instruction set.
pub fn cases(count: u32) -> proptest::test_runner::Config {
    let again = std::env::var_os("VITREOUS_ISA").is_some();
    // A red build is red for everyone: the cases are drawn by a fixed seed, and by another one on request.
    let seed = std::env::var("PROPTEST_RNG_SEED").ok().and_then(|seed| seed.parse().ok()).unwrap_or(2026);
    proptest::test_runner::Config {
        rng_seed: proptest::test_runner::RngSeed::Fixed(seed),
        cases: if again { count / 4 } else { count },
        // Failures are reported with their shrunk case; there is no file of old ones to keep.
        failure_persistence: None,
        ..proptest::test_runner::Config::default()
    }
}

/// Runs this test binary again for each lower instruction set, all tests but `except`.
pub fn run_on_other_instruction_sets(except: &str) {
    if std::env::var_os("VITREOUS_ISA").is_some() {
        return;
    }
    // The last is one of its own only where there is AMX.
    let with_amx = vitreous_engine::machine::Machine::this().instruction_set.contains("AMX");
    let lower = ["baseline", "avx2", "avx512", "avx512-bf16"];
    for isa in &lower[..if with_amx { 4 } else { 3 }] {
        let binary = std::env::current_exe().expect("a test binary");
        let output = std::process::Command::new(binary)
            .args(["--skip", except])
            .env("VITREOUS_ISA", isa)
            .output()
            .expect("the test binary runs");
        let text = String::from_utf8_lossy(&output.stdout);
        assert!(output.status.success(), "with {isa}:\n{text}");
    }
}
