//! Schedules, parameter groups and whole training runs beside PyTorch and timm (tests/fixtures/make_training.py).

mod hashed;

use hashed::hashed;
use serde_json::Value;
use vitreous_data::dataset::builtin;
use vitreous_data::loader::{ArrayValues, Batch, NamedArray};
use vitreous_engine::{Device, Executor, Graph, Mode, Precision, Run, State};
use vitreous_train::recipe::shipped;
use vitreous_train::schedule::Schedule;
use vitreous_train::stepper::{StepSettings, Stepper};
use vitreous_train::tasks::classify::ClassifyTask;
use vitreous_train::{Recipe, Task};

fn fixture() -> Value {
    serde_json::from_str(include_str!("fixtures/training.json")).expect("JSON")
}

fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().expect("an array").iter().map(|number| number.as_f64().expect("a number")).collect()
}

fn small(overrides: &[&str]) -> Recipe {
    let overrides: Vec<String> = overrides.iter().map(|pair| pair.to_string()).collect();
    shipped()[0].read(&overrides).expect("a sound recipe")
}

/// A task whose batches the test makes itself: only the number of classes is the data's.
fn task(recipe: Recipe) -> ClassifyTask {
    ClassifyTask::new(recipe, builtin(), &Device::Cpu { threads: 2 }).expect("a task")
}

fn schedule(recipe: &Recipe, steps_per_epoch: u64) -> Schedule {
    Schedule::new(&recipe.schedule, recipe.optimizer.lr, recipe.train.epochs, steps_per_epoch)
}

#[test]
fn schedules_are_those_of_pytorch() {
    for (kind, expected) in fixture()["schedules"].as_object().expect("schedules") {
        let kind = format!("schedule.kind={kind}");
        let recipe = small(&[&kind, "train.epochs=4", "schedule.warmup_steps=8", "schedule.final_lr=1e-5"]);
        let schedule = schedule(&recipe, 10);
        for (step, expected) in numbers(expected).into_iter().enumerate() {
            let rate = schedule.rate(step as u64);
            assert!((rate - expected).abs() < 1e-12, "{kind}, step {step}: {rate} and {expected}");
        }
    }
}

#[test]
fn warm_up_can_be_said_in_epochs() {
    let by_steps = schedule(&small(&["schedule.warmup_steps=15"]), 10);
    assert_eq!(schedule(&small(&["schedule.warmup_epochs=1.5"]), 10), by_steps);
    // Longer than the whole run: it rises to the end.
    let all = schedule(&small(&["schedule.warmup_epochs=1000"]), 10);
    assert_eq!(all.warmup, all.steps);
    assert!(all.rate(all.steps - 1) <= all.lr);
}

#[test]
fn rates_and_decay_of_each_parameter_are_those_of_timm() {
    let model = ["model.depth=4", "model.dim=32", "model.heads=2", "model.mlp_dim=128"];
    let rates = ["optimizer.layer_decay=0.75", "optimizer.weight_decay=0.05"];
    let overrides: Vec<String> = model.iter().chain(&rates).map(|pair| pair.to_string()).collect();
    let task = task(Recipe::read("test", "", &overrides).expect("a sound recipe"));
    let mut graph = Graph::new(Mode::Training, Precision::F32);
    task.build(&mut graph, &task.batches().groups()[0]).expect("builds");
    let fixture = fixture();
    let expected = fixture["layer_decay"].as_object().expect("parameters");
    assert_eq!(graph.parameters().len(), expected.len());
    for parameter in graph.parameters() {
        let theirs = match parameter.name.as_str() {
            "class_token" => "cls_token".to_string(),
            "positions" => "pos_embed".to_string(),
            name => name
                .replace("patch_embedding", "patch_embed.proj")
                .replace("attention.output", "attn.proj")
                .replace("attention", "attn"),
        };
        let [factor, decay] = numbers(&expected[&theirs])[..] else { panic!("two numbers") };
        let group = task.group(parameter).expect("it is trained");
        assert!((group.rate_factor - factor).abs() < 1e-9 && group.decay == decay, "{theirs}: {group:?}");
    }
}

