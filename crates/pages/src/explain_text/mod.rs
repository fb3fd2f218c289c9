//! The page of one sentence and its translation: attention between words, to look at and to explore.

pub mod drawings;
mod packed;
pub mod sections;
pub mod words;

use crate::token_map::{self, packed::BUDGET};
use crate::{Document, colour, format};
use serde_json::{Value, json};
use vitreous_data::text::Word;
use vitreous_explain::text::{TextAttention, TextExplanation, usual_layer};

use words::{PairPieces, Side, Words};

/// The kind of this page.
pub const KIND: &str = "explain-text";
const STYLE: &str = include_str!("explain_text.css");
const SCRIPT: &str = include_str!("explain_text.js");

/// What the page of one sentence shows.
pub struct SentencePage<'a> {
    /// The source sentence.
    pub text: &'a str,
    /// The translation, which may be given and not the model's own.
    pub translation: &'a str,
    /// Whether it was given.
    pub is_given: bool,
    /// The model directory.
    pub model: &'a str,
    /// Layers of the encoder and of the decoder.
    pub layers: [usize; 2],
    /// Heads of every layer.
    pub heads: usize,
    /// The names of the model's tokens.
    pub pieces: &'a dyn PairPieces,
    /// The attention between both.
    pub explanation: &'a TextExplanation,
    /// Both as words.
    pub words: &'a Words,
}

impl SentencePage<'_> {
    /// The decoder layer that is shown first: the one that usually aligns best.
    pub fn usual_layer(&self) -> usize {
        usual_layer(self.explanation.cross_means.len())
    }
}

/// The page.
pub fn page(page: &SentencePage) -> String {
    let with_heads = packed::holds_heads(page.explanation, BUDGET);
    let mut document = Document::new(&format!("Inside the translator: {}", format::title(page.text)));
    document.kind(KIND).lead(&sections::lead(page)).style(&colour::scale_style());
    document.style(token_map::STYLE).style(STYLE);
    document
        .section("translation", "Cross-attention between words", &sections::translation(page))
        .section("alignment", "Word alignment", &sections::alignment(page))
        .section("attention", "Every layer and head", &sections::attention(page, with_heads))
        .section("sure", "Token probabilities", &sections::sure(page));
    document.data("explain-data", &data(page, with_heads)).script(&token_map::script(&[], SCRIPT));
    document.finish()
}

fn data(page: &SentencePage, with_heads: bool) -> Value {
    let SentencePage { explanation, words, .. } = page;
    let side = |side: Side, tokens: &[u32], words: &[Word]| {
        let groups: Vec<Value> =
            words.iter().map(|word| json!([word.text, word.tokens.start, word.tokens.end])).collect();
        let pieces: Vec<String> = tokens.iter().map(|&token| page.pieces.shown(side, token)).collect();
        json!({ "pieces": pieces, "words": groups })
    };
    let (source, target) = (Side::Source, Side::Target);
    let layers = |layers: &[TextAttention]| -> Vec<Value> {
        layers.iter().map(|attention| token_map::packed::layer(attention, with_heads)).collect()
    };
    let links = words.links.iter().map(|links| links.iter().map(|l| json!([l.target, l.source, l.weight])).collect());
    let lines = drawings::Lines::of(words);
    json!({
        "source": side(source, &explanation.source, &words.source),
        "read": side(target, &explanation.read, &words.read),
        "written": side(target, &explanation.written, &words.written),
        "heads": explanation.cross.first().or(explanation.encoder.first()).map(|layer| &layer.heads),
        "hasHeads": with_heads,
        "encoder": layers(&explanation.encoder),
        "decoder": layers(&explanation.decoder),
        "cross": layers(&explanation.cross),
        "between": words.between.iter().map(|weights| token_map::packed::weights(weights)).collect::<Vec<_>>(),
        "links": links.collect::<Vec<Value>>(),
        "layer": page.usual_layer(),
        "lines": { "left": lines.left, "right": lines.right, "top": lines.top, "step": lines.step },
    })
}
