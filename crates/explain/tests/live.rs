//! A model that is watched computes what the model computes: the same bits without edits, and with edits what a model with those edits gives.

mod common;

use common::{Expected, open};
use vitreous_engine::{Device, Edit, EditValues, Executor, Graph, Intervention, Parameter};
use vitreous_explain::inside::{Given, Inside, value_of};
use vitreous_explain::live::{AttentionGroup, Live, LiveChange, LiveEdit, LiveInput, MASKED, layer_groups};
use vitreous_models::{Call, Model};

fn device() -> Device {
    Device::Cpu { threads: 2 }
}

const MODELS: [&str; 6] =
    ["inside/gpt2", "inside/llama", "inside/vit", "inside/dinov2", "inside/bert_tags", "inside/bert_classes"];

fn tokens(expected: &Expected) -> Vec<u32> {
    expected.integers("tokens").into_iter().map(|token| token as u32).collect()
}

fn input(expected: &Expected) -> LiveInput {
    match expected.names("images").is_empty() {
        true => LiveInput::Text { ids: tokens(expected), types: Vec::new(), masked: Vec::new() },
        false => LiveInput::Image(expected.all("images").into()),
    }
}

fn given(expected: &Expected) -> Given {
    match expected.names("images").is_empty() {
        true => Given::Tokens(tokens(expected)),
        false => Given::Image(expected.all("images")),
    }
}

/// The model's result (logits, or features) by a plan of its own, with edits as a command does them.
fn alone(model: &Model, expected: &Expected, edits: &[Intervention]) -> Vec<f32> {
    let mut graph = Graph::for_inference();
    let ids = if expected.names("images").is_empty() { tokens(expected) } else { vec![0] };
    let call = Call::whole(1).tokens(ids.len());
    let built = graph.with_interventions(edits, |graph| model.architecture.build(graph, &call)).expect("builds");
    let result = built.result().expect("a result");
    let plan = device().plan_with_fixed_weights(&graph, &[result]).expect("plans");
    let lend = |parameter: &Parameter| {
        model.weight(&parameter.name).map_err(|error| vitreous_engine::Error::Machine(error.to_string()))
    };
    let mut executor = Executor::with_weights(plan, &device(), lend).expect("an executor");
    match given(expected) {
        // What an edit replaces is not computed, and reads nothing.
        Given::Image(pixels) => {
            if let Ok(to) = executor.input("images") {
                to.copy_from_slice(&pixels);
            }
        }
        Given::Tokens(ids) => {
            let ids: Vec<i32> = ids.iter().map(|&id| id as i32).collect();
            for (name, values) in
                [("tokens", &ids), ("lengths", &vec![ids.len() as i32]), ("token_types", &vec![0; ids.len()])]
            {
                if let Ok(to) = executor.input_i32(name) {
                    to.copy_from_slice(values);
                }
            }
        }
    }
    executor.infer().expect("runs");
    executor.output(result).expect("a result")
}

/// The same by a model that is watched.
fn watched(live: &mut Live, expected: &Expected, edits: &[LiveEdit]) -> Vec<f32> {
    let mut pass = live.pass(&input(expected), edits, &[]).expect("a pass");
    if pass.output("logits").is_none() && pass.output("features").is_some() {
        return pass.output("features").expect("features").0.to_vec();
    }
    let rows: Vec<usize> = (0..if expected.names("images").is_empty() { tokens(expected).len() } else { 1 }).collect();
    pass.logits(&rows).expect("logits").0
}

fn assert_near(what: &str, ours: &[f32], theirs: &[f32]) {
    assert_eq!(ours.len(), theirs.len(), "{what}");
    for (at, (a, b)) in ours.iter().zip(theirs).enumerate() {
        assert!((a - b).abs() <= 2e-5 * b.abs().max(1.0), "{what}[{at}]: {a}, not {b}");
    }
}

fn edit(path: &str, change: LiveChange) -> LiveEdit {
    LiveEdit { path: path.to_string(), change, tokens: None }
}

#[test]
fn without_edits_every_bit_is_that_of_a_plan_without_switches() {
    for name in MODELS {
        let (model, expected) = (open(name), Expected::of(name));
        let mut live = Live::new(&model, &device());
        let input = input(&expected);
        for path in
            ["embedding", "blocks.0", "blocks.1", "blocks.0.attention", "blocks.1.mlp", "blocks.0.attention.heads"]
        {
            let (_, theirs) = value_of(&model, &given(&expected), path, &device()).expect(path);
            let ours = live.pass(&input, &[], &[]).expect("a pass").value(path, None).expect(path).numbers;
            let bits = |numbers: &[f32]| numbers.iter().map(|x| x.to_bits()).collect::<Vec<_>>();
            assert_eq!(bits(&ours), bits(&theirs), "{name}: {path}");
        }
        let (_, theirs) =
            value_of(&model, &given(&expected), "blocks.1.attention.weights", &device()).expect("weights");
        let (ours, _) =
            live.pass(&input, &[], &[]).expect("a pass").attention(AttentionGroup::Own, 1).expect("weights");
        assert_eq!(ours, theirs, "{name}: weights");
        assert_near(name, &watched(&mut live, &expected, &[]), &alone(&model, &expected, &[]));
        assert_eq!(live.plans(), 1, "{name}");
    }
}

