//! The gradient of attention.
//!
//! With P the weights, computed again from the scores and the sums' logarithms, and F dropout's factors:
//! `delta = rowsum(dO * O)`, `dP = dO V^T`, `dS = P * (F * dP - delta)`, and then `dQ = scale * dS K`,
//! `dK = scale * dS^T Q`, `dV = (F * P)^T dO`. One tile does a whole (sample, head) pair, so that the gradients of keys
//! and values are summed over the queries in one order, without sharing.

use super::super::memory::Shared;
use super::super::team::Team;
use super::rows::{add_to, padded, row_dots, store_rows, take, transpose_rows};
use super::scores::{QUERY_BLOCK, QueryBlock, Spare};
use super::small_product::{Rows, Size, product};
use super::softmax::{BlockShape, backward_step};
use super::{Attention, Heads, HeadsOut};

/// So many keys are taken at once: their blocks of scores and gradients stay in the caches nearest to the core.
const KEY_BLOCK: usize = 128;

pub fn scratch(attention: &Attention) -> usize {
    let width = padded(attention.head_dim);
    4 * attention.keys * width
        + 6 * QUERY_BLOCK * width
        + 3 * KEY_BLOCK.min(attention.keys) * QUERY_BLOCK
        + 2 * QUERY_BLOCK
        + Spare::FLOATS
}

/// The backward pass: `out` and `log_sums` are what [`forward`](super::forward) gave, `d_out` is the gradient of `out`.
/// `d_bias` has the bias' shape and gets its gradient, summed over the samples and heads that share it.
///
/// # Panics
/// Panics if a shape does not fit, or the team's scratch memory is less than [`scratch_floats`](super::scratch_floats).
pub fn backward(
    team: &mut Team,
    attention: &Attention,
    q: Heads,
    k: Heads,
    v: Heads,
    out: Heads,
    d_out: Heads,
    log_sums: &[f32],
    dq: HeadsOut,
    dk: HeadsOut,
    dv: HeadsOut,
    d_bias: Option<Shared<f32>>,
) {
    attention.check();
    assert_eq!(log_sums.len(), attention.pairs() * attention.queries);
    let pass = Backward { attention, q, k, v, out, d_out, log_sums, dq, dk, dv, d_bias };
    let Some(d_bias) = d_bias else {
        let (pairs, group) = (attention.pairs(), attention.pairs_a_tile());
        team.run(pairs.div_ceil(group), &|tile, scratch| {
            for pair in tile * group..((tile + 1) * group).min(pairs) {
                pass.pair(pair, scratch);
            }
        });
        return;
    };
    let bias = attention.bias.expect("a bias, where its gradient is wanted");
    assert_eq!(d_bias.len(), bias.values.len());
    // A tile is one slice of the bias: it adds up the pairs that share it, always in the same order.
    let floats = attention.queries * attention.keys;
    team.run(bias.batch * bias.heads, &|slice, scratch| {
        // SAFETY: this slice is no other tile's.
        unsafe { d_bias.range(slice * floats..(slice + 1) * floats) }.fill(0.0);
        for pair in 0..attention.pairs() {
            if bias.slice_of(pair / attention.heads, pair % attention.heads) == slice {
                pass.pair(pair, scratch);
            }
        }
    });
}

struct Backward<'a> {
    attention: &'a Attention<'a>,
    q: Heads<'a>,
    k: Heads<'a>,
    v: Heads<'a>,
    out: Heads<'a>,
    d_out: Heads<'a>,
    log_sums: &'a [f32],
    dq: HeadsOut<'a>,
    dk: HeadsOut<'a>,
    dv: HeadsOut<'a>,
    d_bias: Option<Shared<'a, f32>>,
}

/// What a block of queries works with, and the sums over all of them.
struct Workplace<'s> {
    q_copy: &'s mut [f32],
    q_transposed: &'s mut [f32],
    d_out_copy: &'s mut [f32],
    d_out_transposed: &'s mut [f32],
    out_copy: &'s mut [f32],
    dq: &'s mut [f32],
    dk: &'s mut [f32],
    dv: &'s mut [f32],
    scores: &'s mut [f32],
    d_scores: &'s mut [f32],
    factors: &'s mut [f32],
    log_sums: &'s mut [f32],
    deltas: &'s mut [f32],
    spare: Spare<'s>,
}

impl<'s> Workplace<'s> {
    fn new(attention: &Attention, scratch: &mut &'s mut [f32]) -> Self {
        let width = padded(attention.head_dim);
        let (query_floats, key_floats) = (QUERY_BLOCK * width, attention.keys * width);
        let block_floats = KEY_BLOCK.min(attention.keys) * QUERY_BLOCK;
        Workplace {
            q_copy: take(scratch, query_floats),
            q_transposed: take(scratch, query_floats),
            d_out_copy: take(scratch, query_floats),
            d_out_transposed: take(scratch, query_floats),
            out_copy: take(scratch, query_floats),
            dq: take(scratch, query_floats),
            dk: take(scratch, key_floats),
            dv: take(scratch, key_floats),
            scores: take(scratch, block_floats),
            d_scores: take(scratch, block_floats),
            factors: take(scratch, block_floats),
            log_sums: take(scratch, QUERY_BLOCK),
            deltas: take(scratch, QUERY_BLOCK),
            spare: Spare::new(scratch),
        }
    }
}

