//! A few batch shapes that all pairs fit into with little padding.
//!
//! Each shape needs a plan of its own, so there must not be many. Lengths are rounded up a little, and then shapes are chosen
//! greedily: each time the one that saves the most padding.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BinaryHeap};

/// The shape of a batch of pairs.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct BatchShape {
    /// Number of pairs.
    pub batch: usize,
    /// Tokens per source sentence, with padding.
    pub source: usize,
    /// Tokens per target sentence, with padding.
    pub target: usize,
}

/// The lengths of a source and a target sentence.
pub(super) type Lengths = (usize, usize);

/// Whether a pair of these lengths fits into others.
pub(super) fn fits(lengths: Lengths, into: Lengths) -> bool {
    lengths.0 <= into.0 && lengths.1 <= into.1
}

/// The cost of a row: its tokens, with padding.
pub(super) fn cost(lengths: Lengths) -> usize {
    lengths.0 + lengths.1
}

/// Rounds a length up, by at most a sixteenth or one, so that there are fewer lengths.
pub fn padded_length(length: usize) -> usize {
    let step = (length.next_power_of_two() / 32).max(2);
    length.max(1).next_multiple_of(step)
}

/// Chooses at most `most` pairs of lengths so that each pair fits into one of them, by ascending cost. All fit into the last. None is
/// rounded up beyond `longest`.
pub(super) fn choose(pairs: impl IntoIterator<Item = Lengths>, longest: Lengths, most: usize) -> Vec<Lengths> {
    let mut counts: BTreeMap<Lengths, usize> = BTreeMap::new();
    let padded = |length: usize, longest: usize| padded_length(length).min(longest).max(length);
    for (source, target) in pairs {
        *counts.entry((padded(source, longest.0), padded(target, longest.1))).or_default() += 1;
    }
    let Some(largest) = counts.keys().copied().reduce(|a, b| (a.0.max(b.0), a.1.max(b.1))) else {
        return Vec::new();
    };
    let mut chosen = vec![largest];
    // For pairs of the same lengths: the lengths, the number of pairs, and the cost of the cheapest chosen lengths.
    let mut kinds: Vec<(Lengths, usize, usize)> =
        counts.into_iter().map(|(lengths, count)| (lengths, count, cost(largest))).collect();
    let saved = |kinds: &[(Lengths, usize, usize)], candidate: Lengths| -> usize {
        let fitting = kinds.iter().filter(|kind| fits(kind.0, candidate));
        fitting.map(|kind| kind.1 * kind.2.saturating_sub(cost(candidate))).sum()
    };
    // What a candidate saves can only shrink as others are chosen: an old number suffices to rule most candidates out.
    let mut candidates: BinaryHeap<(usize, Reverse<Lengths>)> =
        kinds.iter().map(|kind| (saved(&kinds, kind.0), Reverse(kind.0))).collect();
    while chosen.len() < most {
        let Some((_, Reverse(candidate))) = candidates.pop() else { break };
        let now = (saved(&kinds, candidate), Reverse(candidate));
        if now.0 == 0 {
            continue;
        }
        if candidates.peek().is_some_and(|next| *next > now) {
            candidates.push(now);
            continue;
        }
        chosen.push(candidate);
        for kind in kinds.iter_mut().filter(|kind| fits(kind.0, candidate)) {
            kind.2 = kind.2.min(cost(candidate));
        }
    }
    chosen.sort_by_key(|&lengths| (cost(lengths), lengths));
    chosen
}

/// The lengths that texts are padded to.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) struct PaddedLengths {
    /// Ascending; all texts fit into the last.
    pub lengths: Vec<usize>,
    /// For each text, the index of the shortest length that it fits into.
    pub of_text: Vec<u32>,
}

/// The most lengths of batches: each costs the engine a plan.
const MOST_LENGTHS: usize = 10;

impl PaddedLengths {
    /// A few lengths for texts with so many tokens each, none of which has more than `longest`.
    pub fn choose(texts: &[usize], longest: usize) -> PaddedLengths {
        let chosen = choose(texts.iter().map(|&tokens| (tokens, 1)), (longest, usize::MAX), MOST_LENGTHS);
        let mut lengths: Vec<usize> = chosen.iter().map(|&(length, _)| length.min(longest)).collect();
        lengths.dedup();
        let fitting = |tokens: usize| lengths.iter().position(|&most| tokens <= most).unwrap_or(lengths.len() - 1);
        let of_text = texts.iter().map(|&tokens| fitting(tokens) as u32).collect();
        PaddedLengths { lengths, of_text }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lengths_are_rounded_up_by_little() {
        for length in 1..2000 {
            let round = padded_length(length);
            assert!(round >= length && (round - length) * 16 <= length.max(16), "{length}: {round}");
        }
    }

    const ANY: Lengths = (usize::MAX, usize::MAX);

    #[test]
    fn lengths_are_not_rounded_up_beyond_what_a_model_reads() {
        let pairs = [(1000, 30), (990, 31)];
        assert_eq!(choose(pairs, ANY, 2), [(992, 32), (1024, 32)]);
        assert_eq!(choose(pairs, (1000, 31), 2), [(992, 31), (1000, 31)]);
    }

    #[test]
    fn the_shape_that_saves_the_most_comes_first() {
        // Nine pairs of (4, 4), two of (10, 4), one of (20, 20): with two shapes the nine have their own.
        let pairs = [vec![(4, 4); 9], vec![(10, 4); 2], vec![(20, 20)]].concat();
        assert_eq!(choose(pairs.clone(), ANY, 1), [(20, 20)]);
        assert_eq!(choose(pairs.clone(), ANY, 2), [(4, 4), (20, 20)]);
        assert_eq!(choose(pairs.clone(), ANY, 9), [(4, 4), (10, 4), (20, 20)]);
        assert_eq!(choose([], ANY, 9), []);
    }
}
