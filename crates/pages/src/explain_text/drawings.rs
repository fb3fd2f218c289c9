//! Drawings of cross-attention: lines between words, and a heat map with words on its axes.

use crate::chart::{Cell, Drawing, Ink, Matrix, TEXT, shorten, text_width};
use vitreous_data::text::Word;
use vitreous_explain::text::Link;

use super::words::Words;

/// Where words and lines stand: the page's script draws lines again from the same numbers.
pub struct Lines {
    /// Where lines begin, behind the words of the source.
    pub left: f64,
    /// Where they end.
    pub right: f64,
    /// The height of the first word.
    pub top: f64,
    /// From word to word.
    pub step: f64,
}

/// The widest that a word may be.
const WIDEST: f64 = 190.0;
/// From the words of the source to those of the translation.
const GAP: f64 = 110.0;

impl Lines {
    /// For these words.
    pub fn of(words: &Words) -> Lines {
        let left = widest(plain(&words.source)) + 8.0;
        Lines { left, right: left + GAP, top: 44.0, step: 26.0 }
    }

    fn height(&self, index: usize) -> f64 {
        self.top + self.step * index as f64
    }
}

fn widest(words: &[Word]) -> f64 {
    words.iter().map(|word| text_width(&word.text, TEXT)).fold(80.0, f64::max).min(WIDEST)
}

/// The alignment of a layer: the source on the left, the translation on the right, a line for each of its words.
pub fn alignment(words: &Words, layer: usize) -> String {
    let (source, target) = (plain(&words.source), plain(&words.written));
    let links = words.links.get(layer).map(Vec::as_slice).unwrap_or_default();
    let rows = source.len().max(target.len()).max(1);
    let said = links.iter().map(|link| format!("{} to {}", target[link.target].text, source[link.source].text));
    let description = format!("Alignment of the translation to the source: {}.", said.collect::<Vec<_>>().join(", "));
    let title = format!("Word alignment by layer {layer}");
    let lines = Lines::of(words);
    let (left, right) = (lines.left, lines.right);
    let mut drawing = Drawing::new(&title, &description, right + 8.0 + widest(target), lines.height(rows));
    drawing.text([left - 8.0, 16.0], "text-anchor=\"end\"", Ink::Soft, "source");
    drawing.text([right + 8.0, 16.0], "", Ink::Soft, "translation");
    drawing.group("id=\"links\" fill=\"none\"", |drawing| {
        for link in links {
            let [from, to] = [link.source, link.target].map(|word| lines.height(word));
            let middle = (left + right) / 2.0;
            drawing
                .path(&format!("M{left:.1} {from}C{middle:.1} {from} {middle:.1} {to} {right:.1} {to}"), &line(link));
        }
    });
    for (words, x, anchor) in [(source, left - 8.0, "text-anchor=\"end\""), (target, right + 8.0, "")] {
        for (index, word) in words.iter().enumerate() {
            drawing.text([x, lines.height(index) + 5.0], anchor, Ink::Ink, &shorten(&word.text, WIDEST, TEXT));
        }
    }
    drawing.finish()
}

/// The words before the end.
fn plain(words: &[Word]) -> &[Word] {
    &words[..words.len().saturating_sub(1)]
}

/// The larger the weight, the stronger the line.
fn line(link: &Link) -> String {
    let weight = link.weight.clamp(0.0, 1.0);
    format!(
        "stroke=\"{}\" stroke-width=\"{:.1}\" stroke-opacity=\"{:.2}\" data-target=\"{}\" data-source=\"{}\"",
        Ink::Accent,
        1.0 + 4.0 * weight,
        0.35 + 0.65 * weight,
        link.target,
        link.source
    )
}

/// Cross-attention of a layer, the mean over its heads, between words.
pub fn heat_map(words: &Words, layer: usize) -> String {
    let weights = words.between.get(layer).map(Vec::as_slice).unwrap_or_default();
    let largest = weights.iter().copied().fold(0.0, f32::max).max(f32::MIN_POSITIVE);
    let names: Vec<&str> = words.source.iter().map(|word| word.text.as_str()).collect();
    let mut matrix = Matrix::new(&format!("Cross-attention of layer {layer}, mean over heads"))
        .describe("Attention weight of each word of the translation (row) on each word of the source (column).")
        .axes("translation", "source")
        .columns(&names)
        .scale("0 %", &format!("{:.0} %", 100.0 * largest));
    for (word, row) in words.written.iter().zip(weights.chunks_exact(words.source.len().max(1))) {
        let cell = |(&weight, name): (&f32, &&str)| {
            let note = format!("{} attends to {name}: {:.1} %", word.text, 100.0 * weight);
            Cell::new(weight / largest).text(&format!("{:.0}", 100.0 * weight)).note(&note)
        };
        matrix = matrix.row(&word.text, row.iter().zip(&names).map(cell).collect());
    }
    matrix.svg()
}
