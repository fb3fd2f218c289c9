//! Batches of pairs of about the same length, with about the same number of tokens each: a [`BatchSource`] for the loader.
//!
//! Each pair belongs to the cheapest shape that it fits into. In an epoch the pairs of each shape are shuffled and cut into full
//! batches; those that are left over join the next larger shape. So only the last batch of the largest shape can have rows without
//! a pair, and the number of batches of each shape is the same in every epoch.

use std::sync::Arc;

use super::corrupted::fill_pairs;
use super::shapes::{self, BatchShape, Lengths, cost, fits};
use super::token_arrays::write_rows;
use super::{EncodedPairs, PADDING, shifted_target, source_of, wanted_target};
use crate::loader::{ArraySpec, ArrayValues, Batch, BatchSource, EpochOrder, LoadError, NamedArray};
use crate::random::Random;

/// The most shapes of batches: each costs the engine a plan.
const MOST_SHAPES: usize = 48;

/// A pair has more tokens than a batch may have.
#[derive(Clone, Copy, Debug, PartialEq, Eq, thiserror::Error)]
#[error(
    "the longest pair takes {longest} tokens with padding, but a batch may have {tokens_per_batch}: allow more tokens per batch, or \
     fewer per sentence (max_tokens)"
)]
pub struct TooFewTokens {
    /// Tokens of the longest side, rounded up.
    pub longest: usize,
    /// The limit.
    pub tokens_per_batch: usize,
}

/// Which special tokens the rows of a batch get.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum PairForm {
    /// Those of our own tokenisers: sentences are given without any.
    Own,
    /// Sources and targets are given with all they have: these are the tokens of padding and of the start of a target. `wanted` is
    /// filled up with [`IGNORED`](super::IGNORED).
    Whole {
        /// What fills up a row.
        padding: u32,
        /// What the decoder reads first.
        start: u32,
        /// The most tokens that the model reads of a source and of a target: no batch is wider because lengths are rounded up.
        longest: (usize, usize),
    },
}

/// Batches of sentence pairs.
///
/// The arrays of a batch are matrices of tokens, one row per pair; rows without a pair are padding, with a source of length 0:
///
/// - `source`: tokens and the end, then padding; `source_lengths`: how many of them are not padding;
/// - `target`: the start and tokens, then padding: what the decoder reads, which is `wanted` one position later;
/// - `wanted`: tokens and the end, then padding, which is the index that the loss ignores.
///
/// [`Batch::units`] counts the wanted tokens without padding.
#[derive(Clone, Debug)]
pub struct PairBatches {
    pairs: Arc<EncodedPairs>,
    form: PairForm,
    seed: u64,
    /// By ascending cost; all pairs fit into the last.
    shapes: Vec<BatchShape>,
    /// The arrays of each shape's batches.
    groups: Vec<Vec<ArraySpec>>,
    /// Where what is left over of each shape goes.
    larger: Vec<Option<usize>>,
    /// The shape of each pair.
    shape_of: Vec<u32>,
    batches: usize,
    padding_share: f64,
}

impl PairBatches {
    /// Groups pairs so that in each batch `rows x the longer side` is at most `tokens_per_batch`, padding included.
    pub fn new(
        pairs: impl Into<Arc<EncodedPairs>>,
        tokens_per_batch: usize,
        seed: u64,
    ) -> Result<PairBatches, TooFewTokens> {
        PairBatches::of_form(pairs, PairForm::Own, tokens_per_batch, seed)
    }

    /// As [`PairBatches::new`], with other special tokens.
    pub fn of_form(
        pairs: impl Into<Arc<EncodedPairs>>,
        form: PairForm,
        tokens_per_batch: usize,
        seed: u64,
    ) -> Result<PairBatches, TooFewTokens> {
        let pairs = pairs.into();
        let lengths: Vec<Lengths> = (0..pairs.len()).map(|index| lengths(&pairs, form, index)).collect();
        let most = match form {
            PairForm::Own => (usize::MAX, usize::MAX),
            PairForm::Whole { longest, .. } => longest,
        };
        let chosen = shapes::choose(lengths.iter().copied(), most, MOST_SHAPES);
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
        let groups = shapes.iter().map(arrays).collect();
        let mut batches =
            PairBatches { pairs, form, seed, shapes, groups, larger, shape_of, batches: 0, padding_share: 0.0 };
        let first = batches.order(0);
        let tokens = |index: usize| {
            let BatchShape { batch, source, target } = batches.shapes[first.group(index)];
            batch * (source + target)
        };
        let places: usize = (0..first.len()).map(tokens).sum();
        let filled: usize = lengths.into_iter().map(cost).sum();
        batches.batches = first.len();
        batches.padding_share = if places == 0 { 0.0 } else { 1.0 - filled as f64 / places as f64 };
        Ok(batches)
    }

