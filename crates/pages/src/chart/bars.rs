//! Horizontal bars: scores of classes, shares of a whole.

use super::drawing::{Drawing, Ink};
use super::{TEXT, WIDTH, nothing, shorten, text_width};

/// Bars under each other, each with its label before it and its value behind it.
#[derive(Clone, Debug)]
pub struct Bars {
    title: String,
    description: String,
    full: Option<f64>,
    bars: Vec<Bar>,
}

#[derive(Clone, Debug)]
struct Bar {
    label: String,
    value: f64,
    text: String,
    strong: bool,
}

const ROW: f64 = 26.0;
/// The height of a second line of a label.
const LINE: f64 = 16.0;
/// How much wider bold text is.
const BOLD: f64 = 1.15;
/// More bars than anybody reads.
const MOST: usize = 1000;

impl Bars {
    /// A chart of this name.
    pub fn new(title: &str) -> Bars {
        Bars { title: title.to_string(), description: String::new(), full: None, bars: Vec::new() }
    }

    /// A text alternative; without one, all values are listed.
    pub fn describe(mut self, text: &str) -> Bars {
        self.description = text.to_string();
        self
    }

    /// The value of a bar of full length; without one, the largest.
    pub fn full(mut self, value: f64) -> Bars {
        self.full = Some(value);
        self
    }

    /// One more bar: its label, its length, its value as text. A negative or NaN length is shown as 0.
    pub fn bar(mut self, label: &str, value: f64, text: &str) -> Bars {
        self.bars.push(Bar { label: label.to_string(), value, text: text.to_string(), strong: false });
        self
    }

    /// As [`Bars::bar`], standing out from the others.
    pub fn strong_bar(mut self, label: &str, value: f64, text: &str) -> Bars {
        self.bars.push(Bar { label: label.to_string(), value, text: text.to_string(), strong: true });
        self
    }

    /// The chart.
    pub fn svg(&self) -> String {
        let shown = &self.bars[..self.bars.len().min(MOST)];
        if shown.is_empty() {
            return nothing(&self.title);
        }
        let widest = |text: fn(&Bar) -> &str, most: f64| {
            let width = |bar: &Bar| text_width(text(bar), TEXT) * if bar.strong { BOLD } else { 1.0 };
            shown.iter().map(width).fold(0.0, f64::max).min(most)
        };
        let left = widest(|bar| &bar.label, WIDTH * 0.42) + 10.0;
        let right = WIDTH - widest(|bar| &bar.text, WIDTH * 0.25) - 10.0;
        let largest = shown.iter().map(|bar| bar.value).filter(|value| value.is_finite()).fold(0.0, f64::max);
        let full = self.full.filter(|full| full.is_finite() && *full > 0.0).unwrap_or(largest);
        let labels: Vec<Vec<String>> = shown.iter().map(|bar| bar.lines(left - 10.0)).collect();
        let height = |lines: &[String]| ROW + LINE * lines.len().saturating_sub(1) as f64;
        let all = labels.iter().map(|lines| height(lines)).sum::<f64>();
        let mut drawing = Drawing::new(&self.title, &self.text_of(shown), WIDTH, all + 4.0);
        let mut top = 0.0;
        for (bar, lines) in shown.iter().zip(&labels) {
            let share = if full > 0.0 && bar.value > 0.0 { (bar.value / full).min(1.0) } else { 0.0 };
            draw_bar(&mut drawing, [top, height(lines)], [left, right], share, bar, lines);
            top += height(lines);
        }
        drawing.finish()
    }

    fn text_of(&self, shown: &[Bar]) -> String {
        if !self.description.is_empty() {
            return self.description.clone();
        }
        let values: Vec<String> = shown.iter().take(30).map(|bar| format!("{} {}", bar.label, bar.text)).collect();
        format!("{}.", values.join("; "))
    }
}

