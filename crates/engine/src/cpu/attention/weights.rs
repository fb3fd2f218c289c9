//! The attention weights, for inspection: the only pass that stores `queries x keys` values.

use super::super::memory::Shared;
use super::super::team::Team;
use super::rows::{padded, take, transpose_rows};
use super::scores::{QUERY_BLOCK, QueryBlock, Spare, query_blocks};
use super::small_product::Rows;
use super::softmax::{BlockShape, Running, finish, online_step, weigh};
use super::{Attention, Heads, key_blocks};

/// The scratch memory that each thread needs for [`weights`].
pub fn scratch(attention: &Attention) -> usize {
    let width = padded(attention.head_dim);
    attention.keys * width
        + 2 * QUERY_BLOCK * width
        + attention.key_block() * QUERY_BLOCK
        + 4 * QUERY_BLOCK
        + Spare::FLOATS
}

/// The softmax's weights before dropout, `[batch, heads, queries, keys]`; 0 where a key is masked.
///
/// # Panics
/// Panics if a shape does not fit, or the team's scratch memory is less than [`scratch`].
pub fn weights(team: &mut Team, attention: &Attention, q: Heads, k: Heads, weights: Shared<f32>) {
    attention.check();
    assert_eq!(weights.len(), attention.pairs() * attention.queries * attention.keys);
    if weights.len() == 0 {
        return;
    }
    let blocks = query_blocks(attention.queries);
    team.run(attention.pairs() * blocks, &|tile, scratch| {
        let block = attention.block(tile / blocks, tile % blocks);
        block_weights(attention, &block, &q, &k, &weights, scratch);
    });
}

fn block_weights(
    attention: &Attention,
    block: &QueryBlock,
    q: &Heads,
    k: &Heads,
    weights: &Shared<f32>,
    mut scratch: &mut [f32],
) {
    let (lanes, width) = (block.lanes(), padded(attention.head_dim));
    let k_copy = take(&mut scratch, attention.keys * width);
    let query_copy = take(&mut scratch, QUERY_BLOCK * width);
    let queries = take(&mut scratch, QUERY_BLOCK * width);
    let scores = take(&mut scratch, attention.key_block() * QUERY_BLOCK);
    let (maxima, sums) = (take(&mut scratch, QUERY_BLOCK), take(&mut scratch, QUERY_BLOCK));
    let mut running = Running { maxima, sums, rescale: take(&mut scratch, QUERY_BLOCK) };
    let log_sums = take(&mut scratch, QUERY_BLOCK);
    let mut spare = Spare::new(&mut scratch);

    let k = attention.key_rows(k, block.sample, block.head, false, k_copy).as_they_are();
    let q: Rows = attention.query_rows(q, block, false, query_copy);
    transpose_rows(q, block.count, attention.head_dim, queries, lanes);
    running.maxima.fill(f32::NEG_INFINITY);
    running.sums.fill(0.0);
    let seen = attention.seen_keys(block);
    for keys in key_blocks(&seen) {
        let shape = BlockShape { keys: keys.len(), lanes };
        attention.scores(block, keys, k, queries, scores, &mut spare);
        online_step(scores, shape, &mut running);
    }
    finish(&mut running, log_sums);

    let first_row = (block.sample * attention.heads + block.head) * attention.queries;
    for keys in key_blocks(&seen) {
        let shape = BlockShape { keys: keys.len(), lanes };
        attention.scores(block, keys.clone(), k, queries, scores, &mut spare);
        weigh(scores, shape, running.maxima, running.sums);
        attention.by_query(block, keys, scores, &mut spare, |query, key, values| {
            let at = (first_row + query) * attention.keys + key;
            // SAFETY: no other block has these queries.
            unsafe { weights.range(at..at + values.len()) }.copy_from_slice(values);
        });
    }
    for query in block.first..block.first + block.count {
        let row = (first_row + query) * attention.keys;
        for hidden in [0..seen.start, seen.end..attention.keys] {
            // SAFETY: as above.
            unsafe { weights.range(row + hidden.start..row + hidden.end) }.fill(0.0);
        }
    }
}
