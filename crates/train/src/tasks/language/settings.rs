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
    /// A model to go on from.
    pub finetune: PretrainedSettings,
    /// Evaluations.
    pub test: LanguageTestSettings,
}

choice! {
    /// Where one document ends and the next begins.
    DocumentChoice {
        /// Each file is a document; of JSON lines, each line.
        Files,
        /// Blank lines separate documents.
        BlankLines,
    }
}

choice! {
    /// A kind of vocabulary.
    LanguageVocabularyChoice {
        /// GPT-2's byte pairs.
        Bpe,
        /// Every character of the text.
        Characters,
        /// Every byte.
        Bytes,
    }
}

impl From<DocumentChoice> for DocumentBreak {
    fn from(choice: DocumentChoice) -> DocumentBreak {
        match choice {
            DocumentChoice::Files => DocumentBreak::Files,
            DocumentChoice::BlankLines => DocumentBreak::BlankLines,
        }
    }
}

impl From<LanguageVocabularyChoice> for LanguageVocabulary {
    fn from(choice: LanguageVocabularyChoice) -> LanguageVocabulary {
        match choice {
            LanguageVocabularyChoice::Bpe => LanguageVocabulary::Bpe,
            LanguageVocabularyChoice::Characters => LanguageVocabulary::Characters,
            LanguageVocabularyChoice::Bytes => LanguageVocabulary::Bytes,
        }
    }
}

/// Where documents begin and end.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LanguageDataSettings {
    /// Further files and folders, read behind `path`.
    pub more: Vec<String>,
    /// "files", or "blank_lines".
    pub documents: DocumentChoice,
    /// Whether documents in one sequence are kept apart: each is read as if it were alone. GPT-2 was trained without.
    pub apart: bool,
}

/// Tokenisation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LanguageTextSettings {
    /// Tokens per sequence.
    pub max_tokens: usize,
    /// The kind of vocabulary that is learnt from the text: "bpe", "characters" or "bytes".
    pub tokenizer: LanguageVocabularyChoice,
    /// The vocabulary size of "bpe".
    pub vocabulary: usize,
    /// A model directory, or its tokenizer.json, whose tokenizer is used instead; "" for none.
    pub tokenizer_from: String,
    /// A file with a chat template (Jinja), for chats and models that have none, or instead of the model's; "" for the model's own.
    pub chat_template: String,
}

/// The loss.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct LanguageLossSettings {
    /// The factor of the squared logarithm of the softmax's sum, which keeps logits small (PaLM: 1e-4); 0 for none.
    pub z_loss: f32,
}

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
        LanguageDataSettings { more: Vec::new(), documents: DocumentChoice::Files, apart: false }
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
