//! Interventions: what an edit makes of a value is what arithmetic makes of it, on every executor and with gradients; a graph without them
//! is the same graph; what nobody reads any more is not computed; mistakes name the paths that were meant.

mod common;

use std::sync::Arc;

use common::{Checks, check, leaf_values, relative_error, run_cpu};
use vitreous_engine::{
    AttentionInputs, AttentionOptions, DType, Device, Edit, EditValues, Executor, Graph, Intervention, Padding,
    Parameter, Plan, Result, Value,
};

const BATCH: usize = 2;
const TOKENS: usize = 5;
const WIDTH: usize = 12;
const HEADS: usize = 3;

fn dense(g: &mut Graph, name: &str, x: Value, to: usize) -> Result<Value> {
    let from = g.shape_of(x).columns();
    g.scope(name, |g| {
        let weight = g.parameter("weight", [to, from])?;
        g.linear(x, weight, None)
    })
}

/// One layer with names as families give them; the result is the stream after it. `kv_heads` of fewer than [`HEADS`] are shared.
fn layer(g: &mut Graph, packed: bool, kv_heads: usize) -> Result<Value> {
    let x = g.input("x", [BATCH, TOKENS, WIDTH], DType::F32)?;
    let lengths = g.input("lengths", [BATCH], DType::I32)?;
    let x = g.block("blocks.0", |g| {
        let mixed = g.named("attention", |g| {
            let inputs = match packed {
                true => AttentionInputs::Packed(dense(g, "qkv", x, 3 * WIDTH)?),
                false => AttentionInputs::Separate {
                    q: dense(g, "q", x, WIDTH)?,
                    k: dense(g, "k", x, WIDTH / HEADS * kv_heads)?,
                    v: dense(g, "v", x, WIDTH / HEADS * kv_heads)?,
                },
            };
            let padding = Padding::Lengths(lengths);
            let kv_heads = Some(kv_heads);
            let options =
                AttentionOptions { heads: HEADS, kv_heads, causal: true, padding, ..AttentionOptions::default() };
            let mixed = g.attention(inputs, &options)?;
            dense(g, "output", mixed, WIDTH)
        })?;
        let x = g.add(x, mixed)?;
        let y = g.named("mlp", |g| {
            let hidden = dense(g, "fc1", x, 2 * WIDTH)?;
            let hidden = g.gelu(hidden)?;
            dense(g, "fc2", hidden, WIDTH)
        })?;
        g.add(x, y)
    })?;
    g.name("blocks.0", x)
}

fn lengths(name: &str, position: usize) -> i32 {
    assert_eq!(name, "lengths");
    [TOKENS as i32, 3][position]
}

fn edits() -> Vec<Edit> {
    let numbers: Arc<[f32]> = (0..TOKENS * WIDTH).map(|i| (i as f32 * 0.37).sin()).collect();
    vec![
        Edit::Zero,
        Edit::Scale(-0.5),
        Edit::Clamp { low: -0.25, high: 0.5 },
        Edit::Clamp { low: f32::NEG_INFINITY, high: 0.25 },
        Edit::Multiply(EditValues::Numbers(Arc::from([0.75]))),
        Edit::Multiply(EditValues::Numbers(numbers[..WIDTH].into())),
        Edit::Multiply(EditValues::Input("patch".to_string())),
        Edit::Add(EditValues::Numbers(Arc::from([0.75]))),
        Edit::Replace(EditValues::Numbers(numbers.clone())),
        Edit::Replace(EditValues::Numbers(numbers[..WIDTH].into())),
        Edit::Replace(EditValues::Input("patch".to_string())),
        Edit::Add(EditValues::Input("patch".to_string())),
    ]
}

/// What an edit is, number by number.
fn by_hand(edit: &Edit, x: &[f64], patch: &[f64]) -> Vec<f64> {
    let number = |values: &EditValues, i: usize| match values {
        EditValues::Numbers(numbers) => f64::from(numbers[i % numbers.len()]),
        EditValues::Input(_) => patch[i],
    };
    let one = |(i, &x): (usize, &f64)| match edit {
        Edit::Zero => 0.0,
        Edit::Scale(factor) => x * f64::from(*factor),
        Edit::Clamp { low, high } => x.clamp(f64::from(*low), f64::from(*high)),
        Edit::Multiply(values) => x * number(values, i),
        Edit::Add(values) => x + number(values, i),
        Edit::Replace(values) => number(values, i),
    };
    x.iter().enumerate().map(one).collect()
}

