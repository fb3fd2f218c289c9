//! What models of text and audio are made of: rotary positions and convolution over time through the harness, and those and
//! attention with a cache against `transformers` and PyTorch, from the fixtures of `fixtures/make_sequences.py`.

mod common;
mod fixtures;

use std::collections::HashMap;

use common::{Checks, RUN, cases, check, leaf_values, no_numbers, reference_for, relative_error, run_cpu, run_cuda};
use fixtures::Fixture;
use proptest::prelude::*;
use vitreous_engine::ops::rotary::rotary_frequencies;
use vitreous_engine::{
    AttentionInputs, AttentionOptions, DType, Error, GradientOptions, Graph, Mode, Precision, Result, RotaryOptions,
    RotaryPairing, Sliding, Value,
};

const F32: DType = DType::F32;

/// An input as a projection stores it.
fn stored(g: &mut Graph, name: &str, shape: [usize; 3]) -> Result<Value> {
    let x = g.input(name, shape, F32)?;
    let dtype = if g.precision() == Precision::Bf16 { DType::Bf16 } else { F32 };
    g.cast(x, dtype)
}

proptest! {
    #![proptest_config(cases(32))]

    #[test]
    fn rotary(batch in 1usize..4, tokens in prop_oneof![Just(1usize), Just(3), Just(70)], heads in 1usize..4, pairs in prop_oneof![Just(1usize), Just(4), Just(9), Just(32)],
              rest in prop_oneof![Just(0usize), Just(1), Just(6)], halves: bool, offsets: bool, factor in prop_oneof![Just(1.0f32), Just(-0.7)]) {
        let build = |g: &mut Graph| -> Result<Value> {
            let x = stored(g, "x", [batch, tokens, heads * (2 * pairs + rest)])?;
            let offsets = if offsets { Some(g.input("offsets", [batch], DType::I32)?) } else { None };
            let pairing = if halves { RotaryPairing::Halves } else { RotaryPairing::Pairs };
            let frequencies = rotary_frequencies(10_000.0, 2 * pairs);
            g.rotary(x, &RotaryOptions { heads, frequencies, pairing, factor, offsets })
        };
        check(&build, &|_, position| [0, 5000, -3, 131_000][position % 4], Checks::default());
    }

    #[test]
    fn unfold(batch in 1usize..4, time in prop_oneof![Just(1usize), Just(4), Just(17), Just(90)], channels in prop_oneof![Just(1usize), Just(3), Just(16)],
              kernel in 1usize..5, stride in 1usize..4, padding in 0usize..4) {
        let sliding = Sliding { kernel, stride, padding };
        prop_assume!(sliding.positions(time).is_some());
        check(&|g: &mut Graph| {
            let x = stored(g, "x", [batch, time, channels])?;
            g.unfold(x, sliding)
        }, &no_numbers, Checks::default());
    }

    #[test]
    fn conv1d(batch in 1usize..3, time in 4usize..40, channels in prop_oneof![Just(1usize), Just(5), Just(16)], out in prop_oneof![Just(3usize), Just(16)],
              kernel in 1usize..5, stride in 1usize..4, padding in 0usize..3, bias: bool) {
        check(&|g: &mut Graph| {
            let x = g.input("x", [batch, time, channels], F32)?;
            let weight = g.parameter("weight", [out, channels * kernel])?;
            let bias = if bias { Some(g.parameter("bias", [out])?) } else { None };
            g.conv1d(x, weight, bias, Sliding { kernel, stride, padding })
        }, &no_numbers, Checks::default());
    }
}

/// Queries and keys rotated, then attention with fewer key/value heads: a layer of LLaMA, whose gradient goes through all of it.
#[test]
fn rotated_queries_and_keys() {
    let (batch, tokens, heads, kv_heads, head_dim) = (3, 20, 4, 2, 16);
    let build = |g: &mut Graph| -> Result<Value> {
        let offsets = g.input("offsets", [batch], DType::I32)?;
        let frequencies = rotary_frequencies(10_000.0, head_dim);
        let mut rotated = |name: &str, heads: usize| {
            let x = stored(g, name, [batch, tokens, heads * head_dim])?;
            let frequencies = frequencies.clone();
            g.rotary(x, &RotaryOptions { heads, frequencies, offsets: Some(offsets), ..RotaryOptions::default() })
        };
        let (q, k) = (rotated("q", heads)?, rotated("k", kv_heads)?);
        let v = stored(g, "v", [batch, tokens, kv_heads * head_dim])?;
        let options = AttentionOptions { heads, kv_heads: Some(kv_heads), causal: true, ..AttentionOptions::default() };
        g.attention(AttentionInputs::Separate { q, k, v }, &options)
    };
    let checks = Checks { least: 0.1, bf16: Some(2e-2), all_on_gpu: true, ..Checks::default() };
    check(&build, &|_, position| [0, 7, 4000][position], checks);
}

