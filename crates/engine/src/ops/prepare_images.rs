//! Prepare images: converts the bytes of images to a model's input. The data loader does what needs a whole image
//! (decoding, resizing, colour augmentations) and draws the random parameters; the rest happens here, so that bytes are
//! transferred instead of floats, a quarter of the size, and the device does the work.
//!
//! With one row of [`ImageDraws`](super::ImageDraws) per image:
//!
//! 1. place: pixel `(row, column)` of the stored image moves to `(row + top, column + left)`; what is not covered is
//!    black, byte 0;
//! 2. flip horizontally or vertically;
//! 3. normalise: a byte `v` of channel `c` becomes `table[c, v]`;
//! 4. erase: boxes, one after the other, are filled with a value per channel or with Gaussian noise;
//! 5. mix with the image at the mirrored index of the batch, as it is after step 4: `own·x + partner·y`, or a box of
//!    it.
//!
//! Noise is drawn row by row, one channel after the other, two numbers from two random words `u, v` (Box and Muller):
//! `√(-2 ln u) · (cos 2πv, sin 2πv)` with `u = ((word >> 8) + 1) / 2²⁴`, and v likewise. An odd row drops its last
//! number. So the words of each pixel can be computed independently: word `i` of the random numbers is word `i mod 4`
//! of block `i / 4` of the stream.
//!
//! | | |
//! |---|---|
//! | shapes | `pixels [batch, ⌈height·width·channels / 4⌉]` (i32: four bytes per word, little-endian; rows from the top, channels interleaved), `draws [batch, draws_length]` (i32), `table [channels, 256]` give `[batch, channels, height, width]` |
//! | FLOPs | counted as 0: they depend on the draws and are not part of the model |
//! | gradients | none: no parameter comes before it |

use crate::error::Result;
use crate::graph::{Graph, Value, check_sizes};
use crate::ops::image_draws::draws_length;
use crate::ops::{Broken, Rules, expect_inputs};
use crate::types::{DType, Type};

/// Converts the bytes of images to a model's input. Inputs: pixels, draws, the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrepareImages {
    /// Channels per image.
    pub channels: usize,
    /// Height of an image.
    pub height: usize,
    /// Width of an image.
    pub width: usize,
    /// The most boxes that are erased from an image.
    pub most_boxes: usize,
    /// Whether erased boxes are filled with noise instead of a value per channel.
    pub noise: bool,
}

impl PrepareImages {
    /// Words per image in `pixels`.
    pub fn pixel_words(&self) -> usize {
        (self.channels * self.height * self.width).div_ceil(4)
    }

    /// Words per image in `draws`.
    pub fn draws_length(&self) -> usize {
        draws_length(self.channels, self.most_boxes)
    }
}

impl Rules for PrepareImages {
    fn name(&self) -> &'static str {
        "prepare_images"
    }

    fn infer(&self, inputs: &[Type]) -> Result<Vec<Type>, Broken> {
        let [pixels, draws, table] = expect_inputs(inputs)?;
        let PrepareImages { channels, height, width, .. } = *self;
        let images = |batch: usize| Type::f32([batch, channels, height, width]);
        check_sizes(&[images(1)])?;
        if channels > 4 {
            return Err("a picture has up to four channels".to_string());
        }
        // Kernels index the bytes of an image, and the random words of its noise, with 32 bits.
        if images(1).shape.elements() > 1 << 30 || self.most_boxes > 1 << 16 {
            return Err("a picture may have up to 2^30 numbers, and 2^16 boxes may be erased from it".to_string());
        }
        if pixels.dtype != DType::I32 || draws.dtype != DType::I32 || table.dtype != DType::F32 {
            return Err("the pixels and the draws must be i32, the table f32".to_string());
        }
        let (words, drawn) = (self.pixel_words(), self.draws_length());
        match (pixels.shape.axes(), draws.shape.axes(), table.shape.axes()) {
            ([batch, w], [b, d], [c, 256]) if *w == words && b == batch && *d == drawn && *c == channels => {
                Ok(vec![images(*batch)])
            }
            _ => Err(format!("takes pixels [batch, {words}], draws [batch, {drawn}], a table [{channels}, 256]")),
        }
    }
}

impl Graph {
    /// Converts the bytes of images to `[batch, channels, height, width]`: `pixels` (i32, four bytes per word), `draws`
    /// (i32, one row of [`ImageDraws`](crate::ops::ImageDraws) per image), `table [channels, 256]`: the value of each
    /// byte.
    pub fn prepare_images(
        &mut self,
        pixels: Value,
        draws: Value,
        table: Value,
        options: PrepareImages,
    ) -> Result<Value> {
        self.push(options, &[pixels, draws, table])
    }
}
