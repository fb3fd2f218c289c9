//! What a model looks like by itself: its positions, and the filters of its patch embedding.

use std::fmt::Write;

use crate::{colour, escape, image};
use vitreous_data::image::{Channels, Image, ImageError, Interpolation, resize};
use vitreous_explain::{Filter, ModelPictures, PositionPictures};
use vitreous_models::Size;

use super::maps::{Board, range, share};

/// The longest side, in patches, of the outer grid of similarities: of larger ones only some are drawn.
const MOST_GRIDS: usize = 24;
/// About how many pixels the picture of similarities is wide; what lies between its grids, in a colour for light and dark.
const SIMILARITY_WIDTH: usize = 700;
const WIDEST_GAP: usize = 4;
const BETWEEN: [u8; 3] = [160, 164, 170];
/// The share of the table's numbers, by size, that its colours tell apart: a few are often far larger than all others.
const TOLD_APART: f64 = 0.99;
/// Rows and columns of the table of positions that are drawn at most.
const MOST_ROWS: usize = 400;
const MOST_COLUMNS: usize = 1024;
/// Pixels of a sheet for each of a filter, and filters in its row.
const FILTER_SCALE: usize = 4;
const FILTERS_A_ROW: usize = 7;

/// The pictures of a model, made once for all pages.
pub struct Own {
    /// How alike positions are: a grid of grids.
    pub similarity: Option<Image>,
    /// The table of positions.
    pub table: Option<Image>,
    /// Principal filters, the largest first.
    pub filters: Vec<Image>,
    /// HTML of all that.
    pub html: String,
}

impl Own {
    /// Draws them. `channels` are those of the model's images.
    pub fn draw(pictures: &ModelPictures, channels: usize) -> Result<Own, ImageError> {
        let (grid, patch) = (pictures.layout.grid, pictures.layout.patch);
        let filters = pictures.filters.iter().map(|filter| draw_filter(filter, patch, channels));
        let mut own =
            Own { similarity: None, table: None, filters: filters.collect::<Result<_, _>>()?, html: String::new() };
        if let Some(positions) = &pictures.positions {
            own.similarity = Some(draw_similarity(&positions.similarity, grid)?);
            own.table = Some(draw_table(positions)?);
            own.describe_positions(positions, grid)?;
        } else {
            own.html.push_str("<p class=\"note\">This model has no position embeddings.</p>");
        }
        own.describe_filters(pictures)?;
        Ok(own)
    }

    /// The filters on one sheet.
    pub fn filter_sheet(&self) -> Result<Option<Image>, ImageError> {
        let Some(first) = self.filters.first() else { return Ok(None) };
        let (wide, tall) = (first.width() * FILTER_SCALE + 4, first.height() * FILTER_SCALE + 4);
        let columns = self.filters.len().min(FILTERS_A_ROW);
        let mut board = Board::new(columns * wide + 4, self.filters.len().div_ceil(columns) * tall + 4);
        for (place, filter) in self.filters.iter().enumerate() {
            let (height, width) = (filter.height() * FILTER_SCALE, filter.width() * FILTER_SCALE);
            let large = resize(filter, height, width, Interpolation::Nearest)?;
            board.picture(4 + place / columns * tall, 4 + place % columns * wide, &large);
        }
        board.finish().map(Some)
    }

