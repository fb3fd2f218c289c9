//! The keys of a recipe that only language models have.

use serde::{Deserialize, Serialize};
use vitreous_data::text::{DocumentBreak, LanguageVocabulary};

use crate::finetuning::PretrainedSettings;
use crate::recipe::choice;
use crate::recipe::rules::{Checked, NOT_NEGATIVE, POSITIVE, is_not_negative, refuse};
use crate::tasks::text::TextTrainSettings;

/// The keys that only language models have, by section.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LanguageSettings {
    /// The batch.
    pub train: TextTrainSettings,
    /// Where documents begin and end.
    pub data: LanguageDataSettings,
    /// Tokenisation.
    pub text: LanguageTextSettings,
    /// The loss.
    pub loss: LanguageLossSettings,
    /// Evaluations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LanguageTestSettings {
    /// The most tokens of an evaluation; 0 for all.
    pub tokens: usize,
    /// Tokens that the model writes after each evaluation; 0 for none.
    pub sample_tokens: usize,
    /// What it goes on with; "" for the beginning of a text.
    pub prompt: String,
    /// The temperature of what it writes.
    pub temperature: f64,
}

impl Default for LanguageDataSettings {
    fn default() -> Self {
        LanguageDataSettings { documents: DocumentChoice::Files, apart: false }
    }
}

impl Default for LanguageTextSettings {
    fn default() -> Self {
        LanguageTextSettings {
            max_tokens: 256,
            tokenizer: LanguageVocabularyChoice::Bpe,
            vocabulary: 8192,
            tokenizer_from: String::new(),
            chat_template: String::new(),
        }
    }
}

impl Default for LanguageTestSettings {
    fn default() -> Self {
        LanguageTestSettings { tokens: 250_000, sample_tokens: 200, prompt: String::new(), temperature: 0.8 }
    }
}

impl LanguageSettings {
    /// Refuses values that make no sense.
    pub(super) fn check(&self) -> Checked {
        self.train.check()?;
        self.finetune.check()?;
        let (z_loss, temperature) = (f64::from(self.loss.z_loss), self.test.temperature);
        match () {
            () if self.text.max_tokens == 0 => refuse("text.max_tokens", &0, POSITIVE),
            () if !is_not_negative(z_loss) => refuse("loss.z_loss", &z_loss, NOT_NEGATIVE),
            () if !is_not_negative(temperature) => refuse("test.temperature", &temperature, NOT_NEGATIVE),
            () => Ok(()),
        }
    }
}
