//! Batches of pairs that are about as long, with about as many tokens each.
//!
//! Each pair belongs to the cheapest shape that it fits into. In an epoch the pairs of each shape are shuffled and cut into whole
//! batches; those that are left over join the next larger shape. So only the last batch of the largest shape can have rows without
//! a pair, and the number of batches of each shape is the same in every epoch.

use super::shapes::{self, BatchShape, Lengths, cost, fits};
use super::{EncodedPairs, PADDING, shifted_target, source_of, wanted_target};
use crate::random::Random;

/// The most shapes of batches: each costs the engine a plan.
const MOST_SHAPES: usize = 48;

/// A pair has more tokens than a batch may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the longest pair takes {longest} tokens with its padding, but a batch may have {tokens_per_batch}: allow more tokens a batch, or \
     fewer a sentence (max_tokens)"
)]
pub struct TooFewTokens {
    /// Tokens of the longest side, rounded up.
    pub longest: usize,
    /// The limit.
    pub tokens_per_batch: usize,
}

/// Which pairs go together, in any epoch.
#[derive(Clone, Debug)]
pub struct PairBatches {
    seed: u64,
    /// By ascending cost; all fit into the last.
    shapes: Vec<BatchShape>,
    /// Where what is left over of each shape goes.
    larger: Vec<Option<usize>>,
    /// The shape of each pair.
    shape_of: Vec<u32>,
    batches: usize,
    padding_share: f64,
}

/// The batches of an epoch.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EpochOrder {
    /// Shape and pairs of each; fewer pairs than rows in the last batch of the largest shape.
    batches: Vec<(BatchShape, Vec<u32>)>,
}

/// A batch as a model takes it: each vector is a matrix of the shape, row by row.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PairBatch {
    /// Rows and lengths. Rows without a pair, if any, are the last: nothing but padding, with a source of length 0.
    pub shape: BatchShape,
    /// The pairs in the rows.
    pub pairs: Vec<u32>,
    /// Words and the end, then padding.
    pub source: Vec<i32>,
    /// How many tokens of each source are no padding.
    pub source_lengths: Vec<i32>,
    /// The start and words, then padding: what is wanted, one place later.
    pub target: Vec<i32>,
    /// Words and the end, then padding, which is the index that the loss ignores.
    pub wanted: Vec<i32>,
    /// How many wanted tokens count.
    pub tokens: usize,
}

impl PairBatches {
    /// Groups pairs so that in each batch `rows x the longer side` is at most `tokens_per_batch`, padding included.
    pub fn new(pairs: &EncodedPairs, tokens_per_batch: usize, seed: u64) -> Result<PairBatches, TooFewTokens> {
        PairBatches::of_lengths((0..pairs.len()).map(|index| lengths(pairs, index)), tokens_per_batch, seed)
    }

    /// As [`PairBatches::new`], of the lengths of sources and targets with their special tokens.
    pub fn of_lengths(
        lengths: impl IntoIterator<Item = (usize, usize)>,
        tokens_per_batch: usize,
        seed: u64,
    ) -> Result<PairBatches, TooFewTokens> {
        let lengths: Vec<Lengths> = lengths.into_iter().collect();
        let chosen = shapes::choose(lengths.iter().copied(), MOST_SHAPES);
        let longest = chosen.last().map_or(0, |&(source, target)| source.max(target));
        if longest > tokens_per_batch {
            return Err(TooFewTokens { longest, tokens_per_batch });
        }
        let first_fitting = |lengths, shapes: &[Lengths]| shapes.iter().position(|&shape| fits(lengths, shape));
        // The shapes are by ascending cost, so the first that fits is the cheapest; the last fits all.
        let shape_of: Vec<u32> =
            lengths.iter().map(|&lengths| first_fitting(lengths, &chosen).unwrap_or(chosen.len() - 1) as u32).collect();
        let larger = (0..chosen.len())
            .map(|index| first_fitting(chosen[index], &chosen[index + 1..]).map(|place| index + 1 + place))
            .collect();
        let shapes: Vec<BatchShape> = chosen
            .into_iter()
            .map(|(source, target)| BatchShape { batch: tokens_per_batch / source.max(target), source, target })
            .collect();
        let mut batches = PairBatches { seed, shapes, larger, shape_of, batches: 0, padding_share: 0.0 };
        let first = batches.epoch(0);
        let places: usize = first.batches.iter().map(|(shape, _)| shape.batch * (shape.source + shape.target)).sum();
        let filled: usize = lengths.into_iter().map(cost).sum();
        batches.batches = first.len();
        batches.padding_share = if places == 0 { 0.0 } else { 1.0 - filled as f64 / places as f64 };
        Ok(batches)
    }