#[test]
fn edits_are_those_of_a_model_with_interventions() {
    for name in MODELS {
        let (model, expected) = (open(name), Expected::of(name));
        let mut live = Live::new(&model, &device());
        let plain = alone(&model, &expected, &[]);
        let lists = [
            vec![edit("blocks.0.attention.heads.1", LiveChange::Zero)],
            vec![edit("blocks.1.mlp", LiveChange::Scale(0.25)), edit("blocks.0.attention.heads.0", LiveChange::Zero)],
            vec![edit("blocks.0.mlp", LiveChange::Clamp { low: -0.05, high: 0.05 })],
            vec![edit("blocks.1.attention.weights", LiveChange::Scale(0.5))],
            vec![edit("blocks.0.attention.heads.1.weights", LiveChange::Zero)],
            vec![LiveEdit { tokens: Some(vec![1]), ..edit("blocks.0", LiveChange::Zero) }],
            vec![LiveEdit { tokens: Some(vec![0, 2]), ..edit("blocks.1.attention.heads.1", LiveChange::Scale(-2.0)) }],
            vec![edit("embedding", LiveChange::Scale(1.5)), edit("blocks.0.mlp", LiveChange::Zero)],
        ];
        for list in &lists {
            let interventions: Vec<Intervention> = list.iter().map(LiveEdit::intervention).collect();
            let theirs = alone(&model, &expected, &interventions);
            assert_near(&format!("{name}: {list:?}"), &watched(&mut live, &expected, list), &theirs);
            let changed = plain.iter().zip(&theirs).any(|(a, b)| (a - b).abs() > 1e-5);
            assert!(changed, "{name}: {list:?} says nothing");
        }
        // What was set is gone again.
        assert_near(name, &watched(&mut live, &expected, &[]), &plain);
    }
}

#[test]
fn values_of_another_input_are_taken_over() {
    for name in ["inside/gpt2", "inside/vit", "inside/bert_tags"] {
        let (model, expected) = (open(name), Expected::of(name));
        let mut live = Live::new(&model, &device());
        let (other, other_given) = match input(&expected) {
            LiveInput::Image(pixels) => {
                let turned: Vec<f32> = pixels.iter().rev().copied().collect();
                (LiveInput::Image(turned.clone().into()), Given::Image(turned))
            }
            LiveInput::Text { ids, types, masked } => {
                let ids: Vec<u32> = ids.iter().rev().copied().collect();
                (LiveInput::Text { ids: ids.clone(), types, masked }, Given::Tokens(ids))
            }
            other => panic!("{other:?}"),
        };
        for path in ["blocks.0.attention.heads.1", "blocks.1.mlp", "blocks.0", "blocks.0.attention.heads.0.weights"] {
            let (_, numbers) = value_of(&model, &other_given, path, &device()).expect(path);
            let numbers: std::sync::Arc<[f32]> = numbers.into();
            let taken = live.taken(&other, path).expect(path);
            assert_eq!(taken, numbers, "{name}: {path}");
            let theirs = Intervention::new(path, Edit::Replace(EditValues::Numbers(numbers)));
            let ours = watched(&mut live, &expected, &[edit(path, LiveChange::From(taken))]);
            assert_near(&format!("{name}: {path}"), &ours, &alone(&model, &expected, &[theirs]));
        }
    }
}

#[test]
fn each_layer_says_what_the_library_says() {
    for name in MODELS {
        let (model, expected) = (open(name), Expected::of(name));
        let mut live = Live::new(&model, &device());
        if model.architecture.signature().gives.len() == 1 {
            continue;
        }
        let theirs =
            Inside::read(&model, given(&expected), &device()).expect("read").lens(3, &[Some(1); 64]).expect("a lens");
        let rows: Vec<usize> = (0..theirs[0].said.len()).collect();
        let mut pass = live.pass(&input(&expected), &[], &[]).expect("a pass");
        let ours = pass.lens(&rows, 3, Some(1)).expect("a lens");
        assert_eq!(ours.len(), theirs.len(), "{name}");
        for (ours, theirs) in ours.iter().zip(&theirs) {
            assert_eq!(ours.layer, theirs.layer);
            for (a, b) in ours.said.iter().zip(&theirs.said) {
                let ids =
                    |said: &vitreous_explain::inside::Said| said.top.iter().map(|(id, _)| *id).collect::<Vec<_>>();
                assert_eq!(ids(a), ids(b), "{name}: {:?}", ours.layer);
                a.top.iter().zip(&b.top).for_each(|(a, b)| assert!((a.1 - b.1).abs() < 1e-5));
                assert_eq!(a.asked.map(|asked| asked.1), b.asked.map(|asked| asked.1));
            }
        }
    }
}

