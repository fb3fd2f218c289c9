//! Batches of texts of similar length with what is to be predicted: a [`BatchSource`] for the loader.
//!
//! Each text belongs to the shortest length that it fits into. In an epoch the texts of each length are shuffled and cut into full
//! batches; those that are left over join the next longer ones. What is left over in the end, less than a batch, is not seen in that
//! epoch: in each epoch others.

use std::sync::Arc;

use super::Encoding;
use super::shapes::PaddedLengths;
use super::token_arrays::{Row, TextRows, fill_token_array, token_arrays, write_rows};
use crate::loader::{ArraySpec, ArrayValues, Batch, BatchSource, EpochOrder, LoadError};
use crate::random::Random;

/// The target of a token, or of a text, that the loss ignores.
pub const IGNORED: i32 = -100;

/// Tokens of texts, stored one after the other.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct EncodedTexts {
    ids: Vec<u32>,
    types: Vec<u32>,
    ends: Vec<usize>,
}

impl EncodedTexts {
    /// Adds a text.
    pub fn push(&mut self, text: &Encoding) {
        self.ids.extend_from_slice(&text.ids);
        self.types.extend_from_slice(&text.token_types);
        self.ends.push(self.ids.len());
    }

    /// Number of texts.
    pub fn len(&self) -> usize {
        self.ends.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.ends.is_empty()
    }

    fn range(&self, index: usize) -> std::ops::Range<usize> {
        index.checked_sub(1).map_or(0, |before| self.ends[before])..self.ends[index]
    }

    /// The tokens of a text.
    pub fn ids(&self, index: usize) -> &[u32] {
        &self.ids[self.range(index)]
    }

    /// The types of a text's tokens.
    pub fn types(&self, index: usize) -> &[u32] {
        &self.types[self.range(index)]
    }

    pub(super) fn row(&self, index: usize) -> Row<'_> {
        (self.ids(index), self.types(index))
    }

    pub(super) fn token_counts(&self) -> Vec<usize> {
        (0..self.len()).map(|index| self.range(index).len()).collect()
    }

    /// The number of all tokens.
    pub fn tokens(&self) -> usize {
        self.ids.len()
    }
}

impl<'e> FromIterator<&'e Encoding> for EncodedTexts {
    fn from_iter<I: IntoIterator<Item = &'e Encoding>>(texts: I) -> EncodedTexts {
        let mut all = EncodedTexts::default();
        texts.into_iter().for_each(|text| all.push(text));
        all
    }
}

/// What is to be predicted of each text.
#[derive(Clone, Debug, PartialEq)]
pub enum TextTargets {
    /// One class: `targets` i32 `[batch]`.
    Classes(Vec<u32>),
    /// Any of some labels: `targets` f32 `[batch, count]`.
    Labels {
        /// The number of labels.
        count: usize,
        /// The labels of each text.
        labels: Vec<Vec<u32>>,
    },
    /// A number: `targets` f32 `[batch, 1]`.
    Numbers(Vec<f32>),
    /// A class for each token, or [`IGNORED`]: `targets` i32 `[batch, length]`.
    Tags(Vec<Vec<i32>>),
}

/// Batches of texts.
///
/// The arrays of a batch are `tokens` i32 `[batch, length]`, `lengths` i32 `[batch]`, for models that tell token types apart `token_types`
/// i32 `[batch, length]`, and `targets`. [`Batch::units`] counts texts.
#[derive(Clone, Debug)]
pub struct TextBatches {
    texts: Arc<EncodedTexts>,
    targets: Arc<TextTargets>,
    batch: usize,
    seed: u64,
    padding: u32,
    padded: PaddedLengths,
    groups: Vec<Vec<ArraySpec>>,
    padding_share: f64,
}

