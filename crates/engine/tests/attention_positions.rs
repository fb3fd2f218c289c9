//! Attention with fewer key/value heads than query heads, with windows, and with an offset for each sample: CPU and GPU against
//! the reference, gradients against finite differences, and a cache read chunk by chunk against the whole sequence.

mod common;

use std::collections::HashMap;

use common::{Checks, RUN, cases, check, leaf_values, reference_for, run_cpu, run_cuda};
use proptest::prelude::*;
use vitreous_engine::{
    AttentionInputs, AttentionOptions, DType, Error, Graph, Mode, Padding, Precision, Result, Value,
};

const F32: DType = DType::F32;

#[derive(Clone, Copy, Debug, PartialEq)]
enum Pad {
    None,
    Lengths,
    Mask,
}

#[derive(Clone, Copy, Debug)]
struct Case {
    batch: usize,
    kv_heads: usize,
    /// Query heads per key/value head.
    group: usize,
    head_dim: usize,
    queries: usize,
    keys: usize,
    causal: bool,
    window: Option<usize>,
    offsets: bool,
    pad: Pad,
    /// Whether there is a bias for each sample, and for each head.
    bias: Option<(bool, bool)>,
    dropout: f32,
}

const PLAIN: Case = Case {
    batch: 2,
    kv_heads: 2,
    group: 1,
    head_dim: 16,
    queries: 20,
    keys: 20,
    causal: true,
    window: None,
    offsets: false,
    pad: Pad::None,
    bias: None,
    dropout: 0.0,
};

impl Case {
    fn build(&self, g: &mut Graph) -> Result<Value> {
        // As a projection stores them.
        let stored = if g.precision() == Precision::Bf16 { DType::Bf16 } else { F32 };
        let heads = self.kv_heads * self.group;
        let mut input = |name: &str, tokens: usize, heads: usize| {
            let values = g.input(name, [self.batch, tokens, heads * self.head_dim], F32)?;
            g.cast(values, stored)
        };
        let q = input("q", self.queries, heads)?;
        let (k, v) = (input("k", self.keys, self.kv_heads)?, input("v", self.keys, self.kv_heads)?);
        let padding = match self.pad {
            Pad::None => Padding::None,
            Pad::Lengths => Padding::Lengths(g.input("lengths", [self.batch], DType::I32)?),
            Pad::Mask => Padding::Mask(g.input("mask", [self.batch, self.keys], DType::I32)?),
        };
        let offsets = if self.offsets { Some(g.input("offsets", [self.batch], DType::I32)?) } else { None };
        let bias = match self.bias {
            None => None,
            Some((samples, all)) => {
                let (samples, heads) = (if samples { self.batch } else { 1 }, if all { heads } else { 1 });
                Some(g.parameter("bias", [samples, heads, self.queries, self.keys])?)
            }
        };
        let options = AttentionOptions {
            heads,
            kv_heads: Some(self.kv_heads),
            causal: self.causal,
            window: self.window,
            offsets,
            padding,
            bias,
            dropout: self.dropout,
            ..AttentionOptions::default()
        };
        g.attention(AttentionInputs::Separate { q, k, v }, &options)
    }

    /// Lengths from nearly nothing to everything; masks with holes; offsets before, among and behind the keys.
    fn number(&self, name: &str, position: usize) -> i32 {
        let (queries, keys) = (self.queries as i32, self.keys as i32);
        match name {
            "lengths" => (keys * (position as i32 + 2) / (self.batch as i32 + 1)).min(keys),
            "offsets" => [keys - queries, keys / 3, -2, keys + 3][position % 4],
            _ => i32::from(position % 5 != 1),
        }
    }

    fn check(&self, checks: Checks) {
        println!("{self:?}");
        check(&|g: &mut Graph| self.build(g), &|name, position| self.number(name, position), checks);
    }
}