impl Backward<'_> {
    fn pair(&self, pair: usize, mut scratch: &mut [f32]) {
        let attention = self.attention;
        let width = padded(attention.head_dim);
        let (sample, head) = (pair / attention.heads, pair % attention.heads);
        let k_copy = take(&mut scratch, attention.keys * width);
        let v_copy = take(&mut scratch, attention.keys * width);
        let mut place = Workplace::new(attention, &mut scratch);
        let k = attention.key_rows(&self.k, sample, head, true, k_copy);
        let v = attention.key_rows(&self.v, sample, head, true, v_copy);
        // The first block of queries writes the keys' gradients instead of adding to them; it may see fewer keys than
        // later ones do, but never more.
        let written = attention.blocks_of(pair).next().map_or(0, |block| attention.seen_keys(&block));
        place.dk[written * width..].fill(0.0);
        place.dv[written * width..].fill(0.0);
        for block in attention.blocks_of(pair) {
            self.block(&block, k, v, &mut place);
        }
        for (values, to) in [(&place.dk, &self.dk), (&place.dv, &self.dv)] {
            let region = to.region(sample, head, 0..attention.keys, attention.keys, attention.head_dim);
            store_rows(Rows { values, stride: width }, None, &to.values, region);
        }
    }

    fn block(&self, block: &QueryBlock, k: Rows, v: Rows, place: &mut Workplace) {
        let attention = self.attention;
        let (lanes, dim, width) = (block.lanes(), attention.head_dim, padded(attention.head_dim));
        let q = attention.query_rows(&self.q, block, true, place.q_copy);
        transpose_rows(q, block.count, dim, place.q_transposed, lanes);
        let d_out = attention.query_rows(&self.d_out, block, true, place.d_out_copy);
        transpose_rows(d_out, block.count, dim, place.d_out_transposed, lanes);
        let out = attention.query_rows(&self.out, block, false, place.out_copy);
        row_dots(out, d_out, dim, &mut place.deltas[..block.count]);
        let first = (block.sample * attention.heads + block.head) * attention.queries + block.first;
        for (to, from) in place.log_sums.iter_mut().zip(&self.log_sums[first..first + block.count]) {
            *to = from * std::f32::consts::LOG2_E;
        }
        let seen = attention.seen_keys(block);
        if seen == 0 {
            place.dq.fill(0.0);
        }
        for start in (0..seen).step_by(KEY_BLOCK) {
            let keys = start..(start + KEY_BLOCK).min(seen);
            let count = keys.len();
            let shape = BlockShape { keys: count, lanes };
            let spare = &mut place.spare;
            attention.scores(block, keys.clone(), k, place.q_transposed, place.scores, spare);
            let size = Size { rows: count, columns: lanes, depth: dim };
            let right = Rows { values: place.d_out_transposed, stride: lanes };
            product(size, 1.0, v.from_row(start).as_they_are(), right, place.d_scores, lanes, false);
            let factors = attention.dropout.is_some().then(|| {
                attention.dropout_factors(block, keys.clone(), place.factors, spare);
                &*place.factors
            });
            backward_step(place.scores, place.d_scores, shape, place.log_sums, place.deltas, factors);
            if let Some(d_bias) = &self.d_bias {
                self.add_d_bias(d_bias, block, keys, place.d_scores, spare);
            }
            let weights = Rows { values: place.scores, stride: lanes };
            let d_scores = Rows { values: place.d_scores, stride: lanes };
            let (scale, add) = (attention.scale, block.first > 0);
            let size = Size { rows: count, columns: dim, depth: block.count };
            let at = start * width;
            product(size, 1.0, weights.as_they_are(), d_out, &mut place.dv[at..], width, add);
            product(size, scale, d_scores.as_they_are(), q, &mut place.dk[at..], width, add);
            let size = Size { rows: block.count, columns: dim, depth: count };
            product(size, scale, d_scores.transposed(), k.from_row(start), place.dq, width, start > 0);
        }
        let queries = block.first..block.first + block.count;
        let region = self.dq.region(block.sample, block.head, queries, attention.queries, dim);
        store_rows(Rows { values: place.dq, stride: width }, None, &self.dq.values, region);
    }

    fn add_d_bias(
        &self,
        d_bias: &Shared<f32>,
        block: &QueryBlock,
        keys: std::ops::Range<usize>,
        d_scores: &[f32],
        spare: &mut Spare,
    ) {
        let attention = self.attention;
        let slice = attention.bias.map_or(0, |bias| bias.slice_of(block.sample, block.head));
        attention.by_query(block, keys, d_scores, spare, |query, key, values| {
            let at = (slice * attention.queries + query) * attention.keys + key;
            // SAFETY: only this tile works on this slice of the bias.
            add_to(unsafe { d_bias.range(at..at + values.len()) }, values);
        });
    }
}
