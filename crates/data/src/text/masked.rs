//! Sequences with some tokens masked, to be predicted: batches for masked-language pre-training.
//!
//! Documents are packed one after the other into sequences of one length, so that nothing is padded. Which tokens are masked is drawn
//! anew in every epoch, as RoBERTa does: of each sequence a fixed number, of which most become the mask token, some a random token, and
//! some stay. Whole words are masked if that is asked for.

use std::sync::Arc;

use crate::loader::{ArraySpec, ArrayValues, Batch, BatchSource, EpochOrder, LoadError, NamedArray};
use crate::random::Random;

use super::IGNORED;
use super::token_arrays::{fill_token_array, token_arrays};

/// Token sequences of one length, with the special tokens at their ends.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PackedTexts {
    tokens: Vec<u32>,
    length: usize,
}

impl PackedTexts {
    /// Packs documents, given as tokens without special tokens, into sequences of this length: each begins with `first` and ends with
    /// `separator`, which also stands between documents. What is left over at the end is dropped.
    ///
    /// # Panics
    /// Panics if a sequence has no room for a token.
    pub fn pack(
        documents: impl IntoIterator<Item = Vec<u32>>,
        length: usize,
        first: u32,
        separator: u32,
    ) -> PackedTexts {
        assert!(length > 2, "a sequence must have room for a token");
        let mut packed = PackedTexts { tokens: Vec::new(), length };
        let mut open: Vec<u32> = vec![first];
        let mut push = |open: &mut Vec<u32>, token: u32| {
            open.push(token);
            if open.len() == length - 1 {
                open.push(separator);
                packed.tokens.append(open);
                open.push(first);
            }
        };
        for document in documents.into_iter().filter(|document| !document.is_empty()) {
            if open.len() > 1 {
                push(&mut open, separator);
            }
            document.into_iter().for_each(|token| push(&mut open, token));
        }
        packed
    }

    /// Cuts documents, given as tokens, one after the other into sequences of this length, with `end` behind each document. What is left
    /// over at the end is dropped.
    ///
    /// # Panics
    /// Panics if the length is 0.
    pub fn concatenate(documents: impl IntoIterator<Item = Vec<u32>>, length: usize, end: u32) -> PackedTexts {
        assert!(length > 0, "a sequence must have room for a token");
        let documents = documents.into_iter().filter(|document| !document.is_empty());
        let mut tokens: Vec<u32> = documents.flat_map(|document| document.into_iter().chain([end])).collect();
        tokens.truncate(tokens.len() / length * length);
        PackedTexts { tokens, length }
    }

    /// Number of sequences.
    pub fn len(&self) -> usize {
        self.tokens.len() / self.length
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// Tokens of a sequence.
    pub fn length(&self) -> usize {
        self.length
    }

    /// A sequence.
    pub fn row(&self, index: usize) -> &[u32] {
        &self.tokens[index * self.length..][..self.length]
    }

    /// All tokens.
    pub fn tokens(&self) -> &[u32] {
        &self.tokens
    }

    /// Takes the last so many sequences away.
    pub fn split_off(&mut self, count: usize) -> PackedTexts {
        let kept = self.len().saturating_sub(count) * self.length;
        PackedTexts { tokens: self.tokens.split_off(kept), length: self.length }
    }
}

/// How tokens are masked.
#[derive(Clone, Debug, PartialEq)]
pub struct MaskOptions {
    /// The share of tokens that are predicted.
    pub share: f64,
    /// The share of these that become a random token.
    pub random: f64,
    /// The share of these that stay as they are.
    pub kept: f64,
    /// Whether all tokens of a word are masked together.
    pub whole_words: bool,
    /// The mask token.
    pub mask: u32,
    /// For each token of the vocabulary, whether it may be masked, and whether it begins a word.
    pub tokens: Arc<[TokenKind]>,
}

/// What masking must know of a token.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum TokenKind {
    /// Never masked, and never drawn in the place of another.
    Special,
    /// The first token of a word.
    Begins,
    /// Goes on with the word before it.
    Continues,
}

impl MaskOptions {
    /// How many tokens of a sequence of this length are predicted.
    pub fn count(&self, length: usize) -> usize {
        ((self.share * length as f64).round() as usize).clamp(1, length)
    }

