//! Blocks of scores: which keys a block of queries attends to, and the scaled, biased and masked scores.

use std::ops::Range;

use super::super::memory::FloatSlice;
use super::super::rows::{add_scaled, mask_factors};
use super::rows::{Region, copy_rows, padded, rows_of, take, transpose_rows, view_of};
use super::small_product::{Factor, Rows, Size, Strided, Target, product};
use super::{Attention, Heads};

/// Queries per block: four vectors of sixteen lanes.
pub const QUERY_BLOCK: usize = 64;
/// Bias and dropout are stored in rows of keys and transposed in pieces of this many keys.
const TRANSPOSE_BLOCK: usize = 64;
/// A limit of reach that is no limit, and can be added to positions.
const MOST_REACH: i64 = 1 << 40;

/// Some queries of one head of one sample.
#[derive(Clone, Copy, Debug)]
pub struct QueryBlock {
    pub sample: usize,
    pub head: usize,
    pub first: usize,
    pub count: usize,
}

impl QueryBlock {
    /// Number of lanes of the queries, including unused ones at the end.
    pub fn lanes(&self) -> usize {
        padded(self.count)
    }
}

/// Number of blocks of the queries.
pub fn query_blocks(queries: usize) -> usize {
    queries.div_ceil(QUERY_BLOCK)
}

/// The queries of block `index`: all blocks are about equally long, since a short last one would leave registers idle.
pub fn query_range(queries: usize, index: usize) -> Range<usize> {
    let (blocks, groups) = (query_blocks(queries), padded(queries) / padded(1));
    let start = |index: usize| (groups * index / blocks * padded(1)).min(queries);
    start(index)..start(index + 1)
}

/// Scratch memory for transposing.
pub struct Spare<'s> {
    /// Rows of keys, one per query.
    by_query: &'s mut [f32],
    /// Rows of queries, one per key.
    by_key: &'s mut [f32],
}

impl<'s> Spare<'s> {
    pub const FLOATS: usize = 2 * QUERY_BLOCK * TRANSPOSE_BLOCK;

    pub fn new(scratch: &mut &'s mut [f32]) -> Self {
        let half = QUERY_BLOCK * TRANSPOSE_BLOCK;
        Spare { by_query: take(scratch, half), by_key: take(scratch, half) }
    }
}

