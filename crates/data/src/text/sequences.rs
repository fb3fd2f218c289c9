//! Sequences of tokens for next-token prediction, and batches of them.
//!
//! Documents are packed one after the other and cut into sequences of one length, so that nothing is padded, as for GPT-2; chats, of
//! which only the answers are learnt, stay whole, several in a sequence where they fit. A sequence of `length` tokens has a token more
//! behind it: every token but the last is read, and every token but the first is predicted.

use std::ops::Range;
use std::sync::Arc;

use crate::loader::{ArraySpec, ArrayValues, Batch, BatchSource, EpochOrder, LoadError, NamedArray};
use crate::random::Random;

use super::IGNORED;
use super::token_arrays::{fill_token_array, token_arrays, write_rows};

/// Tokens one after the other, and what is known of them.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TokenDocuments {
    tokens: Vec<u32>,
    /// Where documents begin.
    begins: Vec<usize>,
    /// Whether each token is to be predicted; empty if all are.
    counted: Vec<bool>,
}

impl TokenDocuments {
    /// Begins a document.
    pub fn begin(&mut self) {
        self.begins.push(self.tokens.len());
    }

    /// Adds tokens that are to be predicted.
    pub fn extend(&mut self, tokens: &[u32]) {
        self.tokens.extend_from_slice(tokens);
        if !self.counted.is_empty() {
            self.counted.resize(self.tokens.len(), true);
        }
    }

    /// Adds tokens, of which only some are to be predicted.
    pub fn extend_counted(&mut self, tokens: &[u32], counted: impl IntoIterator<Item = bool>) {
        self.counted.resize(self.tokens.len(), true);
        self.tokens.extend_from_slice(tokens);
        self.counted.extend(counted);
        self.counted.resize(self.tokens.len(), true);
    }

    /// The number of tokens.
    pub fn len(&self) -> usize {
        self.tokens.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.tokens.is_empty()
    }

    /// The number of documents.
    pub fn documents(&self) -> usize {
        self.begins.len()
    }
}

/// Sequences of tokens, each with one behind it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TokenSequences {
    all: Arc<TokenDocuments>,
    rows: Vec<Range<usize>>,
    length: usize,
}

/// A sequence: its tokens, the last of which is only predicted.
#[derive(Clone, Copy, Debug)]
pub struct TokenSequence<'s> {
    /// The tokens.
    pub tokens: &'s [u32],
    /// Whether each is to be predicted; `None`: all are. The first never is.
    counted: Option<&'s [bool]>,
    /// Where documents begin, counted from the first token of all, and the number of that token.
    begins: (&'s [usize], usize),
}

impl TokenSequences {
    /// Cuts documents, packed one after the other, into sequences of this length. What is left over at the end is dropped.
    ///
    /// # Panics
    /// Panics if the length is 0.
    pub fn pack(all: TokenDocuments, length: usize) -> TokenSequences {
        assert!(length > 0, "a sequence must have room for a token");
        let count = all.len().saturating_sub(1) / length;
        let rows = (0..count).map(|row| row * length..row * length + length + 1).collect();
        TokenSequences { all: Arc::new(all), rows, length }
    }

    /// Keeps documents whole: as many in a sequence as fit, one after the other, and of longer ones the beginning. A sequence in which
    /// nothing is to be predicted is dropped. Gives the sequences, and how many documents were cut.
    ///
    /// # Panics
    /// Panics if the length is 0.
    pub fn keep_whole(all: TokenDocuments, length: usize) -> (TokenSequences, usize) {
        assert!(length > 0, "a sequence must have room for a token");
        let ends = all.begins.iter().skip(1).copied().chain([all.len()]);
        let (mut rows, mut cut): (Vec<Range<usize>>, usize) = (Vec::new(), 0);
        for (&begin, end) in all.begins.iter().zip(ends) {
            cut += usize::from(end - begin > length + 1);
            let end = end.min(begin + length + 1);
            match rows.last_mut() {
                Some(row) if row.end == begin && end - row.start <= length + 1 => row.end = end,
                _ => rows.push(begin..end),
            }
        }
        let mut sequences = TokenSequences { all: Arc::new(all), rows, length };
        let has_targets = |row: usize| sequences.row(row).targets() > 0;
        let kept: Vec<Range<usize>> =
            (0..sequences.len()).filter(|&row| has_targets(row)).map(|row| sequences.rows[row].clone()).collect();
        sequences.rows = kept;
        (sequences, cut)
    }

    /// The number of sequences.
    pub fn len(&self) -> usize {
        self.rows.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.rows.is_empty()
    }

    /// The most tokens of a sequence, without the one behind it.
    pub fn length(&self) -> usize {
        self.length
    }