    /// The pairs.
    pub fn pairs(&self) -> &EncodedPairs {
        &self.pairs
    }

    /// The shape of each of [`BatchSource::groups`], by ascending length.
    pub fn shapes(&self) -> &[BatchShape] {
        &self.shapes
    }

    /// The share of padding in all tokens, of sources and targets: the same in every epoch.
    pub fn padding_share(&self) -> f64 {
        self.padding_share
    }
}

/// The arrays of a batch of this shape.
fn arrays(&BatchShape { batch, source, target }: &BatchShape) -> Vec<ArraySpec> {
    vec![
        ArraySpec::i32("source", [batch, source]),
        ArraySpec::i32("source_lengths", [batch]),
        ArraySpec::i32("target", [batch, target]),
        ArraySpec::i32("wanted", [batch, target]),
    ]
}

impl BatchSource for PairBatches {
    fn groups(&self) -> &[Vec<ArraySpec>] {
        &self.groups
    }

    fn batches_per_epoch(&self) -> usize {
        self.batches
    }

    fn order(&self, epoch: u64) -> EpochOrder {
        let mut random = Random::new(self.seed, epoch, 0);
        let mut order: Vec<u32> = (0..self.shape_of.len() as u32).collect();
        random.shuffle(&mut order);
        let mut waiting = vec![Vec::new(); self.shapes.len()];
        for pair in order {
            waiting[self.shape_of[pair as usize] as usize].push(pair);
        }
        let mut batches: Vec<(usize, Vec<u32>)> = Vec::new();
        for (group, shape) in self.shapes.iter().enumerate() {
            let pairs = std::mem::take(&mut waiting[group]);
            let mut full = pairs.chunks_exact(shape.batch);
            batches.extend(full.by_ref().map(|rows| (group, rows.to_vec())));
            match self.larger[group] {
                // Those that came from below are in front, so that none is left over again and again.
                Some(larger) => _ = waiting[larger].splice(0..0, full.remainder().iter().copied()),
                None if full.remainder().is_empty() => {}
                None => batches.push((group, full.remainder().to_vec())),
            }
        }
        random.shuffle(&mut batches);
        EpochOrder::of_batches(epoch, batches)
    }

    fn fill(&self, order: &EpochOrder, batch: &mut Batch) -> Result<(), LoadError> {
        let rows = order.samples(batch.position.index);
        let pairs = &self.pairs;
        batch.units = rows.iter().map(|&row| lengths(pairs, self.form, row as usize).1).sum();
        batch.samples.extend(rows.iter().map(|&row| row as usize));
        if let PairForm::Whole { padding, start, .. } = self.form {
            let whole: Vec<(&[u32], &[u32])> =
                rows.iter().map(|&row| (pairs.source(row as usize), pairs.target(row as usize))).collect();
            fill_pairs(&mut batch.arrays, &whole, padding, start);
            return Ok(());
        }
        let source = |row: u32| pairs.source(row as usize);
        let target = |row: u32| pairs.target(row as usize);
        for NamedArray { name, shape, values } in &mut batch.arrays {
            let ArrayValues::I32(values) = values else { unreachable!("all arrays are of tokens") };
            let width = shape.get(1).copied().unwrap_or(1);
            match *name {
                "source" => write_tokens(values, width, rows.iter().map(|&row| source_of(source(row)))),
                "target" => write_tokens(values, width, rows.iter().map(|&row| shifted_target(target(row)))),
                "wanted" => write_tokens(values, width, rows.iter().map(|&row| wanted_target(target(row)))),
                _ => {
                    values.fill(0);
                    let lengths = rows.iter().map(|&row| lengths(pairs, self.form, row as usize).0 as i32);
                    values.iter_mut().zip(lengths).for_each(|(value, length)| *value = length);
                }
            }
        }
        Ok(())
    }
}

/// The lengths of a pair with the special tokens: an end, or a start and an end that are never both in a row.
fn lengths(pairs: &EncodedPairs, form: PairForm, index: usize) -> Lengths {
    let further = usize::from(form == PairForm::Own);
    (pairs.source(index).len() + further, pairs.target(index).len() + further)
}

/// Writes rows of tokens, filled up with padding.
fn write_tokens<R: Iterator<Item = u32>>(matrix: &mut [i32], width: usize, rows: impl Iterator<Item = R>) {
    write_rows(matrix, width, PADDING as i32, rows.map(|row| row.map(|token| token as i32)));
}
