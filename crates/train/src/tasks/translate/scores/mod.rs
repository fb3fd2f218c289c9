//! How good translations are: BLEU and chrF of a whole corpus, with one reference a sentence, as the package `sacrebleu`
//! computes them.
//!
//! Both compare n-grams: runs of n words (BLEU) or characters (chrF) that a translation shares with its reference. Their parts are
//! integers, summed over all sentences, so the scores do not depend on the order of sentences.
//!
//! A signature says how a score was computed, in `sacrebleu`'s words. Its last part names us and our version, not `sacrebleu`'s:
//! the number is the same, but the code is not.

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

/// Why there is no score.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
pub enum ScoreError {
    /// Translations and references do not pair up.
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