    /// A sequence.
    pub fn row(&self, index: usize) -> TokenSequence<'_> {
        let (TokenDocuments { tokens, begins, counted }, row) = (&*self.all, self.rows[index].clone());
        let first = begins.partition_point(|&begin| begin <= row.start);
        let last = begins.partition_point(|&begin| begin < row.end);
        let counted = (!counted.is_empty()).then(|| &counted[row.clone()]);
        TokenSequence { tokens: &tokens[row.clone()], counted, begins: (&begins[first..last.max(first)], row.start) }
    }

    /// All sequences.
    pub fn iter(&self) -> impl Iterator<Item = TokenSequence<'_>> {
        (0..self.len()).map(|row| self.row(row))
    }

    /// Tokens that are predicted in all sequences.
    pub fn targets(&self) -> usize {
        self.iter().map(|row| row.targets()).sum()
    }

    /// The most documents of which a sequence has a part.
    pub fn most_documents(&self) -> usize {
        self.iter().map(|row| row.begins.0.len() + 1).max().unwrap_or(1)
    }

    /// Takes the last so many sequences away.
    pub fn split_off(&mut self, count: usize) -> TokenSequences {
        let rows = self.rows.split_off(self.len().saturating_sub(count));
        TokenSequences { all: self.all.clone(), rows, length: self.length }
    }
}

impl<'s> TokenSequence<'s> {
    /// The tokens that are read.
    pub fn read(&self) -> &'s [u32] {
        &self.tokens[..self.tokens.len().saturating_sub(1)]
    }

    /// Whether a token is to be predicted.
    pub fn counts(&self, place: usize) -> bool {
        place > 0 && self.counted.is_none_or(|counted| counted[place])
    }

    /// How many tokens are to be predicted.
    pub fn targets(&self) -> usize {
        match self.counted {
            None => self.read().len(),
            Some(counted) => counted.iter().skip(1).filter(|counts| **counts).count(),
        }
    }

    /// The documents that it has parts of, as ranges of its tokens.
    pub fn documents(&self) -> impl Iterator<Item = Range<usize>> + '_ {
        let (begins, first) = self.begins;
        let place = move |number: usize| begins.get(number).map(|begin| begin - first);
        let ends = (0..=begins.len()).map(move |number| place(number).unwrap_or(self.tokens.len()));
        let starts = std::iter::once(0).chain(begins.iter().map(move |begin| begin - first));
        starts.zip(ends).map(|(start, end)| start..end)
    }
}

/// How batches of sequences are made.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct SequenceOptions {
    /// Sequences per batch.
    pub batch: usize,
    /// Whether there is the array `documents`, which keeps documents apart.
    pub documents: bool,
    /// Whether there is the array `positions`, which models with absolute positions need for that, too.
    pub positions: bool,
    /// The token that fills up shorter sequences.
    pub padding: u32,
    /// The seed of the order.
    pub seed: u64,
}

/// Batches of sequences.
///
/// The arrays are `tokens` i32 `[batch, length]`, `lengths` i32 `[batch]` and `targets` i32 `[batch, length]`, the next tokens, or
/// [`IGNORED`] where none is to be predicted. To keep documents apart there are `documents` i32 `[batch, length]`, the number of each
/// token's document in its sequence, and `positions` i32 `[batch, length]`, its place there.
/// [`Batch::units`] counts targets.
#[derive(Clone, Debug)]
pub struct SequenceBatches {
    sequences: Arc<TokenSequences>,
    options: SequenceOptions,
    groups: Vec<Vec<ArraySpec>>,
}

impl SequenceBatches {
    /// Batches of these sequences.
    pub fn new(sequences: impl Into<Arc<TokenSequences>>, options: SequenceOptions) -> SequenceBatches {
        let sequences = sequences.into();
        let shape = [options.batch, sequences.length()];
        let mut arrays = token_arrays(options.batch, sequences.length(), false);
        arrays.push(ArraySpec::i32("targets", shape));
        let further = [("documents", options.documents), ("positions", options.positions)];
        arrays.extend(further.iter().filter(|(_, wanted)| *wanted).map(|(name, _)| ArraySpec::i32(name, shape)));
        SequenceBatches { sequences, options, groups: vec![arrays] }
    }

    fn fill_array(&self, array: &mut NamedArray, rows: &[TokenSequence]) {
        let length = self.sequences.length();
        if fill_token_array(array, self.options.padding, rows.iter().map(|row| (row.read(), &[][..]))) {
            return;
        }
        match (array.name, &mut array.values) {
            ("targets", ArrayValues::I32(values)) => {
                let target = |row: &TokenSequence, place: usize| match row.counts(place) {
                    true => row.tokens[place] as i32,
                    false => IGNORED,
                };
                let targets = rows.iter().map(|row| (1..row.tokens.len()).map(move |place| target(row, place)));
                write_rows(values, length, IGNORED, targets);
            }
            ("documents", ArrayValues::I32(values)) => {
                let number = |(number, range): (usize, Range<usize>)| range.map(move |_| number as i32);
                write_rows(values, length, 0, rows.iter().map(|row| row.documents().enumerate().flat_map(number)));
            }
            ("positions", ArrayValues::I32(values)) => {
                let places = |range: Range<usize>| 0..range.len() as i32;
                write_rows(values, length, 0, rows.iter().map(|row| row.documents().flat_map(places)));
            }
            (name, _) => unreachable!("there is no array `{name}`"),
        }
    }
}

