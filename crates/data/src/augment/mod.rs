//! Augmentation: what is done to images, and to batches of them, while a model learns.

mod settings;

pub use settings::{AugmentSettings, CropKind, EraseMode, MixMode};

use crate::decode::Image;
use crate::error::{ConfigError, ImageError};
use crate::preprocess::{Preprocess, Scratch};
use crate::random::Random;

/// Prepares images to learn from.
#[derive(Clone, Debug)]
pub struct Augment {
    preprocess: Preprocess,
}

impl Augment {
    /// Augmentation of images that are prepared like this for testing; its output size must be known.
    pub fn new(_settings: &AugmentSettings, preprocess: &Preprocess) -> Result<Augment, ConfigError> {
        Ok(Augment { preprocess: preprocess.clone() })
    }

    /// Prepares an image: channels first, `out` holds `channels * height * width` numbers.
    pub fn apply(
        &self,
        image: &Image,
        _random: &mut Random,
        scratch: &mut Scratch,
        out: &mut [f32],
    ) -> Result<(), ImageError> {
        self.preprocess.apply(image, scratch, out)
    }
}

/// Mixes the samples of a batch: Mixup and CutMix.
#[derive(Clone, Debug)]
pub struct Mixer {}

impl Mixer {
    /// None if the settings mix nothing.
    pub fn new(_settings: &AugmentSettings) -> Result<Option<Mixer>, ConfigError> {
        Ok(None)
    }

    /// Mixes a batch of `[batch, channels, height, width]` with its targets, `[batch, classes]`: each row of the targets is
    /// mixed as its image was.
    pub fn mix(
        &self,
        _images: &mut [f32],
        [_batch, _channels, _height, _width]: [usize; 4],
        _targets: &mut [f32],
        _random: &mut Random,
    ) {
    }
}
