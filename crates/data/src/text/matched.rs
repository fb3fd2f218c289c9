//! Pairs of texts that belong together, in batches in which each text is told from all others: for learning embeddings.

use std::sync::Arc;

use super::shapes::PaddedLengths;
use super::text_batches::EncodedTexts;
use super::token_arrays::{TextRows, fill_token_array, token_arrays};
use crate::loader::{ArraySpec, ArrayValues, Batch, BatchSource, EpochOrder, LoadError};
use crate::random::Random;

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
    padded: PaddedLengths,
    groups: Vec<Vec<ArraySpec>>,
}

impl MatchedBatches {
    /// Batches of so many pairs.
    pub fn new(
        (first, second): (EncodedTexts, EncodedTexts),
        batch: usize,
        TextRows { longest, has_types, padding }: TextRows,
        seed: u64,
    ) -> MatchedBatches {
        // Both texts of a pair fit into the length of its batch.
        let counts = first.token_counts().into_iter().zip(second.token_counts());
        let padded = PaddedLengths::choose(&counts.map(|(a, b)| a.max(b)).collect::<Vec<_>>(), longest);
        let arrays = |&length: &usize| {
            let mut arrays = token_arrays(2 * batch, length, has_types);
            arrays.push(ArraySpec::i32("targets", [batch]));
            arrays
        };
        let groups = padded.lengths.iter().map(arrays).collect();
        let (first, second) = (Arc::new(first), Arc::new(second));
        MatchedBatches { first, second, batch, seed, padding, padded, groups }
    }

    /// The length of each group's batches.
    pub fn lengths(&self) -> &[usize] {
        &self.padded.lengths
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
        let length_of = |&pair: &u32| self.padded.of_text[pair as usize] as usize;
        let batches = order.chunks_exact(self.batch);
        let batches = batches.map(|rows| (rows.iter().map(length_of).max().unwrap_or(0), rows.to_vec()));
        EpochOrder::of_batches(epoch, batches)
    }

    fn fill(&self, order: &EpochOrder, batch: &mut Batch) -> Result<(), LoadError> {
        let rows = order.samples(batch.position.index);
        for array in &mut batch.arrays {
            let first = rows.iter().map(|&pair| self.first.row(pair as usize));
            let second = rows.iter().map(|&pair| self.second.row(pair as usize));
            if !fill_token_array(array, self.padding, first.chain(second)) {
                let ArrayValues::I32(targets) = &mut array.values else { unreachable!("targets are rows") };
                targets.iter_mut().zip(0..).for_each(|(target, row)| *target = row);
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
        let rows = TextRows { longest: 32, has_types: false, padding: 0 };
        let batches = MatchedBatches::new((texts(100), texts(200)), 8, rows, 3);
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
