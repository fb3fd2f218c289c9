//! What a GPU says of a model's inside is what the CPU says. Skipped, visibly, where there is no GPU.

mod common;

use common::{ALL, CPU, Expected, explain_on, gpu, near, open, open_with, settings, wide};
use vitreous_engine::Device;
use vitreous_explain::{Explainer, Explanation, Settings, Spread};
use vitreous_models::{Model, OpenOptions};

const LIMIT: f64 = 1e-4;

/// Panics unless two explanations are near in all that they say.
fn agree(name: &str, got: &Explanation, expected: &Explanation) {
    let compare = |what: &str, got: &[f32], expected: &[f32]| {
        near(&format!("{name}: {what}"), wide(got), expected, LIMIT);
    };
    let narrow = |numbers: &[f64]| -> Vec<f32> { numbers.iter().map(|&number| number as f32).collect() };
    compare("features", &got.features, &expected.features);
    assert_eq!(got.logits.is_some(), expected.logits.is_some(), "{name}");
    if let (Some(got), Some(expected)) = (&got.logits, &expected.logits) {
        compare("logits", got, expected);
    }
    assert_eq!(got.attention.len(), expected.attention.len(), "{name}");
    for (got, expected) in got.attention.iter().zip(&expected.attention) {
        assert_eq!((got.layer, &got.heads), (expected.layer, &expected.heads), "{name}");
        compare(&format!("attention of layer {}", got.layer), &got.weights, &expected.weights);
        compare("distance", &narrow(&got.distance), &narrow(&expected.distance));
        compare("entropy", &narrow(&got.entropy), &narrow(&expected.entropy));
    }
    assert_eq!(got.rollout.len(), expected.rollout.len(), "{name}");
    for (got, expected) in got.rollout.iter().zip(&expected.rollout) {
        assert_eq!((got.fusion, got.discard), (expected.fusion, expected.discard), "{name}");
        compare(&format!("rollout {:?} {}", got.fusion, got.discard), &got.patches, &expected.patches);
    }
    assert_eq!(got.relevance.len(), expected.relevance.len(), "{name}");
    for (got, expected) in got.relevance.iter().zip(&expected.relevance) {
        assert_eq!(got.class, expected.class, "{name}");
        compare(&format!("relevance for {:?}", got.class), &got.patches, &expected.patches);
    }
}

/// What a device says of both images of a fixture, by one explainer: the second time from recorded work.
fn both(device: &Device, model: &Model, expected: &Expected, memory: usize) -> Vec<Explanation> {
    let settings = Settings { memory, ..settings(model, expected) };
    let mut explainer = Explainer::new(model, settings, device).expect("ready");
    let images = [0, 1].map(|image| expected.of_image("images", image));
    images.iter().map(|pixels| explainer.explain(pixels).expect("explained")).collect()
}

#[test]
fn attention_rollout_and_relevance_are_the_same_on_a_gpu() {
    let Some(gpu) = gpu() else { return };
    for name in ALL {
        let expected = Expected::of(name);
        for qkv in ["fused", "separate"] {
            let model = open_with(name, &OpenOptions::default().with("qkv", qkv));
            // All heads of a layer at once, and one at a time.
            for memory in [1 << 20, 0] {
                let on_cpu = both(&CPU, &model, &expected, memory);
                for (got, expected) in both(&gpu, &model, &expected, memory).iter().zip(&on_cpu) {
                    agree(&format!("{name}, {qkv}"), got, expected);
                }
            }
        }
    }
}

#[test]
fn how_far_heads_look_is_the_same_on_a_gpu() {
    let Some(gpu) = gpu() else { return };
    let (model, expected) = (open("class_token"), Expected::of("class_token"));
    let [on_cpu, on_gpu] = [&CPU, &gpu].map(|device| {
        let mut explainer = Explainer::new(&model, settings(&model, &expected), device).expect("ready");
        let mut spread = Spread::new();
        explainer.spread(&expected.of_image("images", 0), &mut spread).expect("measured");
        let of_layers = spread.layers().into_iter().map(|layer| [layer.distance, layer.entropy].concat());
        of_layers.collect::<Vec<Vec<f64>>>().concat()
    });
    let on_cpu: Vec<f32> = on_cpu.iter().map(|&number| number as f32).collect();
    near("spread", on_gpu, &on_cpu, LIMIT);
}

/// What the tests above do where there is no GPU: the CPU beside itself, with a little of it changed.
#[test]
fn the_comparison_can_fail() {
    let (model, expected) = (open("class_token"), Expected::of("class_token"));
    let explain = || explain_on(&CPU, &model, settings(&model, &expected), &expected.of_image("images", 0));
    let right = explain();
    agree("class_token", &right, &explain());
    let changes: [fn(&mut Explanation); 4] = [
        |wrong| wrong.attention[1].weights[5] += 2e-4,
        |wrong| wrong.rollout[2].patches[3] += 2e-4,
        |wrong| wrong.relevance[0].patches[3] -= 2e-4,
        |wrong| wrong.relevance[0].patches[3] = f32::NAN,
    ];
    for change in changes {
        let mut wrong = right.clone();
        change(&mut wrong);
        assert!(std::panic::catch_unwind(|| agree("class_token", &wrong, &right)).is_err());
    }
}
