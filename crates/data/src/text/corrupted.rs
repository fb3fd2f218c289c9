//! Sequences that are made worse, to be written as they were: batches for pre-training encoder-decoders.
//!
//! **Spans** (T5): of each sequence a fixed share of tokens, in spans of a given mean length, is left out. The source has a sentinel in
//! the place of each span; the target is each sentinel with the tokens that it stands for, and the end. The number of tokens of source and
//! target follow from the length of a sequence, so nothing is padded.
//!
//! **Infilling** (BART): sentences are shuffled, and spans whose lengths are drawn from a Poisson distribution, some of length 0, become
//! one mask token each; of these, some become a random token. The target is the sequence itself.
//!
//! What is drawn is a function of (seed, epoch, sequence).

use std::sync::Arc;

use super::token_arrays::write_rows;
use super::{IGNORED, PackedTexts};
use crate::loader::{ArraySpec, ArrayValues, Batch, BatchSource, EpochOrder, LoadError, NamedArray};
use crate::random::Random;

/// How sequences are made worse.
#[derive(Clone, Debug, PartialEq)]
pub enum Corruption {
    /// Spans become sentinels.
    Spans(SpanOptions),
    /// Spans become masks, and sentences are shuffled.
    Infilling(InfillingOptions),
}

/// How spans are left out.
#[derive(Clone, Debug, PartialEq)]
pub struct SpanOptions {
    /// The share of tokens that are left out.
    pub share: f64,
    /// Their mean length.
    pub mean_length: f64,
    /// What stands for them, in order.
    pub sentinels: Arc<[u32]>,
    /// What ends source and target.
    pub end: u32,
}

/// How spans are masked.
#[derive(Clone, Debug, PartialEq)]
pub struct InfillingOptions {
    /// The share of tokens that are masked.
    pub share: f64,
    /// The mean length of a span.
    pub mean_length: f64,
    /// The share of masks that become a random token.
    pub random: f64,
    /// Whether sentences are shuffled.
    pub permutes: bool,
    /// The mask token.
    pub mask: u32,
    /// For each token of the vocabulary, whether it ends a sentence.
    pub ends_sentence: Arc<[bool]>,
    /// Tokens from here on are no special ones.
    pub first_word: u32,
}

impl SpanOptions {
    /// How many tokens, and how many spans, are left out of so many.
    fn counts(&self, length: usize) -> (usize, usize) {
        let noise = ((self.share * length as f64).round() as usize).clamp(1, length.saturating_sub(1).max(1));
        let spans = ((noise as f64 / self.mean_length).round() as usize).max(1);
        (noise, spans.min(noise).min(length - noise).min(self.sentinels.len()).max(1))
    }

    /// Lengths of source and target of a sequence of so many tokens.
    fn lengths(&self, length: usize) -> (usize, usize) {
        let (noise, spans) = self.counts(length);
        (length - noise + spans + 1, noise + spans + 1)
    }

    /// Source and target of a sequence.
    fn apply(&self, row: &[u32], random: &mut Random) -> (Vec<u32>, Vec<u32>) {
        let (noise, spans) = self.counts(row.len());
        let (left_out, kept) = (parts(noise, spans, random), parts(row.len() - noise, spans, random));
        let (mut source, mut target) = (Vec::new(), Vec::new());
        let mut at = 0;
        for ((kept, left_out), &sentinel) in kept.into_iter().zip(left_out).zip(self.sentinels.iter()) {
            source.extend_from_slice(&row[at..at + kept]);
            source.push(sentinel);
            target.push(sentinel);
            target.extend_from_slice(&row[at + kept..at + kept + left_out]);
            at += kept + left_out;
        }
        source.push(self.end);
        target.push(self.end);
        (source, target)
    }
}

/// Cuts so many things into parts of at least one, each way of doing it as likely as any other.
fn parts(total: usize, count: usize, random: &mut Random) -> Vec<usize> {
    let mut is_first: Vec<bool> = (0..total.saturating_sub(1)).map(|place| place < count - 1).collect();
    random.shuffle(&mut is_first);
    let mut found = vec![1];
    for first in is_first {
        match (first, found.last_mut()) {
            (false, Some(last)) => *last += 1,
            _ => found.push(1),
        }
    }
    found
}

