//! Attention in every variant: CPU and GPU against the reference, gradients against finite differences, and the rules for masks.
//! Groups of heads, windows and offsets are in `attention_positions.rs`.

mod common;

use std::collections::HashMap;

use common::{Checks, RUN, cases, check, leaf_values, reference_for, run_cpu, subject};
use proptest::prelude::*;
use vitreous_engine::{AttentionInputs, AttentionOptions, DType, Graph, Mode, Padding, Precision, Result, Value};

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
    heads: usize,
    head_dim: usize,
    queries: usize,
    keys: usize,
    packed: bool,
    causal: bool,
    pad: Pad,
    /// Samples and heads of the bias.
    bias: Option<(bool, bool)>,
    dropout: f32,
    scale: Option<f32>,
}

impl Case {
    fn build(&self, g: &mut Graph) -> Result<Value> {
        let dim = self.heads * self.head_dim;
        let keys = if self.packed { self.queries } else { self.keys };
        // As a projection leaves them.
        let stored = if g.precision() == Precision::Bf16 { DType::Bf16 } else { F32 };
        let mut input = |name: &str, tokens: usize, columns: usize| {
            let values = g.input(name, [self.batch, tokens, columns], F32)?;
            g.cast(values, stored)
        };
        let inputs = if self.packed {
            AttentionInputs::Packed(input("qkv", keys, 3 * dim)?)
        } else {
            AttentionInputs::Separate {
                q: input("q", self.queries, dim)?,
                k: input("k", keys, dim)?,
                v: input("v", keys, dim)?,
            }
        };
        let padding = match self.pad {
            Pad::None => Padding::None,
            Pad::Lengths => Padding::Lengths(g.input("lengths", [self.batch], DType::I32)?),
            Pad::Mask => Padding::Mask(g.input("mask", [self.batch, keys], DType::I32)?),
        };
        let bias = match self.bias {
            None => None,
            Some((batch, heads)) => {
                let shape =
                    [if batch { self.batch } else { 1 }, if heads { self.heads } else { 1 }, self.queries, keys];
                Some(g.parameter("bias", shape)?)
            }
        };
        let options = AttentionOptions {
            heads: self.heads,
            scale: self.scale,
            causal: self.causal,
            padding,
            bias,
            dropout: self.dropout,
            ..AttentionOptions::default()
        };
        g.attention(inputs, &options)
    }

    /// Lengths from nothing at all to everything; masks with holes, the first sample's all zero.
    fn number(&self, name: &str, position: usize) -> i32 {
        let keys = if self.packed { self.queries } else { self.keys };
        match name {
            "lengths" => (position * 7 % (keys + 1)) as i32,
            _ => i32::from(position >= keys && position % 3 != 1),
        }
    }
}

fn case() -> impl Strategy<Value = Case> {
    let sizes = prop_oneof![Just(1usize), Just(3), Just(17), Just(33)];
    let shape = (1usize..4, prop_oneof![Just(1usize), Just(5)], prop_oneof![Just(1usize), Just(7), Just(32)]);
    let flags = (any::<bool>(), any::<bool>(), prop_oneof![Just(Pad::None), Just(Pad::Lengths), Just(Pad::Mask)]);
    let rest = (proptest::option::of(any::<(bool, bool)>()), prop_oneof![Just(0.0f32), Just(0.3)]);
    (shape, sizes.clone(), sizes, flags, rest).prop_map(
        |((batch, heads, head_dim), queries, keys, (packed, causal, pad), (bias, dropout))| Case {
            batch,
            heads,
            head_dim,
            queries,
            keys,
            packed,
            causal,
            pad,
            bias,
            dropout,
            scale: None,
        },
    )
}