/// Only the distance counts: a query and a key that are shifted together have the same product.
#[test]
fn rotation_depends_on_distance() {
    let product = |positions: [i32; 2]| {
        let mut graph = Graph::for_inference();
        let offsets = Some(graph.input("offsets", [2], DType::I32).unwrap());
        let x = graph.input("x", [2, 1, 16], F32).unwrap();
        let frequencies = rotary_frequencies(10_000.0, 16);
        let y = graph.rotary(x, &RotaryOptions { heads: 1, frequencies, offsets, ..Default::default() }).unwrap();
        let values = leaf_values(&graph, &|_, position| positions[position]);
        let y = run_cpu(&graph, &[y], &values, 1).remove(0);
        (0..16).map(|i| f64::from(y[i]) * f64::from(y[16 + i])).sum::<f64>()
    };
    let here = product([10, 3]);
    for shift in [1, 100, 3000] {
        let there = product([10 + shift, 3 + shift]);
        assert!((there - here).abs() < 1e-3, "{shift}: {there} for {here}");
    }
    assert!((product([11, 3]) - here).abs() > 1e-2);
}

/// Convolutions as in Whisper's encoder, and rotary positions, in a chain of kernels that runs tile by tile.
#[test]
fn convolutions_in_a_chain() {
    let (batch, time, channels, dim) = (32, 24, 8, 16);
    let build = |g: &mut Graph| -> Result<Value> {
        let x = g.input("x", [batch, time, channels], F32)?;
        let first = g.parameter("first", [dim, 3 * channels])?;
        let second = g.parameter("second", [dim, 3 * dim])?;
        let h = g.conv1d(x, first, None, Sliding { kernel: 3, stride: 1, padding: 1 })?;
        let h = g.gelu(h)?;
        let h = g.conv1d(h, second, None, Sliding { kernel: 3, stride: 2, padding: 1 })?;
        let frequencies = rotary_frequencies(10_000.0, 8);
        let offsets = Some(g.input("offsets", [batch], DType::I32)?);
        g.rotary(h, &RotaryOptions { heads: 2, frequencies, offsets, ..RotaryOptions::default() })
    };
    let mut graph = Graph::for_inference();
    let y = build(&mut graph).unwrap();
    let plan = vitreous_engine::Plan::for_cpu(&graph, &[y]).unwrap();
    let inside = |name: &str| {
        let node = plan.graph().nodes().iter().position(|node| node.op.name() == name).unwrap();
        plan.chains().iter().any(|chain| (chain.first..=chain.last).contains(&node))
    };
    assert!(inside("unfold") && inside("rotary"), "{plan}");
    check(&build, &|_, position| 10 * position as i32, Checks { bf16: Some(3e-2), ..Checks::default() });
}

