//! The operations of RandAugment, and the meaning of their magnitudes, as in `timm`.

use super::affine::Sampling;
use super::picture::Picture;

/// An operation on a picture.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Operation {
    AutoContrast,
    Equalize,
    Invert,
    Rotate,
    Posterize,
    Solarize,
    SolarizeAdd,
    Colour,
    Contrast,
    Brightness,
    Sharpness,
    ShearX,
    ShearY,
    TranslateX,
    TranslateY,
    /// Only in the sets of 3-Augment.
    Desaturate,
    /// Only in the sets of 3-Augment.
    GaussianBlur,
}

/// The magnitude at which an operation has its usual maximum effect.
pub(super) const FULL_MAGNITUDE: f64 = 10.0;

impl Operation {
    /// The usual fifteen operations.
    pub const USUAL: [Operation; 15] = [
        Operation::AutoContrast,
        Operation::Equalize,
        Operation::Invert,
        Operation::Rotate,
        Operation::Posterize,
        Operation::Solarize,
        Operation::SolarizeAdd,
        Operation::Colour,
        Operation::Contrast,
        Operation::Brightness,
        Operation::Sharpness,
        Operation::ShearX,
        Operation::ShearY,
        Operation::TranslateX,
        Operation::TranslateY,
    ];

    /// The parameter of a magnitude: degrees, bits, a threshold, a factor, a share of the side. With `increasing`, a larger magnitude is
    /// always a larger change; without it, some operations change less. `negate` is called where both directions are possible.
    pub fn argument(self, magnitude: f64, increasing: bool, mut negate: impl FnMut() -> bool) -> f64 {
        let level = magnitude / FULL_MAGNITUDE;
        let mut either_way = |value: f64| if negate() { -value } else { value };
        match self {
            Operation::AutoContrast | Operation::Equalize | Operation::Invert => 0.0,
            Operation::Rotate => either_way(level * 30.0),
            Operation::Posterize if increasing => 4.0 - (level * 4.0).trunc(),
            Operation::Posterize => (level * 4.0).trunc(),
            Operation::Solarize if increasing => 256.0 - (level * 256.0).trunc().min(256.0),
            Operation::Solarize => (level * 256.0).trunc().min(256.0),
            Operation::SolarizeAdd => (level * 110.0).trunc().min(128.0),
            Operation::Colour | Operation::Contrast | Operation::Brightness | Operation::Sharpness => {
                if increasing {
                    (1.0 + either_way(level * 0.9)).max(0.1)
                } else {
                    level * 1.8 + 0.1
                }
            }
            Operation::ShearX | Operation::ShearY => either_way(level * 0.3),
            Operation::TranslateX | Operation::TranslateY => either_way(level * 0.45),
            Operation::Desaturate => (0.5 + 0.5 * level).clamp(0.5, 1.0),
            Operation::GaussianBlur => (0.1 + (2.0 - 0.1) * level).clamp(0.1, 2.0),
        }
    }

    /// Whether pixels move, so that interpolation is needed.
    pub fn is_geometric(self) -> bool {
        use Operation::{Rotate, ShearX, ShearY, TranslateX, TranslateY};
        matches!(self, Rotate | ShearX | ShearY | TranslateX | TranslateY)
    }

    /// Applies it to a picture. What moves in from outside has the colour `fill`.
    pub fn apply(self, picture: &mut Picture, argument: f64, sampling: Sampling, fill: &[u8]) {
        match self {
            Operation::AutoContrast => picture.auto_contrast(),
            Operation::Equalize => picture.equalize(),
            Operation::Invert => picture.invert(),
            Operation::Rotate => picture.rotate(argument, sampling, fill),
            Operation::Posterize => picture.posterize(argument as i64),
            Operation::Solarize => picture.solarize(argument as i64),
            Operation::SolarizeAdd => picture.solarize_add(argument as i64),
            Operation::Colour => picture.saturation(argument),
            Operation::Contrast => picture.contrast(argument),
            Operation::Brightness => picture.brightness(argument),
            Operation::Sharpness => picture.sharpness(argument),
            Operation::ShearX => picture.affine([1.0, argument, 0.0, 0.0, 1.0, 0.0], sampling, fill),
            Operation::ShearY => picture.affine([1.0, 0.0, 0.0, argument, 1.0, 0.0], sampling, fill),
            Operation::TranslateX => {
                let pixels = argument * picture.width as f64;
                picture.affine([1.0, 0.0, pixels, 0.0, 1.0, 0.0], sampling, fill);
            }
            Operation::TranslateY => {
                let pixels = argument * picture.height as f64;
                picture.affine([1.0, 0.0, 0.0, 0.0, 1.0, pixels], sampling, fill);
            }
            Operation::Desaturate => picture.saturation((1.0 - argument).clamp(0.0, 1.0)),
            Operation::GaussianBlur => picture.gaussian_blur(argument),
        }
    }
}
