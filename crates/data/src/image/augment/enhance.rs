//! Pillow's `ImageEnhance`: a picture is blended with one that lacks a property (brightness, contrast ...). A factor of 1 changes nothing,
//! 0 removes the property, and more than 1 enhances it.

use super::picture::{Picture, luma};

/// `without + factor * (with - without)` in single precision, truncated to a byte, as Pillow's `Image.blend`.
#[inline]
fn blend(without: u8, with: u8, factor: f32) -> u8 {
    let (without, with) = (i32::from(without), i32::from(with));
    // `as u8` clamps to 0..255.
    (without as f32 + factor * (with - without) as f32) as u8
}

impl Picture {
    /// Blends with black.
    pub(super) fn brightness(&mut self, factor: f64) {
        self.blend_with_one_value(0, factor as f32);
    }

    /// Blends with the mean grey.
    pub(super) fn contrast(&mut self, factor: f64) {
        let total: u64 = match self.channels {
            1 => self.bytes.iter().map(|&byte| u64::from(byte)).sum(),
            _ => self.bytes.chunks_exact(3).map(|pixel| u64::from(luma(pixel[0], pixel[1], pixel[2]))).sum(),
        };
        let mean = total as f64 / (self.height * self.width) as f64;
        self.blend_with_one_value((mean + 0.5) as u8, factor as f32);
    }

    /// Blends with the greyscale picture.
    pub(super) fn saturation(&mut self, factor: f64) {
        let factor = factor as f32;
        if self.channels == 1 || factor == 1.0 {
            return;
        }
        for pixel in self.bytes.chunks_exact_mut(3) {
            let grey = luma(pixel[0], pixel[1], pixel[2]);
            for byte in pixel {
                *byte = blend(grey, *byte, factor);
            }
        }
    }

    /// Converts to greyscale; the channels stay.
    pub(super) fn grey(&mut self) {
        self.saturation(0.0);
    }

    /// Blends with a smoothed picture: each inner pixel is the mean of 3 x 3, with weight 5 for itself.
    pub(super) fn sharpness(&mut self, factor: f64) {
        let (factor, channels) = (factor as f32, self.channels);
        let stride = self.width * channels;
        if factor == 1.0 || self.height < 3 || self.width < 3 {
            return;
        }
        self.spare.clear();
        self.spare.extend_from_slice(&self.bytes);
        let rows = self.bytes.chunks_exact(stride).zip(self.bytes.chunks_exact(stride).skip(1));
        let rows = rows.zip(self.bytes.chunks_exact(stride).skip(2));
        for (((above, here), below), out) in rows.zip(self.spare.chunks_exact_mut(stride).skip(1)) {
            let inside = &mut out[channels..stride - channels];
            for (at, out) in inside.iter_mut().enumerate() {
                let three =
                    |row: &[u8]| u32::from(row[at]) + u32::from(row[at + channels]) + u32::from(row[at + 2 * channels]);
                let byte = here[at + channels];
                let sum = three(above) + three(here) + three(below) + 4 * u32::from(byte);
                // 13 is odd, so there are no ties, and rounding integers gives what Pillow's floats give.
                let smooth = (2 * sum + 13) / 26;
                *out = blend(smooth as u8, byte, factor);
            }
        }
        self.take_spare();
    }

    fn blend_with_one_value(&mut self, without: u8, factor: f32) {
        if factor != 1.0 {
            self.map(&std::array::from_fn(|value| blend(without, value as u8, factor)));
        }
    }
}
