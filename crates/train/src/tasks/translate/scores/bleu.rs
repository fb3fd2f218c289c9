//! BLEU (Papineni et al., 2002): 1- to 4-gram precision of translations.
//!
//! ```text
//! BLEU = 100 · BP · (p₁ · p₂ · p₃ · p₄)^(1/4)      pₙ = shared n-grams / n-grams of the translations
//! BP = 1 if the translations are as long as the references, exp(1 - reference length / translation length) if shorter
//! ```

use std::fmt;

use serde::Serialize;

use super::ngrams::{NgramCounts, count_ngrams};
use super::tokenizer_13a::separated;
use super::words::{WordNumbers, words};
use super::{ScoreError, VERSION, pairs};

/// The longest n-grams.
const ORDER: usize = 4;

/// BLEU and its parts.
#[derive(Clone, Debug, PartialEq, Serialize)]
pub struct Bleu {
    /// From 0 to 100.
    pub score: f64,
    /// N-gram precisions in percent, smoothed where nothing is shared; all 0 where not even a word is.
    pub precisions: [f64; ORDER],
    /// The factor for translations that are too short.
    pub brevity_penalty: f64,
    /// Tokens of all translations.
    pub hypothesis_length: u64,
    /// Tokens of all references.
    pub reference_length: u64,
    /// The counts that the precisions were computed from.
    pub counts: [NgramCounts; ORDER],
}

impl Bleu {
    /// How this was computed, in the words of `sacrebleu`; the version is ours.
    pub fn signature(&self) -> String {
        format!("nrefs:1|case:mixed|eff:no|tok:13a|smooth:exp|{VERSION}")
    }
}

impl fmt::Display for Bleu {
    /// The line that `sacrebleu` prints.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let precisions = self.precisions.map(|precision| format!("{precision:.1}")).join("/");
        let (ours, theirs) = (self.hypothesis_length, self.reference_length);
        let ratio = if theirs == 0 { 0.0 } else { ours as f64 / theirs as f64 };
        write!(f, "BLEU = {:.2} {precisions} (BP = {:.3} ", self.score, self.brevity_penalty)?;
        write!(f, "ratio = {ratio:.3} hyp_len = {ours} ref_len = {theirs})")
    }
}

/// BLEU of a corpus with one reference per sentence: `13a` tokenisation, cased, exponential smoothing, always four orders.
pub fn bleu(hypotheses: &[impl AsRef<str>], references: &[impl AsRef<str>]) -> Result<Bleu, ScoreError> {
    let mut counts = [NgramCounts::default(); ORDER];
    for (hypothesis, reference) in pairs(hypotheses, references)? {
        let (hypothesis, reference) = (separated(hypothesis), separated(reference));
        let mut numbers = WordNumbers::default();
        let (hypothesis, reference) = (numbers.of(words(&hypothesis)), numbers.of(words(&reference)));
        for (sum, of_pair) in counts.iter_mut().zip(count_ngrams::<ORDER>(&hypothesis, &reference)) {
            sum.add(of_pair);
        }
    }
    let (hypothesis_length, reference_length) = (counts[0].hypothesis, counts[0].reference);
    let brevity_penalty = brevity_penalty(hypothesis_length as f64, reference_length as f64);
    let precisions = smoothed_precisions(&counts);
    let mean_log = precisions.iter().map(|precision| precision.ln()).sum::<f64>() / ORDER as f64;
    let score = brevity_penalty * mean_log.exp();
    Ok(Bleu { score, precisions, brevity_penalty, hypothesis_length, reference_length, counts })
}

fn brevity_penalty(hypothesis_length: f64, reference_length: f64) -> f64 {
    if hypothesis_length >= reference_length {
        1.0
    } else if hypothesis_length == 0.0 {
        0.0
    } else {
        (1.0 - reference_length / hypothesis_length).exp()
    }
}

/// Percentages. The first order that shares nothing counts as if it shared half an n-gram, the second a quarter, and so on.
fn smoothed_precisions(counts: &[NgramCounts; ORDER]) -> [f64; ORDER] {
    let mut precisions = [0.0; ORDER];
    if counts.iter().all(|order| order.shared == 0) {
        return precisions;
    }
    let mut instead = 1.0;
    for (precision, order) in precisions.iter_mut().zip(counts).filter(|(_, order)| order.hypothesis > 0) {
        let shared = if order.shared > 0 {
            order.shared as f64
        } else {
            instead /= 2.0;
            instead
        };
        *precision = 100.0 * shared / order.hypothesis as f64;
    }
    precisions
}
