//! Pairs as numbers, without those that cannot be learnt from.

use rayon::prelude::*;

use super::{Pair, TokeniserError, Tokenisers};

/// How many pairs are encoded at once, by all threads.
const CHUNK: usize = 1 << 13;

/// Which pairs are learnt from.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Limits {
    /// The most tokens that a side may have, special ones not counted.
    pub max_tokens: usize,
    /// How many times as many tokens one side may have as the other. Beyond it they hardly say the same. Moses'
    /// `clean-corpus-n` has the same limit, 9, for words.
    pub max_ratio: f64,
}

impl Default for Limits {
    fn default() -> Limits {
        Limits { max_tokens: 256, max_ratio: 9.0 }
    }
}

/// How many pairs were dropped, and why. A pair is counted once, for the first that applies.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Dropped {
    /// A side has no token.
    pub empty: usize,
    /// A side has more tokens than [`Limits::max_tokens`].
    pub too_long: usize,
    /// The sides differ by more than [`Limits::max_ratio`].
    pub unequal: usize,
}

impl Dropped {
    /// All that were dropped.
    pub fn total(&self) -> usize {
        self.empty + self.too_long + self.unequal
    }

    /// Whether a pair is dropped, in which case it is counted.
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

/// Rows of tokens, one behind the other.
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

/// Pairs as tokens, without special ones.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EncodedPairs {
    sources: Rows,
    targets: Rows,
    /// Where each was among the pairs that were given.
    places: Vec<usize>,
}

impl EncodedPairs {
    /// Encodes pairs, and drops what is outside of the limits.
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

    /// Pairs that are tokens already.
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

    /// How many pairs there are.
    pub fn len(&self) -> usize {
        self.places.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.places.is_empty()
    }

    /// A source's tokens.
    pub fn source(&self, index: usize) -> &[u32] {
        self.sources.row(index)
    }

    /// A target's tokens.
    pub fn target(&self, index: usize) -> &[u32] {
        self.targets.row(index)
    }

    /// Where a pair was among those that were given to [`EncodedPairs::new`].
    pub fn place(&self, index: usize) -> usize {
        self.places[index]
    }

    /// All tokens of the sources, and all of the targets.
    pub fn tokens(&self) -> (usize, usize) {
        (self.sources.tokens.len(), self.targets.tokens.len())
    }
}
