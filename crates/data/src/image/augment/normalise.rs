//! Bytes to the model's input: shifted, flipped and normalised in one pass.

use vitreous_engine::ops::image_draws::Laying;

use super::picture::overlap;
use crate::image::decode::Channels;
use crate::image::preprocess::Table;
use crate::image::view::View;

/// Writes `pixels` channels first to `out`, which has `size` per channel, by one table per channel.
pub(super) fn normalise(pixels: View, laid: Laying, tables: &[Table], size: [usize; 2], out: &mut [f32]) {
    match pixels.channels {
        Channels::Grey => normalise_channels::<1>(pixels, laid, tables, size, out),
        Channels::Rgb => normalise_channels::<3>(pixels, laid, tables, size, out),
    }
}

fn normalise_channels<const CHANNELS: usize>(
    pixels: View,
    laid: Laying,
    tables: &[Table],
    [height, width]: [usize; 2],
    out: &mut [f32],
) {
    let (rows, columns) =
        (overlap(laid.top as isize, pixels.height, height), overlap(laid.left as isize, pixels.width, width));
    let plane = height * width;
    if rows.length < height || columns.length < width {
        for (channel, table) in tables.iter().enumerate() {
            out[channel * plane..][..plane].fill(table[0]);
        }
    }
    let left = if laid.mirrored { width - columns.target - columns.length } else { columns.target };
    for row in 0..rows.length {
        let line = &pixels.row(rows.source + row)[columns.source * CHANNELS..][..columns.length * CHANNELS];
        let (line, _) = line.as_chunks::<CHANNELS>();
        let row = rows.target + row;
        let row = if laid.upside_down { height - 1 - row } else { row };
        for channel in 0..CHANNELS {
            let table = &tables[channel];
            let place = &mut out[channel * plane + row * width + left..][..columns.length];
            let number = |pixel: &[u8; CHANNELS]| table[usize::from(pixel[channel])];
            if laid.mirrored {
                place.iter_mut().zip(line.iter().rev()).for_each(|(out, pixel)| *out = number(pixel));
            } else {
                place.iter_mut().zip(line).for_each(|(out, pixel)| *out = number(pixel));
            }
        }
    }
}
