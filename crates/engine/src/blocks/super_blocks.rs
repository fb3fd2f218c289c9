//! Quantising to super-blocks of 256 values, whose groups have scales (and offsets) that are quantised themselves.
//!
//! For each group, several grids are tried, and each is fitted to the integers that it gives by least squares. Then the scales of all
//! groups are quantised, and for each group the neighbours of its quantised scale and offset are tried as well: what counts is the
//! squared error of the values that will be read.

use half::f16;

use super::BlockFormat;
use super::quantise::{farthest, inverse, put_half, to_zero};

/// Grids that are tried: the range of the values is spread over from one integer less to one more than there are.
const GRIDS: i32 = 20;
/// How often a grid is fitted to its integers, and these chosen again.
const ROUNDS: usize = 3;
/// The largest quantised scale and offset of Q4_K and Q5_K.
const LARGEST_FACTOR: f32 = 63.0;

/// `scale * q - offset`, both not negative.
#[derive(Clone, Copy, Debug, Default)]
struct Line {
    scale: f32,
    offset: f32,
}

impl Line {
    fn integer(self, value: f32, highest: f32) -> f32 {
        ((value + self.offset) * inverse(self.scale)).round().clamp(0.0, highest)
    }

    fn error(self, values: &[f32], highest: f32) -> f32 {
        let difference = |value: f32| self.scale * self.integer(value, highest) - self.offset - value;
        values.iter().map(|&value| difference(value).powi(2)).sum()
    }

    /// The line that fits the values best with the integers that this one gives.
    fn fitted(self, values: &[f32], highest: f32) -> Line {
        let (mut q, mut qq, mut x, mut xq) = (0.0, 0.0, 0.0, 0.0);
        for &value in values {
            let integer = self.integer(value, highest);
            q += integer;
            qq += integer * integer;
            x += value;
            xq += value * integer;
        }
        let count = values.len() as f32;
        let determinant = count * qq - q * q;
        if determinant <= 0.0 {
            return self;
        }
        let offset = (q * xq - qq * x) / determinant;
        match offset > 0.0 {
            true => Line { scale: ((count * xq - q * x) / determinant).max(0.0), offset },
            // Offsets are not negative: the best line through zero.
            false => Line { scale: (xq * inverse(qq)).max(0.0), offset: 0.0 },
        }
    }

    /// The best line for a group.
    fn of(values: &[f32], highest: f32) -> Line {
        let least = values.iter().copied().fold(0.0, f32::min);
        let most = values.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let mut best = Line { scale: (most - least).max(0.0) / highest, offset: -least };
        let mut error = best.error(values, highest);
        for grid in 0..=GRIDS {
            let steps = highest - 1.0 + 2.0 * grid as f32 / GRIDS as f32;
            let mut line = Line { scale: (most - least).max(0.0) / steps, offset: -least };
            for _ in 0..ROUNDS {
                line = line.fitted(values, highest);
            }
            let new = line.error(values, highest);
            if new < error {
                (best, error) = (line, new);
            }
        }
        best
    }
}

/// Q4_K and Q5_K.
pub(super) fn quantise_offset(format: BlockFormat, values: &[f32], to: &mut [u8]) {
    let highest = if format == BlockFormat::Q4K { 15.0 } else { 31.0 };
    let mut lines = [Line::default(); 8];
    lines.iter_mut().zip(values.chunks_exact(32)).for_each(|(line, group)| *line = Line::of(group, highest));
    let half = |largest: f32| f16::from_f32(largest / LARGEST_FACTOR).to_f32();
    let scale = half(lines.iter().map(|line| line.scale).fold(0.0, f32::max));
    let offset = half(lines.iter().map(|line| line.offset).fold(0.0, f32::max));
    put_half(scale, &mut to[..2]);
    put_half(offset, &mut to[2..4]);
    let mut integers = [0u8; 256];
    let (packed, rest) = to[4..].split_at_mut(12);
    to_zero(packed);
    to_zero(rest);
    for (group, (line, values)) in lines.iter().zip(values.chunks_exact(32)).enumerate() {
        let (factor, shift) = best_factors(*line, Line { scale, offset }, values, highest);
        put_six_bits(packed, group, factor as u8, shift as u8);
        let line = Line { scale: scale * factor, offset: offset * shift };
        integers[group * 32..].iter_mut().zip(values).for_each(|(to, &value)| *to = line.integer(value, highest) as u8);
    }
    let low = rest.len() - 128;
    for (index, &integer) in integers.iter().enumerate() {
        rest[low + index / 64 * 32 + index % 32] |= (integer & 15) << (4 * (index / 32 % 2));
        if format == BlockFormat::Q5K {
            rest[index % 32] |= (integer >> 4) << (index / 32);
        }
    }
}

