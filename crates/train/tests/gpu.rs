//! Training on a GPU follows training on the CPU, step by step, with the same dropout and the same batches. Skipped, visibly, where there is
//! no GPU.

use std::sync::Arc;

use vitreous_data::dataset::{Splits, builtin};
use vitreous_data::image::ImageForm;
use vitreous_data::loader::{ArrayValues, Batch, NamedArray};
use vitreous_engine::collective::threads::{Together, ranks};
use vitreous_engine::collective::{Alone, World};
use vitreous_engine::random::{Stream, place_of};
use vitreous_engine::{Device, Executor, Run, cuda};
use vitreous_train::stepper::{StepSettings, Stepper};
use vitreous_train::tasks::classify::ClassifyTask;
use vitreous_train::{Ranks, Recipe};

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

/// The loss of each step; behind them the lengths of the parameters and of their average.
fn losses(overrides: &[&str], device: &Device) -> Vec<f64> {
    train(overrides, device, &Ranks::default(), STEPS).numbers
}

/// What training leaves.
#[derive(Clone, PartialEq)]
struct Trained {
    numbers: Vec<f64>,
    parameters: Vec<u32>,
    /// How gradients got from GPU to GPU.
    carrier: Option<String>,
}

/// Trains for some steps, as one of some ranks.
fn train(overrides: &[&str], device: &Device, ranks: &Ranks, steps: u64) -> Trained {
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
    let (mut stepper, mut state) = Stepper::on_ranks(&task, device, ranks).expect("plans");
    let names: Vec<(String, usize)> = state.table().iter().map(|p| (p.name.clone(), p.shape.rank())).collect();
    for (name, rank) in names {
        let stream = Stream::new(4, 0, place_of(&name));
        let start = if rank == 1 && !name.ends_with("bias") { 1.0 } else { 0.0 };
        for (place, value) in state.parameter_mut(&name).expect("a parameter").iter_mut().enumerate() {
            *value = start + 0.05 * (stream.four(place as u64)[0] as f32 / (u32::MAX / 2) as f32 - 1.0);
        }
    }
    state.start_average();
    let mut numbers = (ranks.rank() as u64..steps * accumulate as u64).step_by(ranks.size());
    let mut losses = Vec::new();
    for step in 0..steps {
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
    let parameters = state.parameters().iter().map(|value| value.to_bits()).collect();
    Trained { numbers: losses, parameters, carrier: stepper.carrier().map(str::to_string) }
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

/// Updates of two batches, with small buckets so that there are many.
const TWO: [&str; 2] = ["train.accumulate=2", "train.bucket=0.02"];
const FEW: u64 = 10;

/// As each of two ranks that are threads of this process, with one GPU between them: their gradients go through host memory.
fn train_as_two(overrides: &[&str], device: &Device) -> Vec<Trained> {
    std::thread::scope(|scope| {
        let start = |link: Together| {
            scope.spawn(move || {
                let fault = Box::new(|sentence: &str| eprintln!("FAULT {sentence}"));
                let world = World::with(move || Ok(Box::new(link)), fault).expect("the other rank");
                train(overrides, device, &Ranks::of(Arc::new(world)), FEW)
            })
        };
        let started: Vec<_> = ranks(2).into_iter().map(start).collect();
        started.into_iter().map(|rank| rank.join().expect("a rank that does not fail")).collect()
    })
}

/// Two ranks with one GPU between them learn what one learns that accumulates, and the same on every repetition.
#[test]
fn two_ranks_on_one_gpu_learn_what_one_learns() {
    let device = match cuda::Device::open(0) {
        Ok(device) => Device::Cuda(device),
        Err(error) => return eprintln!("skipped on the GPU: {error}"),
    };
    let one = train(&TWO, &device, &Ranks::default(), FEW);
    assert_eq!(one.carrier, None, "one process alone");
    let two = train_as_two(&TWO, &device);
    eprintln!("two ranks on one GPU: {:.1e} apart; {:?}", apart(&two[0].numbers, &one.numbers), two[0].carrier);
    for rank in &two {
        assert!(rank.carrier.as_ref().is_some_and(|words| words.contains("through host memory")), "{:?}", rank.carrier);
        assert!(apart(&rank.numbers, &one.numbers) < 1e-6, "{:?} and {:?}", rank.numbers, one.numbers);
        assert!(rank.parameters == two[0].parameters, "ranks drift apart");
    }
    assert!(train_as_two(&TWO, &device) == two, "another run");
}

/// One rank whose gradients go through NCCL bucket by bucket learns what it learns without, to the bit.
#[test]
fn one_rank_with_nccl_learns_what_it_learns_without() {
    let device = match cuda::Device::open(0) {
        Ok(device) => Device::Cuda(device),
        Err(error) => return eprintln!("skipped on the GPU: {error}"),
    };
    if let Some(fault) = &cuda::Libraries::others()[0].fault {
        return eprintln!("skipped: {fault}");
    }
    for more in [&[][..], &["train.precision=bf16"]] {
        let overrides = [&TWO[..], more].concat();
        let expected = train(&overrides, &device, &Ranks::default(), FEW);
        let with_nccl = |overrides: &[&str]| {
            let world = World::with(|| Ok(Box::new(Alone)), Box::new(|sentence| eprintln!("FAULT {sentence}")));
            train(overrides, &device, &Ranks::of_any(Arc::new(world.expect("one rank"))), FEW)
        };
        for _ in 0..2 {
            let got = with_nccl(&overrides);
            assert!(got.carrier.as_ref().is_some_and(|words| words.contains("by NCCL 2.")), "{:?}", got.carrier);
            assert!(got.numbers == expected.numbers && got.parameters == expected.parameters, "{overrides:?}");
        }
        let narrow = [&overrides[..], &["train.wire=bf16"]].concat();
        let got = with_nccl(&narrow);
        assert!(got.parameters != expected.parameters && apart(&got.numbers, &expected.numbers) < 5e-2, "{narrow:?}");
        assert!(with_nccl(&narrow) == got, "another run");
    }
}

/// On processors, one rank of a world learns what a process alone does, and nothing of NCCL is loaded.
#[test]
fn one_rank_on_a_processor_needs_no_nccl() {
    let device = Device::Cpu { threads: 2 };
    let expected = train(&TWO, &device, &Ranks::default(), 2);
    let world = World::with(|| Ok(Box::new(Alone)), Box::new(|sentence| eprintln!("FAULT {sentence}")));
    let got = train(&TWO, &device, &Ranks::of_any(Arc::new(world.expect("one rank"))), 2);
    assert!(got == expected && got.carrier.is_none());
}

/// The curve of the first test is one of something that is learned, and another seed's dropout would be seen.
#[test]
fn the_curve_falls() {
    let losses = losses(&[], &Device::Cpu { threads: 2 });
    assert!(losses[49] < 0.7 * losses[0], "{losses:?}");
}