#[test]
fn broken_rules_are_named() {
    let rotary = |columns: usize, options: &dyn Fn(&mut Graph) -> RotaryOptions| {
        let mut g = Graph::for_inference();
        let x = g.input("x", [2, 3, columns], F32).unwrap();
        let options = options(&mut g);
        match g.rotary(x, &options) {
            Err(Error::Rule { rule, .. }) => rule,
            other => panic!("{other:?}"),
        }
    };
    let options = |heads: usize, count: usize| {
        move |_: &mut Graph| RotaryOptions { heads, frequencies: vec![1.0; count], ..RotaryOptions::default() }
    };
    assert_eq!(rotary(10, &options(3, 1)), "the 3 heads must divide dim 10");
    assert_eq!(rotary(8, &options(2, 3)), "two values per frequency, 6, must be between 2 and head_dim, 4");
    assert!(rotary(8, &options(2, 0)).contains("must be between 2"));
    let infinite = |_: &mut Graph| RotaryOptions { heads: 2, frequencies: vec![f32::NAN], ..RotaryOptions::default() };
    assert_eq!(rotary(8, &infinite), "frequencies and factor must be finite");
    let offsets = |g: &mut Graph| {
        let offsets = Some(g.input("offsets", [3], DType::I32).unwrap());
        RotaryOptions { heads: 2, frequencies: vec![1.0], offsets, ..RotaryOptions::default() }
    };
    assert_eq!(rotary(8, &offsets), "offsets must be i32 [batch]");

    let convolution = |time: usize, weight: [usize; 2], sliding: Sliding| {
        let mut g = Graph::for_inference();
        let x = g.input("x", [2, time, 4], F32).unwrap();
        let weight = g.parameter("weight", weight).unwrap();
        g.conv1d(x, weight, None, sliding).unwrap_err().to_string()
    };
    let three = Sliding { kernel: 3, stride: 1, padding: 0 };
    let error = convolution(5, [6, 8], three);
    assert!(error.contains("conv1d at `conv1d`: the weight must be [out, channels·3]"), "{error}");
    let error = convolution(2, [6, 12], three);
    assert!(error.contains("unfold at `unfold`") && error.contains("a kernel of 3 that fits"), "{error}");
    assert!(convolution(5, [6, 12], Sliding { stride: 0, ..three }).contains("at least 1"));
}

/// Gradients of `Σ y · seed` by some leaves, besides y itself, in f64 and on every device, against what a peer found.
fn compare(
    graph: &mut Graph,
    y: Value,
    fixture: &Fixture,
    kind: &str,
    leaves: &[&str],
    values: &HashMap<String, Vec<f64>>,
) {
    let shape = graph.shape_of(y).clone();
    let seed: Vec<f32> = fixture.get(kind, "seed").iter().map(|&x| x as f32).collect();
    let seed = graph.constant("seed", shape, seed).unwrap();
    let wanted: Vec<Value> = leaves.iter().map(|name| graph.find(name).unwrap()).collect();
    let gradients = graph.gradients_from(y, seed, &wanted, GradientOptions::default()).unwrap();
    let names = std::iter::once("output".to_string()).chain(leaves.iter().map(|name| format!("d_{name}")));
    let all: Vec<Value> = std::iter::once(y).chain(gradients).collect();
    let truth = reference_for(graph, values).run(graph, RUN).unwrap();
    let mut results = vec![("the CPU", run_cpu(graph, &all, values, 2))];
    results.extend(common::gpu().map(|device| ("the GPU", run_cuda(graph, &all, values, device))));
    for (index, name) in names.enumerate() {
        let expected = fixture.get(kind, &name);
        let in_f64: Vec<f32> = truth.get(all[index]).data.iter().map(|&x| x as f32).collect();
        let found = std::iter::once(("the reference", &in_f64));
        for (device, got) in found.chain(results.iter().map(|(device, results)| (*device, &results[index]))) {
            let error = relative_error(got, expected, 1e-3);
            assert!(error < 1e-5, "{kind} {name} on {device}: {error:e}");
        }
    }
}

#[test]
fn attention_with_a_cache_equals_llama_s_and_mistral_s() {
    let fixture = Fixture::load("cached_attention");
    let values = fixture.leaves();
    for (kind, window) in [("llama", None), ("mistral", Some(4))] {
        let mut graph = Graph::for_training();
        let q = graph.input("q", [3, 5, 48], F32).unwrap();
        let (k, v) = (graph.input("k", [3, 14, 16], F32).unwrap(), graph.input("v", [3, 14, 16], F32).unwrap());
        let offsets = Some(graph.input("offsets", [3], DType::I32).unwrap());
        let options =
            AttentionOptions { heads: 6, kv_heads: Some(2), causal: true, window, offsets, ..Default::default() };
        let y = graph.attention(AttentionInputs::Separate { q, k, v }, &options).unwrap();
        let weights = graph.attention_weights(y).unwrap();
        let got = run_cpu(&graph, &[weights], &values, 2);
        let error = relative_error(&got[0], fixture.get(kind, "weights"), 0.0);
        assert!(error < 1e-5, "{kind} weights: {error:e}");
        compare(&mut graph, y, &fixture, kind, &["q", "k", "v"], &values);
    }
}

