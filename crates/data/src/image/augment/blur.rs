//! Pillow's `GaussianBlur`: three box blurs along the rows, three along the columns, rounded to bytes in between.
//!
//! A box of fractional radius r + a weighs the 2r + 1 pixels around one by w = 1 / (2 (r + a) + 1), and the two beyond by half of what is
//! left to 1. That three of these are near a Gaussian is Gwosdek et al., "Theoretical foundations of Gaussian
//! convolution by extended box filtering", 2011.

use super::picture::Picture;

const PASSES: usize = 3;
/// Fractional bits of a weight.
const FRACTION_BITS: u32 = 24;

/// A box blur's weights.
#[derive(Clone, Copy)]
struct Weights {
    radius: usize,
    /// The weight of pixels within the radius.
    near: u32,
    /// The weight of the two beyond.
    far: u32,
}

impl Weights {
    /// For three boxes that blur like a Gaussian of this standard deviation. Each step is rounded to f32, as in Pillow.
    fn of(deviation: f32) -> Weights {
        let variance = deviation * deviation / PASSES as f32;
        let length = (12.0 * f64::from(variance) + 1.0).sqrt() as f32;
        let whole = ((f64::from(length) - 1.0) / 2.0).floor() as f32;
        let mut fraction = (2.0 * whole + 1.0) * (whole * (whole + 1.0) - 3.0 * variance);
        fraction /= 6.0 * (variance - (whole + 1.0) * (whole + 1.0));
        let exact = whole + fraction;
        let radius = exact as usize;
        let near = ((1u32 << FRACTION_BITS) as f32 / (exact * 2.0 + 1.0)) as u32;
        let far = ((1 << FRACTION_BITS) - (radius as u32 * 2 + 1) * near) / 2;
        Weights { radius, near, far }
    }
}

impl Picture {
    /// Blurs with a Gaussian of about this standard deviation, in pixels.
    pub(super) fn gaussian_blur(&mut self, deviation: f64) {
        let weights = Weights::of(deviation as f32);
        if deviation <= 0.0 || weights.near == 1 << FRACTION_BITS {
            return;
        }
        for _ in 0..PASSES {
            self.blur_rows(weights);
        }
        for _ in 0..PASSES {
            self.blur_columns(weights);
        }
    }

    fn blur_rows(&mut self, weights: Weights) {
        self.prepare_spare();
        let stride = (self.width * self.channels).max(1);
        let rows = self.bytes.chunks_exact(stride).zip(self.spare.chunks_exact_mut(stride));
        match self.channels {
            1 => rows.for_each(|(row, out)| blur_row::<1>(row, out, weights)),
            _ => rows.for_each(|(row, out)| blur_row::<3>(row, out, weights)),
        }
        self.take_spare();
    }

    /// A running sum per column, so that whole rows are added and subtracted.
    fn blur_columns(&mut self, weights: Weights) {
        self.prepare_spare();
        let stride = self.width * self.channels;
        let last = self.height as isize - 1;
        let bytes = &self.bytes;
        let row = |row: isize| &bytes[row.clamp(0, last) as usize * stride..][..stride];
        let radius = weights.radius as isize;
        let mut sums = vec![0u32; stride];
        for offset in -radius - 1..radius {
            sums.iter_mut().zip(row(offset)).for_each(|(sum, &byte)| *sum += u32::from(byte));
        }
        for (at, out) in (0..).zip(self.spare.chunks_exact_mut(stride)) {
            let (before, leaving) = (row(at - radius - 1), row(at - radius - 1));
            let (entering, after) = (row(at + radius), row(at + radius + 1));
            for column in 0..stride {
                sums[column] = sums[column] + u32::from(entering[column]) - u32::from(leaving[column]);
                out[column] = weighed(sums[column], before[column], after[column], weights);
            }
        }
        self.take_spare();
    }
}

#[inline]
fn weighed(sum: u32, before: u8, after: u8, weights: Weights) -> u8 {
    let total = sum * weights.near + (u32::from(before) + u32::from(after)) * weights.far;
    ((total + (1 << (FRACTION_BITS - 1))) >> FRACTION_BITS) as u8
}

/// Pixels beyond an end repeat the last one.
fn blur_row<const CHANNELS: usize>(row: &[u8], out: &mut [u8], weights: Weights) {
    let last = (row.len() / CHANNELS) as isize - 1;
    let radius = weights.radius as isize;
    let pixel = |at: isize| {
        let start = at.clamp(0, last) as usize * CHANNELS;
        &row[start..start + CHANNELS]
    };
    let mut sums = [0u32; CHANNELS];
    for offset in -radius - 1..radius {
        sums.iter_mut().zip(pixel(offset)).for_each(|(sum, &byte)| *sum += u32::from(byte));
    }
    for (at, out) in (0..).zip(out.chunks_exact_mut(CHANNELS)) {
        let (before, entering, after) = (pixel(at - radius - 1), pixel(at + radius), pixel(at + radius + 1));
        for channel in 0..CHANNELS {
            sums[channel] = sums[channel] + u32::from(entering[channel]) - u32::from(before[channel]);
            out[channel] = weighed(sums[channel], before[channel], after[channel], weights);
        }
    }
}
