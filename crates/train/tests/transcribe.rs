//! Fine-tuning of speech models against `transformers` (`fixtures/make_transcribe.py`).

use std::path::{Path, PathBuf};

use serde_json::Value as Json;
use vitreous_engine::{Device, Executor, Role, Run, State};
use vitreous_models::{Model, OpenOptions};
use vitreous_train::stepper::{StepSettings, Stepper};
use vitreous_train::{Recipe, Task, TaskContext, TrainError};

const CPU: Device = Device::Cpu { threads: 2 };

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/transcribe").join(name)
}

fn task(overrides: &[&str]) -> Result<Box<dyn Task>, TrainError> {
    let init = format!("finetune.init={:?}", fixture("model").display().to_string());
    let data = format!("data.path={:?}", fixture("list.jsonl").display().to_string());
    let usual = [init.as_str(), &data, "train.batch=2", "data.validation_share=0.0", "optimizer.clip=0.0"];
    let overrides: Vec<String> = usual.iter().chain(overrides).map(|pair| pair.to_string()).collect();
    let recipe = Recipe::read("test", "task = \"transcribe\"", &overrides)?;
    let task = recipe.task;
    task.open(recipe, &TaskContext { device: &CPU, threads: 1, resumed: None })
}

fn step(task: &dyn Task) -> (f64, State) {
    let (mut stepper, mut state): (Stepper, State) = Stepper::new(task, &CPU).expect("plans");
    task.initialise(&mut state).expect("values");
    let batches = task.batches();
    let order = batches.order(0);
    let next = &mut |_: &Executor| Ok(Some(batches.batch(&order, 0)?));
    let settings = StepSettings { batches: 1, rate: 1e-3, ema_decay: None, ..Default::default() };
    let (result, _) = stepper.step(task, &mut state, settings, next, Run { seed: 3, step: 1 }).expect("a step");
    (result.loss, state)
}

/// From the files of recordings to the gradients: spectrograms, tokens, what is ignored, the model.
#[test]
fn loss_and_gradients_are_those_of_transformers() {
    let task = task(&["data.language=\"de\""]).expect("a task");
    let expected: Json =
        serde_json::from_slice(&std::fs::read(fixture("expected.json")).expect("a fixture")).expect("JSON");
    let batches = task.batches();
    assert_eq!(batches.batch(&batches.order(0), 0).expect("a batch").units as u64, expected["wanted"]);
    let (loss, state) = step(task.as_ref());
    assert!((loss - expected["loss"].as_f64().expect("a loss")).abs() < 1e-5, "{loss}");
    let theirs = Model::open(&fixture("gradients"), &OpenOptions::default()).expect("opens");
    let mut compared = 0;
    for parameter in theirs.parameters().iter().filter(|parameter| parameter.role() != Role::Constant) {
        let (ours, theirs) =
            (state.gradient(&parameter.name).expect("trained"), theirs.parameter(&parameter.name).expect("there"));
        let largest = theirs.iter().fold(0.0f32, |most, value| most.max(value.abs()));
        let difference = ours.iter().zip(theirs.iter()).fold(0.0f32, |most, (a, b)| most.max((a - b).abs()));
        assert!(difference <= 1e-5 * largest.max(1e-2), "{}: {difference:e} of {largest:e}", parameter.name);
        compared += usize::from(largest > 1e-4);
    }
    assert!(compared > 30, "{compared}");
}

#[test]
fn masks_are_drawn_by_seed_epoch_and_recording() {
    let masked = ["data.language=\"de\"", "augment.apply_spec_augment=true", "augment.mask_time_prob=0.4"];
    let mels = |overrides: &[&str], epoch: u64| {
        let task = task(overrides).expect("a task");
        let batches = task.batches();
        let batch = batches.batch(&batches.order(epoch), 0).expect("a batch");
        let mut rows: Vec<(usize, Vec<f32>)> = Vec::new();
        let mel = batch.f32("mel").expect("spectrograms");
        for (row, &sample) in mel.chunks_exact(mel.len() / 2).zip(&batch.samples) {
            rows.push((sample, row.to_vec()));
        }
        rows.sort_by_key(|(sample, _)| *sample);
        rows
    };
    assert_eq!(mels(&masked, 1), mels(&masked, 1));
    assert_ne!(mels(&masked, 1), mels(&masked, 2));
    assert_ne!(mels(&masked, 1), mels(&[&masked[..], &["train.seed=2"]].concat(), 1));
    let plain = mels(&masked[..1], 1);
    assert_eq!(plain, mels(&masked[..1], 2));
    // Masks are zeros, and nothing else is changed.
    for ((_, masked), (_, plain)) in mels(&masked, 1).iter().zip(&plain) {
        assert!(masked.iter().zip(plain).all(|(masked, plain)| masked == plain || *masked == 0.0));
    }
}

#[test]
fn what_does_not_fit_is_refused_with_a_sentence() {
    let refused = |overrides: &[&str]| task(overrides).err().expect("refused").to_string();
    assert!(refused(&[]).contains("name the one that is spoken with data.language=CODE"));
    assert!(refused(&["data.language=\"klingon\""]).contains("it must be a code or a name of a language"));
    assert!(refused(&["data.language=\"fr\""]).contains("does not know the language \"fr\""));
    assert!(refused(&["data.language=\"de\"", "train.batch=3"]).contains("a batch of 3 is more than the 2 training"));
    assert!(refused(&["augment.mask_time_prob=2"]).contains("augment.mask_time_prob"));
}