fn start(state: &mut State) {
    let table: Vec<_> = state.table().iter().map(|p| (p.name.clone(), p.shape.clone())).collect();
    for (name, shape) in table {
        let values = state.parameter_mut(&name).expect("a parameter");
        match *shape.axes() {
            [rows, columns] => {
                let limit = (6.0 / (rows + columns) as f64).sqrt() as f32;
                let hashed = hashed(&name, rows * columns);
                values.iter_mut().zip(hashed).for_each(|(value, number)| *value = limit * number);
            }
            _ if name.contains("norm") && name.ends_with("weight") => values.fill(1.0),
            _ => values.fill(0.0),
        }
    }
}

fn batch(number: usize, count: usize) -> Batch {
    let labels: Vec<i32> = hashed(&format!("labels {number}"), count).iter().map(|&x| (x * 5.0 + 5.0) as i32).collect();
    let mut images = hashed(&format!("images {number}"), count * 3 * 32 * 32);
    for (image, &label) in images.chunks_exact_mut(3 * 32 * 32).zip(&labels) {
        image.iter_mut().for_each(|value| *value += (label as f32 - 4.5) / 3.0);
    }
    let images = NamedArray { name: "images", shape: vec![count, 3, 32, 32], values: ArrayValues::F32(images) };
    let targets = NamedArray { name: "targets", shape: vec![count], values: ArrayValues::I32(labels) };
    Batch { arrays: vec![images, targets], samples: (0..count).collect(), units: count, ..Batch::default() }
}

fn follow_pytorch(expected: &Value, overrides: &[&str], accumulate: usize) {
    let mut all = vec!["train.batch=16", "model.dropout=0", "model.attention_dropout=0", "train.epochs=20"];
    // What the script has, whatever the recipe says by now.
    all.extend(["schedule.warmup_steps=4", "loss.label_smoothing=0", "optimizer.weight_decay=0.1", "optimizer.clip=1"]);
    all.extend(["optimizer.name=adamw", "optimizer.lr=1e-3", "schedule.final_lr=0", "schedule.kind=cosine"]);
    all.extend(overrides);
    let recipe = small(&all);
    let schedule = schedule(&recipe, 1);
    let task = task(recipe);
    let (mut stepper, mut state) = Stepper::new(&task, &Device::Cpu { threads: 2 }).expect("plans");
    start(&mut state);
    let (losses, norms) = (numbers(&expected["losses"]), numbers(&expected["norms"]));
    for step in 0..20 {
        let mut batches = (0..accumulate).map(|part| batch(step * accumulate + part, 16));
        let run = Run { seed: 1, step: step as u64 };
        let settings = StepSettings {
            batches: accumulate,
            rate: schedule.rate(step as u64),
            ema_decay: None,
            ..Default::default()
        };
        let next = &mut |_: &Executor| Ok(batches.next());
        let (result, _) = stepper.step(&task, &mut state, settings, next, run).expect("runs");
        assert!((result.loss - losses[step]).abs() < 1e-4, "step {step}: {} and {}", result.loss, losses[step]);
        let apart = (result.grad_norm / norms[step] - 1.0).abs();
        assert!(apart < 1e-3, "step {step}: norm {} and {}", result.grad_norm, norms[step]);
    }
}

#[test]
fn twenty_steps_of_the_small_vit_have_pytorchs_losses() {
    follow_pytorch(&fixture()["twenty_steps"], &[], 1);
}

#[test]
fn twenty_steps_of_two_batches_each_have_pytorchs_losses() {
    let expected = &fixture()["twenty_smoothed_steps_of_two_batches"];
    follow_pytorch(expected, &["train.accumulate=2", "loss.label_smoothing=0.1"], 2);
}
