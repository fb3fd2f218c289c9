//! Curves: several named series over one axis.

use serde_json::{Value, json};

use super::axis::{Axis, Frame, Scale, polyline};
use super::drawing::{Drawing, Ink};
use super::thin::thin;
use super::{TEXT, WIDTH, nothing, shorten, text_width};
use crate::colour::CATEGORIES;
use crate::escape;

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
/// Series of fewer points than this mark each.
const MARKED: usize = 40;
/// The most points of a series that the pointer reads.
const MOST_VALUES: usize = 2000;

impl Lines {
    /// A chart of this name.
    pub fn new(title: &str) -> Lines {
        let (title, description) = (title.to_string(), String::new());
        Lines { title, description, x: Axis::default(), y: Axis { room: true, ..Axis::default() }, series: Vec::new() }
    }

    /// A text alternative; without one, the last value of each series is listed.
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

    /// One more series of `(x, y)`. A point that is not finite is a gap in the line.
    pub fn series(mut self, name: &str, points: &[(f64, f64)]) -> Lines {
        self.series.push(Series { name: name.to_string(), points: points.to_vec() });
        self
    }

    /// The chart.
    pub fn svg(&self) -> String {
        let Some(frame) = self.frame() else { return nothing(&self.title) };
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

    fn frame(&self) -> Option<Frame> {
        Frame::new(&self.x, &self.y, self.series.iter().flat_map(|series| series.points.iter().copied()))
    }

    /// The chart with its data, for a page with [`CURVES_SCRIPT`](super::CURVES_SCRIPT): values under the pointer, smoothing.
    pub fn interactive(&self) -> String {
        let Some(frame) = self.frame() else { return self.svg() };
        let axis = |axis: &Axis, scale: &Scale| {
            let mut data = scale.json();
            data["title"] = json!(axis.title);
            data
        };
        let series = self.series.iter().enumerate().map(|(index, series)| {
            let shown: Vec<(f64, f64)> = series.points.iter().copied().filter(|point| self.shows(*point)).collect();
            let kept = evenly(&shown, MOST_VALUES);
            let (x, y): (Vec<f64>, Vec<f64>) = kept.iter().map(|&(x, y)| (rounded(x), rounded(y))).unzip();
            json!({ "name": series.name, "colour": colour(index), "dashes": dashes(index), "x": x, "y": y })
        });
        let data = json!({
            "x": axis(&self.x, &frame.x),
            "y": axis(&self.y, &frame.y),
            "series": series.collect::<Vec<Value>>(),
        });
        format!(
            "<div class=\"curves\" tabindex=\"0\" role=\"group\" aria-label=\"{}: arrow keys read its values\">{}\
             <script type=\"application/json\">{}</script></div>",
            escape(&self.title),
            self.svg(),
            data.to_string().replace('<', "\\u003c")
        )
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
            drawing.path(&commands, &format!("data-series=\"{index}\" {}", stroke(index)));
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

/// The pattern of a line. Each round of colours moves the patterns on by one, so that no two series share both.
fn dashes(index: usize) -> &'static str {
    DASHES[(index % CATEGORIES.len() + index / CATEGORIES.len()) % DASHES.len()]
}

/// At most so many points, at even distances, the last among them.
fn evenly(points: &[(f64, f64)], most: usize) -> Vec<(f64, f64)> {
    match points.len() {
        few if few <= most => points.to_vec(),
        many => (1..=most).map(|place| points[place * many / most - 1]).collect(),
    }
}

/// Six significant digits: enough for a reader, in few bytes.
fn rounded(value: f64) -> f64 {
    format!("{value:.5e}").parse().unwrap_or(value)
}

fn stroke(index: usize) -> String {
    let dashes = dashes(index);
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
    fn the_pointer_reads_what_was_measured() {
        let points: Vec<(f64, f64)> = (1..=5000).map(|step| (f64::from(step) / 10.0, 2.0 / f64::from(step))).collect();
        let hostile = "</script><b>";
        let chart = Lines::new("loss").x("epoch").log_y().series(hostile, &points).series("b", &[(1.0, f64::NAN)]);
        let html = chart.interactive();
        assert!(html.matches("</script>").count() == 1 && !html.contains("<b>"), "{hostile} leaves its place");
        let text =
            html.split("application/json\">").nth(1).and_then(|rest| rest.split("</script>").next()).expect("data");
        let data: Value = serde_json::from_str(text).expect("JSON");
        let of = |field: &str| data["series"][0][field].as_array().expect("numbers").clone();
        assert_eq!(
            (of("x").len(), of("y").len(), &of("x")[1999], &of("y")[1999]),
            (2000, 2000, &json!(500.0), &json!(0.0004))
        );
        assert_eq!(data["series"][0]["name"], hostile);
        assert_eq!(
            (&data["series"][1]["x"], &data["y"]["log"], &data["x"]["title"]),
            (&json!([]), &json!(true), &json!("epoch"))
        );
        // Places are those of the drawing: the first point lies at the top left of the plot.
        let end = |axis: &str, end: &str| data[axis][end].as_f64().expect("a number");
        assert!(end("x", "from") < end("x", "to") && end("y", "from") > end("y", "to") && end("y", "high") >= 2.0);
        assert_eq!(Lines::new("none").interactive(), Lines::new("none").svg());
    }

    #[test]
    fn no_two_series_look_the_same() {
        let looks: std::collections::HashSet<String> = (0..28).map(stroke).collect();
        assert_eq!(looks.len(), 28);
    }
}
