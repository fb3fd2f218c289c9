//! Looking inside against PyTorch: hooks in `transformers`' own models (see `fixtures/make_inside.py`).

mod common;

use common::{Expected, open};
use vitreous_engine::{Device, Edit, EditValues, Executor, Graph, Intervention, Parameter};
use vitreous_explain::inside::{Given, Inside};
use vitreous_explain::{Choice, Structure, language};
use vitreous_models::{Call, Model};

const LIMIT: f64 = 1e-4;

fn device() -> Device {
    Device::Cpu { threads: 2 }
}

fn close(what: &str, got: impl IntoIterator<Item = f64>, expected: &[f32]) {
    let got: Vec<f64> = got.into_iter().collect();
    assert_eq!(got.len(), expected.len(), "{what}");
    for (at, (got, expected)) in got.iter().zip(expected).enumerate() {
        let expected = f64::from(*expected);
        assert!((got - expected).abs() <= LIMIT * expected.abs().max(1.0), "{what}[{at}]: {got}, not {expected}");
    }
    assert!(expected.iter().any(|x| x.abs() > 1e-2), "{what} says nothing");
}

fn tokens(expected: &Expected, name: &str) -> Vec<u32> {
    expected.integers(name).into_iter().map(|token| token as u32).collect()
}

/// The other input, of as many tokens, that patching takes values from.
fn other(expected: &Expected) -> Given {
    match expected.names("other_images").is_empty() {
        true => Given::Tokens(tokens(expected, "other")),
        false => Given::Image(expected.all("other_images")),
    }
}

fn given(expected: &Expected) -> Given {
    match expected.names("images").is_empty() {
        true => Given::Tokens(tokens(expected, "tokens")),
        false => Given::Image(expected.all("images")),
    }
}

fn choice(expected: &Expected) -> [usize; 3] {
    let choice: Vec<usize> = expected.integers("choice").into_iter().map(|number| number as usize).collect();
    [choice[0], choice[1], choice[2]]
}

/// Models whose norms are behind each sum (see `fixtures/make_post_norm.py`).
const POST_NORM: [&str; 3] = ["inside/bert_tags", "inside/bert_classes", "inside/gpt1"];
const MODELS: [&str; 4] = ["inside/gpt2", "inside/llama", "inside/vit", "inside/dinov2"];

#[test]
fn every_layer_says_what_the_final_norm_and_the_head_say() {
    for name in MODELS {
        let (model, expected) = (open(name), Expected::of(name));
        let mut inside = Inside::read(&model, given(&expected), &device()).expect("read");
        let lens = expected.all("lens");
        let places = inside.layers() + 1;
        let outputs = expected.outputs_of_head();
        let rows: Vec<&[f32]> = lens.chunks_exact(outputs).collect();
        let asked: Vec<Option<u32>> = (0..rows.len() / places).map(|at| Some((at % outputs) as u32)).collect();
        let readings = inside.lens(outputs, &asked).expect("a lens");
        let mut rows = rows.into_iter();
        for (place, reading) in readings.iter().enumerate() {
            assert_eq!(reading.layer, place.checked_sub(1));
            for (at, said) in reading.said.iter().enumerate() {
                let logits = rows.next().expect("a row");
                let sum: f64 = logits.iter().map(|&x| f64::from(x).exp()).sum();
                let mut shares = vec![0.0; outputs];
                said.top.iter().for_each(|(id, share)| shares[*id as usize] = f64::from(*share));
                let truth: Vec<f32> = logits.iter().map(|&x| (f64::from(x).exp() / sum) as f32).collect();
                close(&format!("{name}, place {place}, token {at}"), shares, &truth);
                let output = at % outputs;
                let rank = 1 + logits.iter().filter(|other| **other > logits[output]).count();
                let (share, got) = said.asked.expect("asked");
                assert!((f64::from(share) - f64::from(truth[output])).abs() < LIMIT);
                assert_eq!(got, rank, "{name}, place {place}, token {at}");
            }
        }
        assert!(rows.next().is_none());
    }
}

