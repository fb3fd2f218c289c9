//! Attention: `out = dropout(softmax(scale * Q K^T + bias, masked)) V`, and its gradient.
//!
//! The weight matrix is never stored. A block of queries visits the keys block by block; the forward pass keeps a
//! running maximum and sum per query (online softmax) and stores the log-sum, from which the backward pass recomputes
//! the weights.
//!
//! Blocks of scores have one row per key and one lane per query (see [`softmax`]). That makes key padding free (rows
//! are skipped), and only the queries and the bias have to be transposed. A block of queries visits only the keys that
//! some of its queries attend to: those between the start of its first query's window and the end of its last query's.
//!
//! If queries, keys and values are stored as bf16 and the CPU has bf16 dot products, the forward pass uses them: see
//! [`pairs`].
//!
//! Tiles depend on shapes alone, so results are bit-identical for any number of threads. Nor does a query's result depend on which others
//! are computed with it, or on how many keys there are that it does not attend to: blocks of keys begin at the same keys for all, and a
//! masked key adds nothing. A prompt gives the same bits however it is cut into pieces of two tokens or more; [`one_query`] alone sums
//! in another order.

mod backward;
mod one_query;
mod pairs;
mod rows;
mod scores;
mod small_product;
mod softmax;
#[cfg(test)]
mod tests;
mod weights;

use std::ops::Range;

use super::memory::{FloatShared, FloatSlice, Shared};
use super::team::Team;
use crate::ops::attention::Reach;
use crate::random;

pub use backward::{backward, scratch as backward_scratch};
pub use scores::Bias;
pub use weights::{scratch as weights_scratch, weights};

use rows::{PADDING, Region, padded, scale_rows, store_rows, take, transpose_rows};
use scores::{QUERY_BLOCK, QueryBlock, Spare, query_blocks, query_range};
use small_product::{Factor, Rows, Size, Strided, Target, Unit, product};
use softmax::{BlockShape, Running, finish, multiply, online_step};

/// So many keys are taken at once; up to as many, nothing has to be rescaled.
const KEY_BLOCK: usize = 256;
const _: () = assert!(KEY_BLOCK.is_multiple_of(2), "a block of keys starts with a whole pair");
/// A tile should do at least this many multiplications: some microseconds, compared with the cost of scheduling it.
const TILE_MULTIPLICATIONS: usize = 1 << 17;
/// With fewer (sample, head) pairs than this, each block of queries is a tile of its own.
const ENOUGH_PAIRS: usize = 64;

/// Q, K, V or something of their shape inside larger rows: value `(sample, token, head, i)` is
/// `values[offset + (sample * tokens + token) * row_stride + head * head_dim + i]`.
///
/// A fused tensor `[batch, tokens, 3 * dim]` is three of these, with offsets 0, dim and 2 * dim and stride 3 * dim.
#[derive(Clone, Copy)]
pub struct Heads<'a> {
    pub values: FloatSlice<'a>,
    pub offset: usize,
    pub row_stride: usize,
}

/// As [`Heads`], for writing.
#[derive(Clone, Copy)]
pub struct HeadsOut<'a> {
    pub values: FloatShared<'a>,
    pub offset: usize,
    pub row_stride: usize,
}

/// The shapes, masks and other settings of one attention.
#[derive(Clone, Copy)]
pub struct Attention<'a> {
    pub batch: usize,
    pub heads: usize,
    /// Heads of keys and values; divides `heads`.
    pub kv_heads: usize,
    pub queries: usize,
    pub keys: usize,
    pub head_dim: usize,
    /// Scale of the scores.
    pub scale: f32,
    /// How far a query attends from its position.
    pub reach: Reach,
    /// `[batch]`: the position of each sample's first query. Without it the last query is at the last key.
    pub offsets: Option<&'a [i32]>,
    /// `[batch]`: keys at this index and beyond are padding. Values outside `0..=keys` are clamped.
    pub key_lengths: Option<&'a [i32]>,
    /// `[batch, keys]`: 0 is padding.
    pub key_mask: Option<&'a [i32]>,
    /// Added to the scaled scores.
    pub bias: Option<Bias<'a>>,
    /// Dropout on the weights: row `sample * heads + head`, column `key * queries + query`.
    pub dropout: Option<random::Mask>,
    /// Index of the first sample in the rows of `dropout`.
    pub first_sample: usize,
}