    /// The shapes that occur: by ascending length.
    pub fn shapes(&self) -> &[BatchShape] {
        &self.shapes
    }

    /// How many batches an epoch has: in all epochs the same.
    pub fn batches_per_epoch(&self) -> usize {
        self.batches
    }

    /// The share of all places, of sources and targets, that is padding: in all epochs the same.
    pub fn padding_share(&self) -> f64 {
        self.padding_share
    }

    /// The batches of an epoch, a function of the seed and the epoch alone: to resume at batch k, take this and start at k.
    pub fn epoch(&self, epoch: u64) -> EpochOrder {
        let mut random = Random::new(self.seed, epoch, 0);
        let mut order: Vec<u32> = (0..self.shape_of.len() as u32).collect();
        random.shuffle(&mut order);
        let mut waiting = vec![Vec::new(); self.shapes.len()];
        for pair in order {
            waiting[self.shape_of[pair as usize] as usize].push(pair);
        }
        let mut batches = Vec::new();
        for (index, shape) in self.shapes.iter().enumerate() {
            let pairs = std::mem::take(&mut waiting[index]);
            let mut whole = pairs.chunks_exact(shape.batch);
            batches.extend(whole.by_ref().map(|rows| (*shape, rows.to_vec())));
            match self.larger[index] {
                // Those that came from below are in front, so that none is left over again and again.
                Some(larger) => _ = waiting[larger].splice(0..0, whole.remainder().iter().copied()),
                None if whole.remainder().is_empty() => {}
                None => batches.push((*shape, whole.remainder().to_vec())),
            }
        }
        random.shuffle(&mut batches);
        EpochOrder { batches }
    }
}

impl EpochOrder {
    /// How many batches there are.
    pub fn len(&self) -> usize {
        self.batches.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.batches.is_empty()
    }

    /// The shape of a batch.
    pub fn shape(&self, index: usize) -> BatchShape {
        self.batches[index].0
    }

    /// The pairs of a batch.
    pub fn pairs(&self, index: usize) -> &[u32] {
        &self.batches[index].1
    }

    /// A batch of the pairs that [`PairBatches::new`] was given.
    pub fn batch(&self, index: usize, pairs: &EncodedPairs) -> PairBatch {
        let (shape, rows) = &self.batches[index];
        let row = |index: &u32| *index as usize;
        let source = matrix(shape.batch, shape.source, rows.iter().map(|index| source_of(pairs.source(row(index)))));
        let target =
            matrix(shape.batch, shape.target, rows.iter().map(|index| shifted_target(pairs.target(row(index)))));
        let wanted =
            matrix(shape.batch, shape.target, rows.iter().map(|index| wanted_target(pairs.target(row(index)))));
        let mut source_lengths = vec![0; shape.batch];
        for (length, index) in source_lengths.iter_mut().zip(rows) {
            *length = lengths(pairs, row(index)).0 as i32;
        }
        let tokens = rows.iter().map(|index| lengths(pairs, row(index)).1).sum();
        PairBatch { shape: *shape, pairs: rows.clone(), source, source_lengths, target, wanted, tokens }
    }
}

/// The lengths of a pair with the special tokens: an end, or a start and an end that are never both in a row.
fn lengths(pairs: &EncodedPairs, index: usize) -> Lengths {
    (pairs.source(index).len() + 1, pairs.target(index).len() + 1)
}

/// Rows of tokens, filled up with padding.
fn matrix<R: Iterator<Item = u32>>(height: usize, width: usize, rows: impl Iterator<Item = R>) -> Vec<i32> {
    let mut matrix = vec![PADDING as i32; height * width];
    for (place, row) in matrix.chunks_exact_mut(width).zip(rows) {
        place.iter_mut().zip(row).for_each(|(place, token)| *place = token as i32);
    }
    matrix
}
