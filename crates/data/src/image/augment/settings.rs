//! Settings of augmentation, as in a recipe.

use serde::{Deserialize, Serialize};

/// How images are cropped.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CropKind {
    /// As in validation.
    Center,
    /// Prepared as in validation, padded by `padding` black pixels, then cropped at random (`torchvision`'s `RandomCrop`).
    Padded,
    /// A random part of random size and aspect ratio, resized (`RandomResizedCrop`).
    Resized,
}

/// What erased boxes are filled with.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EraseMode {
    /// Zeros, which are the mean colour.
    Constant,
    /// One random colour.
    Random,
    /// One random colour per pixel.
    Pixel,
}

/// How often mixing is drawn.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MixMode {
    /// Once per batch, which is mixed with itself in reverse order.
    Batch,
    /// Once per pair of samples.
    Pair,
    /// Once per sample.
    Element,
}

/// How training images are augmented. The default changes nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AugmentSettings {
    /// How images are cropped.
    pub crop: CropKind,
    /// For padded crops: black pixels on each side.
    pub padding: usize,
    /// For resized crops: smallest and largest share of the image's area.
    pub scale: [f64; 2],
    /// For resized crops: smallest and largest aspect ratio (width / height).
    pub ratio: [f64; 2],
    /// Probability of a horizontal flip.
    pub flip: f64,
    /// Probability of a vertical flip.
    pub vertical_flip: f64,
    /// "" for none, "rand-m9-mstd0.5-inc1" and so on for RandAugment, "3a" for 3-Augment.
    pub policy: String,
    /// Strength of colour jitter (brightness, contrast and saturation), 0 to 1.
    pub color_jitter: f64,
    /// Probability of greyscale.
    pub grey: f64,
    /// Probability of a Gaussian blur.
    pub blur: f64,
    /// Probability of erasing a box, after normalisation.
    pub erase: f64,
    /// What erased boxes are filled with.
    pub erase_mode: EraseMode,
    /// The maximum number of erased boxes.
    pub erase_count: usize,
    /// Mixup's alpha; 0 for none.
    pub mixup: f64,
    /// CutMix's alpha; 0 for none.
    pub cutmix: f64,
    /// Probability that a batch (or pair, or sample) is mixed.
    pub mix_probability: f64,
    /// With both: probability of CutMix instead of Mixup.
    pub mix_switch: f64,
    /// How often mixing is drawn.
    pub mix_mode: MixMode,
}

impl Default for AugmentSettings {
    fn default() -> Self {
        AugmentSettings {
            crop: CropKind::Center,
            padding: 4,
            scale: [0.08, 1.0],
            ratio: [3.0 / 4.0, 4.0 / 3.0],
            flip: 0.0,
            vertical_flip: 0.0,
            policy: String::new(),
            color_jitter: 0.0,
            grey: 0.0,
            blur: 0.0,
            erase: 0.0,
            erase_mode: EraseMode::Pixel,
            erase_count: 1,
            mixup: 0.0,
            cutmix: 0.0,
            mix_probability: 1.0,
            mix_switch: 0.5,
            mix_mode: MixMode::Batch,
        }
    }
}