impl BatchSource for SequenceBatches {
    fn groups(&self) -> &[Vec<ArraySpec>] {
        &self.groups
    }

    fn batches_per_epoch(&self) -> usize {
        self.sequences.len() / self.options.batch
    }

    fn order(&self, epoch: u64) -> EpochOrder {
        let mut random = Random::new(self.options.seed, epoch, 0);
        let mut order: Vec<u32> = (0..self.sequences.len() as u32).collect();
        random.shuffle(&mut order);
        EpochOrder::of_batches(epoch, order.chunks_exact(self.options.batch).map(|rows| (0, rows.to_vec())))
    }

    fn fill(&self, order: &EpochOrder, batch: &mut Batch) -> Result<(), LoadError> {
        let chosen = order.samples(batch.position.index);
        let rows: Vec<TokenSequence> = chosen.iter().map(|&row| self.sequences.row(row as usize)).collect();
        batch.units = rows.iter().map(TokenSequence::targets).sum();
        for array in &mut batch.arrays {
            self.fill_array(array, &rows);
        }
        batch.samples.extend(chosen.iter().map(|&row| row as usize));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Documents `9 1 2 3`, `9 4`, `9 5 6 7 8`, and a last `9`.
    fn documents() -> TokenDocuments {
        let mut all = TokenDocuments::default();
        for document in [&[9, 1, 2, 3][..], &[9, 4], &[9, 5, 6, 7, 8], &[9]] {
            all.begin();
            all.extend(document);
        }
        all
    }

    #[test]
    fn every_token_is_predicted_once_and_nothing_is_padded() {
        let sequences = TokenSequences::pack(documents(), 4);
        let rows: Vec<&[u32]> = sequences.iter().map(|row| row.tokens).collect();
        assert_eq!(rows, [&[9, 1, 2, 3, 9][..], &[9, 4, 9, 5, 6]]);
        assert_eq!((sequences.targets(), sequences.most_documents()), (8, 2));
        let of = |row: usize| sequences.row(row).documents().collect::<Vec<_>>();
        assert_eq!((of(0), of(1)), (vec![0..4, 4..5], vec![0..2, 2..5]));
        assert!(TokenSequences::pack(documents(), 12).is_empty());
    }

    #[test]
    fn whole_documents_share_a_sequence_where_they_fit() {
        let mut all = TokenDocuments::default();
        for (document, counted) in [
            (&[1, 2, 3][..], &[false, false, true][..]),
            (&[4, 5], &[false, true]),
            (&[6, 7, 8, 9], &[false, true, true, true]),
            (&[1, 1, 1, 1, 1, 1, 2], &[false, false, false, false, false, false, true]),
            (&[3, 4], &[false, true]),
        ] {
            all.begin();
            all.extend_counted(document, counted.iter().copied());
        }
        let (sequences, cut) = TokenSequences::keep_whole(all, 5);
        let rows: Vec<&[u32]> = sequences.iter().map(|row| row.tokens).collect();
        // Of the long one only its beginning fits, in which nothing is to be predicted.
        assert_eq!(rows, [&[1, 2, 3, 4, 5][..], &[6, 7, 8, 9], &[3, 4]]);
        assert_eq!((cut, sequences.targets()), (1, 6));
    }

    #[test]
    fn the_arrays_of_a_batch_say_what_is_read_predicted_and_apart() {
        let options = SequenceOptions { batch: 2, documents: true, positions: true, padding: 0, seed: 3 };
        let mut all = documents();
        all.begin();
        all.extend_counted(&[5, 6, 7], [false, true, true]);
        let batches = SequenceBatches::new(TokenSequences::pack(all, 4), options);
        assert_eq!(batches.batches_per_epoch(), 1);
        let order = batches.order(0);
        let batch = batches.batch(&order, 0).expect("a batch");
        assert_eq!(batch, batches.batch(&order, 0).expect("a batch"));
        let array = |name: &str, sample: usize| {
            let place = batch.samples.iter().position(|&row| row == sample);
            let values = batch.i32(name).unwrap_or_else(|| panic!("no {name}"));
            place.map(|place| values[place * 4..][..4].to_vec())
        };
        let expected = [
            ("tokens", [[9, 1, 2, 3], [9, 4, 9, 5], [6, 7, 8, 9]]),
            ("targets", [[1, 2, 3, 9], [4, 9, 5, 6], [7, 8, 9, IGNORED]]),
            ("documents", [[0, 0, 0, 0], [0, 0, 1, 1], [0, 0, 0, 1]]),
            ("positions", [[0, 1, 2, 3], [0, 1, 0, 1], [0, 1, 2, 0]]),
        ];
        for (name, rows) in expected {
            for (sample, row) in rows.iter().enumerate() {
                assert!(array(name, sample).is_none_or(|found| found == row), "{name} of {sample}");
            }
        }
    }
}
