//! Comparison with naive loops in f64, which are themselves checked against finite differences.

mod pieces;
mod tensors;

use half::bf16;

use super::super::memory::Shared;
use super::super::team::Team;
use super::*;
use crate::random::{Mask, Stream};
use tensors::{Stored, Tensors};

#[derive(Clone, Copy, Debug)]
struct Case {
    batch: usize,
    heads: usize,
    /// As many as `heads` if `None`.
    kv_heads: Option<usize>,
    queries: usize,
    keys: usize,
    head_dim: usize,
    causal: bool,
    window: Option<usize>,
    offsets: bool,
    lengths: bool,
    mask: bool,
    /// Whether the bias is shared over the batch and over the heads.
    bias: Option<(bool, bool)>,
    dropout: bool,
    fused: bool,
    bf16: bool,
}

const PLAIN: Case = Case {
    batch: 2,
    heads: 1,
    kv_heads: None,
    queries: 17,
    keys: 17,
    head_dim: 32,
    causal: false,
    window: None,
    offsets: false,
    lengths: false,
    mask: false,
    bias: None,
    dropout: false,
    fused: false,
    bf16: false,
};

/// Tokens of all heads in f64, without gaps: `[batch, tokens, heads, head_dim]`.
type Values = Vec<f64>;

struct Inputs {
    q: Values,
    k: Values,
    v: Values,
    d_out: Values,
    bias: Values,
    offsets: Vec<i32>,
    lengths: Vec<i32>,
    mask: Vec<i32>,
}

#[derive(Clone, Default)]
struct Results {
    out: Values,
    log_sums: Values,
    weights: Values,
    dq: Values,
    dk: Values,
    dv: Values,
    d_bias: Values,
}

fn random_values(count: usize, seed: u64, rounded: bool) -> Values {
    let stream = Stream::new(seed, 0, 0);
    let value = |i: usize| {
        let value = (f64::from(stream.four(i as u64)[0]) / f64::from(u32::MAX) * 3.0 - 1.5) as f32;
        f64::from(if rounded { bf16::from_f32(value).to_f32() } else { value })
    };
    (0..count).map(value).collect()
}

impl Case {
    fn inputs(&self) -> Inputs {
        let tokens = |tokens: usize, heads: usize| self.batch * tokens * heads * self.head_dim;
        let (heads, kv_heads) = (self.heads, self.kv_heads());
        // The first sample's queries are in the middle, the second's partly before all keys, the third's after them.
        let offsets = [(self.keys / 2) as i32, -2, self.keys as i32 + 1];
        let random = |count, seed| random_values(count, seed, self.bf16);
        let (bias_batch, bias_heads) = self.bias_shape();
        let noise = random_values(self.batch * self.keys, 6, false);
        Inputs {
            q: random(tokens(self.queries, heads), 1),
            k: random(tokens(self.keys, kv_heads), 2),
            v: random(tokens(self.keys, kv_heads), 3),
            d_out: random(tokens(self.queries, heads), 4),
            bias: random(bias_batch * bias_heads * self.queries * self.keys, 5),
            offsets: (0..self.batch).map(|i| offsets[i % 3]).collect(),
            // The first sample has more than all keys, the second some, the third none.
            lengths: (0..self.batch).map(|i| [self.keys as i32 + 5, (self.keys / 2) as i32, -3][i % 3]).collect(),
            mask: noise.iter().map(|&x| if x > -0.5 { 7 } else { 0 }).collect(),
        }
    }

    fn kv_heads(&self) -> usize {
        self.kv_heads.unwrap_or(self.heads)
    }

    fn bias_shape(&self) -> (usize, usize) {
        let (batch, heads) = self.bias.unwrap_or((true, true));
        (if batch { 1 } else { self.batch }, if heads { 1 } else { self.heads })
    }

    fn dropout_mask(&self) -> Option<Mask> {
        self.dropout.then(|| Mask::new(Stream::new(9, 8, 7), 0.3))
    }

    fn scale(&self) -> f32 {
        1.3 / (self.head_dim as f32).sqrt()
    }