#[test]
fn parts_sum_to_the_logit_and_are_those_of_the_peer() {
    for name in MODELS.into_iter().chain(POST_NORM) {
        let (model, expected) = (open(name), Expected::of(name));
        let mut inside = Inside::read(&model, given(&expected), &device()).expect("read");
        let [token, output, _] = choice(&expected);
        let parts = inside.attribution(token, output).unwrap_or_else(|error| panic!("{name}: {error}"));
        assert!((parts.sum() - parts.logit).abs() < LIMIT, "{name}: {} and {}", parts.sum(), parts.logit);
        let heads = parts.layers.iter().flat_map(|layer| layer.heads.clone());
        let all = [expected.all("attribution.embedding"), expected.all("attribution.heads")].concat();
        close(name, std::iter::once(parts.embedding).chain(heads), &all);
        let biases = expected.all("attribution.attention_bias");
        let got: Vec<f64> = parts.layers.iter().map(|layer| layer.attention_bias).collect();
        assert!(got.iter().zip(&biases).all(|(a, b)| (a - f64::from(*b)).abs() < LIMIT), "{got:?}, not {biases:?}");
        close(name, parts.layers.iter().map(|layer| layer.mlp), &expected.all("attribution.mlp"));
        assert!((parts.bias - f64::from(expected.all("attribution.bias")[0])).abs() < LIMIT);
    }
}

#[test]
fn switching_off_heads_and_mlps_is_what_hooks_do() {
    for name in MODELS.into_iter().chain(POST_NORM) {
        let (model, expected) = (open(name), Expected::of(name));
        let mut inside = Inside::read(&model, given(&expected), &device()).expect("read");
        let [token, output, _] = choice(&expected);
        let effects = inside.head_effects(token, output).expect("effects");
        let without = |change: f64| change + effects.log_probability;
        let heads = effects.heads.iter().flatten().map(|change| without(*change));
        close(name, heads, &expected.all("without.heads"));
        close(name, effects.mlps.iter().map(|change| without(*change)), &expected.all("without.mlp"));
    }
}

#[test]
fn patching_between_two_inputs_is_what_hooks_do() {
    for name in MODELS.into_iter().chain(POST_NORM) {
        let (model, expected) = (open(name), Expected::of(name));
        let mut inside = Inside::read(&model, given(&expected), &device()).expect("read");
        let mut from = Inside::read(&model, other(&expected), &device()).expect("read");
        let [token, output, against] = choice(&expected);
        let effects = inside.patch_effects(&mut from, token, [output, against]).expect("effects");
        close(name, effects.patched.iter().flatten().copied(), &expected.all("patched"));
        if let Given::Tokens(_) = given(&expected) {
            // With the token that is read taken over after the last layer, the answer is the other's.
            assert!((effects.patched[inside.layers()][token] - effects.other).abs() < LIMIT);
            let mut shorter = Inside::read(&model, Given::Tokens(vec![1, 2]), &device()).expect("read");
            let refusal = inside.patch_effects(&mut shorter, token, [0, 1]).expect_err("refused").to_string();
            assert!(refusal.contains("but the one to patch from has 2"), "{refusal}");
        }
    }
}

#[test]
fn attention_between_tokens_of_language_models() {
    for name in &MODELS[..2] {
        let (model, expected) = (open(name), Expected::of(name));
        let structure = Structure::of(model.architecture.as_ref()).expect("a structure");
        let ids = tokens(&expected, "tokens");
        let (kept, scores) = language::attention(&model, &ids, &Choice::all(structure), &device()).expect("attention");
        let all = kept.iter().flat_map(|layer| layer.weights.iter().map(|&weight| f64::from(weight)));
        close(name, all, &expected.all("attention"));
        assert_eq!((scores.len(), scores[0].len()), (structure.layers, structure.heads));
    }
}

