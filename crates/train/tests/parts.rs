//! Parts of the loop by themselves: the randomness of an update, and the lines of metrics that stay when a run is resumed.

use std::sync::Arc;

use vitreous_data::dataset::{Dataset, Splits, ValidationFrom};
use vitreous_data::image::{Channels, Image, ImageError, ImageForm};
use vitreous_data::loader::{ArrayValues, Batch, BatchPosition, Loader, NamedArray};
use vitreous_data::random::Random;
use vitreous_engine::{Device, Executor, Run};
use vitreous_train::metrics::{GradientMetrics, MetricsFile};
use vitreous_train::stepper::{StepSettings, Stepper};
use vitreous_train::tasks::classify::ClassifyTask;
use vitreous_train::{Recipe, Task};

const CPU: Device = Device::Cpu { threads: 1 };

fn task(overrides: &[&str]) -> ClassifyTask {
    let small = ["model.image=8", "model.patch=4", "model.dim=8", "model.depth=1", "model.heads=2", "model.mlp_dim=8"];
    let overrides: Vec<String> = small.iter().chain(overrides).map(|pair| pair.to_string()).collect();
    let recipe = Recipe::read("test", "", &overrides).expect("a sound recipe");
    let splits = Splits {
        train: Arc::new(Pictures),
        validation: Arc::new(Pictures),
        test: None,
        validation_from: ValidationFrom::ValidationPart,
        classes: ["a", "b", "c"].map(str::to_string).to_vec(),
        several_labels: false,
        kind: "pictures".to_string(),
        notes: Vec::new(),
    };
    ClassifyTask::new(recipe, splits, &CPU).expect("a task")
}

#[test]
fn batches_of_one_update_have_dropout_of_their_own() {
    let task = task(&["train.batch=2", "train.accumulate=2", "model.dropout=0.5"]);
    let batch = || {
        let values = ArrayValues::F32(vec![0.5; 2 * 3 * 8 * 8]);
        let images = NamedArray { name: "images", shape: vec![2, 3, 8, 8], values };
        let targets = NamedArray { name: "targets", shape: vec![2], values: ArrayValues::I32(vec![0, 1]) };
        Batch { arrays: vec![images, targets], samples: vec![0, 1], units: 2, ..Batch::default() }
    };
    let loss = |count: usize, step: u64| {
        let (mut stepper, mut state) = Stepper::new(&task, &CPU).expect("plans");
        let values = state.parameters_mut().iter_mut().enumerate();
        values.for_each(|(index, value)| *value = (index * 37 % 19) as f32 / 19.0 - 0.4);
        let next = &mut |_: &Executor| Ok(Some(batch()));
        let settings = StepSettings { batches: count, rate: 1e-3, ema_decay: None, ..Default::default() };
        stepper.step(&task, &mut state, settings, next, Run { seed: 1, step }).expect("a step").0.loss
    };
    let (alone, twice) = (loss(1, 3), loss(2, 3));
    assert_ne!(alone, twice);
    assert_eq!(twice, loss(2, 3));
    assert_ne!(alone, loss(1, 4));
}

/// Pictures of random bytes.
struct Pictures;

impl Dataset for Pictures {
    fn len(&self) -> usize {
        12
    }
    fn image(&self, index: usize, channels: Channels) -> Result<Image, ImageError> {
        let byte = |place: usize| (Random::new(1, index as u64, place as u64).below(256)) as u8;
        Image::new(8, 8, channels, (0..8 * 8 * channels.count()).map(byte).collect())
    }
    fn labels(&self, index: usize) -> &[u32] {
        &[[0], [1], [2]][index % 3]
    }
    fn name(&self, index: usize) -> String {
        format!("picture {index}")
    }
}

#[test]
fn a_model_learns_the_same_from_raw_batches() {
    let images =
        ["train.batch=4", "augment.erase=0.5", "augment.flip=0.5", "loss.label_smoothing=0.1", "data.threads=1"];
    let mixing = ["augment.crop=\"padded\"", "augment.mixup=0.8", "augment.cutmix=1.0", "augment.mix_mode=\"pair\""];
    let losses = |form: ImageForm| -> Vec<f64> {
        let task = task(&[&images[..], &mixing].concat()).in_form(form);
        let (mut stepper, mut state) = Stepper::new(&task, &CPU).expect("plans");
        let values = state.parameters_mut().iter_mut().enumerate();
        values.for_each(|(index, value)| *value = (index * 37 % 19) as f32 / 19.0 - 0.4);
        let mut loader = Loader::start(task.batches(), BatchPosition::default(), 3, 1);
        let mut next = |_: &Executor| Ok(loader.next().transpose()?);
        let settings = StepSettings { batches: 1, rate: 1e-2, ema_decay: None, ..Default::default() };
        let mut step =
            |step: u64| stepper.step(&task, &mut state, settings, &mut next, Run { seed: 1, step }).expect("a step");
        (0..9).map(|number| step(number).0.loss).collect()
    };
    let prepared = losses(ImageForm::Prepared);
    assert_eq!(prepared, losses(ImageForm::Raw));
    assert!(prepared[0] != prepared[1] && prepared.iter().all(|loss| loss.is_finite()), "{prepared:?}");
}

#[test]
fn lines_of_a_lost_part_are_dropped_and_a_torn_one_too() {
    let directory = std::env::temp_dir().join(format!("vitreous-metrics-{}", std::process::id()));
    std::fs::create_dir_all(&directory).expect("a folder");
    let path = directory.join("metrics.jsonl");
    let test = |step: u64| format!("{{\"step\":{step},\"epoch\":1.0,\"val_loss\":0.5,\"seconds\":1.0}}\n");
    let kept = format!("{{\"step\":1,\"loss\":2.0}}\n{}", test(2));
    // The last has all of its text, but not its end.
    std::fs::write(&path, format!("{kept}{}{{\"step\":4,\"lo\n{{\"step\":2}}", test(3))).expect("written");
    let mut metrics = MetricsFile::open(&path, 2).expect("opens");
    assert_eq!(metrics.history.evaluations.last().map(|line| line.step), Some(2));
    metrics.add(&GradientMetrics { step: 3, gradient_norms: Default::default() }).expect("written");
    let text = std::fs::read_to_string(&path).expect("a file");
    assert_eq!(text, format!("{kept}{{\"step\":3,\"gradient_norms\":{{}}}}\n"));
    std::fs::remove_dir_all(&directory).expect("removed");
}
