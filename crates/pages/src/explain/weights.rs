//! What can be seen in a model's weights: its position embeddings, and the filters of its patch embedding.

use std::fmt::Write;

use crate::{colour, escape, image};
use vitreous_data::image::{Channels, Image, ImageError, Interpolation, resize};
use vitreous_explain::{Filter, ModelPictures, PositionPictures};
use vitreous_models::Size;

use super::maps::{Board, Scale};

/// The longest side, in patches, of the outer grid of similarities: of larger ones only some are drawn.
const MOST_GRIDS: usize = 24;
/// About the width of the picture of similarities, in pixels; the gap between its grids, in a colour for light and dark.
const SIMILARITY_WIDTH: usize = 700;
const WIDEST_GAP: usize = 4;
const BETWEEN: [u8; 3] = [160, 164, 170];
/// Colours of the table are full from this percentile of its magnitudes on: a few are often far larger than all others.
const TABLE_PERCENTILE: f64 = 0.99;
/// At most so many rows and columns of the position table are drawn.
const MOST_ROWS: usize = 400;
const MOST_COLUMNS: usize = 1024;
/// How much filters are enlarged on their sheet, and filters per row.
const FILTER_SCALE: usize = 4;
const FILTERS_PER_ROW: usize = 7;

/// The pictures of a model's weights, made once for all pages.
pub struct WeightPictures {
    /// Cosine similarity of position embeddings: a grid of grids.
    pub similarity: Option<Image>,
    /// The table of position embeddings.
    pub table: Option<Image>,
    /// Principal components of the patch embedding, the largest first.
    pub filters: Vec<Image>,
    /// The section that shows them.
    pub html: String,
}

impl WeightPictures {
    /// Draws them. `channels` is the number of channels of the model's images.
    pub fn draw(pictures: &ModelPictures, channels: usize) -> Result<WeightPictures, ImageError> {
        let (grid, patch) = (pictures.layout.grid, pictures.layout.patch);
        let filters = pictures.filters.iter().map(|filter| draw_filter(filter, patch, channels));
        let filters = filters.collect::<Result<_, _>>()?;
        let mut drawn = WeightPictures { similarity: None, table: None, filters, html: String::new() };
        if let Some(positions) = &pictures.positions {
            drawn.similarity = Some(draw_similarity(&positions.similarity, grid)?);
            drawn.table = Some(draw_table(positions)?);
            drawn.describe_positions(positions, grid)?;
        } else {
            drawn.html.push_str("<p class=\"note\">This model has no position embeddings.</p>");
        }
        drawn.describe_filters(pictures)?;
        Ok(drawn)
    }

    /// The filters on one sheet.
    pub fn filter_sheet(&self) -> Result<Option<Image>, ImageError> {
        let Some(first) = self.filters.first() else { return Ok(None) };
        let (wide, tall) = (first.width() * FILTER_SCALE + 4, first.height() * FILTER_SCALE + 4);
        let columns = self.filters.len().min(FILTERS_PER_ROW);
        let mut board = Board::new(columns * wide + 4, self.filters.len().div_ceil(columns) * tall + 4);
        for (place, filter) in self.filters.iter().enumerate() {
            let (height, width) = (filter.height() * FILTER_SCALE, filter.width() * FILTER_SCALE);
            let large = resize(filter, height, width, Interpolation::Nearest)?;
            board.picture(4 + place / columns * tall, 4 + place % columns * wide, &large);
        }
        board.finish().map(Some)
    }

