//! The keys of a recipe that only the tasks of encoder-decoders have.

use serde::{Deserialize, Serialize};
use vitreous_data::text::{Languages, MOST_VOCABULARY, OpenPairs};

use crate::finetuning::PretrainedSettings;
use crate::recipe::rules::{Checked, FRACTION, POSITIVE, check_smoothing, is_fraction, is_positive, refuse};
use crate::recipe::{LossKind, LossSettings, Recipe, choice};
use crate::tasks::text::TextTrainSettings;
use crate::tasks::translate::TranslateTrainSettings;

/// The keys that only fine-tuning on pairs has, by section.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Seq2SeqSettings {
    /// The batch, averaging of checkpoints.
    pub train: TranslateTrainSettings,
    /// The languages.
    pub data: Seq2SeqDataSettings,
    /// How much of a text is read.
    pub text: Seq2SeqTextSettings,
    /// The loss: `kind` is always cross-entropy.
    pub loss: LossSettings,
    /// Writing in evaluations.
    pub test: WritingSettings,
    /// The model to start from.
    pub finetune: PretrainedSettings,
}

/// The languages.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Seq2SeqDataSettings {
    /// Source and target language as in the names of files and keys: "en-de". Empty where the data itself tells which is which.
    pub languages: String,
    /// The code of the source's language, where the model has languages: "en_XX".
    pub from: String,
    /// The code of the target's language, where the model has languages: "de_DE".
    pub to: String,
    /// What is written before every source: "translate English to German: ".
    pub prefix: String,
}

/// How much of a text is read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct Seq2SeqTextSettings {
    /// The most tokens of a source, with special tokens; longer ones are truncated.
    pub max_source: usize,
    /// The most tokens of a target, likewise.
    pub max_target: usize,
}

/// Writing in evaluations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct WritingSettings {
    /// The beam size; 1 is greedy.
    pub beam: usize,
    /// Scores of beams are divided by their length to this power.
    pub length_penalty: f32,
    /// No sequence of so many tokens comes twice; 0: any may.
    pub no_repeat: usize,
    /// The most pairs that are written for BLEU, chrF and ROUGE; 0 for all.
    pub sentences: usize,
    /// Texts that are shown.
    pub shown: usize,
}

impl Default for Seq2SeqSettings {
    fn default() -> Self {
        Seq2SeqSettings {
            train: TranslateTrainSettings::default(),
            data: Seq2SeqDataSettings::default(),
            text: Seq2SeqTextSettings::default(),
            loss: LossSettings { kind: LossKind::CrossEntropy, label_smoothing: 0.0 },
            test: WritingSettings::default(),
            finetune: PretrainedSettings::default(),
        }
    }
}

impl Default for Seq2SeqTextSettings {
    fn default() -> Self {
        Seq2SeqTextSettings { max_source: 512, max_target: 128 }
    }
}

impl Default for WritingSettings {
    fn default() -> Self {
        WritingSettings { beam: 1, length_penalty: 1.0, no_repeat: 0, sentences: 200, shown: 3 }
    }
}

impl Seq2SeqSettings {
    /// Refuses values that make no sense, with this many checkpoints kept.
    pub(super) fn check(&self, keep: usize) -> Checked {
        let Seq2SeqSettings { train, data, text, test, .. } = self;
        match () {
            () if train.tokens == 0 => refuse("train.tokens", &train.tokens, POSITIVE),
            () if train.average == 0 => refuse("train.average", &train.average, "it must be 1 for no average, or more"),
            () if train.average > keep => {
                refuse("train.average", &train.average, "it must be at most output.keep: no more checkpoints are kept")
            }
            () if !data.languages.is_empty() && data.languages.parse::<Languages>().is_err() => {
                refuse("data.languages", &data.languages, Languages::RULE)
            }
            () if text.max_source < 2 => refuse("text.max_source", &text.max_source, "it must be at least 2"),
            () if text.max_target < 2 => refuse("text.max_target", &text.max_target, "it must be at least 2"),
            () if test.beam == 0 => refuse("test.beam", &test.beam, POSITIVE),
            () if !test.length_penalty.is_finite() => {
                refuse("test.length_penalty", &test.length_penalty, "it must be a finite number")
            }
            () => Ok(()),
        }?;
        self.finetune.check()?;
        check_smoothing(self.loss.label_smoothing)
    }
}

/// How the pairs of a recipe are opened.
pub(super) fn pair_options(recipe: &Recipe, settings: &Seq2SeqSettings) -> OpenPairs {
    OpenPairs { languages: settings.data.languages.parse().ok(), validation_share: recipe.data.validation_share }
}

choice! {
    /// What a vocabulary that is learnt from the text is like.
    PretrainVocabulary {
        /// T5's: the most likely tokens, and sentinels.
        Unigram,
        /// BART's: pairs of bytes are merged.
        Bpe,
        /// ByT5's: nothing is learnt; tokens are bytes.
        Bytes,
    }
}

/// The keys that only pre-training of encoder-decoders has, by section.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CorruptSettings {
    /// The batch.
    pub train: TextTrainSettings,
    /// Tokenisation.
    pub text: CorruptTextSettings,
    /// What is made worse.
    pub corrupt: CorruptionSettings,
    /// A model to go on from.
    pub finetune: PretrainedSettings,
}

/// Tokenisation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CorruptTextSettings {
    /// Tokens per source.
    pub max_tokens: usize,
    /// The kind of vocabulary that is learnt from the text.
    pub tokenizer: PretrainVocabulary,
    /// The vocabulary size.
    pub vocabulary: usize,
    /// Whether upper and lower case are the same.
    pub lower_case: bool,
}

/// What is made worse.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct CorruptionSettings {
    /// The share of tokens in spans.
    pub share: f64,
    /// The mean length of a span.
    pub mean_length: f64,
    /// The share of masks that become a random token; of denoising.
    pub random: f64,
    /// Whether sentences are shuffled; of denoising.
    pub permute: bool,
}

impl Default for CorruptTextSettings {
    fn default() -> Self {
        CorruptTextSettings {
            max_tokens: 512,
            tokenizer: PretrainVocabulary::Unigram,
            vocabulary: 8000,
            lower_case: false,
        }
    }
}

impl Default for CorruptionSettings {
    fn default() -> Self {
        CorruptionSettings { share: 0.15, mean_length: 3.0, random: 0.0, permute: false }
    }
}

impl CorruptSettings {
    /// Refuses values that make no sense.
    pub(super) fn check(&self) -> Checked {
        let CorruptionSettings { share, mean_length, random, .. } = self.corrupt;
        self.train.check()?;
        self.finetune.check()?;
        match () {
            () if self.text.max_tokens < 8 => {
                refuse("text.max_tokens", &self.text.max_tokens, "it must be at least 8: sequences have special tokens")
            }
            () if self.text.vocabulary > MOST_VOCABULARY => {
                refuse("text.vocabulary", &self.text.vocabulary, "it must be at most 1048576")
            }
            () if !(share > 0.0 && share < 1.0) => refuse("corrupt.share", &share, "it must be above 0 and below 1"),
            () if !is_positive(mean_length) => refuse("corrupt.mean_length", &mean_length, POSITIVE),
            () if !is_fraction(random) => refuse("corrupt.random", &random, FRACTION),
            () => Ok(()),
        }
    }
}
