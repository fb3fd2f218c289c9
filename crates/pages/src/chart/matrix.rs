//! Heat maps: confusion of classes, gradients by layer and time.

use vitreous_data::image::{Channels, Image};

use super::drawing::{Drawing, Ink};
use super::{TEXT, WIDTH, nothing, shorten, text_width};
use crate::colour::{hex, sequential, text_on};
use crate::png_uri;

/// A grid of colours with named rows and columns. Small ones have a text in each cell; large ones are a picture.
#[derive(Clone, Debug)]
pub struct Matrix {
    title: String,
    description: String,
    row_title: String,
    column_title: String,
    ends: Option<[String; 2]>,
    square: bool,
    columns: Vec<String>,
    rows: Vec<(String, Vec<Cell>)>,
}

/// A cell: the strength of its colour, from 0 to 1, its text and its tooltip.
#[derive(Clone, Debug)]
pub struct Cell {
    share: f32,
    text: String,
    note: String,
}

impl Cell {
    /// A cell of this strength; NaN leaves it empty.
    pub fn new(share: f32) -> Cell {
        Cell { share, text: String::new(), note: String::new() }
    }

    /// Its text, shown where there is room.
    pub fn text(mut self, text: &str) -> Cell {
        self.text = text.to_string();
        self
    }

    /// Its tooltip, where there are few cells.
    pub fn note(mut self, text: &str) -> Cell {
        self.note = text.to_string();
        self
    }
}

/// Up to so many cells are elements of their own; more are the pixels of one picture.
const FEW: usize = 1024;
/// Room that a label needs.
const LABEL: f64 = 15.0;
const SMALL: f64 = 12.0;

impl Matrix {
    /// A chart of this name.
    pub fn new(title: &str) -> Matrix {
        Matrix {
            title: title.to_string(),
            description: String::new(),
            row_title: String::new(),
            column_title: String::new(),
            ends: None,
            square: true,
            columns: Vec::new(),
            rows: Vec::new(),
        }
    }

    /// A text alternative.
    pub fn describe(mut self, text: &str) -> Matrix {
        self.description = text.to_string();
        self
    }

    /// What rows and columns are.
    pub fn axes(mut self, rows: &str, columns: &str) -> Matrix {
        (self.row_title, self.column_title) = (rows.to_string(), columns.to_string());
        self
    }

    /// What the weakest and the strongest colour mean.
    pub fn scale(mut self, low: &str, high: &str) -> Matrix {
        self.ends = Some([low.to_string(), high.to_string()]);
        self
    }

    /// Rows as high as text, however narrow the columns are.
    pub fn flat(mut self) -> Matrix {
        self.square = false;
        self
    }

    /// The names of the columns.
    pub fn columns(mut self, names: &[impl AsRef<str>]) -> Matrix {
        self.columns = names.iter().map(|name| name.as_ref().to_string()).collect();
        self
    }

    /// One more row.
    pub fn row(mut self, name: &str, cells: Vec<Cell>) -> Matrix {
        self.rows.push((name.to_string(), cells));
        self
    }

    /// The chart.
    pub fn svg(&self) -> String {
        let count = self.rows.iter().map(|row| row.1.len()).max().unwrap_or(0);
        if count == 0 {
            return nothing(&self.title);
        }
        let place = self.place(count);
        let mut drawing = Drawing::new(&self.title, &self.text(count), WIDTH, place.bottom(self.rows.len()) + 6.0);
        self.draw_titles(&mut drawing, &place);
        self.draw_labels(&mut drawing, &place);
        if count * self.rows.len() <= FEW {
            self.draw_cells(&mut drawing, &place);
        } else {
            self.draw_picture(&mut drawing, &place, count);
        }
        self.draw_scale(&mut drawing, &place);
        drawing.finish()
    }

    fn text(&self, columns: usize) -> String {
        match self.description.is_empty() {
            true => {
                format!("{} rows ({}) by {columns} columns ({}).", self.rows.len(), self.row_title, self.column_title)
            }
            false => self.description.clone(),
        }
    }