    fn describe_positions(&mut self, positions: &PositionPictures, grid: Size) -> Result<(), ImageError> {
        let Scale { low, high } = Scale::of(&positions.similarity);
        let kind = match positions.learned {
            true => {
                "learned: a bright spot that moves with the patch, often with traces of its row and column, shows that the model \
                 has learned the two dimensions of the image"
            }
            false => {
                "sinusoidal: the bright spot that moves with the patch follows from their formula, not from training"
            }
        };
        let mut html = String::new();
        let _ = write!(
            html,
            "<h3>Similarity of position embeddings</h3><p>Each small square belongs to one patch and stands where that patch lies in \
             the image. It shows the cosine similarity between that patch's position embedding and those of all {} patches. The \
             position embeddings of this model are {kind} (figure 7 of “An image is worth 16x16 words”, Dosovitskiy et al., 2021).</p>",
            grid.height * grid.width
        );
        if let Some(picture) = &self.similarity {
            let text = format!(
                "A grid of {grid} maps; each shows the cosine similarity between the position embedding of one patch and those of \
                 all patches, from {low:.2} to {high:.2}."
            );
            html.push_str(&image(picture, &text, "similarity")?);
            html.push_str(&legend(low, high));
            if grid.height.max(grid.width) > MOST_GRIDS {
                let step = step_of(grid);
                let _ = write!(html, "<p class=\"note\">Only every {step}th row and column of patches is drawn.</p>");
            }
        }
        if let Some(picture) = &self.table {
            html.push_str(&table(picture, positions)?);
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
            "<h3>Filters of the patch embedding</h3><p>The first layer projects each patch of {patch} pixels onto its filters. These \
             are the principal components of the filters, with the share of the variance that each explains. In trained models they \
             are often smooth waves, edges and colours, in untrained ones noise; but some well-trained models show fine patterns that \
             look like noise, too.</p><div class=\"filters\">"
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

/// The position table, folded: it is large, and few look for it.
fn table(picture: &Image, positions: &PositionPictures) -> Result<String, ImageError> {
    let (rows, dim) = (positions.rows, positions.table.len() / positions.rows.max(1));
    let (usual, largest) = (usual_magnitude(&positions.table), largest_magnitude(&positions.table));
    let text = format!("Heat map of the {rows} x {dim} values of the position embeddings.");
    let (drawn, across) = (picture.height(), picture.width());
    let thinned = match drawn < rows || across < dim {
        true => format!(
            "<p class=\"note\">{drawn} of {rows} rows and {across} of {dim} columns are drawn, at even distances.</p>"
        ),
        false => String::new(),
    };
    Ok(format!(
        "<details class=\"table-of-positions\"><summary>All {rows} x {dim} values of the position embeddings</summary>\
         <p>One row per token, the first at the top; one column per dimension. Blue is negative, orange positive; colours are full \
         from ±{} on (the 99th percentile), the largest magnitude is {}. Sinusoidal embeddings show as waves, fast on one side and \
         slow on the other.</p><div class=\"scroll\">{}</div>{thinned}</details>",
        number(usual),
        number(largest),
        image(picture, &text, "pixels table")?
    ))
}

/// A colour bar with the values at its ends.
pub fn legend(low: f32, high: f32) -> String {
    format!(
        "<div class=\"legend\"><span>{}</span><span class=\"scale\"></span><span>{}</span></div>",
        number(low),
        number(high)
    )
}

/// A number with three significant digits.
pub fn number(value: f32) -> String {
    let size = value.abs();
    if size == 0.0 || !(0.001..100_000.0).contains(&size) {
        return if size == 0.0 { "0".to_string() } else { format!("{value:.1e}") };
    }
    let decimals = (2 - size.log10().floor() as i32).max(0) as usize;
    let text = format!("{value:.decimals$}");
    if decimals == 0 { text } else { text.trim_end_matches('0').trim_end_matches('.').to_string() }
}

fn largest_magnitude(numbers: &[f32]) -> f32 {
    let Scale { low, high } = Scale::of(numbers);
    high.max(-low)
}

/// The magnitude below which nearly all values are.
fn usual_magnitude(numbers: &[f32]) -> f32 {
    let mut sizes: Vec<f32> = numbers.iter().map(|number| number.abs()).filter(|size| size.is_finite()).collect();
    if sizes.is_empty() {
        return f32::MIN_POSITIVE;
    }
    let place = ((sizes.len() - 1) as f64 * TABLE_PERCENTILE) as usize;
    let (_, usual, _) = sizes.select_nth_unstable_by(place, f32::total_cmp);
    usual.max(f32::MIN_POSITIVE)
}

fn step_of(grid: Size) -> usize {
    grid.height.max(grid.width).div_ceil(MOST_GRIDS)
}

fn draw_similarity(similarity: &[f32], grid: Size) -> Result<Image, ImageError> {
    let (step, scale) = (step_of(grid), Scale::of(similarity));
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
            let pixels = of.iter().flat_map(|&value| colour::sequential(scale.share(value))).collect();
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
    let usual = usual_magnitude(&positions.table);
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
    let largest = largest_magnitude(&filter.pixels).max(f32::MIN_POSITIVE);
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
