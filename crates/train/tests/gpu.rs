//! Training on a GPU follows training on the CPU, step by step, with the same dropout and the same batches. Skipped, visibly, where there is
//! no GPU.

use vitreous_data::dataset::{Splits, builtin};
use vitreous_data::image::ImageForm;
use vitreous_data::loader::{ArrayValues, Batch, NamedArray};
use vitreous_engine::random::{Stream, place_of};
use vitreous_engine::{Device, Executor, Run, cuda};
use vitreous_train::Recipe;
use vitreous_train::stepper::{StepSettings, Stepper};
use vitreous_train::tasks::classify::ClassifyTask;

const STEPS: u64 = 50;
const BATCH: usize = 32;

/// Images of four kinds, which differ in their colours, and noise: something that can be learned.
fn batch(number: u64) -> Batch {
    let stream = Stream::new(9, number, place_of("images"));
    let (mut labels, mut images) = (Vec::new(), Vec::new());
    for image in 0..BATCH {
        let label = stream.four((1 << 40) + image as u64)[0] % 4;
        labels.push(label as i32);
        for pixel in 0..3 * 32 * 32 {
            let word = stream.four((image * 4096 + pixel) as u64)[0];
            let bright = if label as usize % 3 == pixel / 1024 { 0.6 * label as f32 } else { -0.5 };
            images.push(bright + word as f32 / (u32::MAX / 2) as f32 - 1.0);
        }
    }
    let images = NamedArray { name: "images", shape: vec![BATCH, 3, 32, 32], values: ArrayValues::F32(images) };
    let targets = NamedArray { name: "targets", shape: vec![BATCH], values: ArrayValues::I32(labels) };
    Batch { arrays: vec![images, targets], samples: (0..BATCH).collect(), units: BATCH, ..Batch::default() }
}

/// The loss of each step.
fn losses(overrides: &[&str], device: &Device) -> Vec<f64> {
    let usual = [
        "train.batch=32",
        "model.image=32",
        "model.patch=8",
        "model.dim=64",
        "model.heads=4",
        "model.mlp_dim=128",
        "model.depth=3",
        "model.dropout=0.1",
        "model.attention_dropout=0.1",
        "model.stochastic_depth=0.1",
        "optimizer.clip=1",
        "train.ema=0.9",
    ];
    let all: Vec<String> = usual.iter().chain(overrides).map(|pair| pair.to_string()).collect();
    let recipe = Recipe::read("test", "", &all).expect("a sound recipe");
    let accumulate = recipe.train.accumulate;
    // The batches are the test's own, and prepared: only the number of classes is the data's.
    let classes = (0..4).map(|class| format!("class {class}")).collect();
    let splits = Splits { classes, ..builtin() };
    let task = ClassifyTask::new(recipe, splits, device).expect("a task").in_form(ImageForm::Prepared);
    let (mut stepper, mut state) = Stepper::new(&task, device).expect("plans");
    let names: Vec<(String, usize)> = state.table().iter().map(|p| (p.name.clone(), p.shape.rank())).collect();
    for (name, rank) in names {
        let stream = Stream::new(4, 0, place_of(&name));
        let start = if rank == 1 && !name.ends_with("bias") { 1.0 } else { 0.0 };
        for (place, value) in state.parameter_mut(&name).expect("a parameter").iter_mut().enumerate() {
            *value = start + 0.05 * (stream.four(place as u64)[0] as f32 / (u32::MAX / 2) as f32 - 1.0);
        }
    }
    state.start_average();
    let mut numbers = 0..STEPS * accumulate as u64;
    let mut losses = Vec::new();
    for step in 0..STEPS {
        let next = &mut |_: &Executor| Ok(numbers.next().map(batch));
        let run = Run { seed: 1, step };
        let settings = StepSettings { batches: accumulate, rate: 3e-3, ema_decay: Some(0.9), ..Default::default() };
        let (result, _) = stepper.step(&task, &mut state, settings, next, run).expect("a step");
        assert!(result.grad_norm.is_finite());
        losses.push(result.loss);
    }
    state.bring_home().expect("comes home");
    losses.push(state.parameters().iter().map(|&value| f64::from(value).powi(2)).sum::<f64>().sqrt());
    losses.push(state.averages().iter().map(|&value| f64::from(value).powi(2)).sum::<f64>().sqrt());
    losses
}

/// How far two curves are apart at most, beside their values; behind the losses come the lengths of the parameters and of their average.
fn apart(one: &[f64], other: &[f64]) -> f64 {
    one.iter().zip(other).map(|(a, b)| (a - b).abs() / b.abs().max(0.1)).fold(0.0, f64::max)
}

#[test]
fn fifty_steps_follow_those_of_the_cpu() {
    let gpu = match cuda::Device::open(0) {
        Ok(device) => Device::Cuda(device),
        Err(error) => return eprintln!("skipped on the GPU: {error}"),
    };
    let cpu = Device::Cpu { threads: 2 };
    let kinds: [&[&str]; 4] = [
        &[],
        &["train.accumulate=2"],
        &["optimizer.name=sgd", "optimizer.nesterov=true"],
        &["optimizer.name=lamb", "train.recompute=true"],
    ];
    for overrides in kinds {
        let expected = losses(overrides, &cpu);
        let got = losses(overrides, &gpu);
        eprintln!("{overrides:?}: {:.4} to {:.4}, {:.1e} apart", got[0], got[49], apart(&got, &expected));
        assert!(apart(&got, &expected) < 5e-3, "{overrides:?}: {got:?} and {expected:?}");
        let narrow: Vec<&str> = overrides.iter().copied().chain(["train.precision=bf16"]).collect();
        let got = losses(&narrow, &gpu);
        eprintln!("{narrow:?}: {:.4} to {:.4}, {:.1e} apart", got[0], got[49], apart(&got, &expected));
        assert!(apart(&got, &expected) < 5e-2, "{narrow:?}: {got:?} and {expected:?}");
    }
}

/// The curve of the test above is one of something that is learned, and another seed's dropout would be seen.
#[test]
fn the_curve_falls() {
    let losses = losses(&[], &Device::Cpu { threads: 2 });
    assert!(losses[49] < 0.7 * losses[0], "{losses:?}");
}