    fn place(&self, columns: usize) -> CellArea {
        let widest = |names: &mut dyn Iterator<Item = &String>, most: f64| {
            names.map(|name| text_width(name, SMALL)).fold(0.0, f64::max).min(most)
        };
        let left = widest(&mut self.rows.iter().map(|row| &row.0), 130.0) + 10.0;
        let width = ((WIDTH - left - 4.0) / columns as f64).min(56.0);
        let height = if self.square { width } else { width.max(LABEL) };
        let across = self.columns.iter().any(|name| text_width(name, SMALL) > width - 2.0);
        let label = match across {
            true => widest(&mut self.columns.iter(), 110.0),
            false => SMALL,
        };
        let titles = if self.row_title.is_empty() && self.column_title.is_empty() { 6.0 } else { 28.0 };
        CellArea { left, top: titles + label + 6.0, width, height, across, label, columns }
    }

    fn draw_titles(&self, drawing: &mut Drawing, place: &CellArea) {
        if !self.row_title.is_empty() {
            drawing.text([2.0, 16.0], "", Ink::Ink, &format!("{} \u{2193}", shorten(&self.row_title, 200.0, TEXT)));
        }
        if !self.column_title.is_empty() {
            let title = format!("{} \u{2192}", shorten(&self.column_title, 200.0, TEXT));
            let right = place.left + place.width * place.columns as f64;
            drawing.text([right.max(300.0), 16.0], "text-anchor=\"end\"", Ink::Ink, &title);
        }
    }

    fn draw_labels(&self, drawing: &mut Drawing, place: &CellArea) {
        let size = format!("font-size=\"{SMALL}\"");
        let every = |step: f64| (LABEL / step).ceil().max(1.0) as usize;
        for (index, (name, _)) in self.rows.iter().enumerate().step_by(every(place.height)) {
            let name = shorten(name, place.left - 8.0, SMALL);
            let at = [place.left - 6.0, place.y(index) + place.height / 2.0 + 4.0];
            drawing.text(at, &format!("{size} text-anchor=\"end\""), Ink::Ink, &name);
        }
        let step = if place.across { every(place.width) } else { 1 };
        for (index, name) in self.columns.iter().take(place.columns).enumerate().step_by(step) {
            let (x, y) = (place.x(index) + place.width / 2.0, place.top - 6.0);
            if place.across {
                let turn = format!("{size} transform=\"rotate(-90 {:.1} {y:.1})\"", x + 4.0);
                drawing.text([x + 4.0, y], &turn, Ink::Ink, &shorten(name, place.label + 2.0, SMALL));
            } else {
                drawing.text([x, y], &format!("{size} text-anchor=\"middle\""), Ink::Ink, name);
            }
        }
    }

    fn draw_cells(&self, drawing: &mut Drawing, place: &CellArea) {
        for (row, (_, cells)) in self.rows.iter().enumerate() {
            for (column, cell) in cells.iter().enumerate().filter(|(_, cell)| cell.share.is_finite()) {
                let colour = sequential(cell.share);
                let corner = [place.x(column), place.y(row)];
                let middle = [corner[0] + place.width / 2.0, corner[1] + place.height / 2.0 + 4.0];
                let fits = text_width(&cell.text, SMALL) <= place.width - 1.0 && place.height >= LABEL;
                let draw = |drawing: &mut Drawing| {
                    let size = [place.width - 1.0, place.height - 1.0];
                    drawing.rectangle(corner, size, &format!("fill=\"{}\"", hex(colour)));
                    if fits && !cell.text.is_empty() {
                        let attributes = format!("font-size=\"{SMALL}\" text-anchor=\"middle\"");
                        drawing.colored_text(middle, &attributes, text_on(colour), &cell.text);
                    }
                };
                match cell.note.is_empty() {
                    true => draw(drawing),
                    false => drawing.noted(&cell.note, draw),
                }
            }
        }
    }

    fn draw_picture(&self, drawing: &mut Drawing, place: &CellArea, columns: usize) {
        let mut pixels = Vec::with_capacity(self.rows.len() * columns * 3);
        for (_, cells) in &self.rows {
            for column in 0..columns {
                let share = cells.get(column).map_or(f32::NAN, |cell| cell.share);
                // Unknown values are grey, which is no colour of the scale.
                pixels.extend(if share.is_finite() { sequential(share) } else { [128; 3] });
            }
        }
        let picture = Image::new(columns, self.rows.len(), Channels::Rgb, pixels).and_then(|image| png_uri(&image));
        let size = [place.width * columns as f64, place.height * self.rows.len() as f64];
        match picture {
            Ok(uri) => drawing.picture(&uri, [place.left, place.top], size),
            Err(error) => {
                let text = shorten(&error.to_string(), size[0], TEXT);
                drawing.text([place.left, place.top + 20.0], "", Ink::Soft, &text);
            }
        }
    }

