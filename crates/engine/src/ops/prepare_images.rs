//! Prepare images: from the bytes of pictures to the numbers that a model sees. Whoever loads pictures does what needs a whole picture
//! (decoding, resizing, changes of colour) and draws what is random; the rest is here, so that bytes travel in place of numbers, a
//! quarter of their size, and the device that computes does the work.
//!
//! With a row of [`ImageDraws`](super::ImageDraws) for each picture:
//!
//! 1. laid: pixel `(row, column)` of the stored picture comes to `(row + top, column + left)`; what is not covered is black, byte 0;
//! 2. mirrored, turned upside down;
//! 3. normalised: a byte `v` of channel `c` becomes `table[c, v]`;
//! 4. erased: boxes, one after the other, are filled with a number for each channel or with normally distributed noise;
//! 5. mixed with the picture at the same place from the end of the batch, as that is after step 4: `own·x + partner·y`, or a box of it.
//!
//! Noise is drawn row by row, one channel after the other, two numbers from two random words `u, v` (Box and Muller):
//! `√(-2 ln u) · (cos 2πv, sin 2πv)` with `u = ((word >> 8) + 1) / 2²⁴`, and v likewise. An odd row leaves its last number out. So the
//! words of each pixel are known without those before it: word `i` of the random numbers is word `i mod 4` of block `i / 4` of the stream.
//!
//! | | |
//! |---|---|
//! | shapes | `pixels [batch, ⌈height·width·channels / 4⌉]` (i32: four bytes a word, the first the lowest; rows from the top, a pixel's channels side by side), `draws [batch, draws_length]` (i32), `table [channels, 256]` give `[batch, channels, height, width]` |
//! | FLOPs | counted as 0: how many follows from the draws, and it is not the model's work |
//! | gradients | none: it stands before all that is learned |

use crate::error::Result;
use crate::graph::{Graph, Value, check_sizes};
use crate::ops::image_draws::draws_length;
use crate::ops::{Broken, Rules, expect_inputs};
use crate::types::{DType, Type};

/// Bytes of pictures to numbers. Inputs: pixels, draws, the table.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PrepareImages {
    /// Channels of a picture.
    pub channels: usize,
    /// Rows of a picture.
    pub height: usize,
    /// Columns of a picture.
    pub width: usize,
    /// The most boxes that are erased from a picture.
    pub most_boxes: usize,
    /// Whether erased boxes are filled with noise, not with a number for each channel.
    pub noise: bool,
}

impl PrepareImages {
    /// Words of a picture's pixels.
    pub fn pixel_words(&self) -> usize {
        (self.channels * self.height * self.width).div_ceil(4)
    }

    /// Words of a picture's draws.
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
        // Kernels count the bytes of one picture, and the random words of its noise, in 32 bits.
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
    /// Bytes of pictures to numbers `[batch, channels, height, width]`: `pixels` (i32, four bytes a word), `draws` (i32, a row of
    /// [`ImageDraws`](crate::ops::ImageDraws) each), `table [channels, 256]`: what a byte becomes.
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