    fn sees(&self, inputs: &Inputs, sample: usize, query: usize, key: usize) -> bool {
        let end = self.keys as isize - self.queries as isize;
        let position = query as isize + if self.offsets { inputs.offsets[sample] as isize } else { end };
        let distance = position - key as isize;
        let hidden = match (self.causal, self.window) {
            (true, window) => distance < 0 || window.is_some_and(|window| distance.unsigned_abs() >= window),
            (false, window) => window.is_some_and(|window| distance.unsigned_abs() > window),
        };
        !(hidden
            || self.lengths && key as i32 >= inputs.lengths[sample]
            || self.mask && inputs.mask[sample * self.keys + key] == 0)
    }

    fn naive(&self, inputs: &Inputs) -> Results {
        let (bias_batch, bias_heads) = self.bias_shape();
        let mut results = Results {
            out: vec![0.0; inputs.q.len()],
            dq: vec![0.0; inputs.q.len()],
            dk: vec![0.0; inputs.k.len()],
            dv: vec![0.0; inputs.k.len()],
            d_bias: vec![0.0; inputs.bias.len()],
            ..Results::default()
        };
        for sample in 0..self.batch {
            for head in 0..self.heads {
                let slice =
                    (if bias_batch == 1 { 0 } else { sample }) * bias_heads + if bias_heads == 1 { 0 } else { head };
                for query in 0..self.queries {
                    self.naive_query(inputs, &mut results, sample, head, query, slice);
                }
            }
        }
        results
    }

    fn naive_query(
        &self,
        inputs: &Inputs,
        results: &mut Results,
        sample: usize,
        head: usize,
        query: usize,
        slice: usize,
    ) {
        let (dim, scale) = (self.head_dim, f64::from(self.scale()));
        let kv_head = head / (self.heads / self.kv_heads());
        let key_row = |key: usize| ((sample * self.keys + key) * self.kv_heads() + kv_head) * dim;
        let bias_row = (slice * self.queries + query) * self.keys;
        let at = ((sample * self.queries + query) * self.heads + head) * dim;
        let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
        let mut scores = vec![f64::NEG_INFINITY; self.keys];
        for key in 0..self.keys {
            if self.sees(inputs, sample, query, key) {
                let bias = if self.bias.is_some() { inputs.bias[bias_row + key] } else { 0.0 };
                let row = key_row(key);
                scores[key] = scale * dot(&inputs.q[at..at + dim], &inputs.k[row..row + dim]) + bias;
            }
        }
        let maximum = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let seen = maximum > f64::NEG_INFINITY;
        let sum: f64 = scores.iter().map(|score| if seen { (score - maximum).exp() } else { 0.0 }).sum();
        results.log_sums.push(if seen { maximum + sum.ln() } else { f64::INFINITY });
        let weights: Vec<f64> =
            scores.iter().map(|score| if seen { (score - maximum).exp() / sum } else { 0.0 }).collect();
        results.weights.extend(&weights);
        let pair = (sample * self.heads + head) as u64;
        let factor =
            |key: usize| f64::from(self.dropout_mask().map_or(1.0, |m| m.factor(pair, key * self.queries + query)));
        let dropped: Vec<f64> = (0..self.keys).map(factor).collect();
        let d_out = &inputs.d_out[at..at + dim];
        let mut d_weights = vec![0.0; self.keys];
        for key in 0..self.keys {
            let row = key_row(key);
            d_weights[key] = dropped[key] * dot(d_out, &inputs.v[row..row + dim]);
            for i in 0..dim {
                results.out[at + i] += dropped[key] * weights[key] * inputs.v[row + i];
                results.dv[row + i] += dropped[key] * weights[key] * d_out[i];
            }
        }
        let delta = dot(&weights, &d_weights);
        for key in 0..self.keys {
            let row = key_row(key);
            let d_score = weights[key] * (d_weights[key] - delta);
            if self.bias.is_some() {
                results.d_bias[bias_row + key] += d_score;
            }
            for i in 0..dim {
                results.dq[at + i] += scale * d_score * inputs.k[row + i];
                results.dk[row + i] += scale * d_score * inputs.q[at + i];
            }
        }
    }

