//! Gradient caching: a batch that goes through a model of images and texts in chunks has the gradients of the whole batch.

use std::sync::Arc;

use vitreous_data::dataset::{CaptionSplits, CaptionedImages, Dataset};
use vitreous_data::image::{Channels, Image, ImageError};
use vitreous_data::random::Random;
use vitreous_engine::{Device, Executor, Run, State};
use vitreous_train::stepper::{StepSettings, Stepper};
use vitreous_train::tasks::contrast::ContrastTask;
use vitreous_train::{Recipe, Task, TaskContext, TrainError};

const CPU: Device = Device::Cpu { threads: 2 };
const PAIRS: usize = 14;

/// Pictures of random bytes.
struct Pictures;

impl Dataset for Pictures {
    fn len(&self) -> usize {
        PAIRS
    }
    fn image(&self, index: usize, channels: Channels) -> Result<Image, ImageError> {
        let byte = |place: usize| (Random::new(1, index as u64, place as u64).below(256)) as u8;
        Image::new(8, 8, channels, (0..8 * 8 * channels.count()).map(byte).collect())
    }
    fn labels(&self, _index: usize) -> &[u32] {
        &[0]
    }
    fn name(&self, index: usize) -> String {
        format!("picture {index}")
    }
}

fn task(overrides: &[&str]) -> Result<ContrastTask, TrainError> {
    let small = [
        "model.image=8",
        "model.patch=4",
        "model.dim=12",
        "model.depth=2",
        "model.heads=2",
        "model.mlp_dim=20",
        "model.text_dim=10",
        "model.text_depth=1",
        "model.text_heads=2",
        "model.text_mlp_dim=16",
        "model.max_length=9",
        "text.vocabulary=600",
        "train.batch=12",
        "optimizer.clip=0.0",
        "data.threads=1",
    ];
    let overrides: Vec<String> = small.iter().chain(overrides).map(|pair| pair.to_string()).collect();
    let recipe = Recipe::read("test", "task = \"image-text\"", &overrides).expect("a sound recipe");
    let words = ["red", "green", "blue", "small", "large", "round"];
    // Some captions occur twice.
    let caption = |index: usize| format!("a {} and {} thing", words[index % 6], words[(index / 2 + 1) % 4]);
    let pairs = CaptionedImages { images: Arc::new(Pictures), captions: (0..PAIRS).map(caption).collect() };
    let splits = CaptionSplits { train: pairs.clone(), validation: pairs, classes: Vec::new(), notes: Vec::new() };
    ContrastTask::new(recipe, splits, &TaskContext { device: &CPU, threads: 1, resumed: None })
}

/// The loss of two batches, the gradients of their mean, and the parameters after the update.
fn step(overrides: &[&str]) -> (f64, Vec<f32>, Vec<f32>) {
    let task = task(overrides).expect("a task");
    let (mut stepper, mut state): (Stepper, State) = Stepper::new(&task, &CPU).expect("plans");
    task.initialise(&mut state).expect("values");
    let batches = task.batches();
    let order = batches.order(0);
    let next = &mut |_: &Executor| Ok(Some(batches.batch(&order, 0)?));
    let settings = StepSettings { batches: 1, rate: 1e-3, ema_decay: None, ..Default::default() };
    let (result, _) = stepper.step(&task, &mut state, settings, next, Run { seed: 3, step: 1 }).expect("a step");
    (result.loss, state.gradients().to_vec(), state.parameters().to_vec())
}

fn largest(values: &[f32]) -> f32 {
    values.iter().fold(0.0, |most, value| most.max(value.abs()))
}

#[test]
fn chunks_have_the_gradients_of_the_whole_batch() {
    let siglip = ["model.variant=\"siglip\"", "model.projection=12"];
    let clip = ["model.variant=\"clip\"", "model.projection=7"];
    let apart = ["loss.same_captions=false"];
    for variant in [[&clip[..], &[]].concat(), [&clip[..], &apart].concat(), [&siglip[..], &[]].concat()] {
        let (loss, gradients, parameters) = step(&[&variant[..], &["train.chunk=0"]].concat());
        assert!(loss > 0.1 && largest(&gradients) > 1e-3, "{loss}");
        for chunk in ["train.chunk=4", "train.chunk=1", "train.chunk=6"] {
            let (in_chunks, cached, after) = step(&[&variant[..], &[chunk]].concat());
            assert!((loss - in_chunks).abs() < 1e-5, "{variant:?} {chunk}: {loss} and {in_chunks}");
            let differences: Vec<f32> = gradients.iter().zip(&cached).map(|(a, b)| a - b).collect();
            let worst = largest(&differences) / largest(&gradients);
            assert!(worst < 1e-5, "{variant:?} {chunk}: gradients differ by {worst:e}");
            let changes: Vec<f32> = parameters.iter().zip(&after).map(|(a, b)| a - b).collect();
            assert!(largest(&changes) < 2e-3, "{variant:?} {chunk}");
        }
    }
}

/// What gradient caching is for: the activations of a chunk, not those of the batch.
#[test]
fn chunks_need_less_memory_than_the_whole_batch() {
    let planned = |chunk: &str| {
        let task = task(&["model.depth=6", "model.text_depth=6", "model.image=32", chunk]).expect("a task");
        Stepper::new(&task, &CPU).expect("plans").0.bytes()
    };
    let [whole, half, least] = ["train.chunk=0", "train.chunk=6", "train.chunk=1"].map(planned);
    assert!(least < half && half < whole, "{whole}, {half}, {least}");
    assert!(2 * least < whole, "a chunk of 1 in 12 needs {least} of {whole} bytes");
}

#[test]
fn a_chunk_that_does_not_divide_the_batch_is_refused() {
    let refused = Recipe::read("test", "task = \"image-text\"", &["train.chunk=100".to_string()]).expect_err("refused");
    assert!(refused.to_string().contains("it must divide train.batch"), "{refused}");
    let refused = Recipe::read("test", "task = \"image-text\"", &["evaluation.templates=[\"a photo\"]".to_string()]);
    assert!(refused.expect_err("refused").to_string().contains("a {} where the class belongs"));
    let error = task(&["train.batch=100"]).err().expect("refused").to_string();
    assert!(error.contains("a batch of 100 is more than the 14 training pairs"), "{error}");
}
