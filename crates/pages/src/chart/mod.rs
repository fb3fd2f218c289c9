//! Charts as SVG, with real text and a text alternative.
//!
//! Every chart is built from numbers and gives an `<svg>` element for a page. Colours of text, axes and grounds are the page's
//! variables, so the same element is right in light and dark; [`standalone`] makes a file of it that needs no page. A chart is
//! [`WIDTH`] wide with text of [`TEXT`], which a page shows as it is, and a phone at three quarters of it: both can be read.
//!
//! Values that are not finite are left out; a chart without any values says so.

mod axis;
mod bars;
mod dots;
mod drawing;
mod lines;
mod matrix;
mod reliability;
mod standalone;
mod thin;

pub use axis::Axis;
pub use bars::Bars;
pub use dots::Dots;
pub use drawing::{Drawing, Ink, shorten, text_width};
pub use lines::Lines;
pub use matrix::{Cell, Matrix};
pub use reliability::{ConfidenceBin, Reliability};
pub use standalone::standalone;

/// Style and script of a page with [`Lines::interactive`] charts. An input of id `smoothing` and an output of id `smoothing-value`,
/// where the page has them, smooth all of its curves.
pub const CURVES_STYLE: &str = include_str!("curves.css");
/// See [`CURVES_STYLE`].
pub const CURVES_SCRIPT: &str = include_str!("curves.js");

/// The width of a chart, in its own units: pixels, where the page has room.
pub const WIDTH: f64 = 480.0;
/// The height of text.
pub const TEXT: f64 = 14.0;

/// A chart without values.
fn nothing(title: &str) -> String {
    let mut drawing = Drawing::new(title, "There is nothing to draw yet.", WIDTH, 48.0);
    drawing.text([WIDTH / 2.0, 30.0], "text-anchor=\"middle\"", Ink::Soft, "nothing to draw yet");
    drawing.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Text that tries to leave its place, and text that XML forbids.
    const HOSTILE: &str = "</text></svg><script>alert(1)</script>\"'&\u{1b}[31m\u{0}\u{ffff}]]>";

    /// That it is one well-formed element with a name, and how many elements of a kind it has.
    fn count(svg: &str, kind: &str) -> usize {
        let file = standalone(svg);
        let tree = roxmltree::Document::parse(&file).unwrap_or_else(|error| panic!("{error}: {file}"));
        let root = tree.root_element();
        assert_eq!(root.tag_name().name(), "svg");
        assert_eq!(root.attribute("role"), Some("img"));
        assert!(root.attribute("aria-label").is_some_and(|label| !label.is_empty()));
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
        tree.descendants().filter(|node| node.tag_name().name() == kind).count()
    }

    #[test]
    fn nothing_in_gives_a_chart_that_says_so() {
        let unknown = [(0.0, f64::NAN), (f64::INFINITY, 1.0)];
        let charts = [
            Lines::new("t").svg(),
            Lines::new("t").series("a", &unknown).svg(),
            Lines::new("t").log_y().series("a", &[(0.0, 0.0), (1.0, -3.0)]).svg(),
            Bars::new("t").svg(),
            Dots::new("t").svg(),
            Dots::new("t").column(&[f64::NAN]).svg(),
            Matrix::new("t").svg(),
            Matrix::new("t").row("a", vec![]).svg(),
            Reliability::new("t").svg(),
        ];
        for chart in charts {
            assert_eq!(count(&chart, "text"), 1, "{chart}");
            assert!(chart.contains("nothing to draw yet"));
        }
    }

    #[test]
    fn texts_of_users_stay_texts() {
        let cell = || vec![Cell::new(0.5).text(HOSTILE).note(HOSTILE); 2];
        let bin = ConfidenceBin { low: 0.0, high: 1.0, confidence: 0.5, accuracy: 0.5, count: 3 };
        let charts = [
            Lines::new(HOSTILE).x(HOSTILE).y(HOSTILE).series(HOSTILE, &[(0.0, 1.0), (1.0, 2.0)]).svg(),
            Bars::new(HOSTILE).describe(HOSTILE).bar(HOSTILE, 1.0, HOSTILE).svg(),
            Dots::new(HOSTILE).x(HOSTILE).y(HOSTILE).column(&[1.0, 2.0]).svg(),
            Matrix::new(HOSTILE).axes(HOSTILE, HOSTILE).columns(&[HOSTILE, HOSTILE]).row(HOSTILE, cell()).svg(),
            Reliability::new(HOSTILE).bin(bin).svg(),
        ];
        for chart in charts {
            assert_eq!(count(&chart, "script"), 0);
            assert!(!chart.contains('\u{1b}') && !chart.contains('\u{0}'));
        }
    }
}