impl Bar {
    /// The label in one line, or in two, broken between words where it can be; what has no room in two is cut.
    fn lines(&self, width: f64) -> Vec<String> {
        let width = width / if self.strong { BOLD } else { 1.0 };
        // The width may be the sum that this text itself gave: rounding must not break it.
        let fits = |text: &str| text_width(text, TEXT) <= width + 0.01;
        if fits(&self.label) {
            return vec![self.label.clone()];
        }
        let has_room = |at: &usize| *at > 0 && fits(&self.label[..*at]);
        let word = self.label.match_indices(' ').map(|(at, _)| at).rfind(has_room);
        let letter = || self.label.char_indices().map(|(at, _)| at).rfind(has_room);
        match word.or_else(letter) {
            Some(at) => vec![self.label[..at].to_string(), shorten(self.label[at..].trim_start(), width, TEXT)],
            None => vec![shorten(&self.label, width, TEXT)],
        }
    }
}

fn draw_bar(
    drawing: &mut Drawing,
    [top, height]: [f64; 2],
    [left, right]: [f64; 2],
    share: f64,
    bar: &Bar,
    lines: &[String],
) {
    // The bar is centred in its row.
    let middle = top + (height - ROW) / 2.0;
    let weight = if bar.strong { " font-weight=\"700\"" } else { "" };
    let ink = if bar.strong { Ink::Accent } else { Ink::Soft };
    let draw = |drawing: &mut Drawing| {
        for (line, text) in lines.iter().enumerate() {
            let base = top + 19.0 + LINE * line as f64;
            drawing.text([left - 8.0, base], &format!("text-anchor=\"end\"{weight}"), Ink::Ink, text);
        }
        let base = middle + 19.0;
        drawing.rectangle(
            [left, middle + 5.0],
            [right - left, 18.0],
            &format!("rx=\"3\" fill=\"{}\"", Ink::AccentSoft),
        );
        // A value that is not 0 is seen.
        let width = if share > 0.0 { ((right - left) * share).max(1.5) } else { 0.0 };
        drawing.rectangle([left, middle + 5.0], [width, 18.0], &format!("rx=\"3\" fill=\"{ink}\""));
        let value = shorten(&bar.text, WIDTH - right, TEXT);
        drawing.text([WIDTH - 2.0, base], &format!("text-anchor=\"end\"{weight}"), Ink::Ink, &value);
    };
    drawing.noted(&format!("{}: {}", bar.label, bar.text), draw);
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn labels_of_forty_letters_are_shown_whole_in_two_lines() {
        let svg =
            Bars::new("scores").full(1.0).strong_bar("African hunting dog, hyena dog, Cape dog", 0.5, "50%").svg();
        assert!(svg.contains(">African hunting dog,</text>") && svg.contains(">hyena dog, Cape dog</text>"), "{svg}");
        let bar = |label: &str| Bar { label: label.to_string(), value: 0.0, text: String::new(), strong: false };
        assert_eq!(bar("cat").lines(100.0), ["cat"]);
        let [first, second] = &bar(&"ä".repeat(100)).lines(100.0)[..] else { panic!("two lines") };
        assert!(first.chars().all(|letter| letter == 'ä') && second.ends_with('…'), "{first} {second}");
    }

    #[test]
    fn lengths_follow_values_and_whole_labels_can_be_read() {
        let long = "a label that goes on and on, far beyond what a line of this chart can hold";
        let svg =
            Bars::new("scores").full(1.0).bar("cat", 0.5, "50%").bar(long, 0.25, "25%").bar("?", f64::NAN, "-").svg();
        let widths: Vec<f64> = svg
            .lines()
            .filter(|line| line.contains("fill=\"var(--soft)\"") && line.starts_with("<rect"))
            .map(|line| line.split("width=\"").nth(1).and_then(|rest| rest.split('"').next()).expect("a width"))
            .map(|width| width.parse().expect("a number"))
            .collect();
        assert!(widths.len() == 3 && (widths[0] - 2.0 * widths[1]).abs() < 0.2 && widths[2] == 0.0, "{widths:?}");
        assert!(svg.contains(&format!("<title>{long}: 25%</title>")));
        assert_eq!(svg.matches(long).count(), 2, "in the title and the description, not in the picture");
    }
}
