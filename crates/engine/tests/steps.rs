//! What a training loop leans on: steps that are skipped, gradients that are added up, what is watched, and what went bad.

mod common;

use common::encoder::{Training, encoder, options, training, values};
use vitreous_engine::NotFiniteKind;
use vitreous_engine::cpu::Executor;
use vitreous_engine::{
    Device, GradientOptions, Graph, Group, Mode, MuonScale, Op, Optimizer, Plan, Precision, Run, State, StepOptions,
};

const OPTIMIZERS: [Optimizer; 4] = [
    Optimizer::AdamW { beta1: 0.9, beta2: 0.99, eps: 1e-6 },
    Optimizer::Sgd { momentum: 0.9, nesterov: true },
    Optimizer::Lamb { beta1: 0.9, beta2: 0.99, eps: 1e-6, trust_clip: false },
    Optimizer::Muon {
        momentum: 0.95,
        nesterov: true,
        scale: MuonScale::MatchAdamW,
        beta1: 0.9,
        beta2: 0.99,
        eps: 1e-6,
    },
];

const RUN: Run = Run { seed: 3, step: 4 };

struct Ready {
    training: Training,
    executor: Executor,
    state: State,
}

fn ready(optimizer: Optimizer, precision: Precision, clip: Option<f64>, batch: usize) -> Ready {
    let training = training(batch, 2, 8, precision, &StepOptions { clip, ..options(optimizer) });
    let plan = Plan::for_cpu(&training.graph, &[training.loss, training.step.gradient_norm]).unwrap();
    let mut executor = Executor::new(plan, 2).unwrap();
    let mut state = State::new(&training.graph).unwrap();
    common::fill(&mut executor, &mut state, &training.graph, &values(&training.graph));
    state.start_average();
    Ready { training, executor, state }
}

fn all_bits(state: &State) -> Vec<u32> {
    let (first, second) = state.moments();
    [state.parameters(), first, second, state.averages()].concat().iter().map(|x| x.to_bits()).collect()
}

/// Parameters, moments and averages stay to the bit, with and without clipping; a good batch then goes on.
#[test]
fn a_step_that_is_not_finite_changes_nothing() {
    for optimizer in OPTIMIZERS {
        for clip in [None, Some(0.5)] {
            let Ready { training, mut executor, mut state } = ready(optimizer, Precision::F32, clip, 3);
            executor.run(&mut state, Run { seed: 3, step: 0 }).unwrap();
            let before = all_bits(&state);
            let good = std::mem::replace(&mut executor.input("images").unwrap()[17], f32::NAN);
            executor.run(&mut state, Run { seed: 3, step: 1 }).unwrap();
            assert!(!executor.number(training.loss).unwrap().is_finite());
            assert!(!executor.number(training.step.gradient_norm).unwrap().is_finite());
            assert!(all_bits(&state) == before, "{optimizer:?}, clip {clip:?}");
            executor.input("images").unwrap()[17] = good;
            executor.run(&mut state, Run { seed: 3, step: 1 }).unwrap();
            assert!(all_bits(&state) != before, "{optimizer:?}, clip {clip:?}");
            assert!(state.parameters().iter().chain(state.averages()).all(|x| x.is_finite()));
        }
    }
}

#[test]
fn norms_of_gradients_by_parameter_are_parts_of_the_whole() {
    let Ready { training, mut executor, mut state } = ready(OPTIMIZERS[0], Precision::F32, None, 3);
    executor.run(&mut state, RUN).unwrap();
    let norms: Vec<(&str, f32)> = state.gradient_norms().collect();
    assert_eq!(norms.len(), training.graph.parameters().len());
    for &(name, norm) in &norms {
        let expected = state.gradient(name).unwrap().iter().map(|&g| f64::from(g).powi(2)).sum::<f64>().sqrt();
        assert!((f64::from(norm) - expected).abs() <= 1e-6 * expected && norm > 0.0, "{name}: {norm}");
    }
    let all = norms.iter().map(|&(_, norm)| f64::from(norm).powi(2)).sum::<f64>().sqrt();
    let whole = f64::from(executor.number(training.step.gradient_norm).unwrap());
    assert!((all - whole).abs() < 1e-5 * whole, "{all} for {whole}");
}

