//! Resizing, equal to Pillow bit for bit.
//!
//! Pillow's `Image.resize` is a separable convolution on bytes: one pass along the rows, one along the columns, rounded to
//! bytes in between. Reducing widens the filter by the factor of reduction, so that each input pixel counts. The weights
//! of one output pixel are normalised in `f64` and then rounded to 22 fractional bits; sums are exact in `i32`:
//! 255 * 2^22 < 2^30 leaves two bits for the negative lobes.
//!
//! Only the requested part of the output (that of a centre crop, say) is computed.

use crate::image::decode::{Channels, Image, LONGEST_SIDE};
use crate::image::error::ImageError;
use crate::image::view::View;

/// A resampling filter, as in Pillow.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Interpolation {
    /// The nearest pixel.
    Nearest,
    /// The mean of the pixels covered.
    Box,
    /// A triangle: linear between pixels.
    Bilinear,
    /// A raised cosine times a sinc, as wide as bilinear and sharper.
    Hamming,
    /// Cubic convolution with a = -1/2 (Catmull-Rom).
    Bicubic,
    /// A sinc windowed by another, three lobes.
    Lanczos,
}

impl Interpolation {
    /// Half the filter's width, in pixels of the coarser image.
    fn support(self) -> f64 {
        match self {
            Interpolation::Nearest => 0.0,
            Interpolation::Box => 0.5,
            Interpolation::Bilinear | Interpolation::Hamming => 1.0,
            Interpolation::Bicubic => 2.0,
            Interpolation::Lanczos => 3.0,
        }
    }

    fn weight(self, offset: f64) -> f64 {
        let x = offset.abs();
        match self {
            Interpolation::Nearest => 0.0,
            // Half open: a pixel on the border of two boxes counts once.
            Interpolation::Box => f64::from(u8::from(offset > -0.5 && offset <= 0.5)),
            Interpolation::Bilinear => (1.0 - x).max(0.0),
            Interpolation::Hamming if x == 0.0 => 1.0,
            Interpolation::Hamming if x >= 1.0 => 0.0,
            Interpolation::Hamming => {
                let x = x * std::f64::consts::PI;
                // The constants are single precision in Pillow, too; about one byte in a million shows it.
                x.sin() / x * (f64::from(0.54_f32) + f64::from(0.46_f32) * x.cos())
            }
            Interpolation::Bicubic => {
                const A: f64 = -0.5;
                if x < 1.0 {
                    ((A + 2.0) * x - (A + 3.0)) * x * x + 1.0
                } else if x < 2.0 {
                    (((x - 5.0) * x + 8.0) * x - 4.0) * A
                } else {
                    0.0
                }
            }
            Interpolation::Lanczos if (-3.0..3.0).contains(&offset) => sinc(offset) * sinc(offset / 3.0),
            Interpolation::Lanczos => 0.0,
        }
    }
}

fn sinc(x: f64) -> f64 {
    if x == 0.0 {
        return 1.0;
    }
    let x = x * std::f64::consts::PI;
    x.sin() / x
}

/// A part of a line: `length` pixels from `start`.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Span {
    pub start: usize,
    pub length: usize,
}

impl Span {
    pub fn whole(length: usize) -> Span {
        Span { start: 0, length }
    }
}

/// Fractional bits of a weight: of 32, eight are the pixel's, one is the sign, one is room for overshoot.
const FRACTION_BITS: u32 = 32 - 8 - 2;
const HALF: i32 = 1 << (FRACTION_BITS - 1);

/// For each output pixel the input pixels it is made of, and their weights.
#[derive(Debug, Default)]
struct Weights {
    /// The first input pixel, and where its weights end in `values`.
    taps: Vec<(usize, usize)>,
    values: Vec<i32>,
    real: Vec<f64>,
}

impl Weights {
    /// Weights that turn `input` pixels into `output`, for the output pixels of `wanted`.
    fn fill(&mut self, interpolation: Interpolation, input: usize, output: usize, wanted: Span) {
        self.taps.clear();
        self.values.clear();
        let scale = input as f64 / output as f64;
        let widening = scale.max(1.0);
        let support = interpolation.support() * widening;
        let narrowing = 1.0 / widening;
        for position in wanted.start..wanted.start + wanted.length {
            let centre = (position as f64 + 0.5) * scale;
            // `as usize` cuts towards zero and takes negative numbers to zero, as the C code's clamp does.
            let first = (centre - support + 0.5) as usize;
            let end = ((centre + support + 0.5) as usize).min(input);
            self.real.clear();
            let offsets = (first..end).map(|x| (x as f64 - centre + 0.5) * narrowing);
            self.real.extend(offsets.map(|offset| interpolation.weight(offset)));
            let mut sum = 0.0;
            for weight in &self.real {
                sum += weight;
            }
            let fixed = |weight: &f64| {
                let share = if sum != 0.0 { weight / sum } else { *weight };
                let scaled = share * f64::from(1 << FRACTION_BITS);
                (scaled + 0.5_f64.copysign(scaled)) as i32
            };
            self.values.extend(self.real.iter().map(fixed));
            self.taps.push((first, self.values.len()));
        }
    }