    fn attention<'a>(&self, inputs: &'a Inputs, bias: Option<&'a Stored>) -> Attention<'a> {
        let (bias_batch, bias_heads) = self.bias_shape();
        Attention {
            batch: self.batch,
            heads: self.heads,
            kv_heads: self.kv_heads(),
            queries: self.queries,
            keys: self.keys,
            head_dim: self.head_dim,
            scale: self.scale(),
            reach: self.reach(),
            offsets: self.offsets.then_some(&inputs.offsets[..]),
            key_lengths: self.lengths.then_some(&inputs.lengths[..]),
            key_mask: self.mask.then_some(&inputs.mask[..]),
            bias: bias.map(|bias| Bias { values: bias.read(), batch: bias_batch, heads: bias_heads }),
            dropout: self.dropout_mask(),
            first_sample: 0,
        }
    }

    fn reach(&self) -> Reach {
        match (self.causal, self.window) {
            (true, window) => Reach { behind: window.map(|window| window - 1), ahead: Some(0) },
            (false, window) => Reach { behind: window, ahead: window },
        }
    }

    fn run(&self, inputs: &Inputs, threads: usize) -> Results {
        let tensors = Tensors::new(self);
        let bias = Stored::new(&inputs.bias, self.bf16);
        let attention = self.attention(inputs, self.bias.map(|_| &bias));
        // Each pass gets as much scratch memory as it says that it needs.
        let needed =
            [forward_scratch(&attention, !self.bf16), weights_scratch(&attention), backward_scratch(&attention)];
        let mut team = Team::new(threads, needed.into_iter().max().unwrap()).unwrap();
        let stores = [&inputs.q, &inputs.k, &inputs.v].map(|values| values.as_slice());
        let qkv = tensors.fill(&stores, self.bf16);
        let d_out = tensors.fill_one(&inputs.d_out, self.queries, self.bf16);
        let [q, k, v] = tensors.heads(&qkv);
        let mut out = tensors.poison_one(self.bf16);
        let mut log_sums = vec![f32::NAN; self.batch * self.heads * self.queries];
        team.lend(needed[0]);
        forward(&mut team, &attention, q, k, v, tensors.one_out(&mut out), Shared::new(&mut log_sums));
        let mut found_weights = vec![f32::NAN; log_sums.len() * self.keys];
        team.lend(needed[1]);
        weights(&mut team, &attention, q, k, Shared::new(&mut found_weights));
        let mut d_qkv = tensors.poison(self.bf16);
        let mut d_bias = vec![f32::NAN; if self.bias.is_some() { inputs.bias.len() } else { 0 }];
        let [dq, dk, dv] = tensors.heads_out(&mut d_qkv);
        let shared_bias = self.bias.map(|_| Shared::new(&mut d_bias));
        let (out_read, d_out) = (tensors.one(&out), tensors.one(&d_out));
        team.lend(needed[2]);
        backward(&mut team, &attention, q, k, v, out_read, d_out, &log_sums, dq, dk, dv, shared_bias);
        let wide = |values: &[f32]| values.iter().map(|&x| f64::from(x)).collect::<Values>();
        let [dq, dk, dv] = tensors.read_back(&d_qkv);
        if self.bias.is_none() {
            d_bias = vec![0.0; inputs.bias.len()];
        }
        Results {
            out: tensors.read_one(&out),
            log_sums: wide(&log_sums),
            weights: wide(&found_weights),
            dq,
            dk,
            dv,
            d_bias: wide(&d_bias),
        }
    }

    fn check(&self) {
        let inputs = self.inputs();
        let (expected, found) = (self.naive(&inputs), self.run(&inputs, 2));
        for (name, expected, found) in pairs(&expected, &found) {
            let error = relative_error(expected, found);
            let tolerance = match (self.bf16, name) {
                (false, _) => 1e-5,
                // Weights and output are each rounded to bf16, by up to 2^-9.
                (true, "out") => 4e-3,
                (true, _) => 1e-2,
            };
            assert!(error < tolerance, "{name} is off by {error} in {self:?}");
        }
        for (expected, found) in expected.log_sums.iter().zip(&found.log_sums) {
            assert!(expected == found || (expected - found).abs() < 2e-5, "log sum {found}, not {expected}, {self:?}");
        }
        for (expected, found) in expected.weights.iter().zip(&found.weights) {
            assert!((*expected == 0.0) == (*found == 0.0), "a masked weight must be 0 exactly, in {self:?}");
        }
    }
}