/// The quantised scale and offset of a group: the nearest, or neighbours that leave a smaller error.
fn best_factors(line: Line, unit: Line, values: &[f32], highest: f32) -> (f32, f32) {
    let near = |value: f32, unit: f32| (value * inverse(unit)).round().clamp(0.0, LARGEST_FACTOR);
    let (factor, shift) = (near(line.scale, unit.scale), near(line.offset, unit.offset));
    let mut best = (f32::INFINITY, factor, shift);
    for step in [0.0, -1.0, 1.0] {
        let factor = (factor + step).clamp(0.0, LARGEST_FACTOR);
        for step in [0.0, -1.0, 1.0] {
            let shift = (shift + step).clamp(0.0, LARGEST_FACTOR);
            let line = Line { scale: unit.scale * factor, offset: unit.offset * shift };
            let error = line.error(values, highest);
            if error < best.0 {
                best = (error, factor, shift);
            }
        }
    }
    (best.1, best.2)
}

fn put_six_bits(packed: &mut [u8], group: usize, factor: u8, shift: u8) {
    if group < 4 {
        packed[group] |= factor;
        packed[group + 4] |= shift;
    } else {
        packed[group + 4] = factor & 15 | shift << 4;
        packed[group - 4] |= factor >> 4 << 6;
        packed[group] |= shift >> 4 << 6;
    }
}

/// The integers of Q6_K: from -32 to 31.
fn signed(value: f32, scale: f32) -> f32 {
    (value * inverse(scale)).round().clamp(-32.0, 31.0)
}

fn signed_error(scale: f32, values: &[f32]) -> f32 {
    values.iter().map(|&value| (scale * signed(value, scale) - value).powi(2)).sum()
}

/// The best scale of a group of Q6_K; it may be negative, which makes the range longer on the other side.
fn best_scale(values: &[f32]) -> f32 {
    let farthest = farthest(values);
    let (mut best, mut error) = (0.0, signed_error(0.0, values));
    for grid in -GRIDS / 2..=GRIDS / 2 {
        let mut scale = farthest / -(32.0 + 0.1 * grid as f32);
        for _ in 0..ROUNDS {
            let (xq, qq) = values.iter().fold((0.0, 0.0), |(xq, qq), &value| {
                let integer = signed(value, scale);
                (xq + value * integer, qq + integer * integer)
            });
            scale = xq * inverse(qq);
        }
        let new = signed_error(scale, values);
        if new < error {
            (best, error) = (scale, new);
        }
    }
    best
}

/// Q6_K.
pub(super) fn quantise_q6k(values: &[f32], to: &mut [u8]) {
    let mut scales = [0.0; 16];
    scales.iter_mut().zip(values.chunks_exact(16)).for_each(|(scale, group)| *scale = best_scale(group));
    let unit = f16::from_f32(farthest(&scales) / -128.0).to_f32();
    to_zero(to);
    put_half(unit, &mut to[208..]);
    for (group, (scale, values)) in scales.iter().zip(values.chunks_exact(16)).enumerate() {
        let nearest = (scale * inverse(unit)).round();
        let candidates = [0.0, -1.0, 1.0].map(|step| (nearest + step).clamp(-128.0, 127.0));
        let factor = candidates.into_iter().reduce(|best, other| {
            if signed_error(unit * other, values) < signed_error(unit * best, values) { other } else { best }
        });
        let factor = factor.unwrap_or(nearest);
        to[192 + group] = factor as i8 as u8;
        for (lane, &value) in values.iter().enumerate() {
            let index = group * 16 + lane;
            let integer = (signed(value, unit * factor) + 32.0) as u8;
            let (part, quarter, lane) = (index / 128, index % 128 / 32, index % 32);
            to[64 * part + 32 * (quarter % 2) + lane] |= (integer & 15) << (4 * (quarter / 2));
            to[128 + 32 * part + lane] |= (integer >> 4) << (2 * quarter);
        }
    }
}
