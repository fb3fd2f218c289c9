//! The keys of a recipe that only classification has.

use serde::{Deserialize, Serialize};
use vitreous_data::dataset::ValidationRule;
use vitreous_data::image::augment::AugmentSettings;
use vitreous_data::image::{Channels, Crop, Interpolation, Placement, Preprocess, Resize};

use crate::finetuning::Finetuning;
use crate::recipe::rules::{Checked, FRACTION, POSITIVE, check_smoothing, is_fraction, is_positive, refuse};
use crate::recipe::{LossSettings, choice};

const MOST_THREADS: usize = 1024;

/// The keys that only classification has, by section.
#[derive(Clone, Debug, Default, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClassifySettings {
    /// The batch, the moving average, initial values.
    pub train: ClassifyTrainSettings,
    /// How images are loaded.
    pub data: ClassifyDataSettings,
    /// Preprocessing of images.
    pub preprocess: PreprocessSettings,
    /// Augmentation of training images.
    pub augment: AugmentSettings,
    /// The loss.
    pub loss: LossSettings,
    /// Fine-tuning of a pretrained model.
    pub finetune: FinetuneSettings,
}

/// The batch, the moving average, initial values.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClassifyTrainSettings {
    /// Images per batch.
    pub batch: usize,
    /// Decay of an exponential moving average of the parameters, which is then evaluated and saved; 0 for none.
    pub ema: f64,
    /// Whether the average starts with a small decay: at most (1 + step) / (10 + step).
    pub ema_warmup: bool,
    /// The initialisation scheme.
    pub init: InitChoice,
}

choice! {
    /// An initialisation scheme.
    InitChoice {
        /// Xavier-uniform matrices, zero biases.
        Xavier,
        /// Normal with standard deviation 0.02; as timm's Vision Transformers.
        TruncatedNormal,
        /// PyTorch's defaults.
        Pytorch,
        /// As the original Vision Transformers in JAX.
        Jax,
    }
}

/// How images are loaded.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct ClassifyDataSettings {
    /// How validation images are drawn where the data has no validation split: "stratified" by class, or "by_name".
    pub validation_rule: ValidationRule,
    /// Which labels, where the data has several sets: "coarse" of CIFAR-100, a column of a table; "" for the usual ones.
    pub labels: String,
    /// Threads that prepare images; 0 for one per core.
    pub threads: usize,
    /// Memory for decoded images that are kept, in MiB.
    pub keep_mib: u64,
}

/// Preprocessing of images; training adds augmentation to it.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct PreprocessSettings {
    /// How an image is brought to the model's size.
    pub fit: Fit,
    /// For "crop": the fraction of the shorter side that the model sees.
    pub crop_share: f64,
    /// The interpolation of resizing.
    pub interpolation: Filter,
    /// The mean of each channel, 0 to 1, which is subtracted.
    pub mean: Vec<f32>,
    /// The standard deviation of each channel, by which is divided.
    pub std: Vec<f32>,
}

choice! {
    /// How an image is brought to the model's size.
    Fit {
        /// Resize the shorter side, then crop the centre.
        Crop,
        /// Resize to the model's size, whatever the aspect ratio.
        Stretch,
        /// No resizing: crop the centre, or pad with black where the image is too small.
        Pad,
    }
}

choice! {
    /// An interpolation filter.
    Filter {
        /// Bilinear.
        Bilinear,
        /// Bicubic.
        Bicubic,
    }
}

/// Fine-tuning of a pretrained model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct FinetuneSettings {
    /// The pretrained model: a directory or a file; "" to train from scratch. It replaces `model`, but for the image size and dropout.
    pub init: String,
    /// Whether to use the preprocessing of the pretrained model, at the recipe's image size, in place of `preprocess`.
    pub own_preprocess: bool,
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

impl Default for ClassifyTrainSettings {
    fn default() -> Self {
        ClassifyTrainSettings { batch: 128, ema: 0.0, ema_warmup: true, init: InitChoice::TruncatedNormal }
    }
}

impl Default for ClassifyDataSettings {
    fn default() -> Self {
        ClassifyDataSettings {
            validation_rule: ValidationRule::Stratified,
            labels: String::new(),
            threads: 0,
            keep_mib: 1024,
        }
    }
}

