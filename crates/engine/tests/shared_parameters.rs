//! A parameter that is used more than once: an embedding that is the output layer too, and one layer's weights used three times.
//! Its gradient is the sum over all uses, wherever gradients are computed.

mod common;

use std::borrow::Cow;
use std::collections::HashMap;

use common::{Checks, check, fill, leaf_values, random_values, reference_for, run_cpu, run_cuda};
use vitreous_engine::cpu::Executor;
use vitreous_engine::{
    CrossEntropyOptions, DType, GradientOptions, Graph, Group, Mode, Optimizer, Parameter, Plan, Precision, Result,
    Run, State, StepOptions, Value,
};

const BATCH: usize = 3;
const LENGTH: usize = 5;
const VOCABULARY: usize = 11;
const DIM: usize = 16;
const LAYERS: usize = 3;

/// A parameter for one of its uses: the same for all, or another one.
fn parameter(g: &mut Graph, name: &str, number: usize, shape: &[usize], shared: bool) -> Result<Value> {
    let name = if shared { name.to_string() } else { format!("{name}.{number}") };
    match g.find(&name) {
        Ok(there) => Ok(there),
        Err(_) => g.parameter(&name, shape),
    }
}

/// Logits of a small language model whose parameters are shared, or a copy for each use.
fn logits(g: &mut Graph, shared: bool) -> Result<Value> {
    let tokens = g.input("tokens", [BATCH, LENGTH], DType::I32)?;
    let table = parameter(g, "embedding", 0, &[VOCABULARY, DIM], shared)?;
    let mut x = g.embedding(table, tokens)?;
    for layer in 0..LAYERS {
        let gamma = parameter(g, "norm", layer, &[DIM], shared)?;
        let weight = parameter(g, "weight", layer, &[DIM, DIM], shared)?;
        let bias = parameter(g, "bias", layer, &[DIM], shared)?;
        x = g.block(&format!("layers.{layer}"), |g| {
            let h = g.rms_norm(x, gamma, 1e-5)?;
            let h = g.linear(h, weight, Some(bias))?;
            let h = g.silu(h)?;
            g.add(x, h)
        })?;
    }
    let table = parameter(g, "embedding", 1, &[VOCABULARY, DIM], shared)?;
    g.linear(x, table, None)
}

fn loss(g: &mut Graph, shared: bool) -> Result<Value> {
    let logits = logits(g, shared)?;
    let targets = g.input("targets", [BATCH, LENGTH], DType::I32)?;
    g.cross_entropy(logits, targets, CrossEntropyOptions::default())
}

fn token(_name: &str, position: usize) -> i32 {
    (position * 7 % VOCABULARY) as i32
}

/// The name without the number of its use.
fn plain(name: &str) -> &str {
    name.split('.').next().unwrap_or(name)
}

/// Values of a graph's leaves in which copies of a parameter are equal.
fn values_of(graph: &Graph) -> HashMap<String, Vec<f64>> {
    let mut values = leaf_values(graph, &token);
    for parameter in graph.parameters() {
        values.insert(parameter.name.clone(), random_values(plain(&parameter.name), parameter.shape.elements()));
    }
    values
}

/// Gradients of a model without sharing, in f64, summed over the copies of each parameter.
fn summed() -> HashMap<String, Vec<f64>> {
    let mut graph = Graph::new(Mode::Training, Precision::F32);
    let loss = loss(&mut graph, false).unwrap();
    let names: Vec<String> = graph.parameters().iter().map(|parameter| parameter.name.clone()).collect();
    assert_eq!(names.len(), 2 + 3 * LAYERS);
    let wanted: Vec<Value> = names.iter().map(|name| graph.find(name).unwrap()).collect();
    let gradients = graph.gradients(loss, &wanted, GradientOptions::default()).unwrap();
    let truth = reference_for(&graph, &values_of(&graph)).run(&graph, common::RUN).unwrap();
    let mut sums: HashMap<String, Vec<f64>> = HashMap::new();
    for (name, gradient) in names.iter().zip(gradients) {
        let data = &truth.get(gradient).data;
        let sum = sums.entry(plain(name).to_string()).or_insert_with(|| vec![0.0; data.len()]);
        sum.iter_mut().zip(data).for_each(|(sum, value)| *sum += value);
    }
    sums
}