impl TextBatches {
    /// Batches of this many texts.
    pub fn new(
        texts: impl Into<Arc<EncodedTexts>>,
        targets: TextTargets,
        batch: usize,
        TextRows { longest, has_types, padding }: TextRows,
        seed: u64,
    ) -> TextBatches {
        let texts = texts.into();
        let padded = PaddedLengths::choose(&texts.token_counts(), longest);
        let arrays = |&length: &usize| {
            let mut arrays = token_arrays(batch, length, has_types);
            arrays.push(targets.array(batch, length));
            arrays
        };
        let groups = padded.lengths.iter().map(arrays).collect();
        let targets = Arc::new(targets);
        let mut batches = TextBatches { texts, targets, batch, seed, padding, padded, groups, padding_share: 0.0 };
        let order = batches.order(0);
        let places: usize = (0..order.len()).map(|index| batch * batches.lengths()[order.group(index)]).sum();
        let seen = (0..order.len()).flat_map(|index| order.samples(index));
        let filled: usize = seen.map(|&text| batches.texts.ids(text as usize).len()).sum();
        batches.padding_share = if places == 0 { 0.0 } else { 1.0 - filled as f64 / places as f64 };
        batches
    }

    /// The texts.
    pub fn texts(&self) -> &EncodedTexts {
        &self.texts
    }

    /// The length of each group's batches.
    pub fn lengths(&self) -> &[usize] {
        &self.padded.lengths
    }

    /// The share of padding in all tokens of the first epoch.
    pub fn padding_share(&self) -> f64 {
        self.padding_share
    }
}

impl TextTargets {
    /// The array of a batch's targets.
    fn array(&self, batch: usize, length: usize) -> ArraySpec {
        match self {
            TextTargets::Classes(_) => ArraySpec::i32("targets", [batch]),
            TextTargets::Labels { count, .. } => ArraySpec::f32("targets", [batch, *count]),
            TextTargets::Numbers(_) => ArraySpec::f32("targets", [batch, 1]),
            TextTargets::Tags(_) => ArraySpec::i32("targets", [batch, length]),
        }
    }

    /// Fills it with the targets of these texts.
    fn fill(&self, rows: &[u32], width: usize, values: &mut ArrayValues) {
        match (self, values) {
            (TextTargets::Classes(classes), ArrayValues::I32(values)) => {
                values.iter_mut().zip(rows).for_each(|(value, &text)| *value = classes[text as usize] as i32);
            }
            (TextTargets::Labels { labels, .. }, ArrayValues::F32(values)) => {
                values.fill(0.0);
                for (row, &text) in values.chunks_exact_mut(width).zip(rows) {
                    labels[text as usize].iter().for_each(|&label| row[label as usize] = 1.0);
                }
            }
            (TextTargets::Numbers(numbers), ArrayValues::F32(values)) => {
                values.iter_mut().zip(rows).for_each(|(value, &text)| *value = numbers[text as usize]);
            }
            (TextTargets::Tags(tags), ArrayValues::I32(values)) => {
                write_rows(values, width, IGNORED, rows.iter().map(|&text| tags[text as usize].iter().copied()));
            }
            _ => unreachable!("the arrays are made for these targets"),
        }
    }
}

impl BatchSource for TextBatches {
    fn groups(&self) -> &[Vec<ArraySpec>] {
        &self.groups
    }

    fn batches_per_epoch(&self) -> usize {
        self.texts.len() / self.batch
    }

    fn order(&self, epoch: u64) -> EpochOrder {
        let mut random = Random::new(self.seed, epoch, 0);
        let mut order: Vec<u32> = (0..self.texts.len() as u32).collect();
        random.shuffle(&mut order);
        let mut waiting = vec![Vec::new(); self.lengths().len()];
        for text in order {
            waiting[self.padded.of_text[text as usize] as usize].push(text);
        }
        let mut batches: Vec<(usize, Vec<u32>)> = Vec::new();
        let mut left: Vec<u32> = Vec::new();
        for (group, mut texts) in waiting.into_iter().enumerate() {
            // What came from shorter ones is spread, so that what is left over in the end is of all lengths.
            texts.append(&mut left);
            random.shuffle(&mut texts);
            let full = texts.chunks_exact(self.batch);
            left.extend(full.remainder());
            batches.extend(full.map(|rows| (group, rows.to_vec())));
        }
        random.shuffle(&mut batches);
        EpochOrder::of_batches(epoch, batches)
    }