fn case() -> impl Strategy<Value = Case> {
    let sizes = prop_oneof![Just(1usize), Just(3), Just(17), Just(33), Just(70)];
    let heads =
        (1usize..5, 1usize..3, prop_oneof![Just(1usize), Just(2), Just(3)], prop_oneof![Just(7usize), Just(32)]);
    let masks = (any::<bool>(), any::<bool>(), prop_oneof![Just(None), (1usize..40).prop_map(Some)]);
    let pad = prop_oneof![Just(Pad::None), Just(Pad::Lengths), Just(Pad::Mask)];
    let rest = (pad, proptest::option::of(any::<(bool, bool)>()), prop_oneof![Just(0.0f32), Just(0.3)]);
    (heads, sizes.clone(), sizes, masks, rest).prop_map(
        |((batch, kv_heads, group, head_dim), queries, keys, (causal, offsets, window), (pad, bias, dropout))| Case {
            batch,
            kv_heads,
            group,
            head_dim,
            queries,
            keys,
            causal,
            window,
            offsets: offsets && (causal || window.is_some()),
            pad,
            bias,
            dropout,
        },
    )
}

proptest! {
    #![proptest_config(cases(48))]

    #[test]
    fn groups_windows_and_offsets(case in case()) {
        // A query with one key has no gradient at all: sums of size one cancel.
        let checks = Checks { bf16: None, differences: 3, least: 1.0, ..Checks::default() };
        case.check(checks);
    }
}

/// Each kernel of a GPU with each of the new options: tensor cores for short and long sequences, four warps together, f32, a
/// single query; whole tiles before the window and behind the position.
#[test]
fn every_kernel_with_groups_windows_and_offsets() {
    // It is about GPUs: other instruction sets have their tests.
    if std::env::var_os("VITREOUS_ISA").is_some() {
        return;
    }
    let one = Case { head_dim: 64, kv_heads: 1, ..PLAIN };
    let square = |tokens: usize| Case { queries: tokens, keys: tokens, ..one };
    let cases = [
        // Fewer key/value heads.
        Case { group: 4, causal: false, ..square(40) },
        Case { group: 2, kv_heads: 2, pad: Pad::Lengths, dropout: 0.1, ..square(70) },
        Case { group: 3, bias: Some((false, true)), ..square(150) },
        Case { group: 2, batch: 1, head_dim: 128, ..square(300) },
        // Windows.
        Case { window: Some(20), ..square(100) },
        Case { window: Some(20), causal: false, ..square(100) },
        Case { window: Some(37), dropout: 0.1, batch: 1, ..square(250) },
        Case { window: Some(33), causal: false, pad: Pad::Mask, bias: Some((true, false)), ..square(150) },
        Case { window: Some(70), head_dim: 96, ..square(300) },
        Case { window: Some(70), head_dim: 32, causal: false, pad: Pad::Lengths, ..square(300) },
        // Four warps together.
        Case { batch: 3, group: 2, pad: Pad::Lengths, ..square(270) },
        Case { window: Some(70), causal: false, pad: Pad::Mask, ..square(300) },
        Case { window: Some(5), batch: 70, kv_heads: 4, head_dim: 32, ..square(48) },
        // Offsets.
        Case { batch: 4, offsets: true, queries: 30, keys: 120, ..one },
        Case { batch: 4, offsets: true, queries: 150, keys: 200, pad: Pad::Lengths, ..one },
        Case { batch: 4, offsets: true, queries: 70, keys: 300, window: Some(90), head_dim: 80, ..one },
        Case { batch: 70, offsets: true, kv_heads: 4, queries: 16, keys: 64, head_dim: 32, ..one },
        // All of them.
        Case { batch: 2, group: 2, offsets: true, queries: 140, keys: 300, window: Some(75), ..one },
        Case {
            batch: 4,
            group: 2,
            offsets: true,
            queries: 40,
            keys: 90,
            window: Some(31),
            causal: false,
            pad: Pad::Mask,
            ..one
        },
    ];
    // Without the gradient: a single query, and long caches of which a window is read.
    let decoding = Case { batch: 4, group: 4, offsets: true, queries: 1, keys: 300, ..one };
    let forward_alone = [
        decoding,
        Case { window: Some(50), ..decoding },
        Case { head_dim: 80, pad: Pad::Lengths, ..decoding },
        Case { group: 1, offsets: false, window: Some(40), ..decoding },
        Case { head_dim: 20, window: Some(40), ..decoding },
        Case { batch: 45, kv_heads: 3, window: Some(30), ..square(129) },
        Case { batch: 45, kv_heads: 3, window: Some(30), causal: false, offsets: true, head_dim: 48, ..square(129) },
        Case { batch: 2, group: 2, offsets: true, queries: 140, keys: 900, window: Some(333), ..one },
    ];
    for (case, gradient) in cases.map(|case| (case, true)).into_iter().chain(forward_alone.map(|case| (case, false))) {
        // A query that sees one key has no gradient: relative errors mean nothing then.
        case.check(Checks { gradient, differences: 0, least: 0.1, all_on_gpu: true, ..Checks::default() });
    }
}

