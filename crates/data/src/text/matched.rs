//! Pairs of texts that belong together, in batches in which each text is told from all others: for learning embeddings.

use std::sync::Arc;

use super::shapes;
use super::text_batches::EncodedTexts;
use crate::loader::{ArraySpec, ArrayValues, Batch, BatchSource, EpochOrder, LoadError, NamedArray};
use crate::random::Random;

/// The most lengths of batches: each costs the engine a plan.
const MOST_LENGTHS: usize = 10;

/// Batches of pairs: the first half of a batch's rows are first texts, the second half are the texts that belong to them, in the same
/// order.
///
/// The arrays are `tokens` i32 `[2 batch, length]`, `lengths` i32 `[2 batch]`, for models that tell token types apart `token_types`, and
/// `targets` i32 `[batch]`: 0, 1, 2, .., the row of the second half that belongs to each of the first. [`Batch::units`] counts pairs.
#[derive(Clone, Debug)]
pub struct MatchedBatches {
    first: Arc<EncodedTexts>,
    second: Arc<EncodedTexts>,
    batch: usize,
    seed: u64,
    padding: u32,
    lengths: Vec<usize>,
    groups: Vec<Vec<ArraySpec>>,
    length_of: Vec<u32>,
}

impl MatchedBatches {
    /// Batches of so many pairs; no text is longer than `longest`.
    pub fn new(
        (first, second): (EncodedTexts, EncodedTexts),
        (batch, longest): (usize, usize),
        (has_types, padding): (bool, u32),
        seed: u64,
    ) -> MatchedBatches {
        let own = |index: usize| first.ids(index).len().max(second.ids(index).len());
        let chosen = shapes::choose((0..first.len()).map(|index| (own(index), 1)), MOST_LENGTHS);
        let mut lengths: Vec<usize> = chosen.iter().map(|&(length, _)| length.min(longest)).collect();
        lengths.dedup();
        let fitting = |length: usize| lengths.iter().position(|&most| length <= most).unwrap_or(lengths.len() - 1);
        let length_of = (0..first.len()).map(|index| fitting(own(index)) as u32).collect();
        let arrays = |length: usize| {
            let mut arrays =
                vec![ArraySpec::i32("tokens", [2 * batch, length]), ArraySpec::i32("lengths", [2 * batch])];
            if has_types {
                arrays.push(ArraySpec::i32("token_types", [2 * batch, length]));
            }
            arrays.push(ArraySpec::i32("targets", [batch]));
            arrays
        };
        let groups = lengths.iter().map(|&length| arrays(length)).collect();
        let (first, second) = (Arc::new(first), Arc::new(second));
        MatchedBatches { first, second, batch, seed, padding, lengths, groups, length_of }
    }

    /// The length of each group's batches.
    pub fn lengths(&self) -> &[usize] {
        &self.lengths
    }
}

impl BatchSource for MatchedBatches {
    fn groups(&self) -> &[Vec<ArraySpec>] {
        &self.groups
    }

    fn batches_per_epoch(&self) -> usize {
        self.first.len() / self.batch
    }

    fn order(&self, epoch: u64) -> EpochOrder {
        // Batches are drawn from all pairs, and not by length: texts of one length are easily told apart by other things.
        let mut random = Random::new(self.seed, epoch, 0);
        let mut order: Vec<u32> = (0..self.first.len() as u32).collect();
        random.shuffle(&mut order);
        order.truncate(self.batches_per_epoch() * self.batch);
        let group = |rows: &[u32]| rows.iter().map(|&pair| self.length_of[pair as usize] as usize).max().unwrap_or(0);
        let groups: Vec<usize> = order.chunks_exact(self.batch).map(group).collect();
        let ranges = groups.into_iter().enumerate();
        let ranges = ranges.map(|(index, group)| (group, index * self.batch..(index + 1) * self.batch)).collect();
        EpochOrder::new(epoch, order, ranges)
    }

    fn fill(&self, order: &EpochOrder, batch: &mut Batch) -> Result<(), LoadError> {
        let rows = order.samples(batch.position.index);
        let texts = || {
            let first = rows.iter().map(|&pair| (&self.first, pair as usize));
            first.chain(rows.iter().map(|&pair| (&self.second, pair as usize)))
        };
        for NamedArray { name, shape, values } in &mut batch.arrays {
            let ArrayValues::I32(values) = values else { unreachable!("all arrays are of tokens") };
            let width = shape.get(1).copied().unwrap_or(1);
            match *name {
                "tokens" => {
                    values.fill(self.padding as i32);
                    for (row, (texts, pair)) in values.chunks_exact_mut(width).zip(texts()) {
                        row.iter_mut().zip(texts.ids(pair)).for_each(|(to, &id)| *to = id as i32);
                    }
                }
                "token_types" => {
                    values.fill(0);
                    for (row, (texts, pair)) in values.chunks_exact_mut(width).zip(texts()) {
                        row.iter_mut().zip(texts.types(pair)).for_each(|(to, &kind)| *to = kind as i32);
                    }
                }
                "lengths" => {
                    let lengths = texts().map(|(texts, pair)| texts.ids(pair).len() as i32);
                    values.iter_mut().zip(lengths).for_each(|(to, length)| *to = length);
                }
                _ => values.iter_mut().enumerate().for_each(|(index, to)| *to = index as i32),
            }
        }
        batch.units = rows.len();
        batch.samples.extend(rows.iter().map(|&row| row as usize));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::Encoding;

    #[test]
    fn both_texts_of_a_pair_are_in_the_same_row_of_their_half() {
        let texts = |offset: u32| -> EncodedTexts {
            let text = |index: u32| {
                let length = 1 + (index * 13 + offset) as usize % 20;
                Encoding { ids: vec![index + offset; length], token_types: vec![0; length], ..Encoding::default() }
            };
            (0..50).map(text).collect::<Vec<_>>().iter().collect()
        };
        let batches = MatchedBatches::new((texts(100), texts(200)), (8, 32), (false, 0), 3);
        assert_eq!(batches.batches_per_epoch(), 6);
        let order = batches.order(2);
        for index in 0..order.len() {
            let batch = batches.batch(&order, index).expect("a batch");
            let (tokens, lengths) = (batch.i32("tokens").expect("tokens"), batch.i32("lengths").expect("lengths"));
            let width = tokens.len() / 16;
            for row in 0..8 {
                let pair = batch.samples[row] as i32;
                assert_eq!((tokens[row * width], tokens[(8 + row) * width]), (100 + pair, 200 + pair));
                assert_eq!(lengths[8 + row], 1 + (pair * 13 + 200) % 20);
            }
            assert_eq!(batch.i32("targets").expect("targets"), [0, 1, 2, 3, 4, 5, 6, 7]);
        }
        assert_ne!(batches.order(0), batches.order(1));
    }
}