proptest! {
    #![proptest_config(cases(48))]

    #[test]
    fn attention(case in case()) {
        // A query with one key has no gradient at all: sums of size one cancel.
        let checks = Checks { bf16: None, differences: 3, least: 1.0, ..Checks::default() };
        check(&|g: &mut Graph| case.build(g), &|name, position| case.number(name, position), checks);
    }

    // In bf16 the output is rounded, and the gradient of the scores is a difference that nearly cancels where a query
    // sees a key or two only: relative errors mean something for longer rows.
    #[test]
    fn attention_in_bf16(heads in prop_oneof![Just(1usize), Just(5)], tokens in prop_oneof![Just(33usize), Just(50)],
                         head_dim in prop_oneof![Just(16usize), Just(17)], packed: bool, lengths: bool, dropout in prop_oneof![Just(0.0f32), Just(0.2)]) {
        let pad = if lengths { Pad::Lengths } else { Pad::None };
        let case = Case { batch: 3, heads, head_dim, queries: tokens, keys: tokens, packed, pad, dropout, ..LARGE };
        let checks = Checks { differences: 1, ..Checks::default() };
        check(&|g: &mut Graph| case.build(g), &|_, position| (20 + 10 * position) as i32, checks);
    }
}

const LARGE: Case = Case {
    batch: 1,
    heads: 5,
    head_dim: 16,
    queries: 197,
    keys: 197,
    packed: true,
    causal: false,
    pad: Pad::None,
    bias: None,
    dropout: 0.0,
    scale: None,
};

#[test]
fn a_vits_length() {
    let checks = Checks { differences: 1, ..Checks::default() };
    check(&|g: &mut Graph| LARGE.build(g), &common::no_numbers, checks);
}

#[test]
fn a_length_with_many_key_blocks() {
    let long =
        Case { heads: 1, head_dim: 8, queries: 70, keys: 1100, packed: false, causal: true, dropout: 0.1, ..LARGE };
    check(&|g: &mut Graph| long.build(g), &common::no_numbers, Checks { differences: 1, ..Checks::default() });
}

/// Every way that tensor cores take on a GPU: whole pairs at once, in parts, or tile by tile; all masks; all sizes of heads that differ in
/// how they lie in memory; lengths around multiples of sixteen.
#[test]
fn every_way_of_tensor_cores() {
    // It is about GPUs: other instruction sets have their tests.
    if std::env::var_os("VITREOUS_ISA").is_some() {
        return;
    }
    let one = Case { batch: 2, heads: 2, head_dim: 32, packed: false, ..LARGE };
    let square = |tokens: usize| Case { queries: tokens, keys: tokens, ..one };
    let cases = [
        Case { batch: 1, head_dim: 64, packed: true, ..square(197) },
        Case { batch: 70, heads: 4, dropout: 0.1, ..square(16) },
        Case { batch: 3, head_dim: 64, pad: Pad::Lengths, causal: true, ..square(64) },
        Case { pad: Pad::Lengths, dropout: 0.2, ..square(17) },
        Case { pad: Pad::Mask, bias: Some((true, false)), head_dim: 96, queries: 15, keys: 33, ..one },
        Case { bias: Some((false, true)), dropout: 0.1, head_dim: 48, causal: true, queries: 70, keys: 90, ..one },
        Case { causal: true, head_dim: 128, queries: 50, keys: 20, ..one },
        Case { batch: 1, heads: 1, head_dim: 64, causal: true, ..square(208) },
        Case { batch: 1, heads: 1, head_dim: 64, dropout: 0.1, packed: true, ..square(256) },
        Case { heads: 1, pad: Pad::Mask, dropout: 0.1, ..square(257) },
        Case { heads: 1, head_dim: 128, causal: true, pad: Pad::Lengths, ..square(300) },
        Case { heads: 1, head_dim: 80, queries: 300, keys: 17, ..one },
        Case { heads: 1, head_dim: 64, causal: true, pad: Pad::Lengths, ..square(150) },
        Case { pad: Pad::Mask, bias: Some((true, true)), dropout: 0.1, queries: 100, keys: 70, ..one },
        Case { pad: Pad::Mask, bias: Some((true, true)), head_dim: 64, queries: 140, keys: 70, ..one },
        Case { heads: 1, head_dim: 64, causal: true, queries: 200, keys: 100, ..one },
        Case { heads: 1, head_dim: 64, pad: Pad::Lengths, queries: 150, keys: 40, ..one },
    ];
    // Only the forward pass differs: so many pairs that a block does all queries of one, and keys that do not all fit into shared memory.
    let many = Case { batch: 45, heads: 3, packed: true, ..square(129) };
    let forward_alone = [
        Case { head_dim: 64, ..many },
        Case { head_dim: 48, ..many },
        Case { dropout: 0.1, ..many },
        Case { head_dim: 64, causal: true, pad: Pad::Lengths, queries: 300, keys: 600, ..one },
    ];
    for (case, gradient) in cases.map(|case| (case, true)).into_iter().chain(forward_alone.map(|case| (case, false))) {
        println!("{case:?}");
        // A query that sees one key has no gradient: relative errors mean nothing then.
        let least = if case.causal || case.pad != Pad::None { 0.1 } else { 1e-3 };
        let checks = Checks { gradient, differences: 1, least, all_on_gpu: true, ..Checks::default() };
        let number = |name: &str, position: usize| match name {
            // The first sample has no keys at all.
            "lengths" => (case.keys * position / case.batch) as i32,
            _ => i32::from(position % 3 != 1),
        };
        check(&|g: &mut Graph| case.build(g), &number, checks);
    }
}

