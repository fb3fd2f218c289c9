//! A builder of SVG elements: shapes, texts, and their text alternatives.

use std::fmt::Write;

use super::TEXT;
use crate::escape;

/// A colour that follows the page's light or dark.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Ink {
    /// Text and what matters.
    Ink,
    /// Text of less weight.
    Soft,
    /// Thin lines.
    Line,
    /// The ground under charts.
    Card,
    /// The ground under cards.
    Paper,
    /// Emphasis.
    Accent,
    /// A background with light emphasis.
    AccentSoft,
}

impl Ink {
    /// All of them.
    pub(super) const ALL: [Ink; 7] =
        [Ink::Ink, Ink::Soft, Ink::Line, Ink::Card, Ink::Paper, Ink::Accent, Ink::AccentSoft];

    /// The page's CSS variable, for `fill` and `stroke`.
    pub fn variable(self) -> &'static str {
        match self {
            Ink::Ink => "var(--ink)",
            Ink::Soft => "var(--soft)",
            Ink::Line => "var(--line)",
            Ink::Card => "var(--card)",
            Ink::Paper => "var(--paper)",
            Ink::Accent => "var(--accent)",
            Ink::AccentSoft => "var(--accent-soft)",
        }
    }
}

impl std::fmt::Display for Ink {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.write_str(self.variable())
    }
}

/// An SVG element as it grows. Attributes are written by the program, never by its users; texts are escaped.
#[derive(Clone, Debug)]
pub struct Drawing {
    title: String,
    description: String,
    width: f64,
    height: f64,
    class: String,
    body: String,
}

impl Drawing {
    /// An empty one: its name, its text alternative, its size.
    pub fn new(title: &str, description: &str, width: f64, height: f64) -> Drawing {
        let (title, description) = (title.to_string(), description.to_string());
        Drawing { title, description, width, height, class: "chart".to_string(), body: String::new() }
    }

    /// With one more class, for rules of style.
    pub fn class(mut self, name: &str) -> Drawing {
        self.class = format!("{} {name}", self.class);
        self
    }

