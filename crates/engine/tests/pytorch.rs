//! Whole models and optimisers against PyTorch: the engine's graphs, from the weights in `tests/fixtures`, must give
//! the logits, losses, gradients and steps that PyTorch gave in f64. No Python is needed here:
//! `fixtures/make_encoders.py` and `make_sequences.py` made the files.

mod common;
mod fixtures;

use common::{reference_for, run_cpu};
use fixtures::Fixture;
use vitreous_engine::cpu::Executor;
use vitreous_engine::random::Run;
use vitreous_engine::reference::Reference;
use vitreous_engine::{
    AttentionInputs, AttentionOptions, CrossEntropyOptions, DType, GradientOptions, Graph, Group, Mode, MuonScale,
    Optimizer, Padding, Plan, Precision, Result, State, StepOptions, Value,
};

const F32: DType = DType::F32;
const I32: DType = DType::I32;

/// Limits of the relative error in norm.
const RESULT_LIMIT: f64 = 1e-5;
const GRADIENT_LIMIT: f64 = 1e-4;
const BF16_RESULT_LIMIT: f64 = 5e-2;
/// The f64 reference is as good as the f32 numbers it is compared with.
const REFERENCE_LIMIT: f64 = 1e-6;

/// What a model is compared by.
struct Outputs {
    logits: Value,
    loss: Value,
}

type Build = dyn Fn(&mut Graph) -> Result<Outputs>;

fn norm(values: impl Iterator<Item = f64>) -> f64 {
    values.map(|x| x * x).sum::<f64>().sqrt()
}

/// Relative error in norm, with no floor: a gradient that is small must still be right. NaN anywhere is infinite.
fn relative_error(got: &[f64], expected: &[f64]) -> f64 {
    assert_eq!(got.len(), expected.len());
    let error = norm(got.iter().zip(expected).map(|(g, e)| g - e)) / norm(expected.iter().copied());
    if error.is_nan() { f64::INFINITY } else { error }
}

fn widened(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&x| f64::from(x)).collect()
}

/// Collects errors, so that a failing test says everything that is off.
struct Comparison {
    title: String,
    worst: f64,
    worst_name: String,
    failures: Vec<String>,
}

impl Comparison {
    fn new(title: String) -> Self {
        Comparison { title, worst: 0.0, worst_name: String::new(), failures: Vec::new() }
    }

    fn compare(&mut self, name: &str, got: &[f64], expected: &[f64], limit: f64) {
        self.note(name, relative_error(got, expected), limit);
    }

    fn note(&mut self, name: &str, error: f64, limit: f64) {
        if error >= self.worst {
            (self.worst, self.worst_name) = (error, name.to_string());
        }
        if error.is_nan() || error > limit {
            self.failures.push(format!("{name}: relative error {error:.2e}, limit {limit:e}"));
        }
    }

    /// As [`Comparison::compare`]. All scores of a query move by the same number with the keys' bias, which softmax
    /// does not see: its gradient is 0, and the error is measured by the gradient of the values' bias, which is not.
    fn compare_gradient(&mut self, name: &str, got: &[f64], fixture: &Fixture, limit: f64) {
        let expected = fixture.get("gradient", name);
        match name.strip_suffix("k.bias") {
            Some(attention) => {
                let scale = norm(fixture.get("gradient", &format!("{attention}v.bias")).iter().copied());
                let size = norm(expected.iter().copied());
                assert!(size < 1e-12 * scale, "{name} should have no gradient, PyTorch says {size:e}");
                self.note(name, norm(got.iter().copied()) / scale, limit);
            }
            None => self.compare(name, got, expected, limit),
        }
    }

    fn finish(self) {
        println!("{}: worst relative error {:.1e}, of {}", self.title, self.worst, self.worst_name);
        assert!(self.failures.is_empty(), "{}:\n{}", self.title, self.failures.join("\n"));
    }
}

