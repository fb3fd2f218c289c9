//! The keys of a recipe that only masked-language pre-training has.

use serde::{Deserialize, Serialize};

use crate::recipe::choice;
use crate::recipe::rules::{Checked, FRACTION, is_fraction, refuse};
use crate::tasks::text::{TextTaskSettings, TextTrainSettings};

/// The keys that only masked-language pre-training has, by section.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MaskTokensSettings {
    /// The batch.
    pub train: TextTrainSettings,
    /// Tokenisation.
    pub text: PretrainTextSettings,
    /// What is masked.
    pub mask: MaskSettings,
    /// A model to go on from.
    pub finetune: PretrainInit,
}

/// A model to go on from.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PretrainInit {
    /// A directory with an encoder and its tokenizer, whose pre-training goes on; "" for a new model. It replaces `model`, but for dropout.
    pub init: String,
}

choice! {
    /// A kind of vocabulary.
    VocabularyChoice {
        /// BERT's.
        WordPiece,
        /// RoBERTa's.
        Bpe,
        /// ALBERT's.
        Unigram,
    }
}

/// Tokenisation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PretrainTextSettings {
    /// Tokens per sequence.
    pub max_tokens: usize,
    /// The kind of vocabulary that is learnt from the text.
    pub tokenizer: VocabularyChoice,
    /// The vocabulary size.
    pub vocabulary: usize,
    /// Whether upper and lower case are the same.
    pub lower_case: bool,
}

/// What is masked.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct MaskSettings {
    /// The share of tokens that are predicted.
    pub share: f64,
    /// The share of these that become a random token.
    pub random: f64,
    /// The share of these that stay as they are.
    pub kept: f64,
    /// Whether all tokens of a word are masked together.
    pub whole_words: bool,
}

impl Default for PretrainTextSettings {
    fn default() -> Self {
        PretrainTextSettings {
            max_tokens: 128,
            tokenizer: VocabularyChoice::WordPiece,
            vocabulary: 8000,
            lower_case: true,
        }
    }
}

impl Default for MaskSettings {
    fn default() -> Self {
        MaskSettings { share: 0.15, random: 0.1, kept: 0.1, whole_words: true }
    }
}

impl TextTaskSettings for MaskTokensSettings {
    fn check(&self) -> Checked {
        let MaskSettings { share, random, kept, .. } = self.mask;
        self.train.check()?;
        match () {
            () if self.text.max_tokens < 8 => {
                refuse("text.max_tokens", &self.text.max_tokens, "it must be at least 8: sequences have special tokens")
            }
            () if !(share > 0.0 && share < 1.0) => refuse("mask.share", &share, "it must be above 0 and below 1"),
            () if !is_fraction(random) => refuse("mask.random", &random, FRACTION),
            () if !is_fraction(kept) => refuse("mask.kept", &kept, FRACTION),
            () if random + kept > 1.0 => refuse("mask.random", &random, "with mask.kept it must be at most 1"),
            () => Ok(()),
        }
    }

    fn init(&mut self) -> &mut String {
        &mut self.finetune.init
    }
}
