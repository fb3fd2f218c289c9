//! Reliability diagrams: accuracy against confidence.

use super::drawing::{Drawing, Ink, number};
use super::{WIDTH, nothing};
use crate::colour::CATEGORIES;

/// Predictions of about equal confidence.
#[derive(Clone, Copy, Debug)]
pub struct ConfidenceBin {
    /// From this confidence.
    pub low: f64,
    /// To this one.
    pub high: f64,
    /// The mean confidence.
    pub confidence: f64,
    /// Their accuracy.
    pub accuracy: f64,
    /// How many there are.
    pub count: u64,
}

/// Accuracy against confidence, with the diagonal of perfect calibration, and a histogram below.
#[derive(Clone, Debug)]
pub struct Reliability {
    title: String,
    description: String,
    bins: Vec<ConfidenceBin>,
}

const LEFT: f64 = 52.0;
const TOP: f64 = 30.0;
const SIDE: f64 = 300.0;
const COUNTS: f64 = 60.0;

impl Reliability {
    /// A chart of this name.
    pub fn new(title: &str) -> Reliability {
        Reliability { title: title.to_string(), description: String::new(), bins: Vec::new() }
    }

    /// A text alternative; without one, all bins are listed.
    pub fn describe(mut self, text: &str) -> Reliability {
        self.description = text.to_string();
        self
    }

    /// One more bin.
    pub fn bin(mut self, bin: ConfidenceBin) -> Reliability {
        self.bins.push(bin);
        self
    }

    /// The chart.
    pub fn svg(&self) -> String {
        let known = |bin: &&ConfidenceBin| {
            let numbers = [bin.low, bin.high, bin.confidence, bin.accuracy];
            bin.count > 0 && numbers.iter().all(|value| (0.0..=1.0).contains(value))
        };
        let bins: Vec<&ConfidenceBin> = self.bins.iter().filter(known).take(200).collect();
        if bins.is_empty() {
            return nothing(&self.title);
        }
        let bottom = TOP + SIDE + 20.0 + COUNTS;
        let mut drawing = Drawing::new(&self.title, &self.text(&bins), WIDTH, bottom + 52.0);
        draw_frame(&mut drawing, bottom);
        let most = bins.iter().map(|bin| bin.count).max().unwrap_or(1);
        for bin in &bins {
            drawing.noted(&bin_text(bin), |drawing| draw_bin(drawing, bin, most, bottom));
        }
        let (from, to) = ([x(0.0), y(0.0)], [x(1.0), y(1.0)]);
        drawing.line(from, to, &format!("stroke=\"{}\" stroke-width=\"1.5\" stroke-dasharray=\"6 4\"", Ink::Ink));
        draw_key(&mut drawing, most);
        drawing.finish()
    }

    fn text(&self, bins: &[&ConfidenceBin]) -> String {
        match self.description.is_empty() {
            true => bins.iter().map(|bin| bin_text(bin)).collect::<Vec<_>>().join("; "),
            false => self.description.clone(),
        }
    }
}

fn x(share: f64) -> f64 {
    LEFT + share * SIDE
}

fn y(share: f64) -> f64 {
    TOP + (1.0 - share) * SIDE
}

fn percent(share: f64) -> String {
    format!("{}%", number(share * 100.0))
}

fn bin_text(bin: &ConfidenceBin) -> String {
    let (low, high) = (percent(bin.low), percent(bin.high));
    let (confidence, accuracy) = (percent(bin.confidence), percent(bin.accuracy));
    format!("confidence {low} to {high}: mean {confidence}, accuracy {accuracy}, {} samples", bin.count)
}

fn draw_frame(drawing: &mut Drawing, bottom: f64) {
    drawing.text([2.0, 16.0], "", Ink::Ink, "accuracy");
    let line = format!("stroke=\"{}\"", Ink::Line);
    for tick in 0..=5 {
        let share = f64::from(tick) / 5.0;
        drawing.line([x(0.0), y(share)], [x(1.0), y(share)], &line);
        drawing.text([LEFT - 7.0, y(share) + 5.0], "text-anchor=\"end\"", Ink::Soft, &percent(share));
        drawing.text([x(share), bottom + 20.0], "text-anchor=\"middle\"", Ink::Soft, &percent(share));
    }
    drawing.line([x(0.0), bottom], [x(1.0), bottom], &format!("stroke=\"{}\"", Ink::Soft));
    drawing.text([x(0.5), bottom + 42.0], "text-anchor=\"middle\"", Ink::Ink, "confidence");
}

fn draw_bin(drawing: &mut Drawing, bin: &ConfidenceBin, most: u64, bottom: f64) {
    let width = (x(bin.high) - x(bin.low) - 2.0).max(1.0);
    let left = x(bin.low) + 1.0;
    let accuracy = format!("fill=\"{}\" fill-opacity=\"0.8\"", CATEGORIES[0]);
    drawing.rectangle([left, y(bin.accuracy)], [width, y(0.0) - y(bin.accuracy)], &accuracy);
    // The gap between the two is the calibration error.
    let confidence = format!("stroke=\"{}\" stroke-width=\"3\"", CATEGORIES[1]);
    drawing.line([left, y(bin.confidence)], [left + width, y(bin.confidence)], &confidence);
    let height = (COUNTS * bin.count as f64 / most as f64).max(1.0);
    drawing.rectangle([left, bottom - height], [width, height], &format!("fill=\"{}\"", CATEGORIES[6]));
}

fn draw_key(drawing: &mut Drawing, most: u64) {
    let left = x(1.0) + 14.0;
    let row = |index: f64| TOP + 10.0 + 24.0 * index;
    drawing.rectangle(
        [left, row(0.0) - 11.0],
        [20.0, 12.0],
        &format!("fill=\"{}\" fill-opacity=\"0.8\"", CATEGORIES[0]),
    );
    drawing.text([left + 28.0, row(0.0)], "", Ink::Ink, "accuracy");
    let confidence = format!("stroke=\"{}\" stroke-width=\"3\"", CATEGORIES[1]);
    drawing.line([left, row(1.0) - 5.0], [left + 20.0, row(1.0) - 5.0], &confidence);
    drawing.text([left + 28.0, row(1.0)], "", Ink::Ink, "confidence");
    let ideal = format!("stroke=\"{}\" stroke-width=\"1.5\" stroke-dasharray=\"6 4\"", Ink::Ink);
    drawing.line([left, row(2.0) - 5.0], [left + 20.0, row(2.0) - 5.0], &ideal);
    drawing.text([left + 28.0, row(2.0)], "", Ink::Ink, "perfect");
    drawing.text([left + 28.0, row(2.0) + 17.0], "", Ink::Ink, "calibration");
    let counts = TOP + SIDE + 20.0 + COUNTS / 2.0;
    drawing.text([left, counts], "", Ink::Ink, "samples,");
    drawing.text([left, counts + 18.0], "", Ink::Ink, &format!("at most {most}"));
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn empty_and_impossible_bins_are_left_out() {
        let bin = ConfidenceBin { low: 0.4, high: 0.6, confidence: 0.55, accuracy: 0.5, count: 10 };
        let broken = ConfidenceBin { accuracy: f64::NAN, ..bin };
        let svg = Reliability::new("t").bin(ConfidenceBin { count: 0, ..bin }).bin(broken).bin(bin).svg();
        assert_eq!(svg.matches("<title>").count(), 1);
        assert!(svg.contains("<title>confidence 40% to 60%: mean 55%, accuracy 50%, 10 samples</title>"), "{svg}");
    }
}