impl InfillingOptions {
    /// What a sequence with special tokens at its ends becomes; it is not longer.
    fn apply(&self, row: &[u32], random: &mut Random) -> Vec<u32> {
        let (Some((&first, rest)), true) = (row.split_first(), row.len() > 2) else { return row.to_vec() };
        let (&last, inner) = rest.split_last().unwrap_or((&first, &[]));
        let inner = if self.permutes { self.permute(inner, random) } else { inner.to_vec() };
        let masked = self.infill(&inner, random);
        [first].into_iter().chain(masked).chain([last]).collect()
    }

    /// Sentences in another order.
    fn permute(&self, tokens: &[u32], random: &mut Random) -> Vec<u32> {
        let ends = |token: &u32| self.ends_sentence.get(*token as usize).copied().unwrap_or(false);
        let mut sentences: Vec<&[u32]> = tokens.split_inclusive(ends).collect();
        random.shuffle(&mut sentences);
        sentences.concat()
    }

    fn infill(&self, tokens: &[u32], random: &mut Random) -> Vec<u32> {
        let wanted = ((self.share * tokens.len() as f64).round() as usize).min(tokens.len());
        // Of each token: whether it is left out, and how many masks stand before it.
        let mut left_out = vec![false; tokens.len()];
        let mut masks = vec![0usize; tokens.len() + 1];
        let (mut covered, mut inserted) = (0usize, 0usize);
        for _ in 0..tokens.len() {
            if covered >= wanted {
                break;
            }
            let length = poisson(self.mean_length, random).min(wanted - covered);
            let start = (random.uniform() * tokens.len() as f64) as usize;
            if length == 0 {
                inserted += 1;
                masks[start] += 1;
                continue;
            }
            let end = (start + length).min(tokens.len());
            // A span that touches another would become one with it.
            let around = start.saturating_sub(1)..(end + 1).min(tokens.len());
            if left_out[around].iter().any(|&out| out) {
                continue;
            }
            left_out[start..end].fill(true);
            masks[start] += 1;
            covered += end - start;
        }
        // Masks of no tokens make it longer: no more of them than others have made room for.
        let mut spare = inserted.saturating_sub(covered.saturating_sub(masks.iter().sum::<usize>() - inserted));
        let mut out = Vec::with_capacity(tokens.len());
        for (place, &token) in tokens.iter().enumerate() {
            for _ in 0..masks[place] {
                if spare > 0 && !left_out[place] {
                    spare -= 1;
                    continue;
                }
                out.push(self.mask_or_word(random));
            }
            if !left_out[place] {
                out.push(token);
            }
        }
        out.truncate(tokens.len());
        out
    }

    fn mask_or_word(&self, random: &mut Random) -> u32 {
        if random.uniform() >= self.random {
            return self.mask;
        }
        let words = (self.ends_sentence.len() as u32).saturating_sub(self.first_word);
        self.first_word + (random.uniform() * f64::from(words)) as u32
    }
}

/// A number of a Poisson distribution (Knuth).
fn poisson(mean: f64, random: &mut Random) -> usize {
    let limit = (-mean).exp();
    let (mut product, mut count) = (random.uniform(), 0);
    while product > limit && count < 1000 {
        product *= random.uniform();
        count += 1;
    }
    count
}

impl Corruption {
    /// Lengths of source and target of a sequence of so many tokens.
    pub fn lengths(&self, length: usize) -> (usize, usize) {
        match self {
            Corruption::Spans(options) => options.lengths(length),
            Corruption::Infilling(_) => (length, length),
        }
    }

    /// Source and target of a sequence.
    pub fn apply(&self, row: &[u32], random: &mut Random) -> (Vec<u32>, Vec<u32>) {
        match self {
            Corruption::Spans(options) => options.apply(row, random),
            Corruption::Infilling(options) => (options.apply(row, random), row.to_vec()),
        }
    }
}

