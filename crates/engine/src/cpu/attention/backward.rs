//! The gradient of attention.
//!
//! With the weights P, recomputed from the scores and the log-sums, and the dropout factors F: `delta = rowsum(dO *
//! O)`, `dP = dO V^T`, `dS = P * (F * dP - delta)`, and then `dQ = scale * dS K`, `dK = scale * dS^T Q`, `dV = (F *
//! P)^T dO`. One tile computes a key/value head of a sample with all query heads of its group, so that the gradients of
//! keys and values are summed over the queries in a fixed order, by one thread.

use std::ops::Range;

use super::super::memory::Shared;
use super::super::team::Team;
use super::rows::{add_to, padded, row_dots, store_rows, take, transpose_rows};
use super::scores::{QUERY_BLOCK, QueryBlock, Spare};
use super::small_product::{Factor, Rows, Size, Target, product};
use super::softmax::{BlockShape, backward_step, backward_whole};
use super::{Attention, Heads, HeadsOut};

/// Keys per block: scores and gradients of a block stay in the L1 and L2 caches.
const KEY_BLOCK: usize = 256;

/// The scratch memory that each thread needs for [`backward`].
pub fn scratch(attention: &Attention) -> usize {
    let width = padded(attention.head_dim);
    4 * attention.keys * width
        + 6 * QUERY_BLOCK * width
        + 3 * KEY_BLOCK.min(attention.keys) * QUERY_BLOCK
        + 2 * QUERY_BLOCK
        + Spare::FLOATS
}

/// The backward pass: `out` and `log_sums` are the results of [`forward`](super::forward), `d_out` is the gradient of
/// `out`. `d_bias` has the bias' shape and gets its gradient, summed over the samples and heads that share it.
///
/// # Panics
/// Panics if a shape does not fit, or the team's scratch memory is less than [`scratch`].
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
    dq.check(attention.heads, attention.head_dim);
    [dk, dv].iter().for_each(|gradient| gradient.check(attention.kv_heads, attention.head_dim));
    assert_eq!(log_sums.len(), attention.pairs() * attention.queries);
    let pass = Backward { attention, q, k, v, out, d_out, log_sums, dq, dk, dv, d_bias };
    let groups = attention.batch * attention.kv_heads;
    let Some(d_bias) = d_bias else {
        let per_tile = (attention.pairs_per_tile() / attention.group()).max(1);
        team.run(groups.div_ceil(per_tile), &|tile, scratch| {
            for group in tile * per_tile..((tile + 1) * per_tile).min(groups) {
                pass.group(group, scratch);
            }
        });
        return;
    };
    let bias = attention.bias.expect("a bias, where its gradient is wanted");
    assert_eq!(d_bias.len(), bias.values.len());
    // A tile is the slices of the bias that a group of heads uses: it sums over the groups that share them in a fixed
    // order.
    let slices = if bias.heads == 1 { 1 } else { attention.group() };
    let floats = slices * attention.queries * attention.keys;
    team.run(bias.batch * bias.heads / slices, &|tile, scratch| {
        // SAFETY: no other tile has these slices.
        unsafe { d_bias.range(tile * floats..(tile + 1) * floats) }.fill(0.0);
        for group in 0..groups {
            let (sample, first_head) = (group / attention.kv_heads, group % attention.kv_heads * attention.group());
            if bias.slice_of(sample, first_head) / slices == tile {
                pass.group(group, scratch);
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

/// Scratch memory for a block of queries: copies, if the tensors cannot be used directly.
struct QueryPlace<'s> {
    q: &'s mut [f32],
    d_out: &'s mut [f32],
    out: &'s mut [f32],
    dq: &'s mut [f32],
}

/// Scratch memory for a block of queries with a block of keys.
struct StepPlace<'s> {
    q_transposed: &'s mut [f32],
    d_out_transposed: &'s mut [f32],
    /// The log-sums, to base 2.
    log_sums: &'s mut [f32],
    deltas: &'s mut [f32],
    scores: &'s mut [f32],
    d_scores: &'s mut [f32],
    factors: &'s mut [f32],
    spare: Spare<'s>,
}

/// The operands of one key/value head.
struct Keys<'a> {
    k: Rows<'a>,
    v: Rows<'a>,
    dk: Target<'a>,
    dv: Target<'a>,
}

/// The operands of one block of queries.
struct Queries<'a> {
    q: Rows<'a>,
    d_out: Rows<'a>,
    dq: Target<'a>,
    /// The keys they attend to.
    seen: Range<usize>,
    /// Whether to accumulate the gradients of keys and values: the first block of a group writes them.
    add: bool,
}