/// Scores so large that later keys outgrow earlier ones by far, and sums have to be brought to a new maximum.
#[test]
fn large_scores() {
    let case = Case { heads: 2, head_dim: 64, queries: 130, keys: 130, scale: Some(1.0), ..LARGE };
    // A rounded score is wrong by more than a rounded weight.
    let checks = Checks { gradient: false, bf16: Some(0.1), ..Checks::default() };
    check(&|g: &mut Graph| case.build(g), &common::no_numbers, checks);
}

/// The weights themselves: equal to the reference's, rows of one, masked positions exactly zero; and asking for them
/// changes nothing else by a bit.
#[test]
fn weights_on_request() {
    let case = Case { batch: 3, heads: 2, head_dim: 8, queries: 9, keys: 9, causal: true, pad: Pad::Mask, ..LARGE };
    for precision in [Precision::F32, Precision::Bf16] {
        let mut graph = Graph::new(Mode::Training, precision);
        let y = case.build(&mut graph).unwrap();
        let mut values = leaf_values(&graph, &|name, position| case.number(name, position));
        // The reference does not round: what is given must be bf16 for weights computed in f32 to be the same.
        values.get_mut("qkv").unwrap().iter_mut().for_each(|value| *value = half::bf16::from_f64(*value).to_f64());
        let alone = run_cpu(&graph, &[y], &values, 2);
        let weights = graph.attention_weights(y).unwrap();
        assert_eq!(graph.find("attention_weights").unwrap(), weights);
        let together = run_cpu(&graph, &[y, weights], &values, 2);
        assert_eq!(alone[0], together[0]);
        let truth = reference_for(&graph, &values).run(&graph, RUN).unwrap();
        let error = common::relative_error(&together[1], &truth.get(weights).data, 0.0);
        assert!(error < 1e-5, "{error:e}");
        for (row, (got, expected)) in together[1].chunks(9).zip(truth.get(weights).data.chunks(9)).enumerate() {
            let sum: f32 = got.iter().sum();
            let all_masked = expected.iter().all(|&w| w == 0.0);
            assert!((sum - if all_masked { 0.0 } else { 1.0 }).abs() < 1e-5, "row {row} sums to {sum}");
            for (got, expected) in got.iter().zip(expected) {
                assert!((*got == 0.0) == (*expected == 0.0), "row {row}");
            }
        }
    }
}

