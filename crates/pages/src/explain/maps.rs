//! Maps of numbers over an image, as pictures.

use crate::colour;
use vitreous_data::image::{Channels, Image, ImageError, Interpolation, font, resize};
use vitreous_models::Size;

/// How strongly a map covers the image below it.
pub const OPACITY: f32 = 0.65;
/// Small images are enlarged to at least this width in files.
const LEAST_WIDTH: usize = 224;
const PAPER: [u8; 3] = [250, 250, 248];
const INK: [u8; 3] = [32, 34, 38];
/// Between the tiles of a sheet, and around all.
const GAP: usize = 4;
/// The width that a sheet should not exceed, and what its tiles may be.
const SHEET_WIDTH: usize = 1600;
const TILE: std::ops::RangeInclusive<usize> = 40..=128;

/// The smallest and the largest number; what is no number does not count.
pub fn range(values: &[f32]) -> [f32; 2] {
    let finite = values.iter().copied().filter(|value| value.is_finite());
    let [low, high] =
        finite.fold([f32::INFINITY, f32::NEG_INFINITY], |[low, high], value| [low.min(value), high.max(value)]);
    if low <= high { [low, high] } else { [0.0, 0.0] }
}

/// Where a number lies between two others, from 0 to 1. Where all are equal, there is nothing to see: 0.
pub fn share(value: f32, [low, high]: [f32; 2]) -> f32 {
    if high > low { (value - low) / (high - low) } else { 0.0 }
}

/// A map as a picture of a pixel a patch, the smallest dark and the largest bright.
pub fn heat(grid: Size, values: &[f32]) -> Result<Image, ImageError> {
    let range = range(values);
    let pixels = values.iter().flat_map(|&value| colour::sequential(share(value, range))).collect();
    Image::new(grid.width, grid.height, Channels::Rgb, pixels)
}

/// A map over the image, each patch in one colour. The image is grey below it: otherwise the map's colours would mix with the
/// image's, and no longer be those of the scale.
pub fn overlay(seen: &Image, grid: Size, values: &[f32]) -> Result<Image, ImageError> {
    let (width, height) = (seen.width(), seen.height());
    let heat = resize(&heat(grid, values)?, height, width, Interpolation::Nearest)?;
    let seen = seen.clone().with_channels(Channels::Grey);
    let below = seen.pixels().iter().flat_map(|&byte| [faint(byte); 3]);
    let mix = |(below, &above): (f32, &u8)| (below * (1.0 - OPACITY) + f32::from(above) * OPACITY).round() as u8;
    Image::new(width, height, Channels::Rgb, below.zip(heat.pixels()).map(mix).collect())
}

/// Grey below a map: neither black nor white, so that colours stay what they are on dark and on bright images. The page's style
/// says the same as `contrast(.65) brightness(1.15)`.
fn faint(byte: u8) -> f32 {
    (((f32::from(byte) - 127.5) * 0.65 + 127.5) * 1.15).min(255.0)
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
    /// What stands in front of it.
    pub name: String,
    /// A map a column.
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
            board.picture(top, margin + place * (wide + GAP), &overlay(&small, grid, map)?);
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
    fn what_is_no_number_does_not_spoil_a_map() {
        assert_eq!(range(&[2.0, f32::NAN, -1.0, f32::INFINITY]), [-1.0, 2.0]);
        assert_eq!(range(&[f32::NAN]), [0.0, 0.0]);
        let flat = heat(Size { height: 1, width: 2 }, &[3.0, 3.0]).expect("a picture");
        assert_eq!(flat.pixels()[..3], colour::sequential(0.0));
    }

    #[test]
    fn a_map_lies_where_its_patches_lie() {
        let seen = Image::new(6, 2, Channels::Grey, vec![0; 12]).expect("an image");
        let picture = overlay(&seen, Size { height: 1, width: 3 }, &[0.0, 0.0, 1.0]).expect("a picture");
        let brightness: Vec<u32> =
            picture.pixels().chunks_exact(3).map(|pixel| pixel.iter().map(|&byte| u32::from(byte)).sum()).collect();
        assert!(brightness[3] < brightness[4] && brightness[4] == brightness[5] && brightness[5] == brightness[11]);
    }
}