/// One micro-batch that is added to nothing is the step in one plan, to the bit, for any number of threads; and gradients do not wait
/// in memory until all are there.
#[test]
fn two_plans_do_what_one_does() {
    for precision in [Precision::F32, Precision::Bf16] {
        for optimizer in OPTIMIZERS {
            let mut one = ready(optimizer, precision, Some(0.5), 32);
            for step in 0..3 {
                one.executor.run(&mut one.state, Run { seed: 3, step }).unwrap();
            }
            for threads in [1, 2, 3] {
                let mut graph = Graph::new(Mode::Training, precision);
                let loss = encoder(&mut graph, 32, 2, 8).unwrap();
                let (update, _) = graph.update_step(&options(optimizer)).unwrap();
                graph.accumulation_step(loss, &options(optimizer)).unwrap();
                let plan = Plan::for_cpu(&graph, &[loss]).unwrap();
                let mut adder = Executor::new(plan, threads).unwrap();
                let mut updater = Executor::new(Plan::for_cpu(&update, &[]).unwrap(), threads).unwrap();
                let mut state = State::new(&update).unwrap();
                let mut values = values(&one.training.graph);
                values.insert("accumulate".to_string(), vec![0.0]);
                values.insert("gradient_scale".to_string(), vec![1.0]);
                common::fill(&mut adder, &mut state, &graph, &values);
                common::fill(&mut updater, &mut state, &update, &values);
                state.start_average();
                state.gradients_mut().fill(f32::NAN);
                for step in 0..3 {
                    adder.poison();
                    adder.run(&mut state, Run { seed: 3, step }).unwrap();
                    updater.poison();
                    updater.run(&mut state, Run { seed: 3, step }).unwrap();
                }
                assert!(all_bits(&state) == all_bits(&one.state), "{precision:?}, {optimizer:?}, {threads} threads");
            }
        }
    }
}

#[test]
fn a_gradient_is_added_as_soon_as_it_is_there() {
    let arena = |layers: usize| {
        let mut graph = Graph::for_training();
        let loss = encoder(&mut graph, 2, layers, 128).unwrap();
        let gradient = GradientOptions { recompute: true };
        graph.accumulation_step(loss, &StepOptions { gradient, ..options(Optimizer::adamw()) }).unwrap();
        let floats = graph.parameter_floats();
        let plan = Plan::for_cpu(&graph, &[loss]).unwrap();
        let nodes = plan.graph().nodes();
        let first = nodes.iter().position(|node| matches!(node.op, Op::AccumulateGradient(_))).unwrap();
        assert!(first < nodes.len() / 2, "{first} of {}", nodes.len());
        (plan.arena_bytes(), 4 * floats)
    };
    let (shallow, deep) = (arena(2), arena(8));
    assert!(deep.0 - shallow.0 < (deep.1 - shallow.1) / 4, "{deep:?}, {shallow:?}: bytes of arena and of parameters");
}

/// What is found where a number is planted: by what it is in, and in which layer.
#[test]
fn what_went_bad_is_named() {
    for (precision, batch) in [(Precision::F32, 3), (Precision::F32, 32), (Precision::Bf16, 32)] {
        let mut fresh = ready(OPTIMIZERS[0], precision, None, batch);
        assert_eq!(fresh.executor.find_non_finite(&mut fresh.state, RUN).unwrap(), None);
        let find = |change: &dyn Fn(&mut Executor, &mut State)| {
            let Ready { mut executor, mut state, .. } = ready(OPTIMIZERS[0], precision, None, batch);
            change(&mut executor, &mut state);
            let before = all_bits(&state);
            executor.run(&mut state, RUN).unwrap();
            let found = executor.find_non_finite(&mut state, RUN).unwrap().expect("something is not finite");
            assert!(all_bits(&state) == before);
            println!("{found}");
            found
        };
        let found = find(&|_, state| state.parameter_mut("blocks.1.fc1.weight").unwrap()[5] = f32::INFINITY);
        assert_eq!(
            (found.kind, found.path.as_str(), found.index),
            (NotFiniteKind::Parameter, "blocks.1.fc1.weight", 5)
        );
        assert_eq!(found.to_string(), "parameter `blocks.1.fc1.weight` is inf at 5");

        let found = find(&|executor, _| executor.input("images").unwrap()[40] = f32::NAN);
        assert_eq!((found.kind, found.path.as_str(), found.index), (NotFiniteKind::Input, "images", 40));

        // Each factor is finite, their product is not.
        let huge = |executor: &mut Executor, state: &mut State| {
            state.parameter_mut("blocks.1.attention.proj.weight").unwrap().fill(3e38);
            executor.input("images").unwrap()[0] = 1.0;
        };
        let found = find(&huge);
        assert_eq!((found.kind, found.path.as_str()), (NotFiniteKind::Activation, "blocks.1.attention.proj"));

        // Only the last sample is bad, in whichever tile it is: nine tokens of eight numbers a sample.
        let found = find(&|executor, state| {
            let images = executor.input("images").unwrap();
            let start = images.len() / batch * (batch - 1);
            images[start..].fill(1e38);
            state.parameter_mut("embed.weight").unwrap().fill(1e3);
        });
        assert_eq!((found.kind, found.path.as_str()), (NotFiniteKind::Activation, "embed"));
        assert_eq!(found.index, 72 * (batch - 1));
    }
}