fn pairs<'a>(a: &'a Results, b: &'a Results) -> [(&'static str, &'a Values, &'a Values); 6] {
    [
        ("out", &a.out, &b.out),
        ("weights", &a.weights, &b.weights),
        ("dq", &a.dq, &b.dq),
        ("dk", &a.dk, &b.dk),
        ("dv", &a.dv, &b.dv),
        ("d_bias", &a.d_bias, &b.d_bias),
    ]
}

/// The error's norm over the expected norm; where zero is expected, the result must be near zero.
fn relative_error(expected: &[f64], found: &[f64]) -> f64 {
    assert_eq!(expected.len(), found.len());
    let error: f64 = expected.iter().zip(found).map(|(a, b)| (a - b).powi(2)).sum::<f64>();
    let norm: f64 = expected.iter().map(|a| a * a).sum::<f64>();
    match (norm == 0.0, error.is_nan()) {
        (_, true) => f64::INFINITY,
        // With one key the weights are constant: gradients are rounding errors around zero.
        (true, _) => error.sqrt() / (expected.len() as f64).sqrt(),
        _ => (error / norm.max(1e-20)).sqrt(),
    }
}

#[test]
fn the_naive_gradient_agrees_with_finite_differences() {
    let case = Case { queries: 5, keys: 7, head_dim: 3, heads: 2, causal: true, mask: true, dropout: true, ..PLAIN };
    let case = Case { bias: Some((true, false)), ..case };
    for case in [case, Case { kv_heads: Some(1), window: Some(3), offsets: true, ..case }] {
        differences_agree(&case);
    }
}

fn differences_agree(case: &Case) {
    let mut inputs = case.inputs();
    let results = case.naive(&inputs);
    let loss = |inputs: &Inputs| -> f64 {
        case.naive(inputs).out.iter().zip(&inputs.d_out).map(|(out, d_out)| out * d_out).sum()
    };
    type Field = fn(&mut Inputs) -> &mut Values;
    let fields: [(Field, &Values); 4] = [
        (|inputs| &mut inputs.q, &results.dq),
        (|inputs| &mut inputs.k, &results.dk),
        (|inputs| &mut inputs.v, &results.dv),
        (|inputs| &mut inputs.bias, &results.d_bias),
    ];
    for (field, gradient) in fields {
        for i in 0..gradient.len() {
            let before = field(&mut inputs)[i];
            field(&mut inputs)[i] = before + 1e-5;
            let above = loss(&inputs);
            field(&mut inputs)[i] = before - 1e-5;
            let below = loss(&inputs);
            field(&mut inputs)[i] = before;
            assert!(((above - below) / 2e-5 - gradient[i]).abs() < 1e-7, "{i}: {}", gradient[i]);
        }
    }
}

#[test]
fn every_mask_and_combination() {
    for bits in 0..64 {
        let on = |bit: u32| bits >> bit & 1 == 1;
        let bias = on(3).then_some((on(5), !on(5)));
        let case = Case { causal: on(0), lengths: on(1), mask: on(2), bias, dropout: on(4), fused: on(5), ..PLAIN };
        Case { batch: 3, heads: 2, queries: 21, keys: 21, head_dim: 5, ..case }.check();
        let separate = Case { batch: 3, heads: 2, fused: false, ..case };
        Case { queries: 9, keys: 70, head_dim: 16, ..separate }.check();
        Case { queries: 70, keys: 9, head_dim: 5, ..separate }.check();
    }
}

#[test]
fn fewer_key_value_heads_than_query_heads() {
    for bits in 0..32 {
        let on = |bit: u32| bits >> bit & 1 == 1;
        let bias = on(2).then_some((on(3), !on(4)));
        let case = Case { heads: 6, causal: on(0), lengths: on(1), bias, dropout: on(3), bf16: on(4), ..PLAIN };
        for kv_heads in [1, 2, 3] {
            let case = Case { batch: 3, kv_heads: Some(kv_heads), mask: !on(1), ..case };
            Case { queries: 21, keys: 33, head_dim: 6, ..case }.check();
            Case { queries: 70, keys: 90, head_dim: 16, ..case }.check();
        }
    }
}

