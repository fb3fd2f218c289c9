//! Recipes for translators.

use serde::{Deserialize, Serialize};
use toml::Table;
use vitreous_data::text::OpenPairs;
use vitreous_models::transformer::{PRESET_NAMES, TransformerConfig, preset};

use super::layers::{self, Layered};
use super::rules::check_translation;
use super::{
    LossKind, LossSettings, OptimizerSettings, OutputSettings, PrecisionChoice, RecipeError, ScheduleKind,
    ScheduleSettings,
};

choice! {
    /// Says of a recipe that it is one of these.
    TranslationTask {
        /// The only one.
        Translation,
    }
}

/// All that decides what the training of a translator computes.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TranslationRecipe {
    /// "translation".
    pub task: TranslationTask,
    /// Length, batch, precision.
    pub train: TranslationTrainSettings,
    /// What is learned from.
    pub data: PairSettings,
    /// How text becomes tokens.
    pub text: TextSettings,
    /// What is made small: `kind` is always cross-entropy.
    pub loss: LossSettings,
    /// By which rule.
    pub optimizer: OptimizerSettings,
    /// How the learning rate goes.
    pub schedule: ScheduleSettings,
    /// How it is tested.
    pub test: TranslationTestSettings,
    /// What is written, and when.
    pub output: OutputSettings,
    /// The model. The sizes of its vocabularies are those of the tokenisers.
    pub model: TransformerConfig,
}

/// Length, batch, precision.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TranslationTrainSettings {
    /// Decides everything random: initial values, order, dropout.
    pub seed: u64,
    /// How often all pairs are seen.
    pub epochs: u64,
    /// The most tokens of a side that go through the model at once, with padding.
    pub tokens: usize,
    /// Batches whose gradients are added before an update, each by its number of tokens.
    pub accumulate: usize,
    /// "f32", or "bf16" for products (weights stay f32).
    pub precision: PrecisionChoice,
    /// Compute the insides of layers again in the backward pass: less memory, a third more time.
    pub recompute: bool,
    /// The model at the end is the mean of so many of the last checkpoints; 1 for the last alone.
    pub average: usize,
}

/// What is learned from.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PairSettings {
    /// A directory or a file of pairs.
    pub path: String,
    /// Source and target language, as files and keys are called: "en-de". Empty where the data itself tells which is which.
    pub languages: String,
    /// The share of pairs that is kept for testing where the data has no part for that.
    pub validation_share: f64,
}

choice! {
    /// How words are cut into pieces.
    TokeniserChoice {
        /// Byte-pair encoding.
        Bpe,
        /// A unigram language model.
        Unigram,
    }
}

/// How text becomes tokens.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TextSettings {
    /// "bpe" or "unigram".
    pub tokeniser: TokeniserChoice,
    /// Pieces of a vocabulary.
    pub vocabulary: usize,
    /// Pairs with a side of more tokens are left out.
    pub max_tokens: usize,
    /// Pairs of which one side has so many times the tokens of the other are left out.
    pub max_ratio: f64,
}

/// How it is tested.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TranslationTestSettings {
    /// Hypotheses that are followed at once; 1 is greedy.
    pub beam: usize,
    /// How much longer hypotheses are preferred.
    pub length_penalty: f32,
    /// The most sentences that are translated for BLEU; 0 for all.
    pub sentences: usize,
    /// Translations that are shown.
    pub shown: usize,
}

impl Default for TranslationRecipe {
    fn default() -> Self {
        let optimizer = OptimizerSettings::default();
        TranslationRecipe {
            task: TranslationTask::Translation,
            train: TranslationTrainSettings::default(),
            data: PairSettings::default(),
            text: TextSettings::default(),
            loss: LossSettings { kind: LossKind::CrossEntropy, label_smoothing: 0.1 },
            optimizer: OptimizerSettings { betas: [0.9, 0.98], eps: 1e-9, weight_decay: 0.0, clip: 0.0, ..optimizer },
            schedule: ScheduleSettings {
                kind: ScheduleKind::InverseSqrt,
                warmup_epochs: 0.0,
                warmup_steps: 4000,
                final_lr: 0.0,
            },
            test: TranslationTestSettings::default(),
            output: OutputSettings::default(),
            model: TransformerConfig::default(),
        }
    }
}

impl Default for TranslationTrainSettings {
    fn default() -> Self {
        TranslationTrainSettings {
            seed: 1,
            epochs: 20,
            tokens: 4096,
            accumulate: 1,
            precision: PrecisionChoice::F32,
            recompute: false,
            average: 1,
        }
    }
}

impl Default for PairSettings {
    fn default() -> Self {
        PairSettings { path: String::new(), languages: String::new(), validation_share: 0.02 }
    }
}

impl PairSettings {
    /// How the pairs are opened.
    pub fn options(&self) -> OpenPairs {
        OpenPairs { languages: self.languages.parse().ok(), validation_share: self.validation_share }
    }
}

impl Default for TextSettings {
    fn default() -> Self {
        TextSettings { tokeniser: TokeniserChoice::Bpe, vocabulary: 8000, max_tokens: 100, max_ratio: 9.0 }
    }
}

impl Default for TranslationTestSettings {
    fn default() -> Self {
        TranslationTestSettings { beam: 1, length_penalty: 0.6, sentences: 0, shown: 3 }
    }
}

impl Layered for TranslationRecipe {
    fn specimen() -> Self {
        TranslationRecipe::default()
    }

    fn preset(name: &str) -> Option<Table> {
        preset(name).map(|config| layers::to_table(&config))
    }

    fn preset_names() -> Vec<String> {
        PRESET_NAMES.map(str::to_string).to_vec()
    }

    fn check(&self) -> Result<(), RecipeError> {
        check_translation(self)
    }
}

impl TranslationRecipe {
    /// Reads a recipe file (its name and text) with overrides.
    pub fn read(origin: &str, text: &str, overrides: &[String]) -> Result<TranslationRecipe, RecipeError> {
        layers::read(origin, text, overrides)
    }

    /// Refuses values that make no sense.
    pub fn check(&self) -> Result<(), RecipeError> {
        check_translation(self)
    }

    /// The whole recipe as TOML, with every key.
    pub fn to_toml(&self) -> String {
        layers::to_toml(self)
    }
}
