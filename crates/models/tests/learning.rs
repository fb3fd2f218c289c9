//! Language models learn as in PyTorch: gradients of every fixture of both families, and 20 steps with AdamW and with Muon
//! (`src/families/decoder/learn.py`).

use std::fs;
use std::path::{Path, PathBuf};

use serde_json::Value as Json;
use vitreous_engine::{
    CrossEntropyOptions, DType, Device, Executor, GradientOptions, Graph, Group, Mode, MuonScale, Optimizer, Parameter,
    Precision, Run, State, StepOptions, Value,
};
use vitreous_models::archive::Archive;
use vitreous_models::{Call, Model, OpenOptions};

const IGNORED: i32 = -100;

/// The fixtures of both families that have gradients.
fn fixtures() -> Vec<PathBuf> {
    let families = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/families");
    let folders = ["gpt2", "llama"].map(|family| families.join(family).join("tests/fixtures"));
    let entries = folders.iter().flat_map(|folder| fs::read_dir(folder).expect("fixtures"));
    let mut found: Vec<PathBuf> = entries.map(|entry| entry.expect("one").path()).collect();
    found.retain(|path| path.join("gradients.safetensors").is_file());
    found.sort();
    found
}

fn learning(path: &Path) -> Json {
    serde_json::from_slice(&fs::read(path.join("learning.json")).expect("a file")).expect("JSON")
}

