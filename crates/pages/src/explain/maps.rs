//! Maps of numbers over an image, as pictures.

use crate::{colour, rgba_uri};
use vitreous_data::image::{Channels, Image, ImageError, Interpolation, font, resize};
use vitreous_models::Size;

/// The opacity of a map over the image where it is strongest. Elsewhere it is in proportion, so that what gets no weight stays
/// visible.
pub const OPACITY: f32 = 0.85;
/// Rollouts are drawn up to this percentile: single patches, often of the background, otherwise outshine all others.
pub const ROLLOUT_PERCENTILE: f64 = 99.0;
/// Small images are enlarged to at least this width in files.
const LEAST_WIDTH: usize = 224;
const PAPER: [u8; 3] = [250, 250, 248];
const INK: [u8; 3] = [32, 34, 38];
/// Between the tiles of a sheet, and around all.
const GAP: usize = 4;
/// The width that a sheet should not exceed, and what its tiles may be.
const SHEET_WIDTH: usize = 1600;
const TILE: std::ops::RangeInclusive<usize> = 40..=128;

/// The range of values that a map's colours and opacity cover.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Scale {
    /// Nothing to be seen at this value, and below.
    pub low: f32,
    /// Full colour at this value, and above.
    pub high: f32,
}

impl Scale {
    /// From the smallest to the largest finite value.
    pub fn of(values: &[f32]) -> Scale {
        let finite = values.iter().copied().filter(|value| value.is_finite());
        let ends = finite.map(|value| (value, value)).reduce(|a, b| (a.0.min(b.0), a.1.max(b.1)));
        let (low, high) = ends.unwrap_or((0.0, 0.0));
        Scale { low, high }
    }

    /// From the smallest finite value to a percentile of them.
    pub fn up_to(values: &[f32], percent: f64) -> Scale {
        let mut finite: Vec<f32> = values.iter().copied().filter(|value| value.is_finite()).collect();
        finite.sort_by(f32::total_cmp);
        let low = finite.first().copied().unwrap_or(0.0);
        Scale { low, high: percentile(&finite, percent).max(low) }
    }

    /// Where a value lies between the ends, from 0 to 1. Where both ends are equal, there is nothing to see: 0.
    pub fn share(self, value: f32) -> f32 {
        match self.high > self.low {
            true => ((value - self.low) / (self.high - self.low)).clamp(0.0, 1.0),
            false => 0.0,
        }
    }
}

/// A percentile of sorted values, interpolated linearly between the two nearest (NumPy's default); 0 if there are none.
fn percentile(sorted: &[f32], percent: f64) -> f32 {
    let Some(last) = sorted.len().checked_sub(1) else { return 0.0 };
    let place = (percent / 100.0).clamp(0.0, 1.0) * last as f64;
    let below = place.floor() as usize;
    let (low, high) = (f64::from(sorted[below]), f64::from(sorted[(below + 1).min(last)]));
    (low + (high - low) * (place - below as f64)) as f32
}

/// A map as a picture of one pixel per patch, the smallest value dark and the largest bright.
pub fn heat(grid: Size, values: &[f32], scale: Scale) -> Result<Image, ImageError> {
    let pixels = values.iter().flat_map(|&value| colour::sequential(scale.share(value))).collect();
    Image::new(grid.width, grid.height, Channels::Rgb, pixels)
}

/// The same as a data address, with an opacity that follows the value.
pub fn veil_uri(grid: Size, values: &[f32], scale: Scale) -> Result<String, ImageError> {
    let pixel = |&value: &f32| {
        let share = scale.share(value);
        let [red, green, blue] = colour::sequential(share);
        [red, green, blue, (255.0 * share).round() as u8]
    };
    rgba_uri(grid.width, grid.height, &values.iter().flat_map(pixel).collect::<Vec<u8>>())
}

/// A map over the image, one colour per patch, with an opacity that follows the value. The image is grey below it, so that all
/// colour is the map's.
pub fn overlay(seen: &Image, grid: Size, values: &[f32], scale: Scale) -> Result<Image, ImageError> {
    let (width, height) = (seen.width(), seen.height());
    let heat = resize(&heat(grid, values, scale)?, height, width, Interpolation::Nearest)?;
    let shares = values.iter().map(|&value| (255.0 * scale.share(value)).round() as u8).collect();
    let shares = Image::new(grid.width, grid.height, Channels::Grey, shares)?;
    let shares = resize(&shares, height, width, Interpolation::Nearest)?;
    let below = seen.clone().with_channels(Channels::Grey);
    let pixels = below.pixels().iter().zip(shares.pixels()).zip(heat.pixels().chunks_exact(3));
    let mixed = pixels.flat_map(|((&below, &share), above)| {
        let opacity = OPACITY * f32::from(share) / 255.0;
        [0, 1, 2].map(|at| (f32::from(below) * (1.0 - opacity) + f32::from(above[at]) * opacity).round() as u8)
    });
    Image::new(width, height, Channels::Rgb, mixed.collect())
}