    fn draw_scale(&self, drawing: &mut Drawing, place: &CellArea) {
        let Some([low, high]) = &self.ends else { return };
        let top = place.bottom(self.rows.len()) + 12.0;
        let (low, high) = (shorten(low, 150.0, SMALL), shorten(high, 150.0, SMALL));
        let size = format!("font-size=\"{SMALL}\"");
        drawing.text([2.0, top + 11.0], &size, Ink::Ink, &low);
        let left = 2.0 + text_width(&low, SMALL) + 8.0;
        for step in 0..32 {
            let colour = hex(sequential(step as f32 / 31.0));
            drawing.rectangle([left + 4.0 * f64::from(step), top], [4.5, 14.0], &format!("fill=\"{colour}\""));
        }
        drawing.text([left + 136.0, top + 11.0], &size, Ink::Ink, &high);
        drawing.grow_to(top + 20.0);
    }
}

/// Where the cells lie.
struct CellArea {
    left: f64,
    top: f64,
    width: f64,
    height: f64,
    /// Whether the names of columns stand upright.
    across: bool,
    /// The room for them.
    label: f64,
    columns: usize,
}

impl CellArea {
    fn x(&self, column: usize) -> f64 {
        self.left + self.width * column as f64
    }

    fn y(&self, row: usize) -> f64 {
        self.top + self.height * row as f64
    }

    fn bottom(&self, rows: usize) -> f64 {
        self.y(rows)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(classes: usize) -> Matrix {
        let names: Vec<String> = (0..classes).map(|class| format!("class number {class}")).collect();
        let cell = |row: usize, column: usize| {
            let share = if row == column { 0.9 } else { 0.1 };
            Cell::new(share).text("42").note(&format!("{row} as {column}"))
        };
        let matrix = Matrix::new("confusion").axes("true", "predicted").columns(&names).scale("0%", "100%");
        (0..classes)
            .fold(matrix, |matrix, row| matrix.row(&names[row], (0..classes).map(|column| cell(row, column)).collect()))
    }

    #[test]
    fn few_cells_say_their_numbers_and_many_are_one_small_picture() {
        let few = of(10).svg();
        assert_eq!((few.matches(">42<").count(), few.matches("<title>").count()), (100, 100));
        assert!(few.contains("<title>3 as 4</title>"));
        let many = of(256).svg();
        assert_eq!((many.matches(">42<").count(), many.matches("<title>").count()), (0, 0));
        assert_eq!(many.matches("<image").count(), 1);
        assert!(many.len() < 60_000, "{}", many.len());
        assert!(many.matches("class number").count() < 100, "labels are thinned");
    }

    #[test]
    fn a_pixel_of_a_large_one_is_the_cell_of_its_row_and_column() {
        let share = |row: usize, column: usize| (row * 50 + column) as f32 / 2000.0;
        let rows = (0..40).map(|row| (0..50).map(|column| Cell::new(share(row, column))).collect());
        let svg = rows.fold(Matrix::new("t"), |matrix, cells| matrix.row("a", cells)).svg();
        let address = svg.split("base64,").nth(1).and_then(|rest| rest.split('"').next()).expect("a picture");
        let png = base64::Engine::decode(&base64::engine::general_purpose::STANDARD, address).expect("base64");
        let picture = vitreous_data::image::decode(&png, Channels::Rgb).expect("a PNG");
        assert_eq!((picture.width(), picture.height()), (50, 40));
        for (place, pixel) in picture.pixels().chunks_exact(3).enumerate() {
            assert_eq!(pixel, sequential(share(place / 50, place % 50)), "row {}, column {}", place / 50, place % 50);
        }
    }

    #[test]
    fn rows_of_different_lengths_and_unknown_cells_are_shown() {
        let svg =
            Matrix::new("t").row("a", vec![Cell::new(1.0)]).row("b", vec![Cell::new(f32::NAN), Cell::new(0.0)]).svg();
        assert_eq!(svg.matches("<rect").count(), 2);
    }
}
