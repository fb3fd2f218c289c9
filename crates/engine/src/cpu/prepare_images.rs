//! Converts the bytes of images to floats. Each value is computed independently, and so is its partner's: there are no
//! intermediates.

use super::kernel::Kernel;
use super::team::Team;
use crate::ops::PrepareImages;
use crate::ops::image_draws::{Area, ImageDraws, Laying, Mixing};
use crate::random::Stream;

/// A stored image and its augmentation parameters before mixing.
struct Picture<'a> {
    op: &'a PrepareImages,
    bytes: &'a [u8],
    table: &'a [f32],
    laying: Laying,
    draws: ImageDraws<'a>,
}

/// Each tile is one image.
pub(super) fn prepare_images(kernel: &Kernel, team: &mut Team, op: &PrepareImages) {
    let bytes: &[u8] = bytemuck::cast_slice(kernel.input_i32(0));
    let (draws, table) = (kernel.input_i32(1), kernel.input_f32(2));
    let output = kernel.output_raw::<f32>(0);
    let batch = kernel.input_type(0).shape.axes()[0];
    let PrepareImages { channels, height, width, .. } = *op;
    let numbers = channels * height * width;
    let picture = |sample: usize| {
        let draws = ImageDraws::new(&draws[sample * op.draws_length()..][..op.draws_length()], channels);
        let bytes = &bytes[4 * sample * op.pixel_words()..][..numbers];
        Picture { op, bytes, table, laying: draws.laying(), draws }
    };
    team.run(batch, &|sample, _| {
        let (own, partner) = (picture(sample), picture(batch - 1 - sample));
        let mixing = own.draws.mixing();
        // SAFETY: each tile writes its own image.
        let out = unsafe { output.range(sample * numbers..(sample + 1) * numbers) };
        for (place, out) in out.iter_mut().enumerate() {
            let (channel, row, column) = (place / width / height, place / width % height, place % width);
            *out = match mixing {
                Mixing::Nothing => own.number(channel, row, column),
                Mixing::Blend { own: share, partner: rest } => {
                    own.number(channel, row, column) * share + partner.number(channel, row, column) * rest
                }
                Mixing::Paste(area) => {
                    let shown = if area.contains(row, column) { &partner } else { &own };
                    shown.number(channel, row, column)
                }
            };
        }
    });
}

impl Picture<'_> {
    /// One value of the image, before mixing.
    fn number(&self, channel: usize, row: usize, column: usize) -> f32 {
        // Boxes are erased one after the other: the last one wins.
        for index in (0..self.draws.boxes()).rev() {
            let area = self.draws.area(index);
            if area.contains(row, column) {
                let start = self.draws.noise_start(index);
                return match self.op.noise {
                    true => noise(self.draws.stream(), start, area, [channel, row, column]),
                    false => self.draws.colour(index, channel),
                };
            }
        }
        let PrepareImages { channels, height, width, .. } = *self.op;
        let row = if self.laying.upside_down { height - 1 - row } else { row };
        let column = if self.laying.mirrored { width - 1 - column } else { column };
        let stored = |at: usize, shift: i32, length: usize| {
            usize::try_from(at as i64 - i64::from(shift)).ok().filter(|&at| at < length)
        };
        let byte = match (stored(row, self.laying.top, height), stored(column, self.laying.left, width)) {
            (Some(row), Some(column)) => self.bytes[(row * width + column) * channels + channel],
            _ => 0,
        };
        self.table[channel * 256 + usize::from(byte)]
    }
}

/// One noise value of a box, which is drawn row by row, two numbers from two words.
fn noise(stream: Stream, start: u64, area: Area, [channel, row, column]: [usize; 3]) -> f32 {
    // The pixel lies in the area, so both are at least 0.
    let (row, column) = ((row as i64 - i64::from(area.top)) as u64, (column as i64 - i64::from(area.left)) as u64);
    let words_a_row = 2 * (area.width as u64).div_ceil(2);
    let lines = (channel as u64).wrapping_mul(area.height as u64).wrapping_add(row);
    let word = start.wrapping_add(lines.wrapping_mul(words_a_row)).wrapping_add(column / 2 * 2);
    // 24 bits, at least 2^-24 and at most 1, so that the logarithm is finite.
    let unit = |bits: u32| ((bits >> 8) + 1) as f32 / (1u32 << 24) as f32;
    // The offset is even: both words are in one block.
    let (words, first) = (stream.four(word / 4), (word % 4 / 2 * 2) as usize);
    let radius = (-2.0 * unit(words[first]).ln()).sqrt();
    let (sine, cosine) = (std::f32::consts::TAU * unit(words[first + 1])).sin_cos();
    radius * if column.is_multiple_of(2) { cosine } else { sine }
}
