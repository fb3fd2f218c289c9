//! From the components' samples to the image's pixels.

use super::colour::{Colour, convert};
use super::frame::Frame;
use super::upsample::{Plane, Upsampler};

/// Pixels, written from the top as samples are decoded, while these are in the cache.
pub(super) struct Output {
    pub(super) pixels: Vec<u8>,
    colour: Colour,
    row_bytes: usize,
    rows_written: usize,
    /// Rows in an MCU, and how many of them have to wait, because they are interpolated with samples of the next.
    unit_rows: usize,
    held_back: usize,
    upsamplers: Vec<Upsampler>,
}

impl Output {
    pub(super) fn new(frame: &Frame, colour: Colour) -> Output {
        let row_bytes = frame.width * colour.channels();
        let upsamplers = frame.components.iter().map(|component| {
            let (across, down) = (frame.most_across / component.across, frame.most_down / component.down);
            Upsampler::new(component.width, across, down)
        });
        Output {
            pixels: vec![0; row_bytes * frame.height],
            colour,
            row_bytes,
            rows_written: 0,
            unit_rows: 8 * frame.most_down,
            held_back: frame.most_down,
            upsamplers: upsamplers.collect(),
        }
    }

    /// Writes all rows that can be written when the first `units` rows of MCUs are decoded, or all if `units` is beyond the last.
    pub(super) fn write_units(&mut self, planes: &[Plane], units: usize) {
        let rows = self.pixels.len() / self.row_bytes;
        let known = units.saturating_mul(self.unit_rows);
        let end = if known >= rows { rows } else { known - self.held_back };
        for row in self.rows_written..end {
            let out = &mut self.pixels[row * self.row_bytes..][..self.row_bytes];
            let mut components: [&[u8]; 4] = [&[]; 4];
            for ((component, upsampler), plane) in components.iter_mut().zip(&mut self.upsamplers).zip(planes) {
                *component = upsampler.row(plane, row);
            }
            convert(self.colour, &components[..planes.len()], out);
        }
        self.rows_written = self.rows_written.max(end);
    }
}