/// Builds a model and runs it in all ways: f64 reference, CPU f32 with and without recomputation, CPU bf16.
fn compare_model(name: &str, build: &Build) {
    let fixture = Fixture::load(name);
    let leaves = fixture.leaves();
    // Every parameter is among these, since the fixture's parameters are the graph's.
    let wanted_names: Vec<String> = fixture.names("gradient").into_iter().collect();
    let parameters = fixture.names("parameter");
    assert!(parameters.iter().all(|parameter| wanted_names.contains(parameter)), "a parameter without gradient");

    for recompute in [false, true] {
        let mut graph = Graph::new(Mode::Training, Precision::F32);
        let outputs = build(&mut graph).expect("the model is right");
        fixture.expect_parameters_of(&graph);
        let wanted: Vec<Value> = wanted_names.iter().map(|name| graph.find(name).expect("a leaf")).collect();
        let options = GradientOptions { recompute };
        let gradients = graph.gradients(outputs.loss, &wanted, options).expect("gradients");
        let copied = graph.nodes().iter().any(|node| node.path.starts_with("again."));
        assert_eq!(copied, recompute && graph.nodes().iter().any(|node| node.block.is_some()));

        let truth = reference_for(&graph, &leaves).run(&graph, common::RUN).expect("the reference");
        let mut reference = Comparison::new(format!("{name}, reference, recompute {recompute}"));
        for (output, value) in [("logits", outputs.logits), ("loss", outputs.loss)] {
            reference.compare(output, &truth.get(value).data, fixture.get("output", output), REFERENCE_LIMIT);
        }
        for (name, &gradient) in wanted_names.iter().zip(&gradients) {
            reference.compare_gradient(name, &truth.get(gradient).data, &fixture, REFERENCE_LIMIT);
        }
        reference.finish();

        let values: Vec<Value> = [outputs.logits, outputs.loss].into_iter().chain(gradients).collect();
        let results: Vec<Vec<f64>> =
            run_cpu(&graph, &values, &leaves, 2).iter().map(|result| widened(result)).collect();
        let mut cpu = Comparison::new(format!("{name}, cpu results, recompute {recompute}"));
        for (output, got) in ["logits", "loss"].into_iter().zip(&results) {
            cpu.compare(output, got, fixture.get("output", output), RESULT_LIMIT);
        }
        cpu.finish();
        let mut cpu = Comparison::new(format!("{name}, cpu gradients, recompute {recompute}"));
        for (name, got) in wanted_names.iter().zip(&results[2..]) {
            cpu.compare_gradient(name, got, &fixture, GRADIENT_LIMIT);
        }
        cpu.finish();
    }

    let mut graph = Graph::new(Mode::Training, Precision::Bf16);
    let outputs = build(&mut graph).expect("the model is right");
    let results = run_cpu(&graph, &[outputs.logits, outputs.loss], &leaves, 2);
    let mut bf16 = Comparison::new(format!("{name}, cpu bf16"));
    for (output, got) in ["logits", "loss"].into_iter().zip(&results) {
        bf16.compare(output, &widened(got), fixture.get("output", output), BF16_RESULT_LIMIT);
    }
    bf16.finish();
}

fn linear(g: &mut Graph, name: &str, x: Value, out: usize) -> Result<Value> {
    let inner = g.shape_of(x).columns();
    g.scope(name, |g| {
        let weight = g.parameter("weight", [out, inner])?;
        let bias = g.parameter("bias", [out])?;
        g.linear(x, weight, Some(bias))
    })
}

fn layer_norm(g: &mut Graph, name: &str, x: Value, eps: f32) -> Result<Value> {
    let columns = g.shape_of(x).columns();
    g.scope(name, |g| {
        let gamma = g.parameter("weight", [columns])?;
        let beta = g.parameter("bias", [columns])?;
        g.layer_norm(x, gamma, beta, eps)
    })
}

/// nn.MultiheadAttention: queries from `x`, keys and values from `memory`.
fn multi_head(g: &mut Graph, name: &str, x: Value, memory: Value, options: &AttentionOptions) -> Result<Value> {
    let dim = g.shape_of(x).columns();
    g.scope(name, |g| {
        let q = linear(g, "q", x, dim)?;
        let k = linear(g, "k", memory, dim)?;
        let v = linear(g, "v", memory, dim)?;
        let attended = g.attention(AttentionInputs::Separate { q, k, v }, options)?;
        linear(g, "out_proj", attended, dim)
    })
}

