//! `torchvision`'s `ColorJitter`: brightness, contrast and saturation by random factors, in random order.

use super::picture::Picture;
use crate::random::Random;

/// The factors are between `1 - strength` (at least 0) and `1 + strength`.
pub(super) fn colour_jitter(picture: &mut Picture, strength: f64, random: &mut Random) {
    let mut steps = [Picture::brightness, Picture::contrast, Picture::saturation];
    random.shuffle(&mut steps);
    for step in steps {
        step(picture, random.between((1.0 - strength).max(0.0), 1.0 + strength));
    }
}
