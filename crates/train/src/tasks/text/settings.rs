//! The sections of a recipe that several tasks of texts have.

use serde::{Deserialize, Serialize};

use crate::finetuning::Finetuning;
use crate::recipe::rules::{Checked, POSITIVE, refuse};

/// The batch.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TextTrainSettings {
    /// Texts per batch.
    pub batch: usize,
}

/// How much of a text is read.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TextLengthSettings {
    /// The most tokens of a text, with special tokens; longer ones are truncated.
    pub max_tokens: usize,
}

/// Fine-tuning of a pretrained encoder.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct TextFinetuneSettings {
    /// The pretrained model: a directory. It replaces `model`, but for dropout.
    pub init: String,
    /// Whether only the head is trained.
    pub freeze: bool,
    /// Rank of LoRA on the projections of attention, with the rest frozen; 0 for none.
    pub lora_rank: usize,
    /// LoRA's scale is this over the rank.
    pub lora_alpha: f64,
    /// Factor of the learning rate of the head.
    pub head_lr: f64,
    /// Factor of the learning rate of everything but the head.
    pub backbone_lr: f64,
}

impl Default for TextTrainSettings {
    fn default() -> Self {
        TextTrainSettings { batch: 32 }
    }
}

impl Default for TextLengthSettings {
    fn default() -> Self {
        TextLengthSettings { max_tokens: 256 }
    }
}

impl Default for TextFinetuneSettings {
    fn default() -> Self {
        let Finetuning { freeze, lora_rank, lora_alpha, head_lr, backbone_lr } = Finetuning::default();
        TextFinetuneSettings { init: String::new(), freeze, lora_rank, lora_alpha, head_lr, backbone_lr }
    }
}

impl TextTrainSettings {
    pub(crate) fn check(&self) -> Checked {
        match self.batch {
            0 => refuse("train.batch", &self.batch, POSITIVE),
            _ => Ok(()),
        }
    }
}

impl TextLengthSettings {
    pub(crate) fn check(&self) -> Checked {
        match self.max_tokens {
            0..4 => refuse("text.max_tokens", &self.max_tokens, "it must be at least 4: special tokens count, too"),
            _ => Ok(()),
        }
    }
}

impl TextFinetuneSettings {
    pub(crate) fn parts(&self) -> Finetuning {
        let TextFinetuneSettings { init: _, freeze, lora_rank, lora_alpha, head_lr, backbone_lr } = *self;
        Finetuning { freeze, lora_rank, lora_alpha, head_lr, backbone_lr }
    }
}