    /// For each output pixel: the first input pixel and the weights.
    fn iter(&self) -> impl Iterator<Item = (usize, &[i32])> {
        let mut begin = 0;
        self.taps.iter().map(move |&(first, end)| {
            let weights = &self.values[begin..end];
            begin = end;
            (first, weights)
        })
    }

    /// The input pixels that are used.
    fn used(&self) -> Span {
        let start = self.iter().map(|(first, _)| first).min().unwrap_or(0);
        let end = self.iter().map(|(first, weights)| first + weights.len()).max().unwrap_or(0);
        Span { start, length: end.saturating_sub(start) }
    }
}

/// Memory that is reused from one resize to the next.
#[derive(Debug, Default)]
pub(crate) struct ResampleScratch {
    horizontal: Weights,
    vertical: Weights,
    between: Vec<u8>,
    rows: Vec<usize>,
    columns: Vec<usize>,
    pub resized: Vec<u8>,
}

/// The maximum number of bytes of one step of a resize.
const MOST_BYTES: usize = 1 << 30;

/// Resizes `image` to `height` x `width`, as Pillow's `Image.resize` does.
pub fn resize(image: &Image, height: usize, width: usize, interpolation: Interpolation) -> Result<Image, ImageError> {
    let channels = image.channels();
    let mut scratch = ResampleScratch::default();
    let (rows, columns) = (Span::whole(height), Span::whole(width));
    resize_part(View::of(image), [height, width], interpolation, rows, columns, &mut scratch)?;
    Image::new(width, height, channels, scratch.resized)
}

/// Writes the `rows` and `columns` of `image` resized to `size` to `scratch.resized`.
pub(crate) fn resize_part(
    image: View,
    size: [usize; 2],
    interpolation: Interpolation,
    rows: Span,
    columns: Span,
    scratch: &mut ResampleScratch,
) -> Result<(), ImageError> {
    let channels = image.channels;
    let count = channels.count();
    bounded(rows.length, columns.length, count)?;
    let [height, width] = image.size();
    // Equal sizes are copied whatever the filter is.
    if size == [height, width] {
        let part = image.part(rows.start, columns.start, [rows.length, columns.length]);
        scratch.resized.clear();
        (0..part.height).for_each(|row| scratch.resized.extend_from_slice(part.row(row)));
        return Ok(());
    }
    if interpolation == Interpolation::Nearest {
        nearest(image, size, rows, columns, scratch);
        return Ok(());
    }
    let ResampleScratch { horizontal, vertical, between, resized, .. } = scratch;
    horizontal.fill(interpolation, width, size[1], columns);
    vertical.fill(interpolation, height, size[0], rows);
    let whole = Region { pixels: image, top: 0, left: 0 };
    if size[0] == height {
        along_rows(&whole, channels, rows, horizontal, resized);
    } else if size[1] == width {
        along_columns(&whole, count, columns, vertical, resized);
    } else if columns_first([height, width], size) {
        let used = horizontal.used();
        bounded(rows.length, used.length, count)?;
        along_columns(&whole, count, used, vertical, between);
        let pixels = View::packed(between, [rows.length, used.length], channels);
        let part = Region { pixels, top: rows.start, left: used.start };
        along_rows(&part, channels, rows, horizontal, resized);
    } else {
        let used = vertical.used();
        bounded(used.length, columns.length, count)?;
        along_rows(&whole, channels, used, horizontal, between);
        let pixels = View::packed(between, [used.length, columns.length], channels);
        let part = Region { pixels, top: used.start, left: columns.start };
        along_columns(&part, count, columns, vertical, resized);
    }
    Ok(())
}

/// Whether the pass along the columns comes first. The results differ, because bytes are rounded in between. This is
/// Pillow 13's choice, found by comparing its results with those of both orders; older versions took the rows first.
fn columns_first([height, width]: [usize; 2], size: [usize; 2]) -> bool {
    let lost = |from: usize, to: usize| from as i128 - to as i128;
    size[0] < height && lost(height, size[0]) > 2 * lost(width, size[1])
}