    fn describe_positions(&mut self, positions: &PositionPictures, grid: Size) -> Result<(), ImageError> {
        let [low, high] = range(&positions.similarity);
        let kind = match positions.learned {
            true => {
                "learned: a bright spot that wanders with the patch, often with traces of its row and column, tells that the \
                     model has understood the plane"
            }
            false => {
                "made of sines and cosines: the bright spot that wanders with the patch comes from their formula and not \
                      from training"
            }
        };
        let mut html = String::new();
        let _ = write!(
            html,
            "<h3>How alike positions are</h3><p>Each small square belongs to one patch and stands where that patch lies in the \
             image. It shows the cosine similarity of that patch's position embedding to those of all {} patches: the brighter, \
             the more alike. Positions of this model are {kind} (as in figure 7 of “An image is worth 16x16 words”, Dosovitskiy et \
             al., 2021).</p>",
            grid.height * grid.width
        );
        if let Some(picture) = &self.similarity {
            let text = format!(
                "A grid of {grid} maps; each shows how alike the position of one patch is to that of every patch, from {low:.2} to {high:.2}."
            );
            html.push_str(&image(picture, &text, "similarity")?);
            html.push_str(&legend(low, high));
            if grid.height.max(grid.width) > MOST_GRIDS {
                let step = step_of(grid);
                let _ = write!(html, "<p class=\"note\">Only every {step}th row and column of patches is drawn.</p>");
            }
        }
        if let Some(picture) = &self.table {
            let (rows, dim) = (positions.rows, positions.table.len() / positions.rows.max(1));
            let (usual, largest) = (usual_size(&positions.table), largest_of(&positions.table));
            let _ = write!(
                html,
                "<h3>The table of positions</h3><p>What is added to the tokens, one row a token (the first at the top), one \
                 column for each of {dim} numbers. Blue is below zero, orange above; colours are full from ±{} on, the largest is {}. Sines and cosines show \
                 as waves, fast on one side and slow on the other; learned tables show what training made of them.</p>",
                number(usual),
                number(largest)
            );
            let text = format!("Heat map of the {rows} x {dim} numbers of the position embeddings.");
            let _ = write!(html, "<div class=\"scroll\">{}</div>", image(picture, &text, "pixels table")?);
            let (drawn, across) = (picture.height(), picture.width());
            if drawn < rows || across < dim {
                let _ = write!(
                    html,
                    "<p class=\"note\">{drawn} of {rows} rows and {across} of {dim} columns are drawn, evenly chosen.</p>"
                );
            }
        }
        self.html.push_str(&html);
        Ok(())
    }

    fn describe_filters(&mut self, pictures: &ModelPictures) -> Result<(), ImageError> {
        if self.filters.is_empty() {
            return Ok(());
        }
        let patch = pictures.layout.patch;
        let _ = write!(
            self.html,
            "<h3>What the patch embedding looks for</h3><p>The first thing the model does is to compare each patch of {patch} \
             pixels with its filters. These are their principal components, the patterns along which the filters differ most, \
             with the share of the variance that each explains. Trained models often show smooth waves, edges and colours here, \
             untrained ones noise; but some that are trained well show fine patterns that look like noise, too.</p><div class=\"filters\">"
        );
        for (place, (filter, picture)) in pictures.filters.iter().zip(&self.filters).enumerate() {
            let share = 100.0 * filter.share;
            let text =
                format!("Principal component {} of the patch embedding, {share:.1} % of the variance", place + 1);
            let caption = escape(&format!("{share:.1} %"));
            let picture = image(picture, &text, "pixels")?;
            let _ = write!(self.html, "<figure>{picture}<figcaption>{caption}</figcaption></figure>");
        }
        self.html.push_str("</div>");
        Ok(())
    }
}

/// A bar from the smallest to the largest number of a scale.
pub fn legend(low: f32, high: f32) -> String {
    format!(
        "<div class=\"legend\"><span>{}</span><span class=\"scale\"></span><span>{}</span></div>",
        number(low),
        number(high)
    )
}

/// A number in few letters: three digits that count.
pub fn number(value: f32) -> String {
    let size = value.abs();
    if size == 0.0 || !(0.001..100_000.0).contains(&size) {
        return if size == 0.0 { "0".to_string() } else { format!("{value:.1e}") };
    }
    let decimals = (2 - size.log10().floor() as i32).max(0) as usize;
    let text = format!("{value:.decimals$}");
    if decimals == 0 { text } else { text.trim_end_matches('0').trim_end_matches('.').to_string() }
}

