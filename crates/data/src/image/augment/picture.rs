//! The picture that augmentation works on, in place.

use crate::image::decode::Channels;
use crate::image::view::View;

/// Pixels that are changed step by step. Memory is reused from picture to picture.
#[derive(Debug, Default)]
pub(crate) struct Picture {
    pub(super) height: usize,
    pub(super) width: usize,
    /// Bytes per pixel: 1 or 3.
    pub(super) channels: usize,
    /// Rows from the top, channels interleaved.
    pub(super) bytes: Vec<u8>,
    /// The output of a step that cannot work in place; then both are swapped.
    pub(super) spare: Vec<u8>,
}

impl Picture {
    /// Resets to a picture of this size and one colour.
    pub(super) fn fill(&mut self, [height, width]: [usize; 2], channels: Channels, colour: &[u8]) {
        (self.height, self.width, self.channels) = (height, width, channels.count());
        self.bytes.clear();
        self.bytes.resize(height * width * self.channels, 0);
        if colour.iter().any(|&value| value != 0) {
            self.bytes.chunks_exact_mut(self.channels).for_each(|pixel| pixel.copy_from_slice(colour));
        }
    }

    /// Copies pixels into this picture, from row `top` and column `left` on; what does not fit is cut off.
    pub(super) fn paste(&mut self, pixels: View, top: isize, left: isize) {
        let (rows, columns) = (overlap(top, pixels.height, self.height), overlap(left, pixels.width, self.width));
        let bytes = columns.length * self.channels;
        for row in 0..rows.length {
            let from = &pixels.row(rows.source + row)[columns.source * self.channels..][..bytes];
            let start = ((rows.target + row) * self.width + columns.target) * self.channels;
            self.bytes[start..][..bytes].copy_from_slice(from);
        }
    }

    pub(super) fn view(&self) -> View<'_> {
        let channels = if self.channels == 1 { Channels::Grey } else { Channels::Rgb };
        View::packed(&self.bytes, [self.height, self.width], channels)
    }

    /// Flips horizontally.
    pub(super) fn mirror(&mut self) {
        for row in self.bytes.chunks_exact_mut((self.width * self.channels).max(1)) {
            match self.channels {
                1 => row.reverse(),
                // Reversing the bytes and then those of each pixel reverses the pixels.
                _ => {
                    row.reverse();
                    row.chunks_exact_mut(3).for_each(|pixel| pixel.swap(0, 2));
                }
            }
        }
    }

    /// Flips vertically.
    pub(super) fn turn_upside_down(&mut self) {
        let stride = self.width * self.channels;
        let (upper, lower) = self.bytes.split_at_mut(self.height / 2 * stride);
        for (above, below) in upper.chunks_exact_mut(stride).zip(lower.rchunks_exact_mut(stride)) {
            above.swap_with_slice(below);
        }
    }

    /// Makes `spare` as long as `bytes`; its content is unspecified.
    pub(super) fn prepare_spare(&mut self) {
        self.spare.resize(self.bytes.len(), 0);
    }

    pub(super) fn take_spare(&mut self) {
        std::mem::swap(&mut self.bytes, &mut self.spare);
    }
}

/// The overlap of a line of `length` pixels that begins at `start` with one of `room` pixels.
pub(super) struct Overlap {
    /// The first common pixel, as an index of the line.
    pub source: usize,
    /// The same pixel, as an index of the room.
    pub target: usize,
    pub length: usize,
}

pub(super) fn overlap(start: isize, length: usize, room: usize) -> Overlap {
    let source = start.min(0).unsigned_abs().min(length);
    let target = start.max(0).unsigned_abs().min(room);
    Overlap { source, target, length: (length - source).min(room - target) }
}

/// ITU-R 601 in Pillow's fixed point.
#[inline]
pub(super) fn luma(red: u8, green: u8, blue: u8) -> u8 {
    ((19595 * u32::from(red) + 38470 * u32::from(green) + 7471 * u32::from(blue) + 0x8000) >> 16) as u8
}