fn places<'s>(attention: &Attention, scratch: &mut &'s mut [f32]) -> (QueryPlace<'s>, StepPlace<'s>) {
    let query_floats = QUERY_BLOCK * padded(attention.head_dim);
    let block_floats = KEY_BLOCK.min(attention.keys) * QUERY_BLOCK;
    let query_place = QueryPlace {
        q: take(scratch, query_floats),
        d_out: take(scratch, query_floats),
        out: take(scratch, query_floats),
        dq: take(scratch, query_floats),
    };
    let step_place = StepPlace {
        q_transposed: take(scratch, query_floats),
        d_out_transposed: take(scratch, query_floats),
        log_sums: take(scratch, QUERY_BLOCK),
        deltas: take(scratch, QUERY_BLOCK),
        scores: take(scratch, block_floats),
        d_scores: take(scratch, block_floats),
        factors: take(scratch, block_floats),
        spare: Spare::new(scratch),
    };
    (query_place, step_place)
}

impl Backward<'_> {
    /// A key/value head of a sample, with all query heads that read it.
    fn group(&self, group: usize, mut scratch: &mut [f32]) {
        let attention = self.attention;
        let (keys, dim, width) = (attention.keys, attention.head_dim, padded(attention.head_dim));
        let (sample, kv_head) = (group / attention.kv_heads, group % attention.kv_heads);
        let [k_copy, v_copy, dk_sum, dv_sum] = std::array::from_fn(|_| take(&mut scratch, keys * width));
        let (mut place, mut step) = places(attention, &mut scratch);
        let regions = [&self.dk, &self.dv].map(|to| to.region(sample, kv_head, 0..keys, keys, dim));
        let first_pair = sample * attention.heads + kv_head * attention.group();
        let blocks = || (first_pair..first_pair + attention.group()).flat_map(|pair| attention.blocks_of(pair));
        // The first block of queries writes the gradients of the keys it attends to instead of adding to them; those of
        // all other keys start at zero.
        let written = blocks().next().map_or(0..0, |block| attention.seen_keys(&block));
        // A single block writes the gradients directly.
        let single = written == (0..keys) && blocks().nth(1).is_none();
        let direct = [self.dk.direct(regions[0]), self.dv.direct(regions[1])].map(|target| target.filter(|_| single));
        for (sum, direct) in [(&mut *dk_sum, &direct[0]), (&mut *dv_sum, &direct[1])] {
            if direct.is_none() {
                sum[..written.start * width].fill(0.0);
                sum[written.end * width..keys * width].fill(0.0);
            }
        }
        let head = first_pair % attention.heads;
        let operands = Keys {
            k: attention.key_rows(&self.k, sample, head, true, k_copy),
            v: attention.key_rows(&self.v, sample, head, true, v_copy),
            dk: direct[0].unwrap_or(Target::scratch(dk_sum, width)),
            dv: direct[1].unwrap_or(Target::scratch(dv_sum, width)),
        };
        for (index, block) in blocks().enumerate() {
            self.block(&block, &operands, index > 0, &mut place, &mut step);
        }
        for (sum, to, region, direct) in
            [(dk_sum, &self.dk, regions[0], direct[0]), (dv_sum, &self.dv, regions[1], direct[1])]
        {
            if direct.is_none() {
                store_rows(Rows { values: sum, stride: width }, None, &to.values, region);
            }
        }
    }

    fn block(&self, block: &QueryBlock, keys: &Keys, add: bool, place: &mut QueryPlace, step: &mut StepPlace) {
        let attention = self.attention;
        let (lanes, dim, width) = (block.lanes(), attention.head_dim, padded(attention.head_dim));
        let seen = attention.seen_keys(block);
        let q = attention.query_rows(&self.q, block, true, place.q);
        transpose_rows(q, block.count, dim, step.q_transposed, lanes);
        let d_out = attention.query_rows(&self.d_out, block, true, place.d_out);
        transpose_rows(d_out, block.count, dim, step.d_out_transposed, lanes);
        if seen.len() > KEY_BLOCK {
            let out = attention.query_rows(&self.out, block, false, place.out);
            row_dots(out, d_out, dim, &mut step.deltas[..block.count]);
        }
        let first = (block.sample * attention.heads + block.head) * attention.queries + block.first;
        for (to, from) in step.log_sums.iter_mut().zip(&self.log_sums[first..first + block.count]) {
            *to = from * std::f32::consts::LOG2_E;
        }
        let queries = block.first..block.first + block.count;
        let region = self.dq.region(block.sample, block.head, queries, attention.queries, dim);
        let direct = self.dq.direct(region).filter(|_| !seen.is_empty());
        if seen.is_empty() {
            place.dq.fill(0.0);
        }
        let dq = direct.unwrap_or(Target::scratch(place.dq, width));
        let queries = Queries { q, d_out, dq, seen, add };
        for start in queries.seen.clone().step_by(KEY_BLOCK) {
            self.step(block, start..(start + KEY_BLOCK).min(queries.seen.end), keys, &queries, step);
        }
        if direct.is_none() {
            store_rows(Rows { values: place.dq, stride: width }, None, &self.dq.values, region);
        }
    }

    /// A block of queries with a block of keys.
    fn step(&self, block: &QueryBlock, keys: Range<usize>, head: &Keys, queries: &Queries, place: &mut StepPlace) {
        let attention = self.attention;
        let (lanes, dim, start) = (block.lanes(), attention.head_dim, keys.start);
        let shape = BlockShape { keys: keys.len(), lanes };
        let (scores, d_scores) = (&mut *place.scores, &mut *place.d_scores);
        attention.scores(block, keys.clone(), head.k.as_they_are(), place.q_transposed, scores, &mut place.spare);
        let size = Size { rows: keys.len(), columns: lanes, depth: dim };
        let right = Rows { values: place.d_out_transposed, stride: lanes };
        let left = head.v.starting_at(start).as_they_are();
        product(size, Factor::All(1.0), left, right, Target::scratch(d_scores, lanes), false);
        let mut factors = None;
        if attention.dropout.is_some() {
            attention.dropout_factors(block, keys.clone(), place.factors);
            factors = Some(&*place.factors);
        }
        if queries.seen.len() <= KEY_BLOCK {
            backward_whole(scores, d_scores, shape, place.log_sums, factors);
        } else {
            backward_step(scores, d_scores, shape, place.log_sums, place.deltas, factors);
        }
        if let Some(d_bias) = &self.d_bias {
            self.add_d_bias(d_bias, block, keys.clone(), d_scores, &mut place.spare);
        }
        let weights = Rows { values: scores, stride: lanes };
        let d_scores = Rows { values: d_scores, stride: lanes };
        let (scale, add) = (Factor::All(attention.scale), queries.add);
        let size = Size { rows: keys.len(), columns: dim, depth: block.count };
        product(size, Factor::All(1.0), weights.as_they_are(), queries.d_out, head.dv.starting_at(start), add);
        product(size, scale, d_scores.as_they_are(), queries.q, head.dk.starting_at(start), add);
        let size = Size { rows: block.count, columns: dim, depth: keys.len() };
        product(size, scale, d_scores.transposed(), head.k.starting_at(start), queries.dq, start > queries.seen.start);
    }

    fn add_d_bias(
        &self,
        d_bias: &Shared<f32>,
        block: &QueryBlock,
        keys: Range<usize>,
        d_scores: &[f32],
        spare: &mut Spare,
    ) {
        let attention = self.attention;
        let slice = attention.bias.map_or(0, |bias| bias.slice_of(block.sample, block.head));
        attention.by_query(block, keys, d_scores, spare, |query, key, values| {
            let at = (slice * attention.queries + query) * attention.keys + key;
            // SAFETY: no other tile uses this slice of the bias.
            add_to(unsafe { d_bias.range(at..at + values.len()) }, values);
        });
    }
}
