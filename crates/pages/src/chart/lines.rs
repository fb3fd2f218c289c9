//! Curves: several named series over one axis.

use super::axis::{Axis, Frame, polyline};
use super::drawing::{Drawing, Ink};
use super::thin::thin;
use super::{TEXT, WIDTH, nothing, shorten, text_width};
use crate::colour::CATEGORIES;

/// Curves in one frame. Series differ by colour and by the line's form, and are named in text beside a piece of their line.
#[derive(Clone, Debug)]
pub struct Lines {
    title: String,
    description: String,
    x: Axis,
    y: Axis,
    series: Vec<Series>,
}

#[derive(Clone, Debug)]
struct Series {
    name: String,
    points: Vec<(f64, f64)>,
}

/// Forms of a line, changing when the colours are used up, and with them.
const DASHES: [&str; 4] = ["", "7 4", "2 3", "9 3 2 3"];
/// Lines of fewer points than this show each.
const MARKED: usize = 40;

impl Lines {
    /// A chart of this name.
    pub fn new(title: &str) -> Lines {
        let (title, description) = (title.to_string(), String::new());
        Lines { title, description, x: Axis::default(), y: Axis { room: true, ..Axis::default() }, series: Vec::new() }
    }

    /// What it shows, for who cannot see it. Without that it says the last value of each series.
    pub fn describe(mut self, text: &str) -> Lines {
        self.description = text.to_string();
        self
    }

    /// The title of the horizontal axis.
    pub fn x(mut self, title: &str) -> Lines {
        self.x.title = title.to_string();
        self
    }

    /// The title of the vertical axis.
    pub fn y(mut self, title: &str) -> Lines {
        self.y.title = title.to_string();
        self
    }

    /// Ticks of the horizontal axis at whole numbers only.
    pub fn whole_x(mut self) -> Lines {
        self.x.whole = true;
        self
    }

    /// A vertical axis on which each step multiplies.
    pub fn log_y(mut self) -> Lines {
        self.y.log = true;
        self
    }

    /// A vertical axis that reaches down to 0.
    pub fn from_zero(mut self) -> Lines {
        self.y.from_zero = true;
        self
    }

    /// The range of the vertical axis.
    pub fn range_y(mut self, low: f64, high: f64) -> Lines {
        self.y.range = Some((low, high));
        self
    }

    /// One more series of `(x, y)`. A point that is no number is a gap in the line.
    pub fn series(mut self, name: &str, points: &[(f64, f64)]) -> Lines {
        self.series.push(Series { name: name.to_string(), points: points.to_vec() });
        self
    }

    /// The chart.
    pub fn svg(&self) -> String {
        let points = self.series.iter().flat_map(|series| series.points.iter().copied());
        let Some(frame) = Frame::new(&self.x, &self.y, points) else { return nothing(&self.title) };
        let description = if self.description.is_empty() { self.last_values() } else { self.description.clone() };
        let mut drawing = Drawing::new(&self.title, &description, WIDTH, frame.below(&self.x));
        frame.draw(&mut drawing, &self.x, &self.y);
        for (index, series) in self.series.iter().enumerate() {
            self.draw_series(&mut drawing, &frame, index, series);
        }
        if self.series.len() > 1 {
            self.draw_legend(&mut drawing, frame.below(&self.x));
        }
        drawing.finish()
    }

    fn last_values(&self) -> String {
        let last = |series: &Series| {
            let shown = series.points.iter().rev().find(|point| self.shows(**point))?;
            Some(format!("{}: {} at {} {}", series.name, shown.1, self.x.title, shown.0))
        };
        let values: Vec<String> = self.series.iter().filter_map(last).take(30).collect();
        format!("{} over {}. Last values: {}.", self.y.title, self.x.title, values.join("; "))
    }

    fn shows(&self, (x, y): (f64, f64)) -> bool {
        self.x.shows(x) && self.y.shows(y)
    }