fn post_norm_encoder(g: &mut Graph) -> Result<Outputs> {
    let (batch, length, vocabulary, dim, heads, hidden, classes) = (3, 7, 11, 12, 3, 18, 5);
    let tokens = g.input("tokens", [batch, length], I32)?;
    let mask = g.input("mask", [batch, length], I32)?;
    let targets = g.input("targets", [batch, length], I32)?;
    let table = g.parameter("embedding.weight", [vocabulary, dim])?;
    let positions = g.parameter("positions", [length, dim])?;
    let embedded = g.embedding(table, tokens)?;
    let mut x = g.add(embedded, positions)?;
    let options = AttentionOptions { heads, padding: Padding::Mask(mask), ..AttentionOptions::default() };
    for layer in 0..2 {
        x = g.block(&format!("layers.{layer}"), |g| {
            let attended = multi_head(g, "self_attn", x, x, &options)?;
            let sum = g.add(x, attended)?;
            let x = layer_norm(g, "norm1", sum, 1e-5)?;
            let h = linear(g, "linear1", x, hidden)?;
            let h = g.relu(h)?;
            let h = linear(g, "linear2", h, dim)?;
            let sum = g.add(x, h)?;
            layer_norm(g, "norm2", sum, 1e-5)
        })?;
    }
    let logits = linear(g, "head", x, classes)?;
    let options = CrossEntropyOptions { label_smoothing: 0.1, ignored_index: Some(-100), ..Default::default() };
    let loss = g.cross_entropy(logits, targets, options)?;
    Ok(Outputs { logits, loss })
}

fn pre_norm_vision_encoder(g: &mut Graph) -> Result<Outputs> {
    let (batch, patches, dim, heads, hidden, classes) = (3, 6, 20, 5, 26, 4);
    let images = g.input("images", [batch, 3, 6, 9], F32)?;
    let targets = g.input("targets", [batch, classes], F32)?;
    let cut = g.patchify(images, [3, 3])?;
    let embedded = linear(g, "patch_embed", cut, dim)?;
    let class_token = g.parameter("cls_token", [1, dim])?;
    let class_tokens = g.broadcast(class_token, [batch, 1, dim])?;
    let together = g.concat(&[class_tokens, embedded], 1)?;
    let positions = g.parameter("positions", [patches + 1, dim])?;
    let mut x = g.add(together, positions)?;
    let options = AttentionOptions { heads, ..AttentionOptions::default() };
    for block in 0..2 {
        x = g.block(&format!("blocks.{block}"), |g| {
            let h = layer_norm(g, "norm1", x, 1e-6)?;
            let qkv = linear(g, "qkv", h, 3 * dim)?;
            let h = g.attention(AttentionInputs::Packed(qkv), &options)?;
            let h = linear(g, "proj", h, dim)?;
            let x = g.add(x, h)?;
            let h = layer_norm(g, "norm2", x, 1e-6)?;
            let h = linear(g, "fc1", h, hidden)?;
            let h = g.gelu(h)?;
            let h = linear(g, "fc2", h, dim)?;
            g.add(x, h)
        })?;
    }
    let x = layer_norm(g, "norm", x, 1e-6)?;
    let class = g.slice(x, 1, 0, 1)?;
    let class = g.reshape(class, [batch, dim])?;
    let logits = linear(g, "head", class, classes)?;
    let options = CrossEntropyOptions { label_smoothing: 0.05, ..Default::default() };
    let loss = g.cross_entropy(logits, targets, options)?;
    Ok(Outputs { logits, loss })
}

