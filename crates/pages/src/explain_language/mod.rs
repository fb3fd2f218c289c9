//! The page of one text in a language model: what it says next, how sure it was of every token, what every layer would say, which parts speak for the
//! answer, what happens without them, and attention between tokens.

mod sections;

use serde_json::json;
use vitreous_explain::inside::{Attribution, HeadEffects, HeadScores, PatchEffects};

use crate::explain_encoder::{self as encoder, TextPage};
use crate::token_map::{self, packed};
use crate::{Document, colour, escape, format, inside};

/// The kind of this page.
pub const KIND: &str = "explain-language";
const STYLE: &str = include_str!("explain_language.css");

/// A token of the vocabulary with its name.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct NamedToken {
    /// Its number.
    pub id: u32,
    /// As the tokenizer writes it.
    pub name: String,
}

/// A vector's path and token, and the tokens nearest to it with their cosines.
pub type NearestWords = (String, Vec<(NamedToken, f32)>);

/// What the page of one text shows, and its JSON and arrays have.
#[derive(Clone, Debug)]
pub struct LanguagePage {
    /// The text, its tokens, their attention, and what every layer would say next (as fillings).
    pub text: TextPage,
    /// Of every token but the first: its probability and its rank among all tokens, given those before it.
    pub actual: Vec<Option<(f32, usize)>>,
    /// The token after which the next one is explained.
    pub position: usize,
    /// The next token that is explained.
    pub target: NamedToken,
    /// What each part adds to its logit; or why that cannot be said.
    pub attribution: Result<Attribution, String>,
    /// What happens to it without each head.
    pub effects: HeadEffects,
    /// Scores of all heads on this text, by layer.
    pub scores: Vec<Vec<HeadScores>>,
    /// The same on random tokens that are repeated.
    pub repeated_scores: Vec<Vec<HeadScores>>,
    /// Activation patching from another text.
    pub patching: Option<Patching>,
    /// Tokens that are nearest to a vector: its path and token, and their names and cosines.
    pub nearest: Vec<NearestWords>,
    /// The edits that the model was run with, in words.
    pub edits: Vec<String>,
}

/// Activation patching from another text.
#[derive(Clone, Debug)]
pub struct Patching {
    /// The other text and its tokens.
    pub text: String,
    /// Its tokens.
    pub tokens: Vec<String>,
    /// The token that the other text makes most probable.
    pub against: NamedToken,
    /// The difference of the two logits.
    pub effects: PatchEffects,
}

/// The page.
pub fn page(page: &LanguagePage) -> String {
    let kept = encoder::Kept::of(&page.text, packed::BUDGET);
    let title = page.text.texts.first().map_or(String::new(), |(_, text)| format::title(text));
    let mut document = Document::new(&format!("Inside the language model: {title}"));
    document.kind(KIND).lead(&lead(page)).style(&colour::scale_style()).style(token_map::STYLE);
    document.style(encoder::STYLE).style(inside::STYLE).style(STYLE);
    document.section("next", "What comes next", &sections::next(page));
    document.section("surprise", "How sure it was of every token", &sections::surprise(page));
    document.section("layers", "What every layer would say", &sections::lens(page));
    document.section("attribution", "Which parts speak for it", &sections::attribution(page));
    document.section("effects", "Without each head", &inside::effects(&page.effects, &sections::target(page)));
    if let Some(patching) = &page.patching {
        document.section("patching", "Patching from another text", &sections::patching(page, patching));
    }
    document.section("kinds", "What kind of heads they are", &sections::heads(page));
    if !page.nearest.is_empty() {
        document.section("nearest", "Nearest words of vectors", &sections::nearest(page));
    }
    if !page.text.attention.is_empty() {
        document.section("attention", "Attention of every layer and head", &encoder::maps(&page.text, kept));
        document.section("lines", "Attention from token to token", &encoder::lines(&page.text));
        let mut data = encoder::data(&page.text, kept);
        data["fillings"]["first"] = json!(page.position);
        document.data("explain-data", &data).script(&token_map::script(encoder::MODULES, encoder::SCRIPT));
    }
    document.finish()
}

fn lead(page: &LanguagePage) -> String {
    let fact = |name: &str, html: &str| format!("<dt>{name}</dt><dd>{html}</dd>");
    let texts = page.text.texts.iter().map(|(name, text)| fact(name, &format!("<bdi>{}</bdi>", escape(text))));
    let mut facts: String = texts.collect();
    facts.push_str(&fact("Tokens", &page.text.tokens.len().to_string()));
    facts.push_str(&fact("Model", &format!("<span class=\"mono\">{}</span>", escape(&page.text.model))));
    if !page.edits.is_empty() {
        let edits: Vec<String> = page.edits.iter().map(|edit| format!("<code>{}</code>", escape(edit))).collect();
        facts.push_str(&fact("Edited", &edits.join(", ")));
    }
    format!(
        "<p>A decoder-only Transformer and one text: {} with {} each. Layers, heads and tokens count from 0.</p><dl class=\"facts\">{facts}</dl>",
        format::count(page.text.layers, "layer", "layers"),
        format::count(page.text.heads, "head", "heads"),
    )
}