    fn kind(&self, token: u32) -> TokenKind {
        self.tokens.get(token as usize).copied().unwrap_or(TokenKind::Special)
    }

    /// Masks a sequence: the changed tokens, which positions are predicted, in order, and what was there.
    pub fn apply(&self, row: &[u32], random: &mut Random) -> (Vec<u32>, Vec<usize>, Vec<u32>) {
        let count = self.count(row.len());
        let mut words: Vec<Vec<usize>> = Vec::new();
        let mut may_continue = false;
        for (at, &token) in row.iter().enumerate() {
            match self.kind(token) {
                TokenKind::Special => may_continue = false,
                TokenKind::Continues if self.whole_words && may_continue => {
                    if let Some(word) = words.last_mut() {
                        word.push(at);
                    }
                }
                TokenKind::Begins | TokenKind::Continues => {
                    words.push(vec![at]);
                    may_continue = true;
                }
            }
        }
        random.shuffle(&mut words);
        let mut positions = Vec::with_capacity(count);
        for word in words {
            // A word that does not fit is left out, and a shorter one may follow.
            if positions.len() + word.len() <= count {
                positions.extend(word);
            }
            if positions.len() == count {
                break;
            }
        }
        positions.sort_unstable();
        let mut masked = row.to_vec();
        let mut wanted = Vec::with_capacity(positions.len());
        for &at in &positions {
            wanted.push(row[at]);
            let drawn = random.uniform();
            if drawn < self.random {
                masked[at] = self.any_token(random).unwrap_or(row[at]);
            } else if drawn >= self.random + self.kept {
                masked[at] = self.mask;
            }
        }
        (masked, positions, wanted)
    }

    /// A random token that is not special.
    fn any_token(&self, random: &mut Random) -> Option<u32> {
        (0..64).find_map(|_| {
            let token = (random.uniform() * self.tokens.len() as f64) as u32;
            (self.kind(token) != TokenKind::Special).then_some(token)
        })
    }
}

/// Batches of masked sequences.
///
/// The arrays are `tokens` i32 `[batch, length]`, `lengths` i32 `[batch]`, for models that tell token types apart `token_types`, and of the
/// predicted tokens `masked` i32 `[batch * count]`, their places in `batch * length`, and `targets` i32 `[batch * count]`, where what a
/// sequence has less than others is [`IGNORED`]. [`Batch::units`] counts predicted tokens.
#[derive(Clone, Debug)]
pub struct MaskedBatches {
    texts: Arc<PackedTexts>,
    options: MaskOptions,
    batch: usize,
    seed: u64,
    groups: Vec<Vec<ArraySpec>>,
}

impl MaskedBatches {
    /// Batches of so many sequences.
    pub fn new(
        texts: impl Into<Arc<PackedTexts>>,
        options: MaskOptions,
        batch: usize,
        has_types: bool,
        seed: u64,
    ) -> MaskedBatches {
        let texts = texts.into();
        let (length, count) = (texts.length(), options.count(texts.length()));
        let mut arrays = token_arrays(batch, length, has_types);
        arrays.push(ArraySpec::i32("masked", [batch * count]));
        arrays.push(ArraySpec::i32("targets", [batch * count]));
        MaskedBatches { texts, options, batch, seed, groups: vec![arrays] }
    }
}

impl BatchSource for MaskedBatches {
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
        let (length, count) = (self.texts.length(), self.options.count(self.texts.length()));
        let mask = |&row: &u32| {
            // The draws of a sequence do not depend on its batch.
            let mut random = Random::new(self.seed, order.epoch(), 1 + u64::from(row));
            self.options.apply(self.texts.row(row as usize), &mut random)
        };
        let masked: Vec<_> = rows.iter().map(mask).collect();
        batch.units = masked.iter().map(|(_, positions, _)| positions.len()).sum();
        for array in &mut batch.arrays {
            // Sequences have one length, so that nothing is filled up, and their tokens are of one type.
            if fill_token_array(array, 0, masked.iter().map(|(tokens, ..)| (&tokens[..], &[][..]))) {
                continue;
            }
            let NamedArray { name, values: ArrayValues::I32(values), .. } = array else {
                unreachable!("all arrays are of tokens")
            };
            match *name {
                "masked" => {
                    values.fill(0);
                    for (row, (_, positions, _)) in masked.iter().enumerate() {
                        let to = values[row * count..].iter_mut();
                        to.zip(positions).for_each(|(to, at)| *to = (row * length + at) as i32);
                    }
                }
                _ => {
                    values.fill(IGNORED);
                    for (row, (.., wanted)) in masked.iter().enumerate() {
                        values[row * count..].iter_mut().zip(wanted).for_each(|(to, &token)| *to = token as i32);
                    }
                }
            }
        }
        batch.samples.extend(rows.iter().map(|&row| row as usize));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn options(whole_words: bool) -> MaskOptions {
        // 0 to 4 are special; of the others, odd tokens go on with a word.
        let kind = |token: u32| match token {
            0..5 => TokenKind::Special,
            _ if token % 2 == 1 => TokenKind::Continues,
            _ => TokenKind::Begins,
        };
        let tokens = (0..100).map(kind).collect();
        MaskOptions { share: 0.15, random: 0.1, kept: 0.1, whole_words, mask: 4, tokens }
    }

