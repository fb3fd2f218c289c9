//! chrF (Popović, 2015): the F-score of character n-grams of one to six characters.
//!
//! ```text
//! chrF = 100 · (1 + β²) · P · R / (β² · P + R)      β = 2: recall counts twice as much as precision
//! ```
//!
//! P and R are means over the orders that both sides have n-grams of. White space does not count. chrF++ (Popović, 2017) adds
//! single words and pairs of words.

use std::fmt;

use serde::Serialize;

use super::ngrams::{NgramCounts, count_ngrams};
use super::words::{WordNumbers, is_space, words};
use super::{ScoreError, VERSION, pairs};

/// The longest n-grams of characters, and of words in chrF++.
const CHARACTER_ORDER: usize = 6;
const WORD_ORDER: usize = 2;
const BETA: f64 = 2.0;

/// chrF or chrF++, and its parts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Chrf {
    /// From 0 to 100.
    pub score: f64,
    /// The mean over orders of the fraction of the translations' n-grams that the references have.
    pub precision: f64,
    /// The mean over orders of the fraction of the references' n-grams that the translations have.
    pub recall: f64,
    /// The longest n-grams of words: 0 for chrF, 2 for chrF++.
    pub word_order: usize,
    /// By order: first of characters, then of words. A translation's n-grams count where its reference has any of that order.
    pub counts: Vec<NgramCounts>,
}

impl Chrf {
    /// How this was computed, in the words of `sacrebleu`; the version is ours.
    pub fn signature(&self) -> String {
        format!("nrefs:1|case:mixed|eff:yes|nc:{CHARACTER_ORDER}|nw:{}|space:no|{VERSION}", self.word_order)
    }
}

impl fmt::Display for Chrf {
    /// The line that `sacrebleu` prints.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "chrF{BETA}{} = {:.2}", "+".repeat(self.word_order), self.score)
    }
}

/// chrF of a corpus with one reference per sentence.
pub fn chrf(hypotheses: &[impl AsRef<str>], references: &[impl AsRef<str>]) -> Result<Chrf, ScoreError> {
    Ok(of_counts(character_counts(hypotheses, references)?.to_vec()))
}

/// chrF++ of a corpus with one reference per sentence: also single words and pairs of words.
pub fn chrf_plus_plus(hypotheses: &[impl AsRef<str>], references: &[impl AsRef<str>]) -> Result<Chrf, ScoreError> {
    let mut counts = character_counts(hypotheses, references)?.to_vec();
    counts.extend(word_counts(hypotheses, references)?);
    Ok(of_counts(counts))
}

fn character_counts(
    hypotheses: &[impl AsRef<str>],
    references: &[impl AsRef<str>],
) -> Result<[NgramCounts; CHARACTER_ORDER], ScoreError> {
    let mut counts = [NgramCounts::default(); CHARACTER_ORDER];
    let characters = |line: &str| -> Vec<u32> { line.chars().filter(|c| !is_space(*c)).map(u32::from).collect() };
    for (hypothesis, reference) in pairs(hypotheses, references)? {
        add_pair(&mut counts, &characters(hypothesis), &characters(reference));
    }
    Ok(counts)
}

fn word_counts(
    hypotheses: &[impl AsRef<str>],
    references: &[impl AsRef<str>],
) -> Result<[NgramCounts; WORD_ORDER], ScoreError> {
    let mut counts = [NgramCounts::default(); WORD_ORDER];
    for (hypothesis, reference) in pairs(hypotheses, references)? {
        let mut numbers = WordNumbers::default();
        let hypothesis = numbers.of(words_and_punctuation(hypothesis));
        let reference = numbers.of(words_and_punctuation(reference));
        add_pair(&mut counts, &hypothesis, &reference);
    }
    Ok(counts)
}

fn add_pair<const ORDER: usize>(counts: &mut [NgramCounts; ORDER], hypothesis: &[u32], reference: &[u32]) {
    for (sum, mut of_pair) in counts.iter_mut().zip(count_ngrams::<ORDER>(hypothesis, reference)) {
        if of_pair.reference == 0 {
            of_pair.hypothesis = 0;
        }
        sum.add(of_pair);
    }
}

/// Words, with one mark of punctuation split off: the last character if it is one, or else the first.
fn words_and_punctuation(line: &str) -> impl Iterator<Item = &str> {
    let is_mark = |character: char| character.is_ascii_punctuation();
    words(line).flat_map(move |word| {
        let cut = if word.ends_with(is_mark) {
            word.len() - 1
        } else if word.starts_with(is_mark) {
            1
        } else {
            word.len()
        };
        // A word of one character stays whole: one of its parts is empty.
        let (left, right) = word.split_at(cut);
        [left, right].into_iter().filter(|part| !part.is_empty())
    })
}

fn of_counts(counts: Vec<NgramCounts>) -> Chrf {
    let known: Vec<_> = counts.iter().filter(|order| order.hypothesis > 0 && order.reference > 0).collect();
    let mean = |share: &dyn Fn(&NgramCounts) -> f64| match known.len() {
        0 => 0.0,
        orders => known.iter().map(|order| share(order)).sum::<f64>() / orders as f64,
    };
    let precision = mean(&|order| order.shared as f64 / order.hypothesis as f64);
    let recall = mean(&|order| order.shared as f64 / order.reference as f64);
    let weight = BETA * BETA;
    let score = match precision + recall {
        0.0 => 0.0,
        _ => 100.0 * (1.0 + weight) * precision * recall / (weight * precision + recall),
    };
    Chrf { score, precision, recall, word_order: counts.len() - CHARACTER_ORDER, counts }
}