#[test]
fn attention_to_both_sides_equals_longformer_s() {
    let fixture = Fixture::load("longformer_attention");
    let mut graph = Graph::for_inference();
    let x = graph.input("x", [2, 24, 16], F32).unwrap();
    let [q, k, v] = ["query", "key", "value"].map(|name| {
        let weight = graph.parameter(&format!("{name}.weight"), [16, 16]).unwrap();
        let bias = graph.parameter(&format!("{name}.bias"), [16]).unwrap();
        graph.linear(x, weight, Some(bias)).unwrap()
    });
    let options = AttentionOptions { heads: 2, window: Some(3), ..AttentionOptions::default() };
    let y = graph.attention(AttentionInputs::Separate { q, k, v }, &options).unwrap();
    let values = fixture.leaves();
    let mut results = vec![run_cpu(&graph, &[y], &values, 2)];
    results.extend(common::gpu().map(|device| run_cuda(&graph, &[y], &values, device)));
    for got in results {
        let error = relative_error(&got[0], fixture.get("output", "output"), 0.0);
        assert!(error < 1e-5, "{error:e}");
    }
}

#[test]
fn rotary_positions_equal_those_of_transformers() {
    let fixture = Fixture::load("rotary");
    let values = fixture.leaves();
    for kind in ["default", "linear", "llama3", "yarn", "gptj"] {
        let mut graph = Graph::for_training();
        let x = graph.input("x", [2, 4, 48], F32).unwrap();
        let offsets = Some(graph.input("offsets", [2], DType::I32).unwrap());
        let frequencies = fixture.get(kind, "frequencies").iter().map(|&x| x as f32).collect();
        let options = match kind {
            "gptj" => RotaryOptions { pairing: RotaryPairing::Pairs, ..RotaryOptions::default() },
            _ => RotaryOptions { factor: fixture.get(kind, "factor")[0] as f32, ..RotaryOptions::default() },
        };
        let options = RotaryOptions { heads: 3, frequencies, offsets, ..options };
        let y = graph.rotary(x, &options).unwrap();
        compare(&mut graph, y, &fixture, kind, &["x"], &values);
    }
}

/// The list of the usual frequencies: to one unit in the last place, since libraries differ in the last digit of powers.
#[test]
fn usual_frequencies_equal_those_of_transformers() {
    let fixture = Fixture::load("rotary");
    let names = fixture.names("frequencies");
    assert_eq!(names.len(), 6);
    for name in names {
        let (base, dim) = name.split_once('/').unwrap();
        let ours = rotary_frequencies(base.parse().unwrap(), dim.parse().unwrap());
        let theirs: Vec<f32> = fixture.get("frequencies", &name).iter().map(|&x| x as f32).collect();
        assert_eq!(ours.len(), theirs.len());
        for (k, (ours, theirs)) in ours.iter().zip(&theirs).enumerate() {
            let units = ours.to_bits().abs_diff(theirs.to_bits());
            assert!(units <= 1, "{name}, number {k}: {ours} and {theirs}");
        }
    }
}

#[test]
fn convolutions_equal_pytorch_s() {
    let fixture = Fixture::load("convolution");
    for (kernel, stride, padding) in [(3, 1, 1), (3, 2, 1), (1, 1, 0), (4, 3, 2), (2, 3, 0)] {
        let kind = format!("{kernel}-{stride}-{padding}");
        let mut values = fixture.leaves();
        for name in ["weight", "bias"] {
            values.insert(name.to_string(), fixture.get(&kind, name).to_vec());
        }
        let mut graph = Graph::new(Mode::Training, Precision::F32);
        let x = graph.input("x", [2, 11, 4], F32).unwrap();
        let weight = graph.parameter("weight", [6, 4 * kernel]).unwrap();
        let bias = graph.parameter("bias", [6]).unwrap();
        let y = graph.conv1d(x, weight, Some(bias), Sliding { kernel, stride, padding }).unwrap();
        compare(&mut graph, y, &fixture, &kind, &["x", "weight", "bias"], &values);
    }
}

#[test]
fn other_instruction_sets() {
    common::run_on_other_instruction_sets("other_instruction_sets");
}