    fn draw_series(&self, drawing: &mut Drawing, frame: &Frame, index: usize, series: &Series) {
        let runs = series.points.chunk_by(|a, b| self.shows(*a) == self.shows(*b)).filter(|run| self.shows(run[0]));
        let mark_all = series.points.len() < MARKED;
        let mut commands = String::new();
        for run in runs {
            let places: Vec<_> = run.iter().map(|&(x, y)| (frame.x.place(x), frame.y.place(y))).collect();
            if mark_all || places.len() == 1 {
                places.iter().take(MARKED).for_each(|&(x, y)| mark(drawing, index, [x, y]));
            }
            if places.len() > 1 {
                commands.push_str(&polyline(&thin(&places, 1.0)));
            }
        }
        if !commands.is_empty() {
            drawing.path(&commands, &stroke(index));
        }
    }

    fn draw_legend(&self, drawing: &mut Drawing, top: f64) {
        let (mut x, mut y) = (4.0, top + 12.0);
        for (index, series) in self.series.iter().enumerate() {
            let name = shorten(&series.name, WIDTH - 60.0, TEXT);
            let width = 40.0 + text_width(&name, TEXT) + 14.0;
            if x > 4.0 && x + width > WIDTH {
                (x, y) = (4.0, y + 22.0);
            }
            drawing.line([x, y - 5.0], [x + 32.0, y - 5.0], &stroke(index));
            mark(drawing, index, [x + 16.0, y - 5.0]);
            drawing.text([x + 40.0, y], "", Ink::Ink, &name);
            x += width;
        }
        drawing.grow_to(y + 8.0);
    }
}

fn colour(index: usize) -> &'static str {
    CATEGORIES[index % CATEGORIES.len()]
}

fn stroke(index: usize) -> String {
    // Each round of colours moves the forms on by one, so that no two series share both.
    let dashes = DASHES[(index % CATEGORIES.len() + index / CATEGORIES.len()) % DASHES.len()];
    let dashes = if dashes.is_empty() { String::new() } else { format!(" stroke-dasharray=\"{dashes}\"") };
    format!("fill=\"none\" stroke=\"{}\" stroke-width=\"2\" stroke-linejoin=\"round\"{dashes}", colour(index))
}

/// A disc, a square, a triangle, a diamond.
fn mark(drawing: &mut Drawing, index: usize, [x, y]: [f64; 2]) {
    let fill = format!("fill=\"{}\"", colour(index));
    match index % 4 {
        0 => drawing.disc([x, y], 3.0, &fill),
        1 => drawing.rectangle([x - 2.7, y - 2.7], [5.4, 5.4], &fill),
        2 => drawing.path(&format!("{}Z", polyline(&[(x - 3.5, y + 3.0), (x + 3.5, y + 3.0), (x, y - 3.6)])), &fill),
        _ => {
            let corners = [(x - 4.0, y), (x, y - 4.0), (x + 4.0, y), (x, y + 4.0)];
            drawing.path(&format!("{}Z", polyline(&corners)), &fill);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_long_series_stays_small_and_keeps_its_spike() {
        let wave = |i: usize| if i == 77_777 { 9.0 } else { (i as f64 / 50.0).sin() };
        let points: Vec<(f64, f64)> = (0..100_000).map(|i| (i as f64, wave(i))).collect();
        let svg = Lines::new("loss").series("train", &points).svg();
        assert!(svg.len() < 40_000, "{}", svg.len());
        // The top of the plot, which only the spike reaches.
        let heights = svg.split('L').filter_map(|part| part.split(' ').nth(1)?.parse::<f64>().ok());
        assert!(heights.fold(f64::MAX, f64::min) < 20.0, "{svg}");
    }

    #[test]
    fn gaps_are_gaps_and_lonely_points_are_marked() {
        let points = [(0.0, 1.0), (1.0, f64::NAN), (2.0, 2.0), (3.0, 3.0), (4.0, f64::INFINITY), (5.0, 1.0)];
        let svg = Lines::new("loss").series("train", &points).svg();
        let line = svg.lines().find(|line| line.contains("stroke-width=\"2\"")).expect("a line");
        assert_eq!((line.matches('M').count(), line.matches('L').count()), (1, 1), "{line}");
        assert_eq!(svg.matches("<circle").count(), 4);
        let one = Lines::new("loss").log_y().series("train", &[(1.0, 2.3)]).svg();
        assert_eq!(one.matches("<circle").count(), 1);
        assert!(one.contains("train: 2.3 at"));
    }

    #[test]
    fn no_two_series_look_the_same() {
        let looks: std::collections::HashSet<String> = (0..28).map(stroke).collect();
        assert_eq!(looks.len(), 28);
    }
}