#[test]
fn parts_with_edits_are_those_of_an_edited_model() {
    let name = "inside/gpt2";
    let (model, expected) = (open(name), Expected::of(name));
    let edits = [edit("blocks.0.attention.heads.1", LiveChange::Zero)];
    let mut live = Live::new(&model, &device());
    watched(&mut live, &expected, &edits);
    let ours = live.inside(&input(&expected), &edits, |inside| inside.attribution(2, 5)).expect("parts");
    let edited = open(name).with("blocks.0.attention.heads.1", Edit::Zero).expect("an edit");
    let theirs = Inside::read(&edited, given(&expected), &device()).expect("read").attribution(2, 5).expect("parts");
    assert_eq!(ours, theirs);
    assert_eq!(ours.layers[0].heads[1], 0.0);
    // The weights came back.
    watched(&mut live, &expected, &[]);
}

#[test]
fn scores_are_the_weights_before_the_softmax() {
    for name in ["inside/gpt2", "inside/llama", "inside/vit"] {
        let (model, expected) = (open(name), Expected::of(name));
        let mut live = Live::new(&model, &device());
        let mut pass = live.pass(&input(&expected), &[], &[]).expect("a pass");
        let scores = pass.value("blocks.1.attention.scores", Some(1)).expect("scores");
        let weights = pass.value("blocks.1.attention.heads.1.weights", None).expect("weights");
        assert_eq!(scores.shape, weights.shape);
        let columns = scores.shape[1];
        for (scores, weights) in scores.numbers.chunks(columns).zip(weights.numbers.chunks(columns)) {
            let most = scores.iter().copied().fold(f32::NEG_INFINITY, f32::max);
            let sum: f32 = scores.iter().map(|score| (score - most).exp()).sum();
            for (score, weight) in scores.iter().zip(weights) {
                assert!(((score - most).exp() / sum - weight).abs() < 1e-5, "{name}");
                assert_eq!(*score <= MASKED, *weight == 0.0, "{name}");
            }
        }
        let heads = pass.value("blocks.1.attention.heads", Some(1)).expect("heads");
        let value = pass.value("blocks.1.attention.value", Some(1)).expect("values");
        let mixed = (0..value.shape[1]).map(|column| {
            (0..columns).map(|key| weights.numbers[key] * value.numbers[key * value.shape[1] + column]).sum::<f32>()
        });
        assert_near(name, &heads.numbers[..heads.shape[1]], &mixed.collect::<Vec<_>>());
    }
}

#[test]
fn any_named_value_is_there_when_it_is_asked_for() {
    for name in ["inside/gpt2", "inside/llama"] {
        let (model, expected) = (open(name), Expected::of(name));
        let mut live = Live::new(&model, &device());
        let paths = ["logits", "norm", "blocks.1.norm2"].map(str::to_string);
        let known = paths.iter().filter(|path| value_of(&model, &given(&expected), path, &device()).is_ok());
        let mut found = 0;
        for path in known {
            let (_, theirs) = value_of(&model, &given(&expected), path, &device()).expect(path);
            let mut pass = live.pass(&input(&expected), &[], std::slice::from_ref(path)).expect("a pass");
            assert_eq!(pass.value(path, None).expect(path).numbers, theirs, "{name}: {path}");
            found += 1;
        }
        assert!(found >= 2, "{name}");
    }
}

#[test]
fn what_is_not_there_is_said() {
    let (model, expected) = (open("inside/gpt2"), Expected::of("inside/gpt2"));
    let mut live = Live::new(&model, &device());
    let mut told = |edits: &[LiveEdit], paths: &[&str]| {
        let paths: Vec<String> = paths.iter().map(ToString::to_string).collect();
        live.pass(&input(&expected), edits, &paths).map(|_| ()).expect_err("an error").to_string()
    };
    let similar = told(&[edit("block.0.mlp", LiveChange::Zero)], &[]);
    assert!(similar.contains("blocks.0.mlp"), "{similar}");
    assert!(told(&[edit("blocks.0.attention.heads.99", LiveChange::Zero)], &[]).contains("heads.99"));
    assert!(told(&[], &["blocks.0.mpl"]).contains("blocks.0.mlp"));
    let token = LiveEdit { tokens: Some(vec![999]), ..edit("blocks.0.mlp", LiveChange::Zero) };
    assert!(told(&[token], &[]).contains("there is no token 999"));
    let both = [
        edit("blocks.0.mlp", LiveChange::Clamp { low: -1.0, high: 1.0 }),
        edit("blocks.0.mlp", LiveChange::From(vec![0.0; 4].into())),
    ];
    assert!(told(&both, &[]).contains("either clamped or taken"));
    let wrong = LiveInput::Text { ids: vec![1_000_000], types: Vec::new(), masked: Vec::new() };
    assert!(live.pass(&wrong, &[], &[]).is_err());
    assert!(live.pass(&LiveInput::Image(vec![0.0].into()), &[], &[]).is_err());
}

#[test]
fn groups_have_their_paths() {
    let model = open("inside/gpt2");
    let groups = layer_groups(&model).expect("groups");
    assert_eq!(groups.len(), 1);
    assert_eq!((groups[0].block.as_str(), groups[0].attention.as_str()), ("blocks.#", "blocks.#.attention"));
    assert_eq!((groups[0].layers, groups[0].heads), (3, 3));
}
