//! Dots in columns: one number of each head, layer by layer, as the ViT paper shows the distance of attention (figure 11).

use super::axis::{Axis, Frame, polyline};
use super::drawing::{Drawing, Ink};
use super::{WIDTH, nothing};
use crate::colour::CATEGORIES;

/// Dots in columns, with a line through the mean of each.
#[derive(Clone, Debug)]
pub struct Dots {
    title: String,
    description: String,
    x: Axis,
    y: Axis,
    first: usize,
    dot: String,
    mean: bool,
    columns: Vec<Vec<f64>>,
}

/// With more dots than this, dots have no tooltips.
const NOTED: usize = 1200;

impl Dots {
    /// A chart of this name.
    pub fn new(title: &str) -> Dots {
        Dots {
            title: title.to_string(),
            description: String::new(),
            x: Axis { whole: true, ..Axis::default() },
            y: Axis { from_zero: true, room: true, ..Axis::default() },
            first: 0,
            dot: "dot".to_string(),
            mean: false,
            columns: Vec::new(),
        }
    }

    /// A text alternative; without one, the mean of each column is listed.
    pub fn describe(mut self, text: &str) -> Dots {
        self.description = text.to_string();
        self
    }

    /// The title of the horizontal axis, which counts columns.
    pub fn x(mut self, title: &str) -> Dots {
        self.x.title = title.to_string();
        self
    }

    /// The title of the vertical axis.
    pub fn y(mut self, title: &str) -> Dots {
        self.y.title = title.to_string();
        self
    }

    /// The number of the first column; 0 without that.
    pub fn first(mut self, number: usize) -> Dots {
        self.first = number;
        self
    }

    /// What a dot is, for its tooltip: `head` gives "head 3".
    pub fn dot(mut self, name: &str) -> Dots {
        self.dot = name.to_string();
        self
    }

    /// With a line through the means of the columns.
    pub fn with_means(mut self) -> Dots {
        self.mean = true;
        self
    }

    /// The upper end of the vertical axis, if the dots do not reach it.
    pub fn range_y(mut self, low: f64, high: f64) -> Dots {
        self.y.range = Some((low, high));
        self
    }

    /// One more column.
    pub fn column(mut self, values: &[f64]) -> Dots {
        self.columns.push(values.to_vec());
        self
    }

    /// The chart.
    pub fn svg(&self) -> String {
        let place = |column: usize| (self.first + column) as f64;
        let values = self.columns.iter().enumerate();
        let points = values.flat_map(|(column, values)| values.iter().map(move |&value| (place(column), value)));
        // Half a column of room at both ends, so that no dot lies on an axis.
        let ends = [place(0) - 0.5, place(self.columns.len().max(1) - 1) + 0.5];
        let x = Axis { range: Some((ends[0], ends[1])), ..self.x.clone() };
        let Some(frame) = Frame::new(&x, &self.y, points) else { return nothing(&self.title) };
        let mut drawing = Drawing::new(&self.title, &self.text(), WIDTH, frame.below(&x));
        frame.draw(&mut drawing, &x, &self.y);
        if self.mean {
            self.draw_means(&mut drawing, &frame);
        }
        let few = self.columns.iter().map(Vec::len).sum::<usize>() <= NOTED;
        let fill = format!("fill=\"{}\" fill-opacity=\"0.75\"", CATEGORIES[0]);
        for (column, values) in self.columns.iter().enumerate() {
            for (index, &value) in values.iter().enumerate().filter(|(_, value)| value.is_finite()) {
                let at = [frame.x.place(place(column)), frame.y.place(value)];
                let dot = |drawing: &mut Drawing| drawing.disc(at, 4.0, &fill);
                match few {
                    true => drawing.noted(&self.note(column, index, value), dot),
                    false => dot(&mut drawing),
                }
            }
        }
        drawing.finish()
    }

    fn note(&self, column: usize, index: usize, value: f64) -> String {
        format!("{} {}, {} {index}: {value:.3}", self.x.title, self.first + column, self.dot)
    }

    fn draw_means(&self, drawing: &mut Drawing, frame: &Frame) {
        let mean_places: Vec<(f64, f64)> = self
            .columns
            .iter()
            .enumerate()
            .filter_map(|(column, values)| {
                let mean = mean(values)?;
                Some((frame.x.place((self.first + column) as f64), frame.y.place(mean)))
            })
            .collect();
        let stroke = format!("fill=\"none\" stroke=\"{}\" stroke-width=\"2\"", CATEGORIES[1]);
        drawing.path(&polyline(&mean_places), &stroke);
        let below = frame.below(&self.x) + 12.0;
        drawing.disc([12.0, below - 5.0], 4.0, &format!("fill=\"{}\"", CATEGORIES[0]));
        drawing.text([24.0, below], "", Ink::Ink, &format!("one {}", self.dot));
        drawing.line([140.0, below - 5.0], [172.0, below - 5.0], &stroke);
        drawing.text([180.0, below], "", Ink::Ink, "mean");
        drawing.grow_to(below + 8.0);
    }

    fn text(&self) -> String {
        if !self.description.is_empty() {
            return self.description.clone();
        }
        let columns = self.columns.iter().enumerate();
        let means =
            columns.filter_map(|(column, values)| Some(format!("{}: {:.3}", self.first + column, mean(values)?)));
        let means: Vec<String> = means.take(100).collect();
        format!("{} by {}, one dot per {}. Means: {}.", self.y.title, self.x.title, self.dot, means.join("; "))
    }
}

/// The mean of the finite values.
fn mean(values: &[f64]) -> Option<f64> {
    let known: Vec<f64> = values.iter().copied().filter(|value| value.is_finite()).collect();
    (!known.is_empty()).then(|| known.iter().sum::<f64>() / known.len() as f64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_dot_a_head_and_what_is_no_number_is_left_out() {
        let chart = Dots::new("distance").x("layer").dot("head").with_means();
        let svg = chart.column(&[10.0, f64::NAN, 30.0]).column(&[]).column(&[20.0]).svg();
        assert_eq!(svg.matches("<circle").count(), 3 + 1, "one is in the legend");
        assert!(svg.contains("<title>layer 0, head 2: 30.000</title>"), "{svg}");
        assert!(svg.contains("0: 20.000; 2: 20.000"), "{svg}");
    }
}