/// The scores of the first three principal components as red, green and blue, one pixel per patch. Each is scaled from its
/// smallest value to its largest.
pub fn components(grid: Size, scores: &[[f32; 3]]) -> Result<Image, ImageError> {
    let scales = [0, 1, 2].map(|place| Scale::of(&scores.iter().map(|patch| patch[place]).collect::<Vec<_>>()));
    let byte = |(scale, &score): (&Scale, &f32)| (255.0 * scale.share(score)).round() as u8;
    let pixels = scores.iter().flat_map(|patch| scales.iter().zip(patch).map(byte)).collect();
    Image::new(grid.width, grid.height, Channels::Rgb, pixels)
}

/// No image is enlarged beyond so many rows.
const MOST_HEIGHT: usize = 4096;

/// The image at a size that people can look at: small ones are enlarged, pixel by pixel.
pub fn enlarged(seen: &Image) -> Result<Image, ImageError> {
    // A tall and narrow image is not made taller than people look at.
    let times = LEAST_WIDTH.div_ceil(seen.width()).min(MOST_HEIGHT / seen.height()).max(1);
    resize(seen, seen.height() * times, seen.width() * times, Interpolation::Nearest)
}

/// The image with lines between its patches.
pub fn with_grid(seen: &Image, grid: Size) -> Result<Image, ImageError> {
    let large = enlarged(seen)?.with_channels(Channels::Rgb);
    let (width, height) = (large.width(), large.height());
    let (down, across) = ((height / grid.height).max(1), (width / grid.width).max(1));
    let mut pixels = large.into_pixels();
    for (place, pixel) in pixels.chunks_exact_mut(3).enumerate() {
        let (row, column) = (place / width, place % width);
        if (row > 0 && row.is_multiple_of(down)) || (column > 0 && column.is_multiple_of(across)) {
            pixel.iter_mut().for_each(|byte| *byte = ((u16::from(*byte) + 2 * 255) / 3) as u8);
        }
    }
    Image::new(width, height, Channels::Rgb, pixels)
}

/// A row of maps, with its name.
pub struct SheetRow {
    /// Its name, in front of it.
    pub name: String,
    /// One map per column.
    pub maps: Vec<Vec<f32>>,
}

/// Rows and columns of maps over the image, named in front and above.
pub fn sheet(seen: &Image, grid: Size, columns: &[String], rows: &[SheetRow]) -> Result<Image, ImageError> {
    let margin = rows.iter().map(|row| font::width(&row.name)).max().unwrap_or(0) + 2 * GAP;
    let room = SHEET_WIDTH.saturating_sub(margin) / columns.len().max(1);
    // Whole pixels for every patch, where the tile has room for them.
    let wide = room.saturating_sub(GAP).clamp(*TILE.start(), *TILE.end());
    let wide = if wide >= grid.width { wide / grid.width * grid.width } else { wide };
    let tall = (wide * seen.height() / seen.width()).max(1);
    let small =
        resize(seen, tall, wide, if seen.width() < wide { Interpolation::Nearest } else { Interpolation::Box })?;
    let top = font::HEIGHT + 2 * GAP;
    // The last name may be longer than its tile is wide.
    let last = columns.last().map_or(0, |name| font::width(name) + GAP).max(wide + GAP);
    let width = margin + columns.len().saturating_sub(1) * (wide + GAP) + last;
    let mut board = Board::new(width, top + rows.len() * (tall + GAP));
    for (place, name) in columns.iter().enumerate() {
        board.text(GAP, margin + place * (wide + GAP), name);
    }
    for (line, row) in rows.iter().enumerate() {
        let top = top + line * (tall + GAP);
        board.text(top + tall.saturating_sub(font::HEIGHT) / 2, GAP, &row.name);
        for (place, map) in row.maps.iter().enumerate() {
            board.picture(top, margin + place * (wide + GAP), &overlay(&small, grid, map, Scale::of(map))?);
        }
    }
    board.finish()
}