fn largest_of(numbers: &[f32]) -> f32 {
    let [low, high] = range(numbers);
    high.max(-low)
}

/// The size below which nearly all numbers are.
fn usual_size(numbers: &[f32]) -> f32 {
    let mut sizes: Vec<f32> = numbers.iter().map(|number| number.abs()).filter(|size| size.is_finite()).collect();
    if sizes.is_empty() {
        return f32::MIN_POSITIVE;
    }
    let place = ((sizes.len() - 1) as f64 * TOLD_APART) as usize;
    let (_, usual, _) = sizes.select_nth_unstable_by(place, f32::total_cmp);
    usual.max(f32::MIN_POSITIVE)
}

fn step_of(grid: Size) -> usize {
    grid.height.max(grid.width).div_ceil(MOST_GRIDS)
}

fn draw_similarity(similarity: &[f32], grid: Size) -> Result<Image, ImageError> {
    let (step, scale) = (step_of(grid), range(similarity));
    let shown = |count: usize| (0..count).step_by(step);
    let (down, across) = (shown(grid.height).len(), shown(grid.width).len());
    let times = (SIMILARITY_WIDTH / (across * (grid.width + 1))).max(1);
    let gap = times.min(WIDEST_GAP);
    let (tall, wide) = (grid.height * times, grid.width * times);
    let mut board = Board::of_colour(across * (wide + gap) - gap, down * (tall + gap) - gap, BETWEEN);
    let patches = grid.height * grid.width;
    for (top, row) in shown(grid.height).enumerate() {
        for (left, column) in shown(grid.width).enumerate() {
            let of = &similarity[(row * grid.width + column) * patches..][..patches];
            let pixels = of.iter().flat_map(|&value| colour::sequential(share(value, scale))).collect();
            let picture = Image::new(grid.width, grid.height, Channels::Rgb, pixels)?;
            let picture = resize(&picture, tall, wide, Interpolation::Nearest)?;
            board.picture(top * (tall + gap), left * (wide + gap), &picture);
        }
    }
    board.finish()
}

fn draw_table(positions: &PositionPictures) -> Result<Image, ImageError> {
    let rows = positions.rows.max(1);
    let dim = positions.table.len() / rows;
    let usual = usual_size(&positions.table);
    let (drawn, across) = (rows.min(MOST_ROWS), dim.min(MOST_COLUMNS));
    let mut pixels = Vec::with_capacity(drawn * across * 3);
    for row in 0..drawn {
        let line = &positions.table[row * rows / drawn * dim..][..dim];
        pixels.extend((0..across).flat_map(|column| colour::diverging(line[column * dim / across] / usual)));
    }
    Image::new(across, drawn, Channels::Rgb, pixels)
}

/// Grey stands for 0.
fn draw_filter(filter: &Filter, patch: Size, channels: usize) -> Result<Image, ImageError> {
    let largest = largest_of(&filter.pixels).max(f32::MIN_POSITIVE);
    let plane = patch.height * patch.width;
    let colours = Channels::from_count(channels).unwrap_or(Channels::Grey);
    let count = colours.count();
    let byte = |at: usize| {
        let value = filter.pixels[at % count * plane + at / count];
        (127.5 + 127.5 * value / largest).round() as u8
    };
    Image::new(patch.width, patch.height, colours, (0..plane * count).map(byte).collect())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_are_short() {
        let numbers = [0.0, 0.01234, 1.5, -2.0, 190.94, 1e-5];
        assert_eq!(["0", "0.0123", "1.5", "-2", "191", "1.0e-5"], numbers.map(number)[..]);
    }

    #[test]
    fn large_grids_are_thinned() {
        let grid = Size { height: 2, width: 50 };
        let similarity = vec![0.5; 100 * 100];
        let picture = draw_similarity(&similarity, grid).expect("a picture");
        // Every third of 50 columns, and one of 2 rows.
        assert_eq!((picture.width(), picture.height()), (17 * 51 - 1, 2));
    }
}