impl Attention<'_> {
    /// The position of a sample's query.
    fn position(&self, sample: usize, query: usize) -> i64 {
        let first = self.offsets.map_or(self.keys as i64 - self.queries as i64, |offsets| i64::from(offsets[sample]));
        first + query as i64
    }

    /// The keys of a sample that some of its queries may attend to, including holes in its mask. No other row is ever
    /// read.
    pub fn visible_keys(&self, sample: usize) -> Range<usize> {
        let mut count = self.keys;
        if let Some(lengths) = self.key_lengths {
            count = (lengths[sample].max(0) as usize).min(count);
        }
        while count > 0 && self.is_hole(sample, count - 1) {
            count -= 1;
        }
        self.keys_in_reach(sample, 0..self.queries, count)
    }

    pub fn is_hole(&self, sample: usize, key: usize) -> bool {
        self.key_mask.is_some_and(|mask| mask[sample * self.keys + key] == 0)
    }

    /// The keys that some query of the block attends to: all others are masked for all of them.
    pub fn seen_keys(&self, block: &QueryBlock) -> Range<usize> {
        let end = self.visible_keys(block.sample).end;
        self.keys_in_reach(block.sample, block.first..block.first + block.count, end)
    }

    /// The keys among the first `count` that are in reach of some of the queries.
    fn keys_in_reach(&self, sample: usize, queries: Range<usize>, count: usize) -> Range<usize> {
        if self.reach.is_unlimited() {
            return 0..count;
        }
        let first = self.position(sample, queries.start);
        self.reach.keys(first, first + queries.len() as i64 - 1, count)
    }

    /// The keys or values of a query head, padded if they are a right operand. Rows of masked keys are zero: a zero
    /// weight times an arbitrary value might not be zero. A copy omits rows that are not visible.
    pub fn key_rows<'b>(
        &self,
        from: &Heads<'b>,
        sample: usize,
        head: usize,
        whole_vectors: bool,
        buffer: &'b mut [f32],
    ) -> Rows<'b> {
        let region = |keys| from.region(sample, self.kv_head(head), keys, self.keys, self.head_dim);
        let view = view_of(from.values, region(0..self.keys), whole_vectors).filter(|_| self.key_mask.is_none());
        if let Some(view) = view {
            return view;
        }
        let stride = padded(self.head_dim);
        let visible = self.visible_keys(sample);
        copy_rows(from.values, region(visible.clone()), &mut buffer[visible.start * stride..], stride);
        for key in visible {
            if self.is_hole(sample, key) {
                buffer[key * stride..(key + 1) * stride].fill(0.0);
            }
        }
        Rows { values: buffer, stride }
    }

    /// One block of queries, or of a tensor with their shape.
    pub fn query_rows<'b>(
        &self,
        from: &Heads<'b>,
        block: &QueryBlock,
        whole_vectors: bool,
        buffer: &'b mut [f32],
    ) -> Rows<'b> {
        let queries = block.first..block.first + block.count;
        let region = from.region(block.sample, block.head, queries, self.queries, self.head_dim);
        rows_of(from.values, region, whole_vectors, buffer)
    }

    /// The scores of a block of queries with some keys, in units of log 2, minus infinity if masked. `keys` are the
    /// requested keys, `key_rows` all of the head's, `queries` the queries' transpose in the same units.
    pub fn scores(
        &self,
        block: &QueryBlock,
        keys: Range<usize>,
        key_rows: Strided,
        queries: &[f32],
        scores: &mut [f32],
        spare: &mut Spare,
    ) {
        let lanes = block.lanes();
        let depth = key_rows.unit().count(self.head_dim);
        let size = Size { rows: keys.len(), columns: lanes, depth };
        let left = key_rows.starting_at(keys.start);
        let right = Rows { values: queries, stride: lanes };
        product(
            size,
            Factor::All(self.scale * std::f32::consts::LOG2_E),
            left,
            right,
            Target::scratch(scores, lanes),
            false,
        );
        if self.bias.is_some() {
            self.add_bias(block, keys.clone(), scores, spare);
        }
        if self.key_mask.is_some() {
            for (row, key) in scores.chunks_exact_mut(lanes).zip(keys.clone()) {
                if self.is_hole(block.sample, key) {
                    row.fill(f32::NEG_INFINITY);
                }
            }
        }
        if !self.reach.is_unlimited() {
            self.hide_out_of_reach(block, keys, scores);
        }
    }

    /// Masks the keys that are out of reach of a query: query i of the block attends to key j if `j - ahead <= first
    /// position + i <= j + behind`.
    fn hide_out_of_reach(&self, block: &QueryBlock, keys: Range<usize>, scores: &mut [f32]) {
        let lanes = block.lanes();
        let first = self.position(block.sample, block.first);
        let lane_at = |position: i64| (position - first).clamp(0, lanes as i64) as usize;
        let as_distance = |keys: usize| i64::try_from(keys).unwrap_or(MOST_REACH).min(MOST_REACH);
        let limits = [self.reach.ahead, self.reach.behind].map(|limit| limit.map(as_distance));
        for (row, key) in scores.chunks_exact_mut(lanes).zip(keys) {
            let key = key as i64;
            if let Some(ahead) = limits[0] {
                row[..lane_at(key - ahead)].fill(f32::NEG_INFINITY);
            }
            if let Some(behind) = limits[1] {
                row[lane_at(key + behind + 1)..].fill(f32::NEG_INFINITY);
            }
        }
    }

    fn add_bias(&self, block: &QueryBlock, keys: Range<usize>, scores: &mut [f32], spare: &mut Spare) {
        let Some(bias) = self.bias else { return };
        let lanes = block.lanes();
        let slice = bias.slice_of(block.sample, block.head);
        for_pieces(keys, |at, piece| {
            let region = Region {
                start: (slice * self.queries + block.first) * self.keys + piece.start,
                stride: self.keys,
                rows: block.count,
                columns: piece.len(),
            };
            let rows = rows_of(bias.values, region, false, spare.by_query);
            transpose_rows(rows, block.count, piece.len(), spare.by_key, lanes);
            let floats = piece.len() * lanes;
            let place = &mut scores[at * lanes..][..floats];
            add_scaled(place, std::f32::consts::LOG2_E, &spare.by_key[..floats]);
        });
    }

    /// The dropout factors, one row per key. Random numbers are ordered like this, queries adjacent, so that those of a
    /// short head are drawn in one go.
    pub fn dropout_factors(&self, block: &QueryBlock, keys: Range<usize>, factors: &mut [f32]) {
        let Some(mask) = self.dropout else { return };
        let pair = ((self.first_sample + block.sample) * self.heads + block.head) as u64;
        let lanes = block.lanes();
        if lanes == self.queries {
            return mask_factors(&mask, pair, keys.start * lanes, &mut factors[..keys.len() * lanes]);
        }
        for (row, key) in factors.chunks_mut(lanes).zip(keys) {
            mask_factors(&mask, pair, key * self.queries + block.first, &mut row[..block.count]);
        }
    }

    /// Passes a block (one row per key) to `row(query, first key, values)`, transposed to rows of keys.
    pub fn by_query(
        &self,
        block: &QueryBlock,
        keys: Range<usize>,
        values: &[f32],
        spare: &mut Spare,
        mut row: impl FnMut(usize, usize, &[f32]),
    ) {
        let lanes = block.lanes();
        for_pieces(keys, |at, piece| {
            let rows = Rows { values: &values[at * lanes..], stride: lanes };
            transpose_rows(rows, piece.len(), block.count, spare.by_query, TRANSPOSE_BLOCK);
            for query in 0..block.count {
                let values = &spare.by_query[query * TRANSPOSE_BLOCK..][..piece.len()];
                row(block.first + query, piece.start, values);
            }
        });
    }
}

/// Calls `step` for each piece of at most [`TRANSPOSE_BLOCK`] keys, with its offset from the first.
fn for_pieces(keys: Range<usize>, mut step: impl FnMut(usize, Range<usize>)) {
    let mut start = keys.start;
    while start < keys.end {
        let end = (start + TRANSPOSE_BLOCK).min(keys.end);
        step(start - keys.start, start..end);
        start = end;
    }
}

/// An additive bias: values `[batch, heads, queries, keys]`, where `batch` and `heads` may each be 1 for all.
#[derive(Clone, Copy)]
pub struct Bias<'a> {
    pub values: FloatSlice<'a>,
    pub batch: usize,
    pub heads: usize,
}

impl Bias<'_> {
    /// The `queries x keys` matrix of a sample's head.
    pub fn slice_of(&self, sample: usize, head: usize) -> usize {
        let sample = if self.batch == 1 { 0 } else { sample };
        let head = if self.heads == 1 { 0 } else { head };
        sample * self.heads + head
    }
}
