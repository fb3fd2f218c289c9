//! Tokenised pairs, without those that are unfit for training.

use rayon::prelude::*;

use super::{Pair, TokeniserError, Tokenisers};

/// How many pairs all threads encode at a time.
const CHUNK: usize = 1 << 13;

/// Which pairs are fit for training.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// The maximum number of tokens per sentence, without special tokens.
    pub max_tokens: usize,
    /// The maximum ratio of the numbers of tokens of the two sentences. Beyond it they are hardly translations of each other. Moses'
    /// `clean-corpus-n` has the same limit, 9, for words.
    pub max_ratio: f64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { max_tokens: 256, max_ratio: 9.0 }
    }
}

/// How many pairs were dropped, and why. A pair is counted once, for the first reason that applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// A sentence has no tokens.
    pub empty: usize,
    /// A sentence has more tokens than [`Limits::max_tokens`].
    pub too_long: usize,
    /// The lengths differ by more than [`Limits::max_ratio`].
    pub unequal: usize,
}

impl Dropped {
    /// The sum.
    pub fn total(&self) -> usize {
        self.empty + self.too_long + self.unequal
    }

    /// Counts a pair if it is to be dropped; whether it is.
    fn counts(&mut self, source: &[u32], target: &[u32], limits: &Limits) -> bool {
        let (shorter, longer) = (source.len().min(target.len()), source.len().max(target.len()));
        let reason = if shorter == 0 {
            &mut self.empty
        } else if longer > limits.max_tokens {
            &mut self.too_long
        } else if longer as f64 > limits.max_ratio * shorter as f64 {
            &mut self.unequal
        } else {
            return false;
        };
        *reason += 1;
        true
    }
}

impl std::fmt::Display for Dropped {
    fn fmt(&self, formatter: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        let Dropped { empty, too_long, unequal } = self;
        write!(formatter, "{} pairs were dropped: {empty} empty, {too_long} too long, {unequal} unequal", self.total())
    }
}

/// Rows of tokens, stored one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
struct Rows {
    tokens: Vec<u32>,
    ends: Vec<usize>,
}

impl Rows {
    fn push(&mut self, row: &[u32]) {
        self.tokens.extend_from_slice(row);
        self.ends.push(self.tokens.len());
    }

    fn row(&self, index: usize) -> &[u32] {
        let start = index.checked_sub(1).map_or(0, |before| self.ends[before]);
        &self.tokens[start..self.ends[index]]
    }
}

/// Tokenised pairs, without special tokens.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EncodedPairs {
    sources: Rows,
    targets: Rows,
    /// The index of each among the given pairs.
    places: Vec<usize>,
}

impl EncodedPairs {
    /// Tokenises pairs, and drops those outside of the limits.
    pub fn new(
        pairs: &[Pair],
        tokenisers: &Tokenisers,
        limits: &Limits,
    ) -> Result<(EncodedPairs, Dropped), TokeniserError> {
        let mut encoded = EncodedPairs::default();
        let mut dropped = Dropped::default();
        for (chunk, pairs) in pairs.chunks(CHUNK).enumerate() {
            let encode =
                |pair: &Pair| Ok((tokenisers.source.encode(&pair.source)?, tokenisers.target.encode(&pair.target)?));
            let sides: Vec<(Vec<u32>, Vec<u32>)> =
                pairs.par_iter().map(encode).collect::<Result<_, TokeniserError>>()?;
            for (index, (source, target)) in sides.into_iter().enumerate() {
                if dropped.counts(&source, &target, limits) {
                    continue;
                }
                encoded.push(&source, &target);
                encoded.places.push(chunk * CHUNK + index);
            }
        }
        Ok((encoded, dropped))
    }

    /// Pairs that are tokenised already.
    pub fn from_tokens<'a>(pairs: impl IntoIterator<Item = (&'a [u32], &'a [u32])>) -> EncodedPairs {
        let mut encoded = EncodedPairs::default();
        for (source, target) in pairs {
            encoded.places.push(encoded.places.len());
            encoded.push(source, target);
        }
        encoded
    }

    fn push(&mut self, source: &[u32], target: &[u32]) {
        self.sources.push(source);
        self.targets.push(target);
    }

    /// Number of pairs.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// The tokens of a source sentence.
    pub fn source(&self, index: usize) -> &[u32] {
        self.sources.row(index)
    }

    /// The tokens of a target sentence.
    pub fn target(&self, index: usize) -> &[u32] {
        self.targets.row(index)
    }

    /// The index of a pair among those given to [`EncodedPairs::new`].
    pub fn place(&self, index: usize) -> usize {
        self.places[index]
    }

    /// The number of tokens of all sources, and of all targets.
    pub fn tokens(&self) -> (usize, usize) {
        (self.sources.tokens.len(), self.targets.tokens.len())
    }
}