fn assert_close(name: &str, got: &[f32], expected: &[f64], limit: f64) {
    let error = common::relative_error(got, expected, 1e-6);
    assert!(error < limit, "{name}: relative error {error:e}");
}

/// Finite differences, both precisions, one, two and four threads, and a GPU if there is one.
#[test]
fn gradients_agree_with_finite_differences() {
    let checks = Checks { bf16: Some(3e-2), ..Checks::default() };
    check(&|g: &mut Graph| logits(g, true), &token, checks);
}

#[test]
fn a_shared_parameter_s_gradient_is_the_sum_over_its_uses() {
    let sums = summed();
    for recompute in [false, true] {
        let mut graph = Graph::new(Mode::Training, Precision::F32);
        let loss = loss(&mut graph, true).unwrap();
        let names: Vec<String> = graph.parameters().iter().map(|parameter| parameter.name.clone()).collect();
        assert_eq!(names, ["embedding", "norm", "weight", "bias"]);
        let wanted: Vec<Value> = names.iter().map(|name| graph.find(name).unwrap()).collect();
        let gradients = graph.gradients(loss, &wanted, GradientOptions { recompute }).unwrap();
        let values = values_of(&graph);
        let mut results = vec![run_cpu(&graph, &gradients, &values, 2)];
        results.extend(common::gpu().map(|device| run_cuda(&graph, &gradients, &values, device)));
        for results in results {
            for (name, got) in names.iter().zip(&results) {
                assert_close(name, got, &sums[name], 1e-5);
            }
        }
    }
}

/// In a training step the sum is in the flat buffer of gradients, and one update is made of it.
#[test]
fn a_training_step_updates_a_shared_parameter_once() {
    let sums = summed();
    let mut graph = Graph::new(Mode::Training, Precision::F32);
    let loss = loss(&mut graph, true).unwrap();
    let options = StepOptions {
        optimizer: Optimizer::Sgd { momentum: 0.0, nesterov: false },
        group: &|_| Some(Group { decay: 0.0, rate_factor: 1.0 }),
        clip: None,
        ema: false,
        gradient: GradientOptions::default(),
    };
    graph.training_step(loss, &options).unwrap();
    let mut values = values_of(&graph);
    let rate = 0.5;
    values.insert("learning_rate".to_string(), vec![rate]);
    let mut executor = Executor::new(Plan::for_cpu(&graph, &[loss]).unwrap(), 2).unwrap();
    let mut state = State::new(&graph).unwrap();
    fill(&mut executor, &mut state, &graph, &values);
    executor.poison();
    state.gradients_mut().fill(f32::NAN);
    executor.run(&mut state, Run { seed: 0, step: 0 }).unwrap();
    for (name, sum) in &sums {
        assert_close(name, state.gradient(name).unwrap(), sum, 1e-5);
        let moved: Vec<f64> = values[name].iter().zip(sum).map(|(value, gradient)| value - rate * gradient).collect();
        assert_close(name, state.parameter(name).unwrap(), &moved, 1e-6);
    }
}

/// Weights that do not change: the table is read by rows and, packed, by a product.
#[test]
fn a_tied_embedding_is_kept_for_both_of_its_uses() {
    for precision in [Precision::F32, Precision::Bf16] {
        let mut graph = Graph::new(Mode::Inference, precision);
        let y = logits(&mut graph, true).unwrap();
        let values = values_of(&graph);
        let expected = run_cpu(&graph, &[y], &values, 2).remove(0);
        let lend = |parameter: &Parameter| -> Result<Cow<[f32]>> {
            Ok(Cow::Owned(values[&parameter.name].iter().map(|&x| x as f32).collect()))
        };
        let plan = Plan::for_cpu_with_fixed_weights(&graph, &[y]).unwrap();
        let mut executor = Executor::with_weights(plan, 2, lend).unwrap();
        let tokens = executor.input_i32("tokens").unwrap();
        tokens.iter_mut().enumerate().for_each(|(position, to)| *to = token("tokens", position));
        executor.infer().unwrap();
        assert_eq!(executor.output(y).unwrap(), expected, "{precision:?}");
    }
}