/// Paper to put pictures and letters on. What does not fit is cut off.
pub struct Board {
    width: usize,
    height: usize,
    pixels: Vec<u8>,
}

impl Board {
    /// Empty paper.
    pub fn new(width: usize, height: usize) -> Board {
        Board::of_colour(width, height, PAPER)
    }

    /// Paper of another colour.
    pub fn of_colour(width: usize, height: usize, colour: [u8; 3]) -> Board {
        Board { width, height, pixels: colour.repeat(width * height) }
    }

    fn put(&mut self, row: usize, column: usize, colour: [u8; 3]) {
        if row < self.height && column < self.width {
            self.pixels[(row * self.width + column) * 3..][..3].copy_from_slice(&colour);
        }
    }

    /// A text in one line.
    pub fn text(&mut self, top: usize, left: usize, text: &str) {
        font::draw(text, |row, column| self.put(top + row, left + column, INK));
    }

    /// A picture, grey or coloured.
    pub fn picture(&mut self, top: usize, left: usize, picture: &Image) {
        let count = picture.channels().count();
        for (place, pixel) in picture.pixels().chunks_exact(count).enumerate() {
            let colour = [pixel[0], pixel[count / 2], pixel[count - 1]];
            self.put(top + place / picture.width(), left + place % picture.width(), colour);
        }
    }

    /// What was drawn.
    pub fn finish(self) -> Result<Image, ImageError> {
        Image::new(self.width, self.height, Channels::Rgb, self.pixels)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn values_that_are_not_finite_do_not_spoil_a_map() {
        assert_eq!(Scale::of(&[2.0, f32::NAN, -1.0, f32::INFINITY]), Scale { low: -1.0, high: 2.0 });
        assert_eq!(Scale::of(&[f32::NAN]), Scale { low: 0.0, high: 0.0 });
        let flat = heat(Size { height: 1, width: 2 }, &[3.0, 3.0], Scale::of(&[3.0, 3.0])).expect("a picture");
        assert_eq!(flat.pixels()[..3], colour::sequential(0.0));
    }

    #[test]
    fn percentiles_are_numpys() {
        // numpy.percentile([1, 2, 3, 4], [0, 50, 99, 100]) and of one value.
        let values = [1.0, 2.0, 3.0, 4.0];
        assert_eq!([0.0, 50.0, 99.0, 100.0].map(|percent| percentile(&values, percent)), [1.0, 2.5, 3.97, 4.0]);
        assert_eq!((percentile(&[7.0], 99.0), percentile(&[], 99.0)), (7.0, 0.0));
        // One patch that outshines 199 others no longer sets the scale.
        let mut values: Vec<f32> = (0..200).map(|value| value as f32).collect();
        values[0] = 1e6;
        assert_eq!(Scale::up_to(&values, ROLLOUT_PERCENTILE), Scale { low: 1.0, high: 198.01 });
        assert_eq!(Scale::up_to(&values, ROLLOUT_PERCENTILE).share(1e6), 1.0);
    }

    #[test]
    fn a_map_lies_where_its_patches_lie_and_leaves_the_rest_of_the_image_as_it_is() {
        let seen = Image::new(6, 2, Channels::Grey, vec![100; 12]).expect("an image");
        let values = [0.0, 0.5, 1.0];
        let picture = overlay(&seen, Size { height: 1, width: 3 }, &values, Scale::of(&values)).expect("a picture");
        let pixels: Vec<&[u8]> = picture.pixels().chunks_exact(3).collect();
        assert!(pixels[0] == [100; 3] && pixels[1] == [100; 3] && pixels[6] == [100; 3]);
        let strong = colour::sequential(1.0).map(|byte| (100.0 * 0.15 + f32::from(byte) * 0.85).round() as u8);
        assert!(pixels[4] == strong && pixels[11] == strong && pixels[2] != [100; 3] && pixels[2] != strong);
    }

    #[test]
    fn components_become_colours() {
        let scores = [[-1.0, 5.0, 0.0], [0.0, 5.0, 2.0], [1.0, 5.0, 1.0]];
        let picture = components(Size { height: 1, width: 3 }, &scores).expect("a picture");
        assert_eq!(picture.pixels(), [0, 0, 0, 128, 0, 255, 255, 0, 128]);
    }
}