/// The weights themselves: equal to the reference's, rows of one, and exactly zero where a key is out of reach.
#[test]
fn weights_of_groups_and_windows() {
    let case = Case { batch: 4, group: 3, queries: 9, keys: 70, window: Some(11), offsets: true, ..PLAIN };
    for case in [case, Case { causal: false, ..case }, Case { offsets: false, queries: 70, ..case }] {
        let mut graph = Graph::new(Mode::Inference, Precision::F32);
        let y = case.build(&mut graph).unwrap();
        let weights = graph.attention_weights(y).unwrap();
        let values = leaf_values(&graph, &|name, position| case.number(name, position));
        let truth = reference_for(&graph, &values).run(&graph, RUN).unwrap();
        let expected = &truth.get(weights).data;
        let mut results = vec![run_cpu(&graph, &[weights], &values, 2)];
        results.extend(common::gpu().map(|device| run_cuda(&graph, &[weights], &values, device)));
        for got in results.iter().map(|results| &results[0]) {
            let error = common::relative_error(got, expected, 0.0);
            assert!(error < 1e-5, "{case:?}: {error:e}");
            assert!(got.iter().zip(expected).all(|(got, expected)| (*got == 0.0) == (*expected == 0.0)), "{case:?}");
        }
    }
}

/// A cache with room for more than there is: each sample's sequence is read in chunks, at its own offset, and gives the rows that
/// the whole sequence gives. Rows of the cache that are not written yet are NaN.
#[test]
fn chunks_of_a_cache_equal_the_whole() {
    let (batch, capacity, dim, kv_dim) = (3, 48, 4 * 16, 2 * 16);
    let lengths = [40usize, 17, 33];
    for (precision, window) in
        [(Precision::F32, None), (Precision::F32, Some(9)), (Precision::Bf16, None), (Precision::Bf16, Some(9))]
    {
        let whole = Case { batch, group: 2, queries: capacity, keys: capacity, window, ..PLAIN };
        let mut graph = Graph::new(Mode::Inference, precision);
        let y = whole.build(&mut graph).unwrap();
        let values = leaf_values(&graph, &common::no_numbers);
        let expected = &run_cpu(&graph, &[y], &values, 2)[0];
        // A single query is computed by another kernel, which rounds weights less.
        let limit = if precision == Precision::F32 { 1e-6 } else { 2e-2 };
        for chunk in [1usize, 5, 16] {
            let case = Case { queries: chunk, offsets: true, ..whole };
            let mut graph = Graph::new(Mode::Inference, precision);
            let y = case.build(&mut graph).unwrap();
            for step in 0..3 {
                // Every sample stands somewhere else.
                let offsets = lengths.map(|length| length - (step + 1) * chunk.min(length / 3));
                let mut given = values.clone();
                given.insert("offsets".to_string(), offsets.map(|offset| offset as f64).to_vec());
                given.insert("q".to_string(), rows_at(&values["q"], capacity, dim, &offsets, chunk));
                for name in ["k", "v"] {
                    forget_after(given.get_mut(name).unwrap(), capacity, kv_dim, &offsets.map(|offset| offset + chunk));
                }
                let wanted: Vec<f64> = expected.iter().map(|&x| f64::from(x)).collect();
                let wanted = rows_at(&wanted, capacity, dim, &offsets, chunk);
                let mut results = vec![run_cpu(&graph, &[y], &given, 2)];
                results.extend(common::gpu().map(|device| run_cuda(&graph, &[y], &given, device)));
                for got in results {
                    let error = common::relative_error(&got[0], &wanted, 1e-3);
                    assert!(error < limit, "{precision:?} {window:?} chunks of {chunk}, step {step}: {error:e}");
                }
            }
        }
    }
}