/// A query that sees no key gives zeros, and passes no gradient on.
#[test]
fn fully_masked_rows_give_zeros() {
    let case = Case { batch: 2, heads: 5, head_dim: 4, queries: 6, keys: 3, packed: false, causal: true, ..LARGE };
    let subject = subject(&|g: &mut Graph| case.build(g), Precision::F32, true);
    let values = leaf_values(&subject.graph, &common::no_numbers);
    let dq = subject.gradients.iter().find(|(name, _, _)| name == "q").unwrap().2;
    let results = run_cpu(&subject.graph, &[subject.y, dq], &values, 2);
    // With three keys and six queries the first three queries come before every key.
    for result in &results {
        for sample in result.chunks(6 * 20) {
            assert!(sample[..3 * 20].iter().all(|&x| x == 0.0));
            assert!(sample[3 * 20..].iter().all(|&x| x.is_finite()));
        }
    }
    assert!(results[0].iter().any(|&x| x != 0.0));
}

/// Whatever stands at masked keys, even NaN or infinity, has no influence at all.
#[test]
fn masked_keys_have_no_influence() {
    let precisions = [Precision::F32, Precision::Bf16];
    for (pad, precision) in [Pad::Lengths, Pad::Mask].into_iter().flat_map(|pad| precisions.map(|p| (pad, p))) {
        let case = Case { batch: 2, heads: 2, head_dim: 8, queries: 5, keys: 8, packed: false, pad, ..LARGE };
        let mut graph = Graph::new(Mode::Inference, precision);
        let y = case.build(&mut graph).unwrap();
        // Keys 5.. are padding.
        let mut values =
            leaf_values(&graph, &|name, position| if name == "lengths" { 5 } else { i32::from(position % 8 < 5) });
        let before = run_cpu(&graph, &[y], &values, 2);
        for name in ["k", "v"] {
            for (position, value) in values.get_mut(name).unwrap().iter_mut().enumerate() {
                if position / 16 % 8 >= 5 {
                    *value = [f64::NAN, f64::INFINITY, -1e30][position % 3];
                }
            }
        }
        let after = run_cpu(&graph, &[y], &values, 2);
        assert_eq!(before, after, "{pad:?} in {precision:?}");
    }
}

/// A later token changes no earlier output by a bit.
#[test]
fn a_causal_mask_really_masks() {
    let case = Case { batch: 2, heads: 2, head_dim: 8, queries: 40, causal: true, ..LARGE };
    let mut graph = Graph::new(Mode::Inference, Precision::F32);
    let y = case.build(&mut graph).unwrap();
    let values = leaf_values(&graph, &common::no_numbers);
    let before = run_cpu(&graph, &[y], &values, 2);
    let mut changed: HashMap<String, Vec<f64>> = values.clone();
    for (position, value) in changed.get_mut("qkv").unwrap().iter_mut().enumerate() {
        if position / 48 % 40 >= 23 {
            *value += 1.0;
        }
    }
    let after = run_cpu(&graph, &[y], &changed, 2);
    for (before, after) in before[0].chunks(40 * 16).zip(after[0].chunks(40 * 16)) {
        assert_eq!(before[..23 * 16], after[..23 * 16]);
        assert_ne!(before[23 * 16..], after[23 * 16..]);
    }
}

/// Infinities and NaN in the input end in some number, not in a hang or a crash.
#[test]
fn infinities_do_not_hang() {
    for poison in [f64::INFINITY, f64::NEG_INFINITY, f64::NAN, 3e38] {
        let case = Case { batch: 1, heads: 2, head_dim: 8, queries: 33, causal: true, ..LARGE };
        let subject = subject(&|g: &mut Graph| case.build(g), Precision::F32, true);
        let mut values = leaf_values(&subject.graph, &common::no_numbers);
        values.get_mut("qkv").unwrap().iter_mut().step_by(5).for_each(|x| *x = poison);
        let wanted: Vec<Value> = vec![subject.y, subject.gradients[0].2];
        assert_eq!(run_cpu(&subject.graph, &wanted, &values, 2)[0].len(), 33 * 16);
    }
}

#[test]
fn other_instruction_sets() {
    common::run_on_other_instruction_sets("other_instruction_sets");
}
