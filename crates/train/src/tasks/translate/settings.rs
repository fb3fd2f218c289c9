//! The keys of a recipe that only translation has.

use serde::{Deserialize, Serialize};
use vitreous_data::text::{Languages, MOST_VOCABULARY, OpenPairs, SMALLEST_VOCABULARY, padded_length};

use crate::recipe::rules::{Checked, POSITIVE, check_smoothing, is_positive, refuse};
use crate::recipe::{LossKind, LossSettings, Recipe, choice};

/// The keys that only translation has, by section.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TranslateSettings {
    /// The batch, averaging of checkpoints.
    pub train: TranslateTrainSettings,
    /// The languages.
    pub data: TranslateDataSettings,
    /// Tokenisation.
    pub text: TextSettings,
    /// The loss: `kind` is always cross-entropy.
    pub loss: LossSettings,
    /// Decoding in evaluations.
    pub test: DecodingSettings,
}

/// The batch, averaging of checkpoints.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TranslateTrainSettings {
    /// The most tokens per side of a batch, with padding.
    pub tokens: usize,
    /// The model at the end is the mean of this many of the last checkpoints, where that is better on the validation data than each
    /// checkpoint; 1 for no averaging.
    pub average: usize,
}

/// The languages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TranslateDataSettings {
    /// Source and target language as in the names of files and keys: "en-de". Empty where the data itself tells which is which.
    pub languages: String,
}

choice! {
    /// A tokenisation algorithm.
    TokeniserChoice {
        /// Byte-pair encoding.
        Bpe,
        /// A unigram language model.
        Unigram,
    }
}

/// Tokenisation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TextSettings {
    /// "bpe" or "unigram".
    pub tokeniser: TokeniserChoice,
    /// The vocabulary size.
    pub vocabulary: usize,
    /// Pairs with more tokens on a side are left out.
    pub max_tokens: usize,
    /// Pairs with one side this many times as long as the other are left out.
    pub max_ratio: f64,
}

/// Decoding in evaluations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct DecodingSettings {
    /// The beam size; 1 is greedy.
    pub beam: usize,
    /// The length penalty: larger values prefer longer translations.
    pub length_penalty: f32,
    /// The most sentences that are translated for BLEU; 0 for all.
    pub sentences: usize,
    /// Translations that are shown.
    pub shown: usize,
}

impl Default for TranslateSettings {
    fn default() -> Self {
        TranslateSettings {
            train: TranslateTrainSettings::default(),
            data: TranslateDataSettings::default(),
            text: TextSettings::default(),
            loss: LossSettings { kind: LossKind::CrossEntropy, label_smoothing: 0.1 },
            test: DecodingSettings::default(),
        }
    }
}

impl Default for TranslateTrainSettings {
    fn default() -> Self {
        TranslateTrainSettings { tokens: 4096, average: 1 }
    }
}

impl Default for TextSettings {
    fn default() -> Self {
        TextSettings { tokeniser: TokeniserChoice::Bpe, vocabulary: 8000, max_tokens: 100, max_ratio: 9.0 }
    }
}

impl Default for DecodingSettings {
    fn default() -> Self {
        DecodingSettings { beam: 1, length_penalty: 0.6, sentences: 0, shown: 3 }
    }
}

/// How the pairs of a recipe are opened.
pub fn pair_options(recipe: &Recipe) -> OpenPairs {
    let TranslateSettings { data, .. } = recipe.own().unwrap_or_default();
    OpenPairs { languages: data.languages.parse().ok(), validation_share: recipe.data.validation_share }
}

impl TranslateSettings {
    /// Refuses values that make no sense, with this many checkpoints kept and sequences of at most this length.
    pub(super) fn check(&self, keep: usize, max_length: usize) -> Checked {
        let TranslateSettings { train, data, text, test, .. } = self;
        match () {
            () if train.tokens == 0 => refuse("train.tokens", &train.tokens, POSITIVE),
            () if train.average == 0 => refuse("train.average", &train.average, "it must be 1 for no average, or more"),
            () if train.average > keep => {
                refuse("train.average", &train.average, "it must be at most output.keep: no more checkpoints are kept")
            }
            () if !data.languages.is_empty() && data.languages.parse::<Languages>().is_err() => {
                refuse("data.languages", &data.languages, Languages::RULE)
            }
            () if text.vocabulary < SMALLEST_VOCABULARY => {
                refuse("text.vocabulary", &text.vocabulary, "it must be at least 260: every byte is a token")
            }
            () if text.vocabulary > MOST_VOCABULARY => {
                refuse("text.vocabulary", &text.vocabulary, "it must be at most 1048576")
            }
            () if text.max_tokens == 0 => refuse("text.max_tokens", &text.max_tokens, POSITIVE),
            () if !is_positive(text.max_ratio) => refuse("text.max_ratio", &text.max_ratio, POSITIVE),
            () if test.beam == 0 => refuse("test.beam", &test.beam, POSITIVE),
            () if !test.length_penalty.is_finite() => {
                refuse("test.length_penalty", &test.length_penalty, "it must be a finite number")
            }
            // Compared by itself first, so that rounding up cannot overflow.
            () if text.max_tokens >= max_length || padded_length(text.max_tokens + 1) > max_length => {
                let rule = "with the end token, and rounded up as batches are, it must be at most model.max_length";
                refuse("text.max_tokens", &text.max_tokens, rule)
            }
            () => Ok(()),
        }?;
        check_smoothing(self.loss.label_smoothing)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sentence_must_fit_the_model_as_batches_round_it() {
        let read = |tokens: usize| {
            let overrides = [format!("text.max_tokens={tokens}"), "model.max_length=102".to_string()];
            Recipe::read("test", "task = \"translation\"", &overrides)
        };
        assert!(read(99).is_ok());
        for tokens in [100, 101, 102, usize::MAX >> 1] {
            let refusal = read(tokens).expect_err("too long").to_string();
            assert!(refusal.contains("text.max_tokens") && refusal.contains("rounded up"), "{refusal}");
        }
    }
}