    fn fill(&self, order: &EpochOrder, batch: &mut Batch) -> Result<(), LoadError> {
        let rows = order.samples(batch.position.index);
        for array in &mut batch.arrays {
            if !fill_token_array(array, self.padding, rows.iter().map(|&text| self.texts.row(text as usize))) {
                let width = array.shape.get(1).copied().unwrap_or(1);
                self.targets.fill(rows, width, &mut array.values);
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

    fn texts(lengths: &[usize]) -> EncodedTexts {
        let text = |(index, &length): (usize, &usize)| Encoding {
            ids: vec![index as u32 + 10; length],
            token_types: vec![1; length],
            ..Encoding::default()
        };
        let all: Vec<Encoding> = lengths.iter().enumerate().map(text).collect();
        all.iter().collect()
    }

    #[test]
    fn each_epoch_has_other_batches_of_all_texts_but_less_than_one_batch() {
        let lengths: Vec<usize> = (0..203).map(|n| 1 + n * 37 % 64).collect();
        let classes = TextTargets::Classes((0..203).map(|n| n % 3).collect());
        let rows = TextRows { longest: 64, has_types: true, padding: 9 };
        let batches = TextBatches::new(texts(&lengths), classes, 8, rows, 5);
        assert_eq!(batches.batches_per_epoch(), 25);
        assert!(batches.padding_share() < 0.2, "{}", batches.padding_share());
        let mut orders = Vec::new();
        for epoch in 0..3 {
            let order = batches.order(epoch);
            assert_eq!(order.len(), 25);
            let mut seen = Vec::new();
            for index in 0..order.len() {
                let batch = batches.batch(&order, index).expect("a batch");
                let (tokens, own) = (batch.i32("tokens").expect("tokens"), batch.i32("lengths").expect("lengths"));
                let targets = batch.i32("targets").expect("targets");
                let width = tokens.len() / 8;
                for (row, &text) in batch.samples.iter().enumerate() {
                    let real = &tokens[row * width..][..own[row] as usize];
                    assert_eq!(own[row] as usize, lengths[text]);
                    assert!(real.iter().all(|&id| id == text as i32 + 10));
                    assert!(tokens[row * width + real.len()..(row + 1) * width].iter().all(|&id| id == 9));
                    assert_eq!(targets[row], text as i32 % 3);
                }
                seen.extend(batch.samples.clone());
            }
            orders.push(seen.clone());
            seen.sort_unstable();
            seen.dedup();
            assert_eq!(seen.len(), 200);
        }
        assert_ne!(orders[0], orders[1]);
        assert_eq!(batches.order(1), batches.order(1));
    }

    #[test]
    fn targets_are_those_of_each_text() {
        let one = |targets: TextTargets| {
            let rows = TextRows { longest: 8, has_types: false, padding: 0 };
            let batches = TextBatches::new(texts(&[3, 2]), targets, 2, rows, 1);
            let order = batches.order(0);
            batches.batch(&order, 0).expect("a batch")
        };
        let labels = one(TextTargets::Labels { count: 3, labels: vec![vec![0, 2], vec![]] });
        let first = labels.samples.iter().position(|&text| text == 0).expect("the first");
        assert_eq!(labels.f32("targets").expect("targets")[3 * first..][..3], [1.0, 0.0, 1.0]);
        assert_eq!(labels.f32("targets").expect("targets")[3 * (1 - first)..][..3], [0.0; 3]);
        let tags = one(TextTargets::Tags(vec![vec![IGNORED, 1, IGNORED], vec![2, 0]]));
        let first = tags.samples.iter().position(|&text| text == 0).expect("the first");
        let width = tags.i32("targets").expect("targets").len() / 2;
        let row = |row: usize| &tags.i32("targets").expect("targets")[row * width..][..3];
        assert_eq!((row(first), row(1 - first)), (&[IGNORED, 1, IGNORED][..], &[2, 0, IGNORED][..]));
    }
}
