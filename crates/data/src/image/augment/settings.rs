//! What is done to images while a model learns, as a recipe says it.

use serde::{Deserialize, Serialize};

/// Which part of an image is shown.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum CropKind {
    /// The same as for testing.
    Center,
    /// Prepared as for testing, `padding` black pixels around, then a random place (`torchvision`'s `RandomCrop`).
    Padded,
    /// A random part of random size and form, resized (`RandomResizedCrop`).
    Resized,
}

/// What stands in the erased box.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum EraseMode {
    /// Zeros, which is the mean colour.
    Constant,
    /// One random colour.
    Random,
    /// A random colour for each pixel.
    Pixel,
}

/// Whether all samples of a batch are mixed alike.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum MixMode {
    /// One draw for the batch, which is mixed with itself in reverse order.
    Batch,
    /// A draw for each pair of samples.
    Pair,
    /// A draw for each sample.
    Element,
}

/// How images are changed while a model learns. The default changes nothing.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
#[serde(default, deny_unknown_fields)]
pub struct AugmentSettings {
    /// Which part of an image is shown.
    pub crop: CropKind,
    /// For padded crops: black pixels on each side.
    pub padding: usize,
    /// For resized crops: smallest and largest share of the image's area.
    pub scale: [f64; 2],
    /// For resized crops: smallest and largest width over height.
    pub ratio: [f64; 2],
    /// Probability of mirroring left and right.
    pub flip: f64,
    /// Probability of turning upside down.
    pub vertical_flip: f64,
    /// "" for none, "rand-m9-mstd0.5-inc1" and so on for RandAugment, "3a" for 3-Augment.
    pub policy: String,
    /// How much brightness, contrast and saturation change, 0 to 1.
    pub color_jitter: f64,
    /// Probability of becoming grey.
    pub grey: f64,
    /// Probability of a Gaussian blur.
    pub blur: f64,
    /// Probability of erasing a box, after normalisation.
    pub erase: f64,
    /// What stands in the box.
    pub erase_mode: EraseMode,
    /// The most boxes that are erased.
    pub erase_count: usize,
    /// Mixup's alpha; 0 for none.
    pub mixup: f64,
    /// CutMix's alpha; 0 for none.
    pub cutmix: f64,
    /// Probability that a batch (or pair, or sample) is mixed.
    pub mix_probability: f64,
    /// Where there are both: probability of CutMix in place of Mixup.
    pub mix_switch: f64,
    /// Whether all samples of a batch are mixed alike.
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