fn decoder(g: &mut Graph) -> Result<Outputs> {
    let (batch, queries, keys, dim, heads, hidden, classes) = (2, 5, 8, 10, 2, 14, 3);
    let target = g.input("target", [batch, queries, dim], F32)?;
    let source = g.input("source", [batch, keys, dim], F32)?;
    let lengths = g.input("source_lengths", [batch], I32)?;
    let targets = g.input("classes", [batch, queries], I32)?;
    let causal = AttentionOptions { heads, causal: true, ..AttentionOptions::default() };
    let cross = AttentionOptions { heads, padding: Padding::Lengths(lengths), ..AttentionOptions::default() };
    let x = g.block("layer", |g| {
        let h = layer_norm(g, "norm1", target, 1e-5)?;
        let h = multi_head(g, "self_attn", h, h, &causal)?;
        let x = g.add(target, h)?;
        let h = layer_norm(g, "norm2", x, 1e-5)?;
        let h = multi_head(g, "multihead_attn", h, source, &cross)?;
        let x = g.add(x, h)?;
        let h = layer_norm(g, "norm3", x, 1e-5)?;
        let h = linear(g, "linear1", h, hidden)?;
        let h = g.gelu(h)?;
        let h = linear(g, "linear2", h, dim)?;
        g.add(x, h)
    })?;
    let logits = linear(g, "head", x, classes)?;
    let loss = g.cross_entropy(logits, targets, CrossEntropyOptions::default())?;
    Ok(Outputs { logits, loss })
}

/// `loss` is Σ output · seed, a product of two long vectors.
fn patch_convolution(g: &mut Graph) -> Result<Outputs> {
    let (batch, out, patch, patches) = (2, 8, [2, 3], 12);
    let images = g.input("images", [batch, 3, 6, 12], F32)?;
    let cut = g.patchify(images, patch)?;
    let weight = g.parameter("weight", [out, 3 * patch[0] * patch[1]])?;
    let bias = g.parameter("bias", [out])?;
    let logits = g.linear(cut, weight, Some(bias))?;
    let seed = g.input("seed", [batch, patches, out], F32)?;
    let product = g.multiply(logits, seed)?;
    let product = g.reshape(product, [batch * patches * out, 1])?;
    let loss = g.sum_leading(product, [1])?;
    Ok(Outputs { logits, loss })
}

/// The output layer is the embedding, and one layer's weights are used three times.
fn shared_parameters(g: &mut Graph) -> Result<Outputs> {
    let (batch, length, vocabulary, dim, hidden) = (2, 6, 9, 8, 12);
    let tokens = g.input("tokens", [batch, length], I32)?;
    let targets = g.input("targets", [batch, length], I32)?;
    let table = g.parameter("embedding.weight", [vocabulary, dim])?;
    let norm = [g.parameter("norm.weight", [dim])?, g.parameter("norm.bias", [dim])?];
    let up = [g.parameter("up.weight", [hidden, dim])?, g.parameter("up.bias", [hidden])?];
    let down = [g.parameter("down.weight", [dim, hidden])?, g.parameter("down.bias", [dim])?];
    let mut x = g.embedding(table, tokens)?;
    for layer in 0..3 {
        x = g.block(&format!("layers.{layer}"), |g| {
            let h = g.layer_norm(x, norm[0], norm[1], 1e-5)?;
            let h = g.linear(h, up[0], Some(up[1]))?;
            let h = g.gelu(h)?;
            let h = g.linear(h, down[0], Some(down[1]))?;
            g.add(x, h)
        })?;
    }
    let logits = g.linear(x, table, None)?;
    let loss = g.cross_entropy(logits, targets, CrossEntropyOptions::default())?;
    Ok(Outputs { logits, loss })
}

#[test]
fn tied_embedding_and_shared_layers_equal_pytorch() {
    compare_model("shared_parameters", &shared_parameters);
}

#[test]
fn post_norm_encoder_with_padding_equals_pytorch() {
    compare_model("post_norm_encoder", &post_norm_encoder);
}

#[test]
fn pre_norm_vision_encoder_equals_pytorch() {
    compare_model("pre_norm_vision_encoder", &pre_norm_vision_encoder);
}

#[test]
fn decoder_layer_equals_pytorch() {
    compare_model("decoder", &decoder);
}

#[test]
fn patchify_and_linear_equal_a_convolution() {
    compare_model("patch_convolution", &patch_convolution);
}

