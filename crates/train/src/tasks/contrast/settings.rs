//! The keys of a recipe that only models of images and texts have.

use serde::{Deserialize, Serialize};
use vitreous_data::image::augment::AugmentSettings;

use crate::recipe::rules::{Checked, FRACTION, POSITIVE, is_fraction, refuse};
use crate::tasks::classify::{InitChoice, PreprocessSettings};

/// What stands for a class in a template.
pub(super) const PLACE: &str = "{}";

/// The keys that only models of images and texts have, by section.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ContrastSettings {
    /// The batch, the moving average, initial values.
    pub train: ContrastTrainSettings,
    /// How images are loaded.
    pub data: ContrastDataSettings,
    /// The vocabulary of a new model.
    pub text: ContrastTextSettings,
    /// Preprocessing of images.
    pub preprocess: PreprocessSettings,
    /// Augmentation of training images.
    pub augment: AugmentSettings,
    /// The loss.
    pub loss: ContrastLossSettings,
    /// How classes are described where the validation images have some.
    pub evaluation: ContrastEvaluationSettings,
    /// Fine-tuning of a pretrained model.
    pub finetune: ContrastFinetuneSettings,
}

/// The batch, the moving average, initial values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ContrastTrainSettings {
    /// Pairs per batch: each image is told from all captions of its batch.
    pub batch: usize,
    /// Pairs that go through the model at once; 0 for the whole batch. The gradients are those of the whole batch in any case.
    pub chunk: usize,
    /// Decay of an exponential moving average of the parameters, which is then evaluated and saved; 0 for none.
    pub ema: f64,
    /// Whether the average starts with a small decay: at most (1 + step) / (10 + step).
    pub ema_warmup: bool,
    /// The initialisation scheme.
    pub init: InitChoice,
}

/// How images are loaded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ContrastDataSettings {
    /// Threads that prepare images; 0 for one per core.
    pub threads: usize,
    /// Memory for decoded images that are kept, in MiB.
    pub keep_mib: u64,
}

/// The vocabulary of a new model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ContrastTextSettings {
    /// The size of the vocabulary that is learned from the captions of a new model.
    pub vocabulary: usize,
}

/// The loss.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ContrastLossSettings {
    /// Whether pairs of a batch with the same caption count as each other's: otherwise they are told from each other, which nobody can.
    pub same_captions: bool,
}

/// How classes are described.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ContrastEvaluationSettings {
    /// Sentences with a {} for the class; the mean over all is taken.
    pub templates: Vec<String>,
}

/// Fine-tuning of a pretrained model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ContrastFinetuneSettings {
    /// The pretrained model: a directory with its tokenizer; "" to train from scratch. It replaces `model`, but for the image size and dropout.
    pub init: String,
    /// Whether to use the preprocessing of the pretrained model, at the recipe's image size, in place of `preprocess`.
    pub own_preprocess: bool,
}

impl Default for ContrastTrainSettings {
    fn default() -> Self {
        ContrastTrainSettings { batch: 256, chunk: 0, ema: 0.0, ema_warmup: true, init: InitChoice::Xavier }
    }
}

impl Default for ContrastDataSettings {
    fn default() -> Self {
        ContrastDataSettings { threads: 0, keep_mib: 1024 }
    }
}

impl Default for ContrastTextSettings {
    fn default() -> Self {
        ContrastTextSettings { vocabulary: 4096 }
    }
}

impl Default for ContrastLossSettings {
    fn default() -> Self {
        ContrastLossSettings { same_captions: true }
    }
}

impl Default for ContrastEvaluationSettings {
    fn default() -> Self {
        ContrastEvaluationSettings { templates: vec!["a photo of a {}".to_string()] }
    }
}

impl Default for ContrastFinetuneSettings {
    fn default() -> Self {
        ContrastFinetuneSettings { init: String::new(), own_preprocess: true }
    }
}

impl ContrastSettings {
    /// Refuses values that make no sense.
    pub(super) fn check(&self) -> Checked {
        let ContrastTrainSettings { batch, chunk, ema, .. } = &self.train;
        match () {
            () if *batch < 2 => {
                refuse("train.batch", batch, "it must be at least 2: captions are told from each other")
            }
            () if *chunk > 0 && batch % chunk != 0 => {
                refuse("train.chunk", chunk, "it must divide train.batch; 0 is the whole batch")
            }
            () if !is_fraction(*ema) => refuse("train.ema", ema, FRACTION),
            () if self.text.vocabulary == 0 => refuse("text.vocabulary", &self.text.vocabulary, POSITIVE),
            () if self.data.threads > 1024 => refuse("data.threads", &self.data.threads, "it must be at most 1024"),
            () => Ok(()),
        }?;
        let templates = &self.evaluation.templates;
        match templates.iter().find(|template| !template.contains(PLACE)) {
            Some(template) => refuse("evaluation.templates", template, "each needs a {} where the class belongs"),
            None if templates.is_empty() => {
                refuse("evaluation.templates", &"[]", "it needs a sentence, such as \"a photo of a {}\"")
            }
            None => self.preprocess.check(),
        }
    }

    /// Threads that prepare images.
    pub(super) fn loader_threads(&self) -> usize {
        match self.data.threads {
            0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(16),
            threads => threads,
        }
    }
}