    #[test]
    fn documents_are_packed_without_padding() {
        let documents = [vec![10, 11, 12], vec![], vec![13], vec![14, 15, 16, 17]];
        let packed = PackedTexts::pack(documents, 5, 2, 3);
        // The first document ends with its sequence, so that no further separator is needed.
        assert_eq!(packed.tokens(), [2, 10, 11, 12, 3, 2, 13, 3, 14, 3, 2, 15, 16, 17, 3]);
        assert_eq!((packed.len(), packed.row(1)), (3, &[2, 13, 3, 14, 3][..]));
    }

    #[test]
    fn a_share_of_tokens_is_masked_in_the_right_proportions() {
        let row: Vec<u32> = [2].into_iter().chain((0..126).map(|n| 5 + n * 7 % 95)).chain([3]).collect();
        let (mut masks, mut others, mut same) = (0, 0, 0);
        for draw in 0..2000 {
            let (masked, positions, wanted) = options(false).apply(&row, &mut Random::new(1, draw, 0));
            assert_eq!(positions.len(), 19);
            for (&at, &was) in positions.iter().zip(&wanted) {
                assert_eq!(row[at], was);
                assert!(at != 0 && at != 127, "special tokens stay");
                match masked[at] {
                    4 => masks += 1,
                    token if token == was => same += 1,
                    token => {
                        assert!(token >= 5);
                        others += 1;
                    }
                }
            }
            let changed = (0..row.len()).filter(|&at| masked[at] != row[at]);
            assert!(changed.into_iter().all(|at| positions.contains(&at)));
        }
        let share = |count: i32| f64::from(count) / (2000.0 * 19.0);
        assert!(
            (share(masks) - 0.8).abs() < 0.01 && (share(others) - 0.1).abs() < 0.01 && (share(same) - 0.1).abs() < 0.01
        );
    }

    #[test]
    fn words_are_masked_whole() {
        // Words of three tokens: 6 7 9, 8 7 9, ..
        let row: Vec<u32> = (0..60).flat_map(|n| [6 + 2 * (n % 20), 7, 9]).collect();
        let (_, positions, _) = options(true).apply(&row, &mut Random::new(3, 0, 0));
        assert_eq!(positions.len(), 27);
        assert!(positions.chunks_exact(3).all(|word| word[0] % 3 == 0 && word[2] == word[0] + 2), "{positions:?}");
    }

    #[test]
    fn batches_are_those_of_their_epoch_alone() {
        let documents: Vec<Vec<u32>> =
            (0..40u32).map(|n| (0..37).map(|m| 5 + (n * 31 + m * 7) % 95).collect()).collect();
        let batches = MaskedBatches::new(PackedTexts::pack(documents, 32, 2, 3), options(true), 4, true, 9);
        let first = |epoch: u64| {
            let order = batches.order(epoch);
            batches.batch(&order, 0).expect("a batch")
        };
        assert_eq!(first(0), first(0));
        assert_ne!(first(0).arrays, first(1).arrays);
        let batch = first(0);
        let (tokens, masked) = (batch.i32("tokens").expect("tokens"), batch.i32("masked").expect("places"));
        let targets = batch.i32("targets").expect("targets");
        assert_eq!((tokens.len(), masked.len(), targets.len()), (128, 20, 20));
        let real = targets.iter().filter(|&&target| target != IGNORED).count();
        assert_eq!(real, batch.units);
    }
}