#[test]
fn windows_and_offsets() {
    for bits in 0..32 {
        let on = |bit: u32| bits >> bit & 1 == 1;
        let case = Case { causal: on(0), offsets: on(1), lengths: on(2), mask: on(3), bf16: on(4), ..PLAIN };
        let case = Case { batch: 3, heads: 2, bias: on(2).then_some((on(3), on(4))), dropout: on(3), ..case };
        // Offsets without a window need the causal mask.
        let windows = [Some(1), Some(2), Some(7), Some(40), Some(usize::MAX), None];
        for window in windows.into_iter().filter(|window| window.is_some() || case.causal) {
            let case = Case { window, ..case };
            Case { queries: 35, keys: 35, head_dim: 6, ..case }.check();
            Case { queries: 9, keys: 133, head_dim: 16, ..case }.check();
            Case { queries: 100, keys: 20, head_dim: 8, ..case }.check();
        }
    }
}

#[test]
fn windows_of_long_sequences() {
    let long = Case { batch: 1, queries: 600, keys: 600, head_dim: 16, causal: true, ..PLAIN };
    for window in [5, 100, 300, 400] {
        for narrow in [false, true] {
            let case = Case { window: Some(window), bf16: narrow, ..long };
            case.check();
            Case { causal: false, ..case }.check();
            Case { batch: 3, queries: 130, offsets: true, heads: 2, kv_heads: Some(1), lengths: true, ..case }.check();
        }
    }
}

/// A chunk of queries with a KV cache, at every alignment of its offset: rows after its last position, or before its
/// window, may hold anything.
#[test]
fn rows_out_of_reach_are_never_read() {
    let case = Case { batch: 4, heads: 4, kv_heads: Some(2), causal: true, offsets: true, queries: 3, ..PLAIN };
    for (keys, window) in [(40, None), (40, Some(5)), (600, Some(290)), (600, None)] {
        for (narrow, queries) in [(false, 3), (true, 3), (false, 1), (true, 1), (true, 20)] {
            let case = Case { keys, window, bf16: narrow, queries, head_dim: 16, ..case };
            let mut inputs = case.inputs();
            inputs.offsets = [keys as i32 - 30, 9, 8, 0].to_vec();
            let expected = case.naive(&inputs);
            let dim = case.kv_heads() * case.head_dim;
            for row in 0..case.batch * keys {
                let (sample, key) = (row / keys, row % keys);
                if !(0..queries).any(|query| case.sees(&inputs, sample, query, key)) {
                    inputs.k[row * dim..(row + 1) * dim].fill(f64::NAN);
                    inputs.v[row * dim..(row + 1) * dim].fill(f64::NAN);
                }
            }
            let found = case.run(&inputs, 2);
            for (name, expected, found) in pairs(&expected, &found) {
                let tolerance = if case.bf16 { 1e-2 } else { 1e-5 };
                assert!(relative_error(expected, found) < tolerance, "{name} in {case:?}");
            }
        }
    }
}

#[test]
fn every_size() {
    for tokens in [1, 3, 16, 17, 64, 65] {
        for heads in [1, 5] {
            for head_dim in [1, 5, 32, 64, 80] {
                let case = Case { heads, queries: tokens, keys: tokens, head_dim, fused: tokens != 3, ..PLAIN };
                case.check();
                Case { causal: true, ..case }.check();
            }
        }
    }
    for head_dim in [32, 64, 80] {
        let case = Case { batch: 1, queries: 197, keys: 197, head_dim, fused: true, ..PLAIN };
        case.check();
        Case { causal: true, mask: true, heads: 2, ..case }.check();
    }
}

#[test]
fn long_sequences_in_key_blocks() {
    let long = Case { batch: 1, queries: 600, keys: 600, head_dim: 16, ..PLAIN };
    long.check();
    Case { causal: true, lengths: true, batch: 2, ..long }.check();
    Case { mask: true, bias: Some((true, true)), dropout: true, ..long }.check();
    Case { queries: 3, keys: 1100, causal: true, bf16: true, ..long }.check();
    Case { queries: 700, keys: 600, causal: true, head_dim: 5, ..long }.check();
}

