//! BLEU and chrF of a corpus with one reference per sentence, as `sacrebleu` computes them.
//!
//! Both compare n-grams: sequences of n words (BLEU) or characters (chrF) that a translation shares with its reference. Their parts are
//! integers, summed over all sentences, so the scores do not depend on the order of sentences.
//!
//! A signature describes how a score was computed, in the format of `sacrebleu`. Its last part has our name and version, not those of
//! `sacrebleu`: the number is the same, but the code is not.

mod bleu;
mod chrf;
mod ngrams;
mod tokenizer_13a;
mod words;

pub use bleu::{Bleu, bleu};
pub use chrf::{Chrf, chrf, chrf_plus_plus};
pub use ngrams::NgramCounts;
pub use tokenizer_13a::tokens_13a;

/// The end of every signature.
const VERSION: &str = concat!("version:vitreous-", env!("CARGO_PKG_VERSION"));

/// Why a score cannot be computed.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScoreError {
    /// There are not as many references as translations.
    #[error(
        "{hypotheses} translations, but {references} references: give each translation its reference, line by line"
    )]
    Unequal {
        /// Translations.
        hypotheses: usize,
        /// References.
        references: usize,
    },
    /// There is nothing to compare.
    #[error("no translations to score: give at least one, with its reference")]
    Nothing,
}

/// Each translation with its reference.
fn pairs<'a, H: AsRef<str>, R: AsRef<str>>(
    hypotheses: &'a [H],
    references: &'a [R],
) -> Result<impl Iterator<Item = (&'a str, &'a str)>, ScoreError> {
    if hypotheses.len() != references.len() {
        return Err(ScoreError::Unequal { hypotheses: hypotheses.len(), references: references.len() });
    }
    if hypotheses.is_empty() {
        return Err(ScoreError::Nothing);
    }
    Ok(hypotheses.iter().map(AsRef::as_ref).zip(references.iter().map(AsRef::as_ref)))
}