const STEPS: usize = 5;

/// Five steps of a small MLP. `weights` and `biases` say how the two groups of parameters are treated.
fn compare_steps(name: &str, optimizer: Optimizer, weights: Group, biases: Group) {
    let fixture = Fixture::load(name);
    let names: Vec<String> = fixture.names("parameter").into_iter().collect();
    let mut graph = Graph::for_training();
    let loss = small_mlp(&mut graph).expect("the model is right");
    fixture.expect_parameters_of(&graph);
    let group =
        |parameter: &vitreous_engine::Parameter| Some(if parameter.name.ends_with("bias") { biases } else { weights });
    let gradient = GradientOptions::default();
    let options = StepOptions { optimizer, group: &group, clip: Some(1.6), ema: true, gradient };
    let step_values = graph.training_step(loss, &options).expect("a training step");

    let plan = Plan::for_cpu(&graph, &[loss, step_values.gradient_norm]).expect("a plan");
    let mut executor = Executor::new(plan, 2).expect("an executor");
    let mut state = State::new(&graph).unwrap();
    let mut reference = Reference::new(&graph);
    for (parameter, reference) in graph.parameters().iter().zip(&mut reference.parameters) {
        let start = fixture.get("parameter", &parameter.name);
        reference.copy_from_slice(start);
        copy_f32(state.parameter_mut(&parameter.name).expect("a parameter"), start);
    }
    state.start_average();
    reference.ema = reference.parameters.clone();
    let index_of = |name: &str| graph.parameters().iter().position(|p| p.name == name).expect("a parameter");

    for step in 0..STEPS {
        let run = Run { seed: 0, step: step as u64 };
        let float_inputs = [
            ("features", fixture.part("input", "features", step)),
            ("learning_rate", fixture.part("input", "rates", step)),
            ("ema_decay", &[f64::from(0.9f32)][..]),
        ];
        let targets = fixture.part("input", "targets", step);
        for (name, values) in float_inputs {
            copy_f32(executor.input(name).expect("an input"), values);
            reference.inputs.insert(name.to_string(), values.to_vec());
        }
        for (to, from) in executor.input_i32("targets").expect("an input").iter_mut().zip(targets) {
            *to = *from as i32;
        }
        reference.inputs.insert("targets".to_string(), targets.to_vec());
        executor.poison();
        executor.run(&mut state, run).expect("a run");
        let truth = reference.run(&graph, run).expect("the reference");

        let mut cpu = Comparison::new(format!("{name}, cpu, step {step}"));
        let mut exact = Comparison::new(format!("{name}, reference, step {step}"));
        for (what, value) in [("losses", loss), ("norms", step_values.gradient_norm)] {
            let expected = fixture.part("output", what, step);
            cpu.compare(what, &[f64::from(executor.number(value).expect("a number"))], expected, RESULT_LIMIT);
            exact.compare(what, &truth.get(value).data, expected, REFERENCE_LIMIT);
        }
        for name in &names {
            let expected = fixture.get(&format!("step{step}"), name);
            let average = fixture.get(&format!("average{step}"), name);
            let got = widened(state.parameter(name).expect("a parameter"));
            cpu.compare(name, &got, expected, RESULT_LIMIT);
            let got_average = widened(state.average(name).expect("an average"));
            cpu.compare(&format!("average of {name}"), &got_average, average, RESULT_LIMIT);
            exact.compare(name, &reference.parameters[index_of(name)], expected, REFERENCE_LIMIT);
            exact.compare(&format!("average of {name}"), &reference.ema[index_of(name)], average, REFERENCE_LIMIT);
            // Parameters move little: what was added up so far is the sharper test.
            let start = fixture.get("parameter", name);
            let movement = |to: &[f64]| to.iter().zip(start).map(|(to, from)| to - from).collect::<Vec<f64>>();
            cpu.compare(&format!("movement of {name}"), &movement(&got), &movement(expected), GRADIENT_LIMIT);
        }
        cpu.finish();
        exact.finish();
    }
}

fn small_mlp(g: &mut Graph) -> Result<Value> {
    small_mlp_of(g, 6)
}