#[test]
fn one_query() {
    for keys in [1, 2, 17, 64, 197, 600] {
        for (heads, head_dim) in [(1, 1), (5, 7), (2, 32), (4, 64), (3, 80)] {
            let case = Case { batch: 5, heads, queries: 1, keys, head_dim, ..PLAIN };
            case.check();
            Case { lengths: true, causal: true, ..case }.check();
            Case { mask: true, bias: Some((true, true)), ..case }.check();
            Case { lengths: true, bias: Some((false, false)), ..case }.check();
            Case { lengths: true, bias: Some((true, false)), bf16: true, ..case }.check();
            Case { bf16: true, lengths: true, ..case }.check();
            Case { causal: true, window: Some(9), offsets: true, ..case }.check();
            Case { causal: true, offsets: true, bf16: true, ..case }.check();
        }
        let grouped = Case { batch: 5, heads: 6, kv_heads: Some(2), queries: 1, keys, head_dim: 20, ..PLAIN };
        grouped.check();
        Case { lengths: true, bf16: true, ..grouped }.check();
        Case { causal: true, offsets: true, bias: Some((false, false)), ..grouped }.check();
        // Few samples and many keys: heads are split among tiles.
        Case { batch: 1, keys: 7 * keys, head_dim: 64, ..grouped }.check();
    }
}

#[test]
fn every_sharing_of_the_bias() {
    for bias in [(false, false), (false, true), (true, false), (true, true)] {
        for narrow in [false, true] {
            let case = Case { batch: 3, heads: 5, bias: Some(bias), bf16: narrow, lengths: true, ..PLAIN };
            case.check();
            Case { queries: 70, keys: 133, head_dim: 8, ..case }.check();
        }
    }
}

#[test]
fn bf16_storage() {
    for (tokens, head_dim) in [(1, 5), (16, 32), (17, 80), (197, 64)] {
        for fused in [false, true] {
            Case { queries: tokens, keys: tokens, head_dim, heads: 2, fused, bf16: true, ..PLAIN }.check();
        }
    }
    Case { queries: 9, keys: 30, heads: 5, bf16: true, mask: true, dropout: true, causal: true, ..PLAIN }.check();
}

#[test]
fn pairs_are_used_where_all_is_bf16_and_a_keys_pairs_are_whole() {
    let unit = |head_dim: usize, narrow: [bool; 3]| {
        let case = Case { head_dim, ..PLAIN };
        let stored = narrow.map(|narrow| Stored::new(&[0.0], narrow));
        let [q, k, v] = [0, 1, 2].map(|i| Heads { values: stored[i].read(), offset: 0, row_stride: head_dim });
        pairs::unit_of(&case.attention(&case.inputs(), None), [&q, &k, &v])
    };
    let best = if Unit::has_pairs() { Unit::Pair } else { Unit::Single };
    assert_eq!(unit(64, [true; 3]), best);
    assert_eq!(unit(2, [true; 3]), best);
    assert_eq!(unit(5, [true; 3]), Unit::Single);
    for wide in 0..3 {
        assert_eq!(unit(64, std::array::from_fn(|i| i != wide)), Unit::Single);
    }
}

#[test]
fn pairs_of_every_number_of_keys() {
    for keys in [1, 2, 3, 15, 16, 17, 63, 197, 511, 512, 513, 514, 767, 769] {
        for head_dim in [2, 6, 7, 16, 30, 64, 80] {
            let case = Case { batch: 1, queries: 5, keys, head_dim, bf16: true, ..PLAIN };
            case.check();
            Case { batch: 3, mask: true, ..case }.check();
            Case { batch: 3, lengths: true, dropout: true, ..case }.check();
        }
    }
}

#[test]
fn pairs_with_every_mask_and_combination() {
    for bits in 0..32 {
        let on = |bit: u32| bits >> bit & 1 == 1;
        let bias = on(3).then_some((on(0), on(1)));
        let case = Case { causal: on(0), lengths: on(1), mask: on(2), bias, dropout: on(4), bf16: true, ..PLAIN };
        let case = Case { batch: 3, heads: 2, ..case };
        Case { queries: 35, keys: 35, head_dim: 18, fused: true, ..case }.check();
        Case { queries: 100, keys: 133, head_dim: 16, ..case }.check();
        Case { queries: 70, keys: 9, head_dim: 8, ..case }.check();
    }
}

