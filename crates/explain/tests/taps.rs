//! Asking for what is inside changes no other result by a bit, whatever is asked for, in whichever precision.

mod common;

use common::{ALL, Expected, bits, explain, open_with, settings};
use vitreous_engine::cpu::Executor;
use vitreous_engine::{DType, Graph, Mode, Op, Parameter, Plan, Precision, Value};
use vitreous_models::{Call, Model, ModelError, OpenOptions};

#[derive(Debug, thiserror::Error)]
enum Failure {
    #[error(transparent)]
    Engine(#[from] vitreous_engine::Error),
    #[error(transparent)]
    Model(#[from] ModelError),
}

/// A model's graph for so many images.
struct Built {
    graph: Graph,
    /// Logits if it has a head, and features; both f32.
    answers: Vec<Value>,
    /// Each layer's attention.
    attention: Vec<Value>,
}

fn build(model: &Model, precision: Precision, batch: usize) -> Built {
    let mut graph = Graph::new(Mode::Inference, precision);
    let built = model.architecture.build(&mut graph, &Call::whole(batch)).expect("builds");
    let answers = built.get("logits").into_iter().chain(built.get("features"));
    let answers: Vec<Value> = answers.collect();
    let answers = answers.into_iter().map(|answer| graph.cast(answer, DType::F32).expect("builds")).collect();
    let nodes = graph.nodes().iter().filter(|node| matches!(node.op, Op::Attention(_)));
    let attention = nodes.map(|node| graph.find(&node.path).expect("there")).collect();
    Built { graph, answers, attention }
}

/// As a command runs a model: weights lent, one plan.
fn run(model: &Model, graph: &Graph, outputs: &[Value], images: &[f32]) -> Vec<Vec<f32>> {
    let plan = Plan::for_cpu_with_fixed_weights(graph, outputs).expect("plans");
    let lend = |parameter: &Parameter| model.parameter(&parameter.name).map_err(Failure::from);
    let mut executor = Executor::with_weights(plan, 2, lend).expect("starts");
    executor.input("images").expect("an input").copy_from_slice(images);
    executor.infer().expect("runs");
    outputs.iter().map(|&output| executor.output(output).expect("a result")).collect()
}

/// Every fixture with one matrix for query, key and value, and with three.
fn models() -> Vec<(String, Model)> {
    let mut models = Vec::new();
    for name in ALL {
        for qkv in ["fused", "separate"] {
            let options = OpenOptions::default().with("qkv", qkv);
            models.push((format!("{name}, {qkv}"), open_with(name, &options)));
        }
    }
    models
}

fn images(model: &Model, count: usize) -> Vec<f32> {
    let signature = model.architecture.signature();
    let floats = count * signature.images().expect("images").floats();
    (0..floats).map(|i| ((i * 7919 % 1013) as f32 / 506.5) - 1.0).collect()
}

#[test]
fn one_plan_with_the_weights_of_layers_gives_the_same_answers() {
    for (name, model) in models() {
        for precision in [Precision::F32, Precision::Bf16] {
            // Sixteen run in chains, unless something is asked for that stands between.
            for batch in [1, 2, 16] {
                let images = images(&model, batch);
                let Built { mut graph, answers, attention } = build(&model, precision, batch);
                let plain: Vec<Vec<f32>> =
                    answers.iter().map(|&answer| run(&model, &graph, &[answer], &images).remove(0)).collect();
                let weights: Vec<Value> =
                    attention.iter().map(|&layer| graph.attention_weights(layer).expect("weights")).collect();
                // Every layer by itself, and all.
                let mut asked: Vec<Vec<Value>> = weights.iter().map(|&layer| vec![layer]).collect();
                asked.push(weights.clone());
                for taps in asked {
                    let outputs = [answers.clone(), taps].concat();
                    let results = run(&model, &graph, &outputs, &images);
                    for (got, expected) in results.iter().zip(&plain) {
                        assert_eq!(bits(got), bits(expected), "{name}, {precision:?}, {batch} images");
                    }
                    // A row of weights sums to 1.
                    for weights in &results[answers.len()..] {
                        let tokens = model.architecture.signature().images().expect("images").tokens();
                        let off = weights.chunks_exact(tokens).map(|row| (row.iter().sum::<f32>() - 1.0).abs());
                        assert!(off.fold(0.0, f32::max) < 1e-5);
                    }
                }
            }
        }
    }
}

#[test]
fn an_explanation_has_the_answers_of_a_plain_plan_and_the_weights_of_a_tap() {
    for (name, model) in models() {
        let expected = Expected::of(name.split(',').next().expect("a fixture"));
        let pixels = expected.of_image("images", 0);
        let explanation = explain(&model, settings(&model, &expected), &pixels);
        let Built { mut graph, answers, attention } = build(&model, Precision::F32, 1);
        let alone = |answer: Value| bits(&run(&model, &graph, &[answer], &pixels)[0]);
        let mut plain: Vec<Vec<u32>> = answers.iter().map(|&answer| alone(answer)).collect();
        assert_eq!(Some(bits(&explanation.features)), plain.pop(), "{name}");
        assert_eq!(explanation.logits.as_deref().map(bits), plain.pop(), "{name}");
        for (layer, attention) in attention.into_iter().enumerate() {
            let weights = graph.attention_weights(attention).expect("weights");
            let tapped = run(&model, &graph, &[weights], &pixels).remove(0);
            assert_eq!(bits(&explanation.attention[layer].weights), bits(&tapped), "{name}, layer {layer}");
        }
    }
}
