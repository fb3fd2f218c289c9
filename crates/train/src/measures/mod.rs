//! How good answers are, in numbers: of classes, of values, of marked entities, of answers to questions, of predicted tokens.
//!
//! All are functions of slices and give what scikit-learn, scipy, seqeval and the official evaluation of SQuAD give. What is undefined
//! (a correlation of constants, the accuracy of nothing) is NaN; a precision, recall or F1 without anything to count is 0.

mod answers;
mod classes;
mod correlation;
mod counts;
mod entities;
mod logits;
mod schemes;
mod word_errors;

pub use answers::{exact_match, normalized_answer, squad, squad2, token_f1};
pub use classes::ClassMeasures;
pub use correlation::{pearson, spearman};
pub use counts::{Average, Counts};
pub use entities::{Entity, EntityMeasures, Scheme, entities};
pub use logits::{binary_cross_entropy, cross_entropy, largest, softmax};
pub use word_errors::{Edits, character_edits, spoken, word_edits};

/// The perplexity of tokens: `exp(sum of losses / number of tokens)`, of losses in nats.
pub fn perplexity(summed_loss: f64, tokens: u64) -> f64 {
    (summed_loss / tokens as f64).exp()
}

#[cfg(test)]
mod tests {
    use super::perplexity;

    #[test]
    fn perplexity_of_a_uniform_guess_is_the_number_of_choices() {
        let choices = 50.0_f64;
        assert!((perplexity(7.0 * choices.ln(), 7) - choices).abs() < 1e-12);
        assert_eq!(perplexity(0.0, 3), 1.0);
        assert!(perplexity(0.0, 0).is_nan());
    }
}
