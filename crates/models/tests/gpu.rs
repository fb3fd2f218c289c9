//! Whole models on a GPU give what they give on the CPU: outputs, losses, and the gradient of every parameter, with the same dropout. Skipped,
//! visibly, where there is no GPU.

use vitreous_engine::random::{Stream, place_of};
use vitreous_engine::{
    CrossEntropyOptions, DType, Device, Executor, GradientOptions, Graph, Group, Mode, Optimizer, Precision, Run,
    State, StepOptions, Value, cuda,
};
use vitreous_models::{Architecture, Call, OpenOptions, Size, preset};

const RUN: Run = Run { seed: 3, step: 7 };

/// The GPU, if there is one.
fn gpu() -> Option<Device> {
    match cuda::Device::open(0) {
        Ok(device) => Some(Device::Cuda(device)),
        Err(error) => {
            eprintln!("skipped on the GPU: {error}");
            None
        }
    }
}

/// Random numbers that follow from a name.
fn fill(name: &str, scale: f32, values: &mut [f32]) {
    let stream = Stream::new(5, 0, place_of(name));
    for (index, four) in values.chunks_mut(4).enumerate() {
        let words = stream.four(index as u64);
        four.iter_mut().zip(words).for_each(|(to, word)| *to = scale * (word as f32 / (u32::MAX / 2) as f32 - 1.0));
    }
}

/// Builds a model, and gives its answers and its loss.
type Build<'b> = dyn Fn(&mut Graph) -> (Value, Value) + 'b;

/// What a run gives: each value by its name.
type Results = Vec<(String, Vec<f32>)>;

/// A model's outputs and the gradients of all of its parameters, dropout included.
fn learn(build: &Build, precision: Precision, recompute: bool, device: &Device) -> Results {
    let mut graph = Graph::new(Mode::Training, precision);
    let (logits, loss) = build(&mut graph);
    let options = StepOptions {
        optimizer: Optimizer::adamw(),
        group: &|_| Some(Group { decay: 0.0, rate_factor: 1.0 }),
        clip: None,
        ema: false,
        gradient: GradientOptions { recompute },
    };
    graph.accumulation_step(loss, &options).expect("gradients");
    let logits = graph.cast(logits, DType::F32).expect("f32");
    let mut state = State::new(&graph).expect("a state");
    for parameter in graph.parameters() {
        let scale = if parameter.shape.rank() > 1 { 0.08 } else { 0.3 };
        let values = state.parameter_mut(&parameter.name).expect("a parameter");
        fill(&parameter.name, scale, values);
        if parameter.shape.rank() == 1 && !parameter.name.ends_with("bias") {
            values.iter_mut().for_each(|value| *value += 1.0);
        }
    }
    let mut executor =
        Executor::new(device.plan(&graph, &[loss, logits]).expect("a plan"), device).expect("an executor");
    let planned = executor.plan().graph();
    let of = |(name, value): (&str, _)| {
        let value_type = planned.type_of(value);
        (name.to_string(), value_type.dtype, value_type.shape.elements())
    };
    let inputs: Vec<(String, DType, usize)> = planned.inputs().map(of).collect();
    // Once, recorded, and from the record: all three must give the same.
    for _ in 0..3 {
        for (name, dtype, count) in &inputs {
            match (dtype, name.as_str()) {
                (_, "accumulate") => executor.input(name).expect("an input")[0] = 0.0,
                (DType::I32, "source_lengths") => executor.input_i32(name).expect("an input").fill(5),
                (DType::I32, _) => {
                    let to = executor.input_i32(name).expect("an input").iter_mut();
                    to.zip(0..*count).for_each(|(to, place)| *to = (3 + place * 7 % 5) as i32);
                }
                _ => fill(name, 1.0, executor.input(name).expect("an input")),
            }
        }
        executor.run(&mut state, RUN).expect("a run");
    }
    let mut results = vec![
        ("loss".to_string(), executor.output(loss).expect("the loss")),
        ("logits".to_string(), executor.output(logits).expect("logits")),
    ];
    state.bring_home().expect("comes home");
    for parameter in graph.parameters() {
        results.push((parameter.name.clone(), state.gradient(&parameter.name).expect("a gradient").to_vec()));
    }
    results
}

/// How far each result is from what is expected, beside its length; gradients beside the longest of all, since some are sums that cancel.
fn distances<'r>(got: &'r Results, expected: &'r Results) -> impl Iterator<Item = (&'r str, f64)> {
    let length = |values: &[f32]| values.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt();
    let longest = expected[2..].iter().map(|(_, values)| length(values)).fold(0.0, f64::max);
    assert_eq!(got.len(), expected.len());
    got.iter().zip(expected).map(move |((what, got), (_, expected))| {
        let apart = got.iter().zip(expected).map(|(&a, &b)| f64::from(a - b).powi(2)).sum::<f64>().sqrt();
        let answer = what == "loss" || what == "logits";
        (what.as_str(), apart / if answer { length(expected) } else { length(expected).max(0.01 * longest) })
    })
}