fn bounded(height: usize, width: usize, channels: usize) -> Result<(), ImageError> {
    let bytes = height.checked_mul(width).and_then(|pixels| pixels.checked_mul(channels));
    let longest = height.max(width) as u64;
    match bytes {
        Some(bytes) if bytes <= MOST_BYTES && longest <= LONGEST_SIDE => Ok(()),
        _ => Err(ImageError::TooLarge {
            what: "a step of its resizing",
            width: width as u64,
            height: height as u64,
            limit: format!("{} MiB and {LONGEST_SIDE} per side are supported", MOST_BYTES >> 20),
        }),
    }
}

/// Pillow walks along the line in steps of the scale and adds them up, rounding included. A crop from the middle of a
/// very long line starts with a jump instead, to avoid a thousand million steps.
fn nearest_positions(input: usize, output: usize, wanted: Span, positions: &mut Vec<usize>) {
    const LONGEST_WALK: usize = 1 << 20;
    let scale = input as f64 / output as f64;
    let jump = wanted.start.saturating_sub(LONGEST_WALK);
    let mut at = scale * (jump as f64 + 0.5);
    positions.clear();
    for position in jump..wanted.start + wanted.length {
        if position >= wanted.start {
            positions.push((at as usize).min(input - 1));
        }
        at += scale;
    }
}

fn nearest(image: View, size: [usize; 2], rows: Span, columns: Span, scratch: &mut ResampleScratch) {
    let count = image.channels.count();
    let ResampleScratch { rows: source_rows, columns: source_columns, resized, .. } = scratch;
    nearest_positions(image.width, size[1], columns, source_columns);
    nearest_positions(image.height, size[0], rows, source_rows);
    resized.clear();
    for &row in source_rows.iter() {
        let line = image.row(row);
        for &column in source_columns.iter() {
            resized.extend_from_slice(&line[column * count..(column + 1) * count]);
        }
    }
}

fn to_byte(sum: i32) -> u8 {
    (sum >> FRACTION_BITS).clamp(0, 255) as u8
}

/// A part of an image: its first pixel is the one in row `top` and column `left`.
struct Region<'a> {
    pixels: View<'a>,
    top: usize,
    left: usize,
}

impl Region<'_> {
    fn row(&self, row: usize) -> &[u8] {
        self.pixels.row(row - self.top)
    }
}

fn along_rows(region: &Region, channels: Channels, rows: Span, weights: &Weights, out: &mut Vec<u8>) {
    match channels {
        Channels::Grey => along_rows_of::<1>(region, rows, weights, out),
        Channels::Rgb => along_rows_of::<3>(region, rows, weights, out),
    }
}

fn along_rows_of<const CHANNELS: usize>(region: &Region, rows: Span, weights: &Weights, out: &mut Vec<u8>) {
    out.clear();
    out.reserve(rows.length * weights.taps.len() * CHANNELS);
    for row in rows.start..rows.start + rows.length {
        let line = region.row(row);
        for (first, weights) in weights.iter() {
            let pixels = line[(first - region.left) * CHANNELS..].chunks_exact(CHANNELS);
            let mut sums = [HALF; CHANNELS];
            for (pixel, &weight) in pixels.zip(weights) {
                for channel in 0..CHANNELS {
                    sums[channel] += i32::from(pixel[channel]) * weight;
                }
            }
            out.extend(sums.map(to_byte));
        }
    }
}

/// Neighbouring sums are independent of each other, so blocks of them are made at once.
fn along_columns(region: &Region, channels: usize, columns: Span, weights: &Weights, out: &mut Vec<u8>) {
    const BLOCK: usize = 256;
    let (begin, length) = ((columns.start - region.left) * channels, columns.length * channels);
    out.clear();
    out.reserve(weights.taps.len() * length);
    for (first, weights) in weights.iter() {
        for start in (0..length).step_by(BLOCK) {
            let block = BLOCK.min(length - start);
            let mut sums = [HALF; BLOCK];
            for (row, &weight) in (first..).zip(weights) {
                let bytes = &region.row(row)[begin + start..][..block];
                for (sum, &byte) in sums.iter_mut().zip(bytes) {
                    *sum += i32::from(byte) * weight;
                }
            }
            out.extend(sums[..block].iter().map(|&sum| to_byte(sum)));
        }
    }
}
