//! N-grams that two sequences share, of all orders from one sort.
//!
//! At each place of a sequence the next `ORDER` symbols are packed into one integer, the first in its highest bits. Sorted,
//! equal n-grams of every order stand together: those of order n are the integers without their lowest `ORDER - n` symbols.

use std::iter::Peekable;

use serde::Serialize;

/// N-grams of one order.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Serialize)]
pub struct NgramCounts {
    /// In translations.
    pub hypothesis: u64,
    /// In references.
    pub reference: u64,
    /// In both: each as often as it is in the one that has it less often.
    pub shared: u64,
}

impl NgramCounts {
    /// Adds the counts of another sentence.
    pub(super) fn add(&mut self, other: NgramCounts) {
        self.hypothesis += other.hypothesis;
        self.reference += other.reference;
        self.shared += other.shared;
    }
}

/// Counts of the orders 1 to `ORDER`. Symbols must be under `2^(128 / ORDER) - 1`: any characters for orders up to 6.
pub(super) fn count_ngrams<const ORDER: usize>(hypothesis: &[u32], reference: &[u32]) -> [NgramCounts; ORDER] {
    let ngrams = (sorted_ngrams::<ORDER>(hypothesis), sorted_ngrams::<ORDER>(reference));
    std::array::from_fn(|index| {
        let order = index + 1;
        NgramCounts {
            hypothesis: count_of(hypothesis, order),
            reference: count_of(reference, order),
            shared: shared(of_order::<ORDER>(&ngrams.0, order), of_order::<ORDER>(&ngrams.1, order)),
        }
    })
}

fn count_of(symbols: &[u32], order: usize) -> u64 {
    (symbols.len() + 1).saturating_sub(order) as u64
}

/// Bits that a symbol takes.
const fn bits(most: usize) -> usize {
    128 / most
}

/// The next `ORDER` symbols at each place. One is added to each symbol: 0 stands behind the end.
fn sorted_ngrams<const ORDER: usize>(symbols: &[u32]) -> Vec<u128> {
    let mut behind = 0u128;
    let pack = |&symbol: &u32| {
        behind = (behind >> bits(ORDER)) | ((u128::from(symbol) + 1) << (bits(ORDER) * (ORDER - 1)));
        behind
    };
    let mut ngrams: Vec<u128> = symbols.iter().rev().map(pack).collect();
    ngrams.sort_unstable();
    ngrams
}

/// The n-grams of one order, still sorted, without those that the end cuts short.
fn of_order<const ORDER: usize>(ngrams: &[u128], order: usize) -> impl Iterator<Item = u128> {
    let last_symbol = (1u128 << bits(ORDER)) - 1;
    ngrams
        .iter()
        .map(move |ngram| ngram >> (bits(ORDER) * (ORDER - order)))
        .filter(move |ngram| ngram & last_symbol != 0)
}

/// How many elements two sorted sequences have in common.
fn shared(left: impl Iterator<Item = u128>, right: impl Iterator<Item = u128>) -> u64 {
    let mut right: Peekable<_> = right.peekable();
    let mut count = 0;
    for wanted in left {
        while right.next_if(|&ngram| ngram < wanted).is_some() {}
        count += u64::from(right.next_if_eq(&wanted).is_some());
    }
    count
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_ngram_counts_as_often_as_the_side_that_has_it_less_often() {
        // 0 0 0 1 and 0 0 1 1: one symbol 0 too many on the left; "0 0" once in common, "0 1" once.
        let counts = count_ngrams::<3>(&[0, 0, 0, 1], &[0, 0, 1, 1]);
        assert_eq!(counts.map(|order| order.shared), [3, 2, 1]);
        assert_eq!(counts.map(|order| order.hypothesis), [4, 3, 2]);
    }

    #[test]
    fn the_end_is_no_symbol() {
        // The first symbol is the number 0, and the widest character must fit into a sixth of the bits.
        let widest = char::MAX as u32;
        let counts = count_ngrams::<6>(&[widest, widest], &[widest, widest, 0]);
        assert_eq!(counts.map(|order| order.shared), [2, 1, 0, 0, 0, 0]);
        assert_eq!(counts.map(|order| order.reference), [3, 2, 1, 0, 0, 0]);
        assert_eq!(count_ngrams::<2>(&[], &[]), [NgramCounts::default(); 2]);
    }
}