impl Heads<'_> {
    fn region(&self, sample: usize, head: usize, tokens: Range<usize>, all: usize, head_dim: usize) -> Region {
        region(self.offset, self.row_stride, sample * all, tokens, head * head_dim, head_dim)
    }
}

impl<'a> HeadsOut<'a> {
    /// # Panics
    /// Panics if rows of that many heads overlap: tiles that write different heads or tokens would write the same values.
    fn check(&self, heads: usize, head_dim: usize) {
        assert!(self.row_stride >= heads * head_dim, "rows of the output overlap");
    }

    /// Rows that a product can be written to directly: f32, and whole vectors that do not extend into other heads.
    fn direct(&self, region: Region) -> Option<Target<'a>> {
        match self.values {
            FloatShared::F32(values) if region.columns.is_multiple_of(PADDING) => {
                Some(Target { values, start: region.start, stride: region.stride })
            }
            _ => None,
        }
    }

    fn region(&self, sample: usize, head: usize, tokens: Range<usize>, all: usize, head_dim: usize) -> Region {
        region(self.offset, self.row_stride, sample * all, tokens, head * head_dim, head_dim)
    }
}

fn region(
    offset: usize,
    stride: usize,
    first_row: usize,
    tokens: Range<usize>,
    column: usize,
    columns: usize,
) -> Region {
    Region { start: offset + (first_row + tokens.start) * stride + column, stride, rows: tokens.len(), columns }
}

impl Attention<'_> {
    fn pairs(&self) -> usize {
        self.batch * self.heads
    }

    /// Query heads that share a key/value head.
    fn group(&self) -> usize {
        self.heads / self.kv_heads
    }

    /// The key/value head of a query head.
    fn kv_head(&self, head: usize) -> usize {
        head / self.group()
    }

    /// (sample, head) pairs per tile.
    fn pairs_per_tile(&self) -> usize {
        (TILE_MULTIPLICATIONS / (self.queries * self.keys * self.head_dim).max(1)).max(1)
    }

    /// The most keys of a block.
    fn key_block(&self) -> usize {
        self.keys.min(KEY_BLOCK)
    }

    /// Every block of queries of one (sample, head) pair.
    fn blocks_of(&self, pair: usize) -> impl Iterator<Item = QueryBlock> {
        let attention = *self;
        (0..query_blocks(self.queries)).map(move |index| attention.block(pair, index))
    }

    fn block(&self, pair: usize, index: usize) -> QueryBlock {
        let range = query_range(self.queries, index);
        QueryBlock { sample: pair / self.heads, head: pair % self.heads, first: range.start, count: range.len() }
    }

    /// Checks what all passes rely on.
    ///
    /// # Panics
    /// Panics if heads do not form groups, or offsets, masks or bias are not of the stated shape.
    fn check(&self) {
        assert!(self.kv_heads > 0 && self.heads.is_multiple_of(self.kv_heads), "whole groups of heads");
        assert!(self.offsets.is_none_or(|offsets| offsets.len() == self.batch), "one offset per sample");
        assert!(self.key_lengths.is_none_or(|lengths| lengths.len() == self.batch), "one length per sample");
        assert!(self.key_mask.is_none_or(|mask| mask.len() == self.batch * self.keys), "one mask value per key");
        if let Some(bias) = &self.bias {
            assert!(bias.batch == 1 || bias.batch == self.batch, "a bias for each sample or for all");
            assert!(bias.heads == 1 || bias.heads == self.heads, "a bias for each head or for all");
            assert_eq!(bias.values.len(), bias.batch * bias.heads * self.queries * self.keys, "a bias for each pair");
        }
    }
}

/// Keys in their blocks, which begin at multiples of [`KEY_BLOCK`].
fn key_blocks(keys: &Range<usize>) -> impl Iterator<Item = Range<usize>> + use<> {
    let Range { start, end } = keys.clone();
    let first = start / KEY_BLOCK * KEY_BLOCK;
    (first..end).step_by(KEY_BLOCK).map(move |block| block.max(start)..(block + KEY_BLOCK).min(end))
}

/// The scratch memory that each thread needs for [`forward`]; `both_f32` says whether keys and values are f32.
pub fn forward_scratch(attention: &Attention, both_f32: bool) -> usize {
    if one_query::suits(attention, both_f32) {
        return one_query::scratch(attention);
    }
    let width = padded(attention.head_dim);
    2 * attention.keys * width
        + 3 * QUERY_BLOCK * width
        + 2 * attention.key_block() * QUERY_BLOCK
        + 3 * QUERY_BLOCK
        + Spare::FLOATS
}