#[test]
fn an_edit_is_what_arithmetic_says() {
    for edit in edits() {
        for tokens in [None, Some(vec![3, 1])] {
            let mut g = Graph::for_inference();
            let x = g.input("x", [BATCH, TOKENS, WIDTH], DType::F32).unwrap();
            let intervention = Intervention { path: "y".to_string(), edit: edit.clone(), tokens: tokens.clone() };
            let y = g.with_interventions(&[intervention], |g| g.name("y", x)).unwrap();
            let values = leaf_values(&g, &lengths);
            let y = g.scale(y, 1.0).unwrap();
            let got = run_cpu(&g, &[y], &values, 2).remove(0);
            let none = Vec::new();
            let edited = by_hand(&edit, &values["x"], values.get("patch").unwrap_or(&none));
            for (i, got) in got.iter().enumerate() {
                let chosen = tokens.as_ref().is_none_or(|tokens| tokens.contains(&(i / WIDTH % TOKENS)));
                let expected = if chosen { edited[i] } else { values["x"][i] };
                assert!((f64::from(*got) - expected).abs() < 1e-6, "{edit:?} {tokens:?} at {i}: {got}, not {expected}");
            }
        }
    }
}

/// All executors agree with the f64 reference, and gradients with finite differences, whatever is edited.
#[test]
fn edited_graphs_pass_the_harness_of_ops() {
    let part = Edit::Replace(EditValues::Numbers(vec![0.5; WIDTH / HEADS].into()));
    let weights = Edit::Replace(EditValues::Numbers(vec![0.125; TOKENS].into()));
    let cases = [
        ("blocks.0.attention.heads.1", Edit::Zero),
        ("blocks.0.attention.heads.2", Edit::Scale(2.5)),
        ("blocks.0.attention.heads.0", part),
        ("blocks.0.attention.heads", Edit::Clamp { low: -0.2, high: 0.3 }),
        ("blocks.0.attention.weights", Edit::Scale(0.5)),
        ("blocks.0.attention.heads.1.weights", weights),
        ("blocks.0.attention", Edit::Scale(3.0)),
        ("blocks.0.mlp.fc1.linear", Edit::Clamp { low: -0.5, high: 0.5 }),
        ("blocks.0", Edit::Add(EditValues::Input("steering".to_string()))),
        ("blocks.0.attention.heads", Edit::Multiply(EditValues::Input("switch".to_string()))),
    ];
    // Not in bf16: through a layer whose weights are of the size of one, rounding grows beyond any limit. Each op has its own test.
    let checks = Checks { f32: 1e-4, bf16: None, ..Checks::default() };
    for (path, edit) in cases {
        for (packed, kv_heads) in [(true, HEADS), (false, 1)] {
            let edits = [Intervention::new(path, edit.clone())];
            check(&|g| g.with_interventions(&edits, |g| layer(g, packed, kv_heads)), &lengths, checks);
        }
    }
}

/// Weights as a value of the graph, unchanged, give what attention itself gives.
#[test]
fn attention_by_its_weights_is_attention() {
    for (packed, kv_heads) in [(true, HEADS), (false, HEADS), (false, 1)] {
        let result = |edits: &[Intervention]| {
            let mut g = Graph::for_inference();
            let y = g.with_interventions(edits, |g| layer(g, packed, kv_heads)).unwrap();
            let values = leaf_values(&g, &lengths);
            run_cpu(&g, &[y], &values, 1).remove(0)
        };
        let same = Intervention::new("blocks.0.attention.weights", Edit::Scale(1.0));
        let (plain, by_weights) = (result(&[]), result(&[same]));
        let plain: Vec<f64> = plain.into_iter().map(f64::from).collect();
        let error = relative_error(&by_weights, &plain, 1e-3);
        assert!(error < 1e-5, "{error:e}");
    }
}