/// `count` rows of each sample from its own first one on.
fn rows_at(values: &[f64], tokens: usize, dim: usize, first: &[usize], count: usize) -> Vec<f64> {
    let samples = values.chunks_exact(tokens * dim).zip(first);
    samples.flat_map(|(sample, &first)| sample[first * dim..(first + count) * dim].to_vec()).collect()
}

/// NaN in all rows of each sample from `end` on.
fn forget_after(values: &mut [f64], tokens: usize, dim: usize, end: &[usize]) {
    for (sample, &end) in values.chunks_exact_mut(tokens * dim).zip(end) {
        sample[end * dim..].fill(f64::NAN);
    }
}

/// With as many key/value heads as query heads, no window in the way and the default positions given as offsets, nothing changes.
#[test]
fn the_defaults_given_explicitly_change_nothing() {
    let (queries, keys) = (21, 33);
    let default = Case { queries, keys, ..PLAIN };
    let explicit = Case { offsets: true, window: Some(keys), ..default };
    for precision in [Precision::F32, Precision::Bf16] {
        let results: Vec<Vec<Vec<f32>>> = [default, explicit]
            .iter()
            .map(|case| {
                let subject = common::subject(&|g: &mut Graph| case.build(g), precision, true);
                let values = leaf_values(&subject.graph, &|_, _| (keys - queries) as i32);
                let gradients = subject.gradients.iter().map(|(_, _, gradient)| *gradient);
                let wanted: Vec<Value> = std::iter::once(subject.y).chain(gradients).collect();
                run_cpu(&subject.graph, &wanted, &values, 2)
            })
            .collect();
        assert_eq!(results[0], results[1], "{precision:?}");
    }
}

/// Queries whose keys are all out of reach give zeros and get no gradient.
#[test]
fn queries_without_keys_give_zeros() {
    let case = Case { batch: 2, group: 2, queries: 6, keys: 10, window: Some(4), offsets: true, ..PLAIN };
    let subject = common::subject(&|g: &mut Graph| case.build(g), Precision::F32, true);
    // The first sample's queries stand at -3 .. 2, the second's at 11 .. 16: those before 0, and from 13 on, see nothing.
    let values = leaf_values(&subject.graph, &|_, position| [-3, 11][position]);
    let dq = subject.gradients.iter().find(|(name, _, _)| name == "q").unwrap().2;
    let wanted = [subject.y, dq];
    let mut results = vec![run_cpu(&subject.graph, &wanted, &values, 2)];
    results.extend(common::gpu().map(|device| run_cuda(&subject.graph, &wanted, &values, device)));
    for result in results.iter().flatten() {
        let zero = |row: usize| result[row * 64..(row + 1) * 64].iter().all(|&x| x == 0.0);
        let rows: Vec<bool> = (0..12).map(zero).collect();
        assert_eq!(rows[..3], [true; 3]);
        assert_eq!(rows[8..], [true; 4]);
        assert!(result.iter().all(|x| x.is_finite()));
    }
    assert!(results[0][0][3 * 64..8 * 64].iter().all(|&x| x != 0.0));
}