/// Batches of sequences that were made worse.
///
/// The arrays are those of pairs: `source` i32 `[batch, source]`, `source_lengths` i32 `[batch]`, `target` i32 `[batch, target]`, which
/// begins with the start token, and `wanted` i32 `[batch, target]`, where padding is [`IGNORED`]. [`Batch::units`] counts wanted tokens.
#[derive(Clone, Debug)]
pub struct CorruptedBatches {
    texts: Arc<PackedTexts>,
    corruption: Corruption,
    padding: u32,
    start: u32,
    batch: usize,
    seed: u64,
    groups: Vec<Vec<ArraySpec>>,
}

impl CorruptedBatches {
    /// Batches of so many sequences, of models with these tokens for padding and for the start of a target.
    pub fn new(
        texts: impl Into<Arc<PackedTexts>>,
        corruption: Corruption,
        (padding, start): (u32, u32),
        batch: usize,
        seed: u64,
    ) -> CorruptedBatches {
        let texts = texts.into();
        let (source, target) = corruption.lengths(texts.length());
        let arrays = vec![
            ArraySpec::i32("source", [batch, source]),
            ArraySpec::i32("source_lengths", [batch]),
            ArraySpec::i32("target", [batch, target]),
            ArraySpec::i32("wanted", [batch, target]),
        ];
        CorruptedBatches { texts, corruption, padding, start, batch, seed, groups: vec![arrays] }
    }
}

impl BatchSource for CorruptedBatches {
    fn groups(&self) -> &[Vec<ArraySpec>] {
        &self.groups
    }

    fn batches_per_epoch(&self) -> usize {
        self.texts.len() / self.batch
    }

    fn order(&self, epoch: u64) -> EpochOrder {
        EpochOrder::shuffled(epoch, self.seed, self.texts.len(), self.batch)
    }

    fn fill(&self, order: &EpochOrder, batch: &mut Batch) -> Result<(), LoadError> {
        let rows = order.samples(batch.position.index);
        // The draws of a sequence do not depend on its batch.
        let pair = |&row: &u32| {
            let mut random = Random::new(self.seed, batch.position.epoch, 1 + u64::from(row));
            self.corruption.apply(self.texts.row(row as usize), &mut random)
        };
        let pairs: Vec<(Vec<u32>, Vec<u32>)> = rows.iter().map(pair).collect();
        fill_pairs(&mut batch.arrays, &pairs, self.padding, self.start);
        batch.units = pairs.iter().map(|(_, target)| target.len()).sum();
        batch.samples.extend(rows.iter().map(|&row| row as usize));
        Ok(())
    }
}

