//! The picture that augmentation works on: bytes that change in place.

use crate::image::decode::Channels;
use crate::image::view::View;

/// Pixels that one step after the other changes. Memory is kept from picture to picture.
#[derive(Debug, Default)]
pub(crate) struct Picture {
    pub(super) height: usize,
    pub(super) width: usize,
    /// Bytes a pixel: 1 or 3.
    pub(super) channels: usize,
    /// Rows from the top, a pixel's channels side by side.
    pub(super) bytes: Vec<u8>,
    /// Where a step writes that cannot work in place; then both are exchanged.
    pub(super) spare: Vec<u8>,
}

impl Picture {
    /// Becomes a picture of this size, filled with one colour.
    pub(super) fn fill(&mut self, [height, width]: [usize; 2], channels: Channels, colour: &[u8]) {
        (self.height, self.width, self.channels) = (height, width, channels.count());
        self.bytes.clear();
        self.bytes.resize(height * width * self.channels, 0);
        if colour.iter().any(|&value| value != 0) {
            self.bytes.chunks_exact_mut(self.channels).for_each(|pixel| pixel.copy_from_slice(colour));
        }
    }

    /// Puts pixels into this picture, the first of them in row `top` and column `left`; what does not fit is left out.
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

    /// Exchanges left and right.
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

    /// Exchanges top and bottom.
    pub(super) fn turn_upside_down(&mut self) {
        let stride = self.width * self.channels;
        let (upper, lower) = self.bytes.split_at_mut(self.height / 2 * stride);
        for (above, below) in upper.chunks_exact_mut(stride).zip(lower.rchunks_exact_mut(stride)) {
            above.swap_with_slice(below);
        }
    }

    /// Makes `spare` as long as `bytes`, with whatever is in it.
    pub(super) fn prepare_spare(&mut self) {
        self.spare.resize(self.bytes.len(), 0);
    }

    pub(super) fn take_spare(&mut self) {
        std::mem::swap(&mut self.bytes, &mut self.spare);
    }
}

/// What a line of `length` pixels that begins at `start` has in common with one of `room` pixels.
pub(super) struct Overlap {
    /// The first common pixel, counted in the line.
    pub source: usize,
    /// The same pixel, counted in the room.
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