fn small_mlp_of(g: &mut Graph, batch: usize) -> Result<Value> {
    let features = g.input("features", [batch, 5], F32)?;
    let targets = g.input("targets", [batch], I32)?;
    let h = linear(g, "0", features, 7)?;
    let h = g.gelu(h)?;
    let logits = linear(g, "2", h, 4)?;
    g.cross_entropy(logits, targets, CrossEntropyOptions::default())
}

fn copy_f32(target: &mut [f32], values: &[f64]) {
    assert_eq!(target.len(), values.len());
    for (to, from) in target.iter_mut().zip(values) {
        *to = *from as f32;
    }
}

#[test]
fn adamw_with_groups_clipping_and_average_equals_pytorch() {
    let optimizer = Optimizer::AdamW { beta1: 0.9, beta2: 0.98, eps: 1e-8 };
    let weights = Group { decay: 0.1, rate_factor: 1.0 };
    let biases = Group { decay: 0.0, rate_factor: 0.5 };
    compare_steps("adamw_steps", optimizer, weights, biases);
}

#[test]
fn sgd_with_nesterov_momentum_and_decay_equals_pytorch() {
    let optimizer = Optimizer::Sgd { momentum: 0.9, nesterov: true };
    let weights = Group { decay: 0.05, rate_factor: 1.0 };
    let biases = Group { decay: 0.01, rate_factor: 2.0 };
    compare_steps("sgd_steps", optimizer, weights, biases);
}

#[test]
fn lamb_with_and_without_clipped_trust_equals_timm() {
    let weights = Group { decay: 0.1, rate_factor: 1.0 };
    let biases = Group { decay: 0.0, rate_factor: 0.5 };
    for (name, trust_clip) in [("lamb_steps", false), ("lamb_clipped_steps", true)] {
        let optimizer = Optimizer::Lamb { beta1: 0.9, beta2: 0.98, eps: 1e-6, trust_clip };
        compare_steps(name, optimizer, weights, biases);
    }
}

/// The batches of six of the fixture's steps as several micro-batches: the same steps. The last group may be smaller.
#[test]
fn micro_batches_that_are_added_up_equal_pytorch_with_the_whole_batch() {
    let fixture = Fixture::load("adamw_steps");
    let group = |parameter: &vitreous_engine::Parameter| {
        let bias = parameter.name.ends_with("bias");
        Some(Group { decay: if bias { 0.0 } else { 0.1 }, rate_factor: if bias { 0.5 } else { 1.0 } })
    };
    let optimizer = Optimizer::AdamW { beta1: 0.9, beta2: 0.98, eps: 1e-8 };
    let gradient = GradientOptions::default();
    let options = StepOptions { optimizer, group: &group, clip: Some(1.6), ema: true, gradient };
    for micro in [1, 2, 3, 6] {
        let mut graph = Graph::for_training();
        let loss = small_mlp_of(&mut graph, micro).expect("the model is right");
        let (update, values) = graph.update_step(&options).expect("an update");
        graph.accumulation_step(loss, &options).expect("the gradients");
        let mut adder = Executor::new(Plan::for_cpu(&graph, &[loss]).unwrap(), 2).unwrap();
        let mut updater = Executor::new(Plan::for_cpu(&update, &[values.gradient_norm]).unwrap(), 2).unwrap();
        let mut state = State::new(&update).unwrap();
        for parameter in graph.parameters() {
            copy_f32(state.parameter_mut(&parameter.name).unwrap(), fixture.get("parameter", &parameter.name));
        }
        state.start_average();
        // What is there before the first micro-batch does not count.
        state.gradients_mut().fill(f32::NAN);
        for step in 0..STEPS {
            let features = fixture.part("input", "features", step).chunks(micro * 5);
            let targets = fixture.part("input", "targets", step).chunks(micro);
            let mut losses = 0.0;
            for (number, (features, targets)) in features.zip(targets).enumerate() {
                copy_f32(adder.input("features").unwrap(), features);
                for (to, from) in adder.input_i32("targets").unwrap().iter_mut().zip(targets) {
                    *to = *from as i32;
                }
                adder.input("accumulate").unwrap()[0] = if number == 0 { 0.0 } else { 1.0 };
                adder.poison();
                adder.run(&mut state, Run { seed: 0, step: (100 * step + number) as u64 }).unwrap();
                losses += f64::from(adder.number(loss).unwrap()) * micro as f64 / 6.0;
            }
            copy_f32(updater.input("learning_rate").unwrap(), fixture.part("input", "rates", step));
            updater.input("ema_decay").unwrap()[0] = 0.9;
            updater.input("gradient_scale").unwrap()[0] = micro as f32 / 6.0;
            updater.run(&mut state, Run { seed: 0, step: step as u64 }).unwrap();
            let mut comparison = Comparison::new(format!("micro-batches of {micro}, step {step}"));
            let norm = f64::from(updater.number(values.gradient_norm).unwrap());
            comparison.compare("norm", &[norm], fixture.part("output", "norms", step), 1e-6);
            comparison.compare("loss", &[losses], fixture.part("output", "losses", step), 1e-6);
            for name in fixture.names("parameter") {
                let expected = fixture.get(&format!("step{step}"), &name);
                comparison.compare(&name, &widened(state.parameter(&name).unwrap()), expected, 1e-6);
                let expected = fixture.get(&format!("average{step}"), &name);
                comparison.compare(&name, &widened(state.average(&name).unwrap()), expected, 1e-6);
            }
            comparison.finish();
        }
    }
}