#[test]
fn broken_rules_are_named() {
    let refused = |q: usize, kv: usize, options: &dyn Fn(&mut Graph) -> Result<AttentionOptions>| -> String {
        let mut g = Graph::for_inference();
        let q = g.input("q", [2, 3, q], F32).unwrap();
        let k = g.input("k", [2, 5, kv], F32).unwrap();
        let options = options(&mut g).unwrap();
        match g.attention(AttentionInputs::Separate { q, k, v: k }, &options) {
            Err(Error::Rule { rule, .. }) => rule,
            other => panic!("{other:?}"),
        }
    };
    let plain = AttentionOptions { heads: 4, ..AttentionOptions::default() };
    let grouped = |kv_heads: usize| move |_: &mut Graph| Ok(AttentionOptions { kv_heads: Some(kv_heads), ..plain });
    assert_eq!(refused(32, 16, &grouped(3)), "the 3 key/value heads must divide the 4 query heads");
    assert_eq!(refused(32, 16, &grouped(0)), "the 0 key/value heads must divide the 4 query heads");
    let rule = "q must be [batch, queries, 4·head_dim], k and v [batch, keys, 2·head_dim]";
    assert_eq!(refused(32, 32, &grouped(2)), rule);
    let rule = "q must be [batch, queries, dim], k and v [batch, keys, dim]";
    assert_eq!(refused(32, 16, &|_| Ok(plain)), rule);
    let none = |_: &mut Graph| Ok(AttentionOptions { window: Some(0), causal: true, ..plain });
    assert_eq!(refused(32, 32, &none), "the window must be at least 1");
    let offsets = |shape: usize, dtype: DType, causal: bool| {
        move |g: &mut Graph| {
            Ok(AttentionOptions { offsets: Some(g.input("offsets", [shape], dtype)?), causal, ..plain })
        }
    };
    assert_eq!(refused(32, 32, &offsets(3, DType::I32, true)), "offsets must be [batch]");
    assert_eq!(refused(32, 32, &offsets(2, F32, true)), "offsets must be i32");
    assert!(refused(32, 32, &offsets(2, DType::I32, false)).contains("need `causal` or a window"));
    let mut g = Graph::for_inference();
    let qkv = g.input("qkv", [2, 3, 96], F32).unwrap();
    let packed = g.attention(AttentionInputs::Packed(qkv), &AttentionOptions { kv_heads: Some(2), ..plain });
    assert!(packed.unwrap_err().to_string().contains("give them separately"));
}

/// A batch large enough for a chain of kernels, each of whose tiles takes its own samples' offsets.
#[test]
fn tiles_of_samples_take_their_own_offsets() {
    let case = Case { batch: 64, group: 2, queries: 8, keys: 24, offsets: true, pad: Pad::Lengths, ..PLAIN };
    let mut graph = Graph::new(Mode::Inference, Precision::F32);
    let attended = case.build(&mut graph).unwrap();
    let scaled = graph.scale(attended, 2.0).unwrap();
    let gamma = graph.parameter("gamma", [64]).unwrap();
    let y = graph.rms_norm(scaled, gamma, 1e-6).unwrap();
    let number = |name: &str, position: usize| if name == "offsets" { (position % 17) as i32 } else { 24 };
    let values: HashMap<String, Vec<f64>> = leaf_values(&graph, &number);
    let plan = vitreous_engine::Plan::for_cpu(&graph, &[y]).unwrap();
    let attention = plan.graph().nodes().iter().position(|node| node.op.name() == "attention").unwrap();
    assert!(plan.chains().iter().any(|chain| (chain.first..=chain.last).contains(&attention)), "no chain has it");
    let truth = reference_for(&graph, &values).run(&graph, RUN).unwrap();
    let got = run_cpu(&graph, &[y], &values, 2);
    let error = common::relative_error(&got[0], &truth.get(y).data, 1e-3);
    assert!(error < 1e-5, "{error:e}");
}

#[test]
fn other_instruction_sets() {
    common::run_on_other_instruction_sets("other_instruction_sets");
}
