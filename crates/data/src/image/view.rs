//! A borrowed image, or a part of one.

use crate::image::decode::{Channels, Image};

/// A rectangle of an image, whose rows are `stride` bytes apart.
#[derive(Clone, Copy, Debug)]
pub(crate) struct View<'a> {
    bytes: &'a [u8],
    stride: usize,
    pub height: usize,
    pub width: usize,
    pub channels: Channels,
}

impl<'a> View<'a> {
    pub fn of(image: &'a Image) -> View<'a> {
        View::packed(image.pixels(), [image.height(), image.width()], image.channels())
    }

    /// Rows without gaps.
    pub fn packed(bytes: &'a [u8], [height, width]: [usize; 2], channels: Channels) -> View<'a> {
        View { bytes, stride: width * channels.count(), height, width, channels }
    }

    /// The part of `size` whose first pixel is in row `top` and column `left`; it must be inside.
    pub fn part(self, top: usize, left: usize, [height, width]: [usize; 2]) -> View<'a> {
        debug_assert!(top + height <= self.height && left + width <= self.width);
        let start = (top * self.stride + left * self.channels.count()).min(self.bytes.len());
        View { bytes: &self.bytes[start..], height, width, ..self }
    }

    pub fn size(self) -> [usize; 2] {
        [self.height, self.width]
    }

    /// Writes the pixels without gaps; `bytes` must have just their length.
    pub fn copy_to(self, bytes: &mut [u8]) {
        let rows = bytes.chunks_exact_mut((self.width * self.channels.count()).max(1));
        rows.enumerate().for_each(|(row, to)| to.copy_from_slice(self.row(row)));
    }

    #[inline]
    pub fn row(self, row: usize) -> &'a [u8] {
        &self.bytes[row * self.stride..][..self.width * self.channels.count()]
    }
}