/// The forward pass is fine and the backward pass is not: on its way, or in the gradient of a parameter itself.
#[test]
fn a_gradient_that_went_bad_is_named() {
    // 1e-36 · 1e30 · 1e30 forwards is finite, 1e30 · 1e30 backwards is not; nor is four times 3e38.
    let cases = [
        (1e30, 1.0, 1e-36, "gradient of `loss.scale` is inf at 0"),
        (1.0, 3e38, 0.0, "gradient of `layer.weight` is inf at 0"),
    ];
    for (factor, input, weights, expected) in cases {
        for accumulates in [false, true] {
            let mut g = Graph::for_training();
            let x = g.input("x", [4, 8], vitreous_engine::DType::F32).unwrap();
            let y = g.scope("layer", |g| {
                let weight = g.parameter("weight", [1, 8])?;
                g.linear(x, weight, None)
            });
            let y = g.scope("loss", |g| {
                let y = g.scale(y?, factor)?;
                g.scale(y, factor)
            });
            let loss = g.sum_leading(y.unwrap(), [1]).unwrap();
            let options = StepOptions { clip: None, ema: false, ..options(Optimizer::adamw()) };
            match accumulates {
                true => drop(g.accumulation_step(loss, &options).unwrap()),
                false => drop(g.training_step(loss, &options).unwrap()),
            }
            let mut executor = Executor::new(Plan::for_cpu(&g, &[loss]).unwrap(), 1).unwrap();
            let mut state = State::new(&g).unwrap();
            executor.input("x").unwrap().fill(input);
            state.parameters_mut().fill(weights);
            executor.run(&mut state, RUN).unwrap();
            assert!(executor.number(loss).unwrap().is_finite());
            let found = executor.find_non_finite(&mut state, RUN).unwrap().unwrap();
            assert_eq!(found.to_string(), expected);
        }
    }
}

/// Parameters, moments and averages after three updates by gradients that do not change. Between the parameters' gradients is no number.
fn updated(optimizer: Optimizer, device: &Device) -> Vec<f32> {
    let mut graph = Graph::new(Mode::Training, Precision::Bf16);
    for length in [1, 3, 4, 10, 1023, 16_384, 40_001] {
        graph.parameter(&format!("of_{length}"), [length]).unwrap();
    }
    let options = StepOptions {
        optimizer,
        group: &|_| Some(Group { decay: 0.05, rate_factor: 0.5 }),
        clip: Some(0.5),
        ema: true,
        gradient: GradientOptions::default(),
    };
    let (update, _) = graph.update_step(&options).unwrap();
    let mut state = State::new(&update).unwrap();
    let table = state.table().to_vec();
    state.gradients_mut().fill(f32::NAN);
    for parameter in &table {
        let count = parameter.shape.elements();
        let numbers = |name: String| common::random_values(&name, count).into_iter().map(|x| x as f32);
        let values = state.parameter_mut(&parameter.name).unwrap();
        values.iter_mut().zip(numbers(parameter.name.clone())).for_each(|(to, x)| *to = x);
        let gradients = &mut state.gradients_mut()[parameter.gradient_offset.unwrap()..][..count];
        gradients.iter_mut().zip(numbers(format!("gradient {}", parameter.name))).for_each(|(to, x)| *to = x);
    }
    state.start_average();
    let mut executor = vitreous_engine::Executor::new(device.plan(&update, &[]).unwrap(), device).unwrap();
    for step in 0..3 {
        for (name, value) in [("learning_rate", 0.01), ("gradient_scale", 0.7), ("ema_decay", 0.9)] {
            executor.input(name).unwrap()[0] = value;
        }
        executor.run(&mut state, Run { seed: 3, step }).unwrap();
    }
    state.bring_home().unwrap();
    let (first, second) = state.moments();
    let mut all = Vec::new();
    for parameter in &table {
        let count = parameter.shape.elements();
        all.extend_from_slice(state.parameter(&parameter.name).unwrap());
        all.extend_from_slice(state.average(&parameter.name).unwrap());
        for moments in [first, second].into_iter().filter(|moments| !moments.is_empty()) {
            all.extend_from_slice(&moments[parameter.gradient_offset.unwrap()..][..count]);
        }
    }
    all
}

#[test]
fn updates_on_a_gpu_are_those_of_the_cpu() {
    let clipping = Optimizer::Lamb { beta1: 0.9, beta2: 0.99, eps: 1e-6, trust_clip: true };
    for optimizer in OPTIMIZERS.into_iter().chain([clipping]) {
        let expected = updated(optimizer, &Device::Cpu { threads: 2 });
        assert!(expected.iter().all(|x| x.is_finite()));
        let Some(gpu) = common::gpu() else { continue };
        let got = updated(optimizer, &Device::Cuda(gpu.clone()));
        for (got, expected) in got.iter().zip(&expected) {
            assert!((got - expected).abs() <= 1e-5 * (1e-2 + expected.abs()), "{optimizer:?}: {got} for {expected}");
        }
    }
}
