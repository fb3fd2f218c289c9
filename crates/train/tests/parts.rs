//! Parts of the loop by themselves: the randomness of an update, and the lines that stay when a run is taken up.

use std::sync::Arc;

use vitreous_data::dataset::Dataset;
use vitreous_data::image::augment::{Augment, Mixer};
use vitreous_data::image::{
    Channels, Image, ImageBatchOptions, ImageBatches, ImageError, ImageForm, ImageTargets, Preparation, Preprocess,
};
use vitreous_data::loader::{ArraySpec, ArrayValues, Batch, BatchPosition, Loader, NamedArray};
use vitreous_data::random::Random;
use vitreous_engine::{Device, Executor, Run};
use vitreous_train::Recipe;
use vitreous_train::metrics::{GradientMetrics, MetricsFile};
use vitreous_train::step::Stepper;

#[test]
fn batches_of_one_update_have_dropout_of_their_own() {
    let words = ["train.batch=2", "train.accumulate=2", "model.image=8", "model.patch=4", "model.dim=8"];
    let more = ["model.depth=1", "model.heads=2", "model.mlp_dim=8", "model.classes=3", "model.dropout=0.5"];
    let overrides: Vec<String> = words.iter().chain(&more).map(|pair| pair.to_string()).collect();
    let recipe = Recipe::read("test", "", &overrides).expect("a sound recipe");
    let batch = || {
        let images = NamedArray {
            values: ArrayValues::F32(vec![0.5; 2 * 3 * 8 * 8]),
            ..NamedArray::new(&ArraySpec::f32("images", [2, 3, 8, 8]))
        };
        let targets =
            NamedArray { values: ArrayValues::I32(vec![0, 1]), ..NamedArray::new(&ArraySpec::i32("targets", [2])) };
        Batch { arrays: vec![images, targets], samples: vec![0, 1], ..Batch::default() }
    };
    let loss = |batches: &[Batch], step: u64| {
        let (mut stepper, mut state) =
            Stepper::new(&recipe, ImageTargets::Class, None, &Device::Cpu { threads: 1 }).expect("plans");
        let values = state.parameters_mut().iter_mut().enumerate();
        values.for_each(|(index, value)| *value = (index * 37 % 19) as f32 / 19.0 - 0.4);
        let mut left = batches.iter().map(|_| batch());
        let next = &mut |_: &Executor| Ok(left.next());
        let result = stepper.step(&mut state, batches.len(), next, (1e-3, None), Run { seed: 1, step });
        result.expect("a step").0.loss
    };
    let (alone, twice) = (loss(&[batch()], 3), loss(&[batch(), batch()], 3));
    assert_ne!(alone, twice);
    assert_eq!(twice, loss(&[batch(), batch()], 3));
    assert_ne!(alone, loss(&[batch()], 4));
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
    let words = ["train.batch=4", "model.image=8", "model.patch=4", "model.dim=8", "augment.erase=0.5"];
    let more = ["model.depth=1", "model.heads=2", "model.mlp_dim=8", "model.classes=3", "augment.flip=0.5"];
    let mixing = ["augment.crop=\"padded\"", "augment.mixup=0.8", "augment.cutmix=1.0", "augment.mix_mode=\"pair\""];
    let overrides: Vec<String> = words.iter().chain(&more).chain(&mixing).map(|pair| pair.to_string()).collect();
    let recipe = Recipe::read("test", "", &overrides).expect("a sound recipe");
    let preprocess = Preprocess::default_for([8, 8], Channels::Rgb);
    let augment = Augment::new(&recipe.augment, &preprocess).expect("sound settings");
    let losses = |form: ImageForm| -> Vec<f64> {
        let options = ImageBatchOptions {
            dataset: Arc::new(Pictures),
            preparation: Preparation::Augmented(Box::new(augment.clone())),
            form,
            mixer: Mixer::new(&recipe.augment).expect("sound settings"),
            shape: [3, 8, 8],
            classes: 3,
            targets: ImageTargets::Probabilities { smoothing: 0.1 },
            batch: 4,
            seed: 1,
            shuffle: true,
        };
        let raw = Some(&options).filter(|_| form == ImageForm::Raw);
        let device = Device::Cpu { threads: 1 };
        let (mut stepper, mut state) = Stepper::new(&recipe, options.targets, raw, &device).expect("plans");
        let values = state.parameters_mut().iter_mut().enumerate();
        values.for_each(|(index, value)| *value = (index * 37 % 19) as f32 / 19.0 - 0.4);
        let source = Arc::new(ImageBatches::new(options.clone()));
        let mut loader = Loader::start(source, BatchPosition::default(), 3, 1);
        let mut next = |_: &Executor| Ok(loader.next().transpose()?);
        let mut step = |step: u64| stepper.step(&mut state, 1, &mut next, (1e-2, None), Run { seed: 1, step });
        (0..9).map(|number| step(number).expect("a step").0.loss).collect()
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
    assert_eq!(metrics.last_evaluation.as_ref().map(|test| test.step), Some(2));
    metrics.add(&GradientMetrics { step: 3, gradient_norms: Default::default() }).expect("written");
    let text = std::fs::read_to_string(&path).expect("a file");
    assert_eq!(text, format!("{kept}{{\"step\":3,\"gradient_norms\":{{}}}}\n"));
    std::fs::remove_dir_all(&directory).expect("removed");
}