#[test]
fn the_number_of_threads_changes_no_bit() {
    let case = Case { heads: 3, causal: true, mask: true, bias: Some((true, false)), dropout: true, ..PLAIN };
    for case in [
        Case { batch: 5, queries: 100, keys: 100, ..case },
        Case { batch: 40, queries: 16, keys: 16, bias: None, ..case },
        Case { batch: 1, queries: 700, keys: 700, bias: Some((true, true)), ..case },
        Case { batch: 5, queries: 100, keys: 101, bf16: true, ..case },
        Case { batch: 40, queries: 16, keys: 17, bias: None, bf16: true, ..case },
        Case { batch: 1, queries: 70, keys: 701, bias: Some((true, true)), bf16: true, ..case },
        Case {
            batch: 2,
            heads: 6,
            kv_heads: Some(2),
            queries: 100,
            keys: 300,
            window: Some(70),
            offsets: true,
            ..case
        },
        Case {
            batch: 2,
            heads: 6,
            kv_heads: Some(3),
            queries: 1,
            keys: 900,
            mask: false,
            bias: None,
            dropout: false,
            ..case
        },
    ] {
        let inputs = case.inputs();
        let one = case.run(&inputs, 1);
        for threads in [2, 4] {
            let more = case.run(&inputs, threads);
            for (name, a, b) in pairs(&one, &more) {
                assert!(a.iter().zip(b).all(|(a, b)| a.to_bits() == b.to_bits()), "{name}, {threads} threads");
            }
        }
    }
}

#[test]
fn what_is_masked_may_hold_anything() {
    let case = Case { batch: 3, heads: 2, mask: true, lengths: true, head_dim: 16, ..PLAIN };
    // Of 19 keys the second sample has nine: the last one's pair ends with a masked one.
    let narrow = Case { bf16: true, keys: 19, ..case };
    for case in [
        case,
        Case { head_dim: 5, ..case },
        Case { mask: false, ..case },
        narrow,
        Case { mask: false, ..narrow },
        Case { lengths: false, ..narrow },
        Case { keys: 601, ..narrow },
    ] {
        let mut inputs = case.inputs();
        let expected = case.naive(&inputs);
        for sample in 0..case.batch {
            for key in 0..case.keys {
                if !case.sees(&inputs, sample, 0, key) {
                    let (dim, row) = (case.heads * case.head_dim, sample * case.keys + key);
                    inputs.k[row * dim..(row + 1) * dim].fill(f64::NAN);
                    inputs.v[row * dim..(row + 1) * dim].fill(f64::INFINITY);
                }
            }
        }
        let found = case.run(&inputs, 2);
        for (name, expected, found) in pairs(&expected, &found) {
            let tolerance = if case.bf16 { 1e-2 } else { 1e-5 };
            assert!(relative_error(expected, found) < tolerance, "{name} in {case:?}");
        }
    }
}

#[test]
fn nothing_to_attend_to() {
    for case in [
        Case { keys: 0, ..PLAIN },
        Case { queries: 0, ..PLAIN },
        Case { batch: 0, ..PLAIN },
        Case { queries: 3, keys: 0, causal: true, mask: true, bias: Some((true, true)), ..PLAIN },
        Case { keys: 0, bf16: true, ..PLAIN },
    ] {
        let inputs = case.inputs();
        let found = case.run(&inputs, 2);
        for values in [&found.out, &found.dq, &found.dk, &found.dv] {
            assert!(values.iter().all(|&value| value == 0.0), "{case:?}");
        }
        assert!(found.log_sums.iter().all(|&value| value == f64::INFINITY));
    }
}

#[test]
fn large_scores_stay_finite() {
    let case = Case { head_dim: 4, ..PLAIN };
    let mut inputs = case.inputs();
    for value in inputs.q.iter_mut().chain(&mut inputs.k) {
        *value = (*value * 60.0).round();
    }
    let (expected, found) = (case.naive(&inputs), case.run(&inputs, 2));
    assert!(relative_error(&expected.weights, &found.weights) < 1e-3);
    assert!(found.dq.iter().chain(&found.dk).chain(&found.out).all(|value| value.is_finite()));
}