/// The forward pass: `out` is `[batch, queries, heads * head_dim]`, `log_sums` is `[batch, heads, queries]` and is
/// needed by [`backward`]: the logarithms of the softmax's sums, plus infinity if a query attends to no key.
///
/// # Panics
/// Panics if a shape does not fit, or the team's scratch memory is less than [`forward_scratch`].
pub fn forward(
    team: &mut Team,
    attention: &Attention,
    q: Heads,
    k: Heads,
    v: Heads,
    out: HeadsOut,
    log_sums: Shared<f32>,
) {
    attention.check();
    out.check(attention.heads, attention.head_dim);
    assert_eq!(log_sums.len(), attention.pairs() * attention.queries);
    if attention.pairs() * attention.queries == 0 {
        return;
    }
    let both_f32 = matches!((k.values, v.values), (FloatSlice::F32(_), FloatSlice::F32(_)));
    if one_query::suits(attention, both_f32) {
        return one_query::forward(team, attention, q, [k, v], out, log_sums);
    }
    let unit = pairs::unit_of(attention, [&q, &k, &v]);
    let pass = Forward { attention, unit, q, k, v, out, log_sums };
    let (pairs, blocks) = (attention.pairs(), query_blocks(attention.queries));
    if pairs < ENOUGH_PAIRS && blocks > 1 {
        team.run(pairs * blocks, &|tile, scratch| {
            let block = attention.block(tile / blocks, tile % blocks);
            pass.pair(tile / blocks, std::iter::once(block), scratch);
        });
        return;
    }
    let group = attention.pairs_per_tile();
    team.run(pairs.div_ceil(group), &|tile, scratch| {
        for pair in tile * group..((tile + 1) * group).min(pairs) {
            pass.pair(pair, attention.blocks_of(pair), scratch);
        }
    });
}

struct Forward<'a> {
    attention: &'a Attention<'a>,
    /// The unit of the operands.
    unit: Unit,
    q: Heads<'a>,
    k: Heads<'a>,
    v: Heads<'a>,
    out: HeadsOut<'a>,
    log_sums: Shared<'a, f32>,
}

/// Scratch memory for a block of queries.
struct Scratch<'s> {
    queries: &'s mut [f32],
    query_copy: &'s mut [f32],
    scores: &'s mut [f32],
    /// The dropout factors, and then the weights as pairs.
    factors: &'s mut [f32],
    out: &'s mut [f32],
    running: Running<'s>,
    spare: Spare<'s>,
}