    /// A rectangle with its top left corner, width and height.
    pub fn rectangle(&mut self, [x, y]: [f64; 2], [width, height]: [f64; 2], attributes: &str) {
        let (x, y, width, height) = (number(x), number(y), number(width.max(0.0)), number(height.max(0.0)));
        let _ = writeln!(self.body, "<rect x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" {attributes}/>");
    }

    /// A straight line.
    pub fn line(&mut self, [x1, y1]: [f64; 2], [x2, y2]: [f64; 2], attributes: &str) {
        self.path(&format!("M{} {}L{} {}", number(x1), number(y1), number(x2), number(y2)), attributes);
    }

    /// A path, of the commands of SVG.
    pub fn path(&mut self, commands: &str, attributes: &str) {
        let _ = writeln!(self.body, "<path d=\"{commands}\" {attributes}/>");
    }

    /// A disc.
    pub fn disc(&mut self, [x, y]: [f64; 2], radius: f64, attributes: &str) {
        let (x, y, radius) = (number(x), number(y), number(radius));
        let _ = writeln!(self.body, "<circle cx=\"{x}\" cy=\"{y}\" r=\"{radius}\" {attributes}/>");
    }

    /// Text, with the left end of its base line unless the attributes say otherwise.
    pub fn text(&mut self, [x, y]: [f64; 2], attributes: &str, ink: Ink, text: &str) {
        self.colored_text([x, y], attributes, ink.variable(), text);
    }

    /// Text in any colour that CSS knows.
    pub fn colored_text(&mut self, [x, y]: [f64; 2], attributes: &str, colour: &str, text: &str) {
        let (x, y, text) = (number(x), number(y), plain(text));
        let _ = writeln!(self.body, "<text x=\"{x}\" y=\"{y}\" fill=\"{colour}\" {attributes}>{text}</text>");
    }

    /// A group of what `inside` draws, with a tooltip.
    pub fn noted(&mut self, note: &str, inside: impl FnOnce(&mut Drawing)) {
        let _ = write!(self.body, "<g><title>{}</title>", plain(note));
        inside(self);
        self.body.push_str("</g>\n");
    }

    /// A group of what `inside` draws, with attributes.
    pub fn group(&mut self, attributes: &str, inside: impl FnOnce(&mut Drawing)) {
        let _ = writeln!(self.body, "<g {attributes}>");
        inside(self);
        self.body.push_str("</g>\n");
    }

    /// A picture: its address, as [`crate::png_uri`] gives it, its place and size. Its pixels are shown as squares.
    pub fn picture(&mut self, uri: &str, [x, y]: [f64; 2], [width, height]: [f64; 2]) {
        let (x, y, width, height) = (number(x), number(y), number(width), number(height));
        let _ = writeln!(
            self.body,
            "<image x=\"{x}\" y=\"{y}\" width=\"{width}\" height=\"{height}\" preserveAspectRatio=\"none\" \
             style=\"image-rendering:pixelated\" href=\"{uri}\"/>"
        );
    }

    /// Makes it higher, for what turned out to need more room.
    pub fn grow_to(&mut self, height: f64) {
        self.height = self.height.max(height);
    }

    /// The element.
    pub fn finish(self) -> String {
        let (width, height) = (number(self.width), number(self.height));
        format!(
            "<svg class=\"{}\" role=\"img\" aria-label=\"{}\" viewBox=\"0 0 {width} {height}\" width=\"{width}\" \
             height=\"{height}\" font-size=\"{TEXT}\" \
             font-family=\"system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif\">\n<desc>{}</desc>\n{}</svg>",
            self.class,
            plain(&self.title),
            plain(&self.description),
            self.body
        )
    }
}

/// A coordinate, rounded to a tenth.
pub(super) fn number(value: f64) -> String {
    let text = format!("{value:.1}");
    let text = text.strip_suffix(".0").unwrap_or(&text);
    if text == "-0" { "0".to_string() } else { text.to_string() }
}

/// Escaped text; characters that XML forbids become replacement characters.
fn plain(text: &str) -> String {
    let allowed = |letter: char| match letter {
        '\u{fffe}' | '\u{ffff}' => '\u{fffd}',
        letter if letter.is_control() => '\u{fffd}',
        letter => letter,
    };
    escape(&text.chars().map(allowed).collect::<String>())
}

/// About how wide a text will be: nobody knows the reader's font. The classes are those of a wide one, so that it is rather too
/// wide than too narrow.
pub fn text_width(text: &str, size: f64) -> f64 {
    let of = |letter: char| match letter {
        'i' | 'j' | 'l' | 'I' | '.' | ',' | ':' | ';' | '\'' | '|' | '!' | ' ' => 0.33,
        'f' | 't' | 'r' | '(' | ')' | '[' | ']' | '-' | '/' => 0.41,
        'c' | 's' | 'z' | 'k' | 'v' | 'x' | 'y' | '_' => 0.58,
        'm' | 'w' | 'M' | 'W' | '%' => 0.97,
        'A'..='Z' => 0.73,
        '+' | '=' | '<' | '>' | '\u{d7}' | '\u{2190}'..='\u{22ff}' => 0.84,
        '\0'..='\u{52f}' => 0.64,
        '\u{2010}'..='\u{2015}' | '\u{2018}'..='\u{201e}' => 0.6,
        _ => 1.0,
    };
    text.chars().map(of).sum::<f64>() * size
}

/// A text cut to a width, with an ellipsis where it was cut.
pub fn shorten(text: &str, width: f64, size: f64) -> String {
    if text_width(text, size) <= width {
        return text.to_string();
    }
    let mut cut = String::new();
    for letter in text.chars() {
        cut.push(letter);
        if text_width(&cut, size) + size > width {
            cut.pop();
            break;
        }
    }
    format!("{}\u{2026}", cut.trim_end())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn coordinates_are_short() {
        assert_eq!([1.0, 1.26, -0.04, 100.0].map(number), ["1", "1.3", "0", "100"]);
    }

    #[test]
    fn long_texts_are_cut_and_say_so() {
        assert_eq!(shorten("cat", 100.0, 14.0), "cat");
        let long = shorten(&"panther ".repeat(40), 100.0, 14.0);
        assert!(long.ends_with('\u{2026}') && text_width(&long, 14.0) <= 110.0, "{long}");
        assert_eq!(shorten("\u{65e5}\u{672c}\u{8a9e}\u{306e}\u{732b}", 10.0, 14.0), "\u{2026}");
    }
}