impl Default for PreprocessSettings {
    fn default() -> Self {
        let half = vec![0.5; 3];
        let (mean, std) = (half.clone(), half);
        PreprocessSettings { fit: Fit::Crop, crop_share: 0.875, interpolation: Filter::Bicubic, mean, std }
    }
}

impl Default for FinetuneSettings {
    fn default() -> Self {
        let Finetuning { freeze, lora_rank, lora_alpha, head_lr, backbone_lr } = Finetuning::default();
        let init = String::new();
        FinetuneSettings { init, own_preprocess: true, freeze, lora_rank, lora_alpha, head_lr, backbone_lr }
    }
}

impl FinetuneSettings {
    /// What is trained of a pretrained model.
    pub(super) fn parts(&self) -> Finetuning {
        let FinetuneSettings { freeze, lora_rank, lora_alpha, head_lr, backbone_lr, .. } = *self;
        Finetuning { freeze, lora_rank, lora_alpha, head_lr, backbone_lr }
    }
}

impl PreprocessSettings {
    /// Refuses values that make no sense.
    pub(crate) fn check(&self) -> Checked {
        let PreprocessSettings { fit, crop_share, mean, std, .. } = self;
        match () {
            () if *fit == Fit::Crop && !(is_positive(*crop_share) && *crop_share <= 1.0) => {
                refuse("preprocess.crop_share", crop_share, "it must be above 0 and at most 1")
            }
            () if !matches!(mean.len(), 1 | 3) || mean.len() != std.len() => {
                let value = format!("{mean:?} with std {std:?}");
                refuse("preprocess.mean", &value, "both need one number, or three for colour")
            }
            () if !std.iter().all(|&value| is_positive(f64::from(value))) => {
                refuse("preprocess.std", &format!("{std:?}"), POSITIVE)
            }
            () => Ok(()),
        }
    }

    /// The preprocessing for a model with this input.
    pub fn preprocess(&self, [height, width]: [usize; 2], channels: Channels) -> Preprocess {
        let size = [height, width];
        let middle = Crop { size, placement: Placement::HuggingFace, fill: vec![0; channels.count()] };
        let (resize, crop) = match self.fit {
            // By the longer side, so that an oblong input is covered: `transformers` has no closer way of saying it.
            Fit::Crop => {
                let side = height.max(width);
                let covered = ((side as f64 / self.crop_share).floor() as usize).max(side);
                (Resize::ShorterSide(covered), Some(middle))
            }
            Fit::Stretch => (Resize::Exact(size), None),
            Fit::Pad => (Resize::None, Some(middle)),
        };
        let interpolation = match self.interpolation {
            Filter::Bilinear => Interpolation::Bilinear,
            Filter::Bicubic => Interpolation::Bicubic,
        };
        let rgb = Preprocess {
            resize,
            interpolation,
            crop,
            rescale_factor: 1.0 / 255.0,
            rescale_offset: 0.0,
            mean: self.mean.clone(),
            std: self.std.clone(),
            channels: Channels::from_count(self.mean.len()).unwrap_or(channels),
        };
        rgb.with_channels(channels)
    }
}

impl ClassifySettings {
    /// Refuses values that make no sense.
    pub(super) fn check(&self) -> Checked {
        let ClassifyTrainSettings { batch, ema, .. } = &self.train;
        let threads = &self.data.threads;
        match () {
            () if *batch == 0 => refuse("train.batch", batch, POSITIVE),
            () if !is_fraction(*ema) => refuse("train.ema", ema, FRACTION),
            () if *threads > MOST_THREADS => refuse("data.threads", threads, "it must be at most 1024"),
            () => Ok(()),
        }?;
        check_smoothing(self.loss.label_smoothing)?;
        self.preprocess.check()?;
        self.finetune.parts().check()
    }

    /// Threads that prepare images.
    pub(super) fn loader_threads(&self) -> usize {
        match self.data.threads {
            0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(16),
            threads => threads,
        }
    }
}

#[cfg(test)]
mod tests {
    use crate::recipe::Recipe;

    #[test]
    fn the_model_that_a_pretrained_one_replaces_is_not_checked() {
        let read = |overrides: &[&str]| {
            let overrides: Vec<String> = overrides.iter().map(|pair| pair.to_string()).collect();
            Recipe::read("test", "", &overrides).map_err(|error| error.to_string())
        };
        assert!(read(&["model.image=56"]).expect_err("no whole patches").contains("patches"));
        assert!(read(&["model.image=56", "finetune.init=MODEL"]).is_ok());
    }
}