/// The logits, or one vector per token, of a model with interventions.
fn result(model: &Model, expected: &Expected, device: &Device) -> Vec<f32> {
    let given = given(expected);
    let count = if let Given::Tokens(ids) = &given { ids.len() } else { 1 };
    let mut graph = Graph::for_inference();
    let built = model.architecture.build(&mut graph, &Call::whole(1).tokens(count)).expect("a graph");
    let output = built.get("logits").unwrap_or_else(|| built.need("tokens").expect("tokens"));
    let plan = device.plan_with_fixed_weights(&graph, &[output]).expect("a plan");
    let lend = |parameter: &Parameter| model.weight(&parameter.name);
    let mut executor = Executor::with_weights(plan, device, lend).expect("an executor");
    match given {
        Given::Image(pixels) => executor.input("images").expect("images").copy_from_slice(&pixels),
        Given::Tokens(ids) => {
            let to = executor.input_i32("tokens").expect("tokens");
            to.iter_mut().zip(&ids).for_each(|(to, id)| *to = *id as i32);
            executor.input_i32("lengths").expect("lengths")[0] = ids.len() as i32;
            if let Ok(types) = executor.input_i32("token_types") {
                types.fill(0);
            }
        }
    }
    executor.infer().expect("a run");
    executor.output(output).expect("a result")
}

#[test]
fn a_model_with_an_edit_is_the_peer_with_a_hook() {
    let add = |x: f32| Edit::Add(EditValues::Numbers(vec![x].into()));
    let edits = [
        ("edited.mlp", "blocks.1.mlp", Edit::Scale(0.25)),
        ("edited.stream", "blocks.0", add(0.5)),
        ("edited.clamped", "blocks.1.attention.heads", Edit::Clamp { low: -0.1, high: 0.2 }),
    ];
    for name in MODELS {
        let expected = Expected::of(name);
        for (tensor, path, edit) in &edits {
            let model = open(name).with(path, edit.clone()).expect("a path");
            let got = result(&model, &expected, &device());
            close(&format!("{name} {tensor}"), got.into_iter().map(f64::from), &expected.all(tensor));
        }
    }
    let edits = [
        ("head", "blocks.1.attention.heads.1", Edit::Zero),
        ("head_scaled", "blocks.1.attention.heads.1", Edit::Scale(-2.0)),
        ("mlp", "blocks.2.mlp", Edit::Scale(0.5)),
        ("stream", "blocks.0", Edit::Clamp { low: -1.0, high: 1.0 }),
        ("embedding", "embedding", add(0.25)),
    ];
    let expected = Expected::of("inside/bert");
    for (tensor, path, edit) in edits {
        let model = open("inside/bert").with(path, edit).expect("a path");
        let got = result(&model, &expected, &device());
        close(&format!("bert {tensor}"), got.into_iter().map(f64::from), &expected.all(tensor));
    }
}

#[test]
fn a_wrong_path_is_answered_with_those_like_it() {
    let error = open("inside/llama").with("blocks.1.atention.heads.3", Edit::Zero).expect_err("refused").to_string();
    assert!(error.contains("`blocks.1.atention.heads.3`") && error.contains("blocks.1.attention.heads.3"), "{error}");
    let many = vec![Intervention::new("blocks.7", Edit::Zero)];
    assert!(open("inside/gpt2").with_interventions(many).is_err());
}

/// Edits one after the other, and of one head's weights: with all of a head's attention on its own token, the head gives that token's value.
#[test]
fn edits_add_up_in_their_order() {
    let expected = Expected::of("inside/gpt2");
    let add = |x: f32| Edit::Add(EditValues::Numbers(vec![x].into()));
    let with = |edits: &[(&str, Edit)]| {
        let edits = edits.iter().map(|(path, edit)| Intervention::new(*path, edit.clone())).collect();
        result(&open("inside/gpt2").with_interventions(edits).expect("paths"), &expected, &device())
    };
    let a = with(&[("blocks.1", Edit::Scale(2.0)), ("blocks.1", add(1.0))]);
    let b = with(&[("blocks.1", add(0.5)), ("blocks.1", Edit::Scale(2.0))]);
    assert!(a.iter().zip(&b).all(|(a, b)| (a - b).abs() < 1e-4), "2x + 1 is 2 (x + 0.5)");
    let plain = with(&[]);
    assert!(a.iter().zip(&plain).any(|(a, b)| (a - b).abs() > 1e-2));
    let weights = with(&[("blocks.1.attention.heads.2.weights", Edit::Zero)]);
    let head = with(&[("blocks.1.attention.heads.2", Edit::Zero)]);
    assert!(weights.iter().zip(&head).all(|(a, b)| (a - b).abs() < 1e-5), "no weights, no head");
}