impl Forward<'_> {
    /// Some blocks of queries of one (sample, head) pair.
    fn pair(&self, pair: usize, blocks: impl Iterator<Item = QueryBlock>, mut scratch: &mut [f32]) {
        let attention = self.attention;
        let width = padded(attention.head_dim);
        let (sample, head) = (pair / attention.heads, pair % attention.heads);
        let k_copy = take(&mut scratch, attention.keys * width);
        let v_copy = take(&mut scratch, attention.keys * width);
        let block_floats = attention.key_block() * QUERY_BLOCK;
        let mut place = Scratch {
            queries: take(&mut scratch, QUERY_BLOCK * width),
            query_copy: take(&mut scratch, QUERY_BLOCK * width),
            scores: take(&mut scratch, block_floats),
            factors: take(&mut scratch, block_floats),
            out: take(&mut scratch, QUERY_BLOCK * width),
            running: Running {
                maxima: take(&mut scratch, QUERY_BLOCK),
                sums: take(&mut scratch, QUERY_BLOCK),
                rescale: take(&mut scratch, QUERY_BLOCK),
            },
            spare: Spare::new(&mut scratch),
        };
        let (k, v) = match self.unit {
            Unit::Single => (
                attention.key_rows(&self.k, sample, head, false, k_copy).as_they_are(),
                attention.key_rows(&self.v, sample, head, true, v_copy),
            ),
            Unit::Pair => {
                (attention.key_pairs(&self.k, sample, head), attention.value_pairs(&self.v, sample, head, v_copy))
            }
        };
        for block in blocks {
            self.block(&block, k, v, &mut place);
        }
    }

    fn block(&self, block: &QueryBlock, k: Strided, v: Rows, place: &mut Scratch) {
        let attention = self.attention;
        match self.unit {
            Unit::Single => {
                let q = attention.query_rows(&self.q, block, false, place.query_copy);
                transpose_rows(q, block.count, attention.head_dim, place.queries, block.lanes());
            }
            Unit::Pair => attention.query_pairs(&self.q, block, place.queries),
        }
        place.running.maxima.fill(f32::NEG_INFINITY);
        place.running.sums.fill(0.0);
        let queries = block.first..block.first + block.count;
        let region = self.out.region(block.sample, block.head, queries, attention.queries, attention.head_dim);
        let seen = self.unit.whole_units(attention.seen_keys(block));
        match key_blocks(&seen).count() {
            1 => self.whole(block, seen, k, v, region, place),
            _ => self.online(block, seen, k, v, region, place),
        }
    }

    /// A block of queries that processes all its keys at once.
    fn whole(&self, block: &QueryBlock, seen: Range<usize>, k: Strided, v: Rows, region: Region, place: &mut Scratch) {
        let (attention, width) = (self.attention, padded(self.attention.head_dim));
        self.weights(block, seen.clone(), k, place);
        self.finish(block, place);
        let direct = self.out.direct(region);
        let target = direct.unwrap_or(Target::scratch(place.out, width));
        let size = Size { rows: block.count, columns: attention.head_dim, depth: self.unit.count(seen.len()) };
        let left = self.left_weights(block, seen.len(), place.scores, place.factors);
        let right = v.starting_at(seen.start / self.unit.values());
        product(size, Factor::Rows(place.running.sums), left, right, target, false);
        if direct.is_none() {
            store_rows(Rows { values: place.out, stride: width }, None, &self.out.values, region);
        }
    }

    /// A block of queries that processes its keys block by block.
    fn online(&self, block: &QueryBlock, seen: Range<usize>, k: Strided, v: Rows, region: Region, place: &mut Scratch) {
        let (attention, width) = (self.attention, padded(self.attention.head_dim));
        if seen.is_empty() {
            place.out.fill(0.0);
        }
        for keys in key_blocks(&seen) {
            let size = Size { rows: block.count, columns: attention.head_dim, depth: self.unit.count(keys.len()) };
            self.weights(block, keys.clone(), k, place);
            let is_first = keys.start == seen.start;
            if !is_first {
                scale_rows(place.out, width, &place.running.rescale[..block.count]);
            }
            let left = self.left_weights(block, keys.len(), place.scores, place.factors);
            let right = v.starting_at(keys.start / self.unit.values());
            product(size, Factor::All(1.0), left, right, Target::scratch(place.out, width), !is_first);
        }
        self.finish(block, place);
        let rows = Rows { values: place.out, stride: width };
        store_rows(rows, Some(&place.running.sums[..block.count]), &self.out.values, region);
    }

    /// The weights of some keys in `place.scores`, with dropout, before the division by the sums.
    fn weights(&self, block: &QueryBlock, keys: Range<usize>, k: Strided, place: &mut Scratch) {
        let attention = self.attention;
        let shape = BlockShape { keys: keys.len(), lanes: block.lanes() };
        attention.scores(block, keys.clone(), k, place.queries, place.scores, &mut place.spare);
        online_step(place.scores, shape, &mut place.running);
        if attention.dropout.is_some() {
            attention.dropout_factors(block, keys, place.factors);
            multiply(&mut place.scores[..shape.floats()], &place.factors[..shape.floats()]);
        }
    }

    /// The weights of `keys` keys as the left operand of the multiplication with the values.
    fn left_weights<'s>(
        &self,
        block: &QueryBlock,
        keys: usize,
        weights: &'s [f32],
        pairs: &'s mut [f32],
    ) -> Strided<'s> {
        let stride = block.lanes();
        match self.unit {
            Unit::Single => Rows { values: weights, stride }.transposed(),
            Unit::Pair => {
                pairs::pack_weights(BlockShape { keys, lanes: stride }, weights, pairs);
                Rows { values: pairs, stride }.transposed_pairs()
            }
        }
    }

    /// Turns the sums into the factors of the output, and stores their logarithms.
    fn finish(&self, block: &QueryBlock, place: &mut Scratch) {
        let attention = self.attention;
        let first = (block.sample * attention.heads + block.head) * attention.queries + block.first;
        // SAFETY: no other block has these queries.
        finish(&mut place.running, unsafe { self.log_sums.range(first..first + block.count) });
    }
}