/// Fills the arrays of pairs that are given with all their special tokens.
pub(super) fn fill_pairs(
    arrays: &mut [NamedArray],
    pairs: &[(impl AsRef<[u32]>, impl AsRef<[u32]>)],
    padding: u32,
    start: u32,
) {
    let numbers = |tokens: &[u32]| tokens.iter().map(|&token| token as i32).collect::<Vec<i32>>().into_iter();
    for NamedArray { name, shape, values } in arrays {
        let ArrayValues::I32(values) = values else { continue };
        let width = shape.get(1).copied().unwrap_or(1);
        match *name {
            "source" => {
                write_rows(values, width, padding as i32, pairs.iter().map(|(source, _)| numbers(source.as_ref())))
            }
            "target" => {
                let shifted = |target: &[u32]| {
                    let before = &target[..target.len().saturating_sub(1)];
                    [start as i32].into_iter().chain(numbers(before))
                };
                write_rows(values, width, padding as i32, pairs.iter().map(|(_, target)| shifted(target.as_ref())));
            }
            "wanted" => write_rows(values, width, IGNORED, pairs.iter().map(|(_, target)| numbers(target.as_ref()))),
            _ => {
                values.fill(0);
                values.iter_mut().zip(pairs).for_each(|(to, (source, _))| *to = source.as_ref().len() as i32);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn spans() -> SpanOptions {
        SpanOptions { share: 0.15, mean_length: 3.0, sentinels: (900..1000).rev().collect(), end: 1 }
    }

    #[test]
    fn spans_and_what_is_left_are_the_whole_sequence() {
        let row: Vec<u32> = (10..10 + 568).collect();
        for draw in 0..50 {
            let options = spans();
            let (source, target) = options.apply(&row, &mut Random::new(draw, 0, 1));
            // T5's own numbers: 568 tokens are 512 of source and 114 of target.
            assert_eq!((source.len(), target.len()), (512, 114));
            assert_eq!(options.lengths(568), (512, 114));
            let mut again = Vec::new();
            let mut left_out = target[..target.len() - 1].split(|token| *token >= 900).skip(1);
            for token in &source[..source.len() - 1] {
                match *token >= 900 {
                    true => again.extend_from_slice(left_out.next().expect("a span")),
                    false => again.push(*token),
                }
            }
            assert_eq!(again, row);
            assert!(source[0] < 900, "a sequence begins with what is kept");
            let order: Vec<u32> = source.iter().copied().filter(|token| *token >= 900).collect();
            assert_eq!(order, (900..1000).rev().take(order.len()).collect::<Vec<u32>>());
        }
    }

    #[test]
    fn short_sequences_have_one_span() {
        for length in 2..12 {
            let row: Vec<u32> = (10..10 + length).collect();
            let (source, target) = spans().apply(&row, &mut Random::new(3, 0, 1));
            assert_eq!((source.len(), target.len()), spans().lengths(row.len()));
        }
    }

    fn infilling(permutes: bool) -> InfillingOptions {
        let ends_sentence = (0..100).map(|token| token % 10 == 9).collect();
        InfillingOptions { share: 0.3, mean_length: 3.0, random: 0.0, permutes, mask: 4, ends_sentence, first_word: 5 }
    }

    #[test]
    fn masks_stand_for_about_their_share() {
        let row: Vec<u32> = [0].into_iter().chain((0..126).map(|n| 10 + n % 80)).chain([2]).collect();
        let mut kept = 0;
        for draw in 0..200 {
            let masked = infilling(false).apply(&row, &mut Random::new(draw, 0, 1));
            assert!(masked.len() <= row.len() && masked[0] == 0 && masked.last() == Some(&2));
            let words: Vec<u32> = masked.iter().copied().filter(|token| *token != 4).collect();
            // What is left is in its order.
            let mut rest = row.iter();
            assert!(words.iter().all(|word| rest.any(|token| token == word)), "{masked:?}");
            kept += words.len() - 2;
        }
        let share = 1.0 - kept as f64 / (200.0 * 126.0);
        assert!((0.25..0.32).contains(&share), "{share}");
    }

    #[test]
    fn sentences_are_shuffled_whole() {
        let tokens: Vec<u32> = (10..60).collect();
        let mut orders = std::collections::BTreeSet::new();
        for draw in 0..20 {
            let permuted = infilling(true).permute(&tokens, &mut Random::new(draw, 0, 1));
            for sentence in permuted.split_inclusive(|token| token % 10 == 9) {
                assert!(sentence.windows(2).all(|pair| pair[1] == pair[0] + 1), "{permuted:?}");
            }
            let mut sorted = permuted.clone();
            sorted.sort_unstable();
            assert_eq!(sorted, tokens);
            orders.insert(permuted);
        }
        assert!(orders.len() > 10);
    }

    #[test]
    fn the_same_epoch_gives_the_same_batches() {
        let texts = Arc::new(PackedTexts::pack([(10..2000).map(|n| n % 80 + 10).collect()], 40, 0, 2));
        for corruption in [Corruption::Spans(spans()), Corruption::Infilling(infilling(true))] {
            let batches = |seed| CorruptedBatches::new(texts.clone(), corruption.clone(), (1, 2), 4, seed);
            let batch = |seed, epoch| {
                let batches = batches(seed);
                batches.batch(&batches.order(epoch), 1).expect("a batch")
            };
            let tokens = |seed, epoch| batch(seed, epoch).i32("source").expect("there").to_vec();
            assert_eq!(tokens(1, 0), tokens(1, 0));
            assert!(tokens(1, 0) != tokens(1, 1) && tokens(1, 0) != tokens(2, 0));
            let batch = batch(1, 0);
            let (target, wanted) = (batch.i32("target").expect("there"), batch.i32("wanted").expect("there"));
            assert_eq!((target[0], &target[1..5]), (2, &wanted[..4]));
        }
    }
}