/// Losses that are no model's: their values and gradients, of f32 and of bf16 logits.
#[test]
fn binary_and_soft_cross_entropy_equal_pytorch() {
    let fixture = Fixture::load("losses");
    for dtype in [DType::F32, DType::Bf16] {
        for name in fixture.names("output") {
            let mut g = Graph::for_training();
            let logits = g.input("logits", [5, 7], F32).unwrap();
            let seen = if dtype == F32 { logits } else { g.cast(logits, dtype).unwrap() };
            let loss = match name.as_str() {
                "soft" => {
                    let targets = g.input("soft", [5, 7], F32).unwrap();
                    g.cross_entropy(seen, targets, CrossEntropyOptions::default()).unwrap()
                }
                _ => {
                    let targets = g.input("labels", [5, 7], F32).unwrap();
                    g.binary_cross_entropy(seen, targets, name == "binary_summed").unwrap()
                }
            };
            let gradient = g.gradients(loss, &[logits], GradientOptions::default()).unwrap()[0];
            let leaves = fixture.leaves();
            let truth = reference_for(&g, &leaves).run(&g, common::RUN).unwrap();
            let got = run_cpu(&g, &[loss, gradient], &leaves, 2);
            let mut comparison = Comparison::new(format!("{name} of {dtype} logits"));
            let (expected, slope) = (fixture.get("output", &name), fixture.get("gradient", &name));
            comparison.compare("reference's loss", &truth.get(loss).data, expected, REFERENCE_LIMIT);
            comparison.compare("reference's gradient", &truth.get(gradient).data, slope, REFERENCE_LIMIT);
            comparison.compare("loss", &widened(&got[0]), expected, 1e-6);
            // A gradient that is stored as bf16 has eight bits.
            let limit = if dtype == F32 { 1e-6 } else { 4e-3 };
            comparison.compare("gradient", &widened(&got[1]), slope, limit);
            comparison.finish();
        }
    }
}

#[test]
fn muon_with_adamw_for_biases_equals_pytorch() {
    let weights = Group { decay: 0.1, rate_factor: 1.0 };
    let biases = Group { decay: 0.0, rate_factor: 0.5 };
    let cases = [("muon_steps", true, MuonScale::MatchAdamW), ("muon_original_steps", false, MuonScale::Original)];
    for (name, nesterov, scale) in cases {
        let optimizer = Optimizer::Muon { momentum: 0.95, nesterov, scale, beta1: 0.9, beta2: 0.98, eps: 1e-8 };
        compare_steps(name, optimizer, weights, biases);
    }
}