#[test]
fn a_graph_without_interventions_has_no_trace_of_them() {
    let plan = |with: bool| {
        let mut g = Graph::for_inference();
        let y = match with {
            true => g.with_interventions(&[], |g| layer(g, true, HEADS)).unwrap(),
            false => layer(&mut g, true, HEADS).unwrap(),
        };
        Plan::for_cpu(&g, &[y]).unwrap().to_string()
    };
    assert_eq!(plan(false), plan(true));
}

#[test]
fn what_nobody_reads_any_more_is_not_computed() {
    let labels = |edits: &[Intervention]| {
        let mut g = Graph::for_inference();
        let y = g.with_interventions(edits, |g| layer(g, true, HEADS)).unwrap();
        Plan::for_cpu(&g, &[y]).unwrap().to_string()
    };
    let whole = labels(&[]);
    assert!(whole.contains("mlp.fc1") && whole.contains("attention.qkv"), "{whole}");
    let without_mlp = labels(&[Intervention::new("blocks.0.mlp", Edit::Zero)]);
    assert!(!without_mlp.contains("mlp.fc1") && without_mlp.contains("attention.qkv"), "{without_mlp}");
    let patched = labels(&[Intervention::input("blocks.0.attention", "patch")]);
    assert!(patched.contains("mlp.fc1") && !patched.contains("attention.qkv"), "{patched}");
    let replaced = labels(&[Intervention::input("blocks.0", "stream")]);
    assert!(!replaced.contains("linear"), "{replaced}");
}

/// Whoever runs a model gives it all of its inputs, whatever was edited.
#[test]
fn inputs_that_nobody_reads_any_more_can_be_given() {
    for edit in [Intervention::new("blocks.0", Edit::Zero), Intervention::input("blocks.0", "stream")] {
        let mut g = Graph::for_inference();
        let y = g.with_interventions(&[edit], |g| layer(g, true, HEADS)).unwrap();
        let plan = Plan::for_cpu_with_fixed_weights(&g, &[y]).unwrap();
        let no_weights = |_: &Parameter| -> Result<&[f32]> { unreachable!("no product is left") };
        let mut executor = Executor::with_weights(plan, &Device::Cpu { threads: 1 }, no_weights).unwrap();
        executor.input("x").unwrap().fill(1.0);
        executor.input_i32("lengths").unwrap().fill(1);
        assert!(executor.input("y").is_err());
        executor.infer().unwrap();
        assert!(executor.output(y).unwrap().iter().all(|&number| number == 0.0));
    }
}

/// Of nested interventions, the inner ones are done first: a replacement from outside has the last word.
#[test]
fn the_outer_intervention_has_the_last_word() {
    let mut g = Graph::for_inference();
    let x = g.input("x", [2, 4], DType::F32).unwrap();
    let outer = [Intervention::input("y", "patch")];
    let inner = [Intervention::new("y", Edit::Scale(3.0))];
    let y = g.with_interventions(&outer, |g| g.with_interventions(&inner, |g| g.name("y", x))).unwrap();
    assert_eq!(g.path(y), "patch");
    // Names find the edited value.
    assert_eq!(g.find("y").unwrap(), y);
}

#[test]
fn mistakes_name_what_was_meant() {
    let message = |path: &str, edit: Edit, tokens: Option<Vec<usize>>| {
        let edits = [Intervention { path: path.to_string(), edit, tokens }];
        Graph::for_inference().with_interventions(&edits, |g| layer(g, true, HEADS)).unwrap_err().to_string()
    };
    let error = message("blocks.0.atention.heads.2", Edit::Zero, None);
    assert!(error.contains("no value is called `blocks.0.atention.heads.2`"), "{error}");
    assert!(error.contains("blocks.0.attention.heads.2"), "{error}");
    assert!(message("blocks.0.attention.heads.3", Edit::Zero, None).contains("heads.2"));
    assert!(message("blocks.0.mlp", Edit::Zero, Some(vec![5])).contains("no token 5: there are 5"));
    let wrong = Edit::Replace(EditValues::Numbers(vec![0.0; 7].into()));
    assert!(message("blocks.0.mlp", wrong, None).contains("7 numbers do not fit"));
    assert!(message("blocks.0", Edit::Clamp { low: 1.0, high: 0.0 }, None).contains("between 1 and 0"));
}