fn check(name: &str, got: &Results, expected: &Results, limit: f64) {
    for (what, apart) in distances(got, expected) {
        assert!(apart <= limit, "{name}: {what} is {apart:.2e} apart, of which {limit:.0e} are allowed");
    }
}

/// In bf16, answers are as near to the CPU's as two ways of rounding are; gradients, in which roundings add up through all layers, are
/// that, or not much farther from those in f32 than the CPU's own are.
fn check_rounded(name: &str, got: &Results, build: &Build, exact: &Results) {
    let cpu = learn(build, Precision::Bf16, false, &Device::Cpu { threads: 2 });
    let all = distances(got, &cpu).zip(distances(got, exact)).zip(distances(&cpu, exact));
    for (((what, apart), (_, from_exact)), (_, usual)) in all {
        let is_answer = what == "loss" || what == "logits";
        let good = apart <= 2e-2 || !is_answer && from_exact <= 1.5 * usual;
        assert!(good, "{name}: {what} is {apart:.2e} from the CPU's, {from_exact:.2e} from f32 (the CPU {usual:.2e})");
    }
}

fn image_model(model: &dyn Architecture, batch: usize) -> impl Fn(&mut Graph) -> (Value, Value) {
    move |graph: &mut Graph| {
        let logits = model.build_result(graph, &Call::whole(batch)).expect("a model");
        let labels = graph.input("labels", [batch], DType::I32).expect("labels");
        let loss = graph.cross_entropy(logits, labels, CrossEntropyOptions::default()).expect("a loss");
        (logits, loss)
    }
}

/// Models of every kind, small enough for a test.
fn models() -> Vec<(&'static str, Box<dyn Architecture>, usize)> {
    let mut all = Vec::new();
    for (name, image, depth, batch) in [
        ("vit_cifar", None, 3, 8),
        ("vit_tiny_patch16_224", None, 2, 3),
        ("vit_tiny_patch16_224", Some(Size { height: 96, width: 64 }), 3, 5),
        ("deit_tiny_distilled_patch16_224", Some(Size::square(64)), 2, 4),
        ("vit_small_patch14_reg4_dinov2", Some(Size::square(56)), 2, 4),
    ] {
        let changes = OpenOptions::default().with("depth", depth).with("classes", 17).with_some("image", image);
        let model = preset(name).expect("a preset").with_settings(&changes.settings).expect("builds");
        all.push((name, model, batch));
    }
    let rates =
        OpenOptions::default().with("dropout", 0.2).with("attention_dropout", 0.3).with("stochastic_depth", 0.2);
    let dropping = all[0].1.with_settings(&rates.settings).expect("builds");
    all.push(("vit_cifar with much dropout", dropping, 8));
    all
}

#[test]
fn models_for_images_are_the_same_on_a_gpu() {
    let Some(gpu) = gpu() else { return };
    for (name, config, batch) in models() {
        let build = image_model(config.as_ref(), batch);
        let cpu = learn(&build, Precision::F32, false, &Device::Cpu { threads: 2 });
        check(name, &learn(&build, Precision::F32, false, &gpu), &cpu, 1e-4);
        check(name, &learn(&build, Precision::F32, true, &gpu), &cpu, 1e-4);
        check_rounded(name, &learn(&build, Precision::Bf16, false, &gpu), &build, &cpu);
    }
}

#[test]
fn a_translator_is_the_same_on_a_gpu() {
    let Some(gpu) = gpu() else { return };
    let words = OpenOptions::default().with("source_vocabulary", 40).with("target_vocabulary", 40);
    let model = preset("transformer_tiny").expect("a preset").with_settings(&words.settings).expect("builds");
    let build = |graph: &mut Graph| {
        let logits = model.build_result(graph, &Call::whole(4).tokens(9).target(7)).expect("a model");
        let wanted = graph.input("wanted", [4, 7], DType::I32).expect("an input");
        let loss = graph.cross_entropy(logits, wanted, CrossEntropyOptions::default()).expect("a loss");
        (logits, loss)
    };
    let cpu = learn(&build, Precision::F32, false, &Device::Cpu { threads: 2 });
    check("translator", &learn(&build, Precision::F32, false, &gpu), &cpu, 1e-4);
    check_rounded("translator", &learn(&build, Precision::Bf16, false, &gpu), &build, &cpu);
}

/// What the tests above do where there is no GPU: the CPU with one thread beside two.
#[test]
fn the_comparison_can_fail() {
    let (name, config, batch) = models().swap_remove(0);
    let build = image_model(config.as_ref(), batch);
    let one = learn(&build, Precision::F32, false, &Device::Cpu { threads: 1 });
    let mut two = learn(&build, Precision::F32, false, &Device::Cpu { threads: 2 });
    check(name, &two, &one, 1e-12);
    two[5].1.iter_mut().for_each(|value| *value *= 1.01);
    assert!(std::panic::catch_unwind(|| check(name, &two, &one, 1e-4)).is_err());
}
