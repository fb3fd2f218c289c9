//! The keys of a recipe that only speech recognition has.

use serde::{Deserialize, Serialize};
use vitreous_data::audio::{SpecAugment, SpeechTask, language_code};

use crate::finetuning::PretrainedSettings;
use crate::recipe::choice;
use crate::recipe::rules::{Checked, FRACTION, POSITIVE, is_fraction, refuse};

/// The keys that only speech recognition has, by section.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TranscribeSettings {
    /// The batch.
    pub train: TranscribeTrainSettings,
    /// What is said, and how recordings are loaded.
    pub data: TranscribeDataSettings,
    /// What of a spectrogram is masked in training.
    pub augment: SpecAugment,
    /// Writing in evaluations.
    pub test: TranscribeTestSettings,
    /// The model to start from.
    pub finetune: PretrainedSettings,
}

/// The batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TranscribeTrainSettings {
    /// Recordings per batch.
    pub batch: usize,
}

choice! {
    /// What is written.
    TranscribeTask {
        /// What is said, in its language.
        Transcribe,
        /// What is said, in English.
        Translate,
    }
}

/// What is said, and how recordings are loaded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TranscribeDataSettings {
    /// The code of the language that is spoken, of models with languages: "de".
    pub language: String,
    /// Whether texts are what is said, or its translation into English.
    pub task: TranscribeTask,
    /// Threads that prepare batches; 0 for one per core.
    pub threads: usize,
    /// Memory for spectrograms that are kept, in MiB.
    pub keep_mib: u64,
}

/// Writing in evaluations.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TranscribeTestSettings {
    /// The most recordings that are transcribed for the error rates; 0 for all.
    pub recordings: usize,
    /// Transcripts that are shown.
    pub shown: usize,
}

impl Default for TranscribeTrainSettings {
    fn default() -> Self {
        TranscribeTrainSettings { batch: 8 }
    }
}

impl Default for TranscribeDataSettings {
    fn default() -> Self {
        TranscribeDataSettings { language: String::new(), task: TranscribeTask::Transcribe, threads: 0, keep_mib: 1024 }
    }
}

impl Default for TranscribeTestSettings {
    fn default() -> Self {
        TranscribeTestSettings { recordings: 200, shown: 3 }
    }
}

impl TranscribeSettings {
    /// Refuses values that make no sense.
    pub(super) fn check(&self) -> Checked {
        let TranscribeSettings { train, data, augment, .. } = self;
        match () {
            () if train.batch == 0 => refuse("train.batch", &train.batch, POSITIVE),
            () if data.threads > 1024 => refuse("data.threads", &data.threads, "it must be at most 1024"),
            () if !data.language.is_empty() && language_code(&data.language).is_none() => {
                refuse("data.language", &data.language, "it must be a code or a name of a language: de, german")
            }
            () if !is_fraction(augment.mask_time_prob) => {
                refuse("augment.mask_time_prob", &augment.mask_time_prob, FRACTION)
            }
            () if !is_fraction(augment.mask_feature_prob) => {
                refuse("augment.mask_feature_prob", &augment.mask_feature_prob, FRACTION)
            }
            () if augment.mask_time_length == 0 => {
                refuse("augment.mask_time_length", &augment.mask_time_length, POSITIVE)
            }
            () if augment.mask_feature_length == 0 => {
                refuse("augment.mask_feature_length", &augment.mask_feature_length, POSITIVE)
            }
            () => Ok(()),
        }?;
        self.finetune.check()
    }

    /// Threads that prepare batches.
    pub(super) fn loader_threads(&self) -> usize {
        match self.data.threads {
            0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(16),
            threads => threads,
        }
    }
}

impl From<TranscribeTask> for SpeechTask {
    fn from(task: TranscribeTask) -> SpeechTask {
        match task {
            TranscribeTask::Transcribe => SpeechTask::Transcribe,
            TranscribeTask::Translate => SpeechTask::Translate,
        }
    }
}