/// A file of a fixture in the form of a checkpoint.
fn open(path: &Path, weights: &str) -> Model {
    let folder = tempfile::tempdir().expect("a folder");
    fs::copy(path.join("config.json"), folder.path().join("config.json")).expect("copied");
    fs::copy(path.join(weights), folder.path().join("model.safetensors")).expect("copied");
    Model::open(folder.path(), &OpenOptions::default()).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// Tokens, and how many of each row there are.
fn tokens(path: &Path) -> (Vec<i32>, Vec<i32>) {
    let archive = Archive::open(&path.join("expected.safetensors")).expect("an archive");
    let read = |name: &str| -> Vec<i32> {
        let view = archive.tensor(name).expect("a tensor");
        view.to_f32().expect("numbers").iter().map(|&number| number as i32).collect()
    };
    (read("tokens.in"), read("lengths.in"))
}

/// The mean loss over the tokens that have one before them, without dropout.
fn loss_of(graph: &mut Graph, model: &Model, rows: usize, length: usize) -> Value {
    let outputs = model.architecture.build(graph, &Call::whole(rows).tokens(length)).expect("a model");
    let targets = graph.input("targets", [rows, length], DType::I32).expect("an input");
    let options = CrossEntropyOptions { ignored_index: Some(IGNORED), ..CrossEntropyOptions::default() };
    graph.cross_entropy(outputs.need("logits").expect("logits"), targets, options).expect("a loss")
}

fn fill(executor: &mut Executor, tokens: &[i32], lengths: &[i32]) {
    let width = tokens.len() / lengths.len();
    let target = |(place, _): (usize, &i32)| {
        let (row, column) = (place / width, place % width);
        if (column + 1) < lengths[row] as usize { tokens[place + 1] } else { IGNORED }
    };
    let targets: Vec<i32> = tokens.iter().enumerate().map(target).collect();
    executor.input_i32("tokens").expect("tokens").copy_from_slice(tokens);
    executor.input_i32("lengths").expect("lengths").copy_from_slice(lengths);
    executor.input_i32("targets").expect("targets").copy_from_slice(&targets);
}

fn no_dropout(path: &Path) -> Model {
    let known = open(path, "model.safetensors").architecture.settings();
    let keys = ["dropout", "attention_dropout", "embedding_dropout"].into_iter().filter(|key| known.contains_key(*key));
    let options = keys.fold(OpenOptions::default(), |options, key| options.with(key, 0.0));
    Model::open(path, &options).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

/// The largest difference, relative to the largest of the expected numbers.
fn difference(got: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(got.len(), expected.len());
    let most = expected.iter().fold(0.0_f32, |most, number| most.max(number.abs())).max(1e-3);
    // NaN must not pass.
    let differences = got.iter().zip(expected).map(|(g, e)| (g - e).abs());
    differences.fold(0.0, |most, d| if d > most || d.is_nan() { d } else { most }) / most
}

#[test]
fn gradients_of_every_option_equal_those_of_transformers() {
    let paths = fixtures();
    assert!(paths.len() >= 24, "{}", paths.len());
    for path in paths {
        let (model, gradients) = (no_dropout(&path), open(&path, "gradients.safetensors"));
        let (tokens, lengths) = tokens(&path);
        for recompute in [false, true] {
            let mut graph = Graph::new(Mode::Training, Precision::F32);
            let loss = loss_of(&mut graph, &model, lengths.len(), tokens.len() / lengths.len());
            let names: Vec<String> = graph.parameters().iter().map(|parameter| parameter.name.clone()).collect();
            let wanted: Vec<Value> = names.iter().map(|name| graph.find(name).expect("a parameter")).collect();
            let found = graph.gradients(loss, &wanted, GradientOptions { recompute }).expect("gradients");
            let mut executor = {
                let device = Device::Cpu { threads: 2 };
                let outputs: Vec<Value> = [loss].into_iter().chain(found.iter().copied()).collect();
                Executor::new(device.plan(&graph, &outputs).expect("a plan"), &device).expect("an executor")
            };
            let mut state = State::new(&graph).expect("a state");
            model.load(&mut state).expect("loaded");
            fill(&mut executor, &tokens, &lengths);
            executor.run(&mut state, Run { seed: 0, step: 0 }).expect("a run");
            let expected = learning(&path)["loss"].as_f64().expect("a loss");
            let got = f64::from(executor.number(loss).expect("a loss"));
            assert!((got - expected).abs() < 1e-5, "{}: {got} for {expected}", path.display());
            for (name, gradient) in names.iter().zip(found) {
                let expected = gradients.parameter(name).expect("a gradient");
                let difference = difference(executor.output_slice(gradient).expect("a gradient"), &expected);
                assert!(difference < 1e-5, "{}: {name}: {difference:e}", path.display());
            }
        }
    }
}

#[test]
fn twenty_steps_with_adamw_and_with_muon_equal_pytorch() {
    let (beta1, beta2, eps) = (0.9, 0.95, 1e-4);
    let muon = Optimizer::Muon { momentum: 0.95, nesterov: true, scale: MuonScale::MatchAdamW, beta1, beta2, eps };
    let optimizers = [("adamw", Optimizer::AdamW { beta1, beta2, eps }), ("muon", muon)];
    let group = |parameter: &Parameter| {
        Some(Group { decay: if parameter.shape.rank() == 2 { 0.1 } else { 0.0 }, rate_factor: 1.0 })
    };
    let mut compared = 0;
    for path in fixtures() {
        for (name, optimizer) in optimizers {
            let learning = learning(&path);
            let Some(losses) = learning[name].as_array() else { continue };
            let (model, expected) = (no_dropout(&path), open(&path, &format!("{name}.safetensors")));
            let (tokens, lengths) = tokens(&path);
            let mut graph = Graph::new(Mode::Training, Precision::F32);
            let loss = loss_of(&mut graph, &model, lengths.len(), tokens.len() / lengths.len());
            let gradient = GradientOptions::default();
            let options = StepOptions { optimizer, group: &group, clip: Some(1.0), ema: false, gradient };
            graph.training_step(loss, &options).expect("a step");
            let device = Device::Cpu { threads: 2 };
            let plan = device.plan(&graph, &[loss]).expect("a plan");
            let mut executor = Executor::new(plan, &device).expect("an executor");
            let mut state = State::new(&graph).expect("a state");
            model.load(&mut state).expect("loaded");
            fill(&mut executor, &tokens, &lengths);
            executor.input("learning_rate").expect("a rate")[0] = 0.003;
            assert_eq!(losses.len(), 20);
            for (step, expected) in losses.iter().enumerate() {
                executor.run(&mut state, Run { seed: 0, step: step as u64 }).expect("a run");
                let got = f64::from(executor.number(loss).expect("a loss"));
                let expected = expected.as_f64().expect("a loss");
                assert!((got - expected).abs() < 1e-4, "{} {name}, step {step}: {got} for {expected}", path.display());
            }
            for parameter in expected.parameters() {
                let got = state.parameter(&parameter.name).expect("a parameter");
                let difference = difference(got, &expected.parameter(&parameter.name).expect("a parameter"));
                assert!(difference < 1e-4, "{} {name}: {}: {difference:e}", path.display(), parameter.name);
            }
            compared += 1;
        }
    }
    assert_eq!(compared, 8);
}

/// Documents that are kept apart in one sequence are read as if each were alone.
#[test]
fn documents_in_one_sequence_are_read_as_if_each_were_alone() {
    for name in ["gpt2", "llama"] {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("src/families").join(name).join("tests/fixtures/model");
        let model = no_dropout(&path);
        let device = Device::Cpu { threads: 2 };
        let logits = |tokens: &[i32], documents: Option<&[i32]>| -> Vec<f32> {
            let mut graph = Graph::new(Mode::Inference, Precision::F32);
            let count = documents.map_or(0, |documents| documents.iter().max().map_or(1, |most| *most as usize + 1));
            let call = Call::whole(1).tokens(tokens.len()).documents(count);
            let logits = model.architecture.build(&mut graph, &call).expect("a model").need("logits").expect("logits");
            let plan = device.plan(&graph, &[logits]).expect("a plan");
            let mut executor = Executor::new(plan, &device).expect("an executor");
            let mut state = State::new(&graph).expect("a state");
            model.load(&mut state).expect("loaded");
            executor.input_i32("tokens").expect("tokens").copy_from_slice(tokens);
            executor.input_i32("lengths").expect("lengths").fill(tokens.len() as i32);
            if let Some(documents) = documents {
                executor.input_i32("documents").expect("documents").copy_from_slice(documents);
                let place = |at: usize| documents[..at].iter().filter(|other| **other == documents[at]).count() as i32;
                if let Ok(positions) = executor.input_i32("positions") {
                    positions.iter_mut().enumerate().for_each(|(at, position)| *position = place(at));
                }
            }
            executor.run(&mut state, Run { seed: 0, step: 0 }).expect("a run");
            executor.output_slice(logits).expect("logits").to_vec()
        };
        let (first, second) = ([3, 9, 4], [7, 1, 12, 5, 2]);
        let whole: Vec<i32> = first.iter().chain(&second).copied().collect();
        let apart = logits(&whole, Some(&[0, 0, 0, 1, 1, 1, 1, 1]));
        let alone: Vec<f32> = [logits(&first, None), logits(&second, None)].concat();
        assert!(difference(&apart, &alone) < 1e-5, "{name}");
        assert!(difference(&logits(&whole, None), &alone) > 1e-2, "{name}: documents see each other otherwise");
    }
}
