//! The page of one text in an encoder: its answer, the relevance of each token, attention between tokens, what each layer would fill in.

mod attention;
mod fillings;
pub mod json;
mod prediction;
mod relevance;

use serde_json::{Value, json};
use vitreous_explain::encoder::{Attributions, Target};
use vitreous_explain::inside::{Attribution, HeadEffects};
use vitreous_explain::text::TextAttention;

use crate::token_map::{self, packed};
use crate::views::View;
use crate::{Document, colour, escape, format, inside};

pub(crate) use attention::{Kept, lines, maps};
pub(crate) use fillings::{of_all, of_token};

/// The kind of this page.
pub const KIND: &str = "explain-encoder";
pub(crate) const STYLE: &str = include_str!("explain_encoder.css");
pub(crate) const SCRIPT: &str = include_str!("explain_encoder.js");
/// What the script uses beyond the map.
pub(crate) const MODULES: &[View] = &[View::Lines];

/// What the page of one text shows, and its JSON and arrays have.
#[derive(Clone, Debug)]
pub struct TextPage {
    /// What was given: `Text`, `Second text`, `Question`, `Context`.
    pub texts: Vec<(&'static str, String)>,
    /// The model directory.
    pub model: String,
    /// Layers of the model.
    pub layers: usize,
    /// Heads of every layer.
    pub heads: usize,
    /// The tokens as the tokenizer writes them, special ones too.
    pub tokens: Vec<String>,
    /// Their ids.
    pub ids: Vec<u32>,
    /// Whether the tokenizer added them.
    pub special: Vec<bool>,
    /// The model's answer.
    pub prediction: TextPrediction,
    /// The attention of the chosen layers and heads.
    pub attention: Vec<TextAttention>,
    /// The relevance of each token, for one or more numbers.
    pub relevance: Vec<TokenRelevance>,
    /// Why there is no relevance, or not all of it.
    pub relevance_note: Option<String>,
    /// What each layer would fill in: empty without a masked-token head.
    pub fillings: Vec<NamedFillings>,
    /// Tokens that are masked.
    pub masked: Vec<usize>,
}

/// What a model says of a text.
#[derive(Clone, Debug)]
pub enum TextPrediction {
    /// The most probable classes or labels, of so many.
    Classes {
        /// The most probable first.
        top: Vec<ScoredClass>,
        /// Number of classes.
        count: usize,
        /// Whether several may apply.
        several: bool,
    },
    /// Numbers with their names.
    Numbers(Vec<(String, f32)>),
    /// The class of each token; `None` for special tokens.
    TokenClasses(Vec<Option<ScoredClass>>),
    /// Answers to the question, the best first, with their probabilities.
    Answers(Vec<(String, f64)>),
    /// The masks of a text are in its fillings.
    Masked,
    /// A vector.
    Vector {
        /// Its numbers.
        width: usize,
        /// Its length.
        length: f64,
        /// How tokens were pooled: `mean`.
        pooling: &'static str,
        /// Another text and the cosine with its vector.
        similarity: Option<(String, f64)>,
    },
}

/// A class with its probability.
#[derive(Clone, Debug, PartialEq)]
pub struct ScoredClass {
    /// Its number.
    pub index: usize,
    /// Its name.
    pub label: String,
    /// Its probability.
    pub score: f64,
}

/// The relevance of each token for one number.
#[derive(Clone, Debug)]
pub struct TokenRelevance {
    /// The number.
    pub target: Target,
    /// What it is in words, as in "the logit of class good".
    pub name: String,
    /// What it is called in arrays.
    pub key: String,
    /// By gradient x attention, one per token.
    pub gradient_attention: Vec<f32>,
    /// By integrated gradients.
    pub integrated: Option<Attributions>,
    /// What the embedding, each head and each MLP add to it, if it is a logit that is the sum of its parts.
    pub parts: Option<Attribution>,
    /// What its log-probability is without each head and each MLP: of the first number, if it is the logit of one of several outputs.
    pub effects: Option<HeadEffects>,
}

/// What one layer would fill in, by the names of tokens.
#[derive(Clone, Debug)]
pub struct NamedFillings {
    /// Which layer, from 0; `None` for the embeddings.
    pub layer: Option<usize>,
    /// For each token, the most probable ones in its place: id, name and probability.
    pub tokens: Vec<Vec<(u32, String, f32)>>,
}

/// The page.
pub fn page(page: &TextPage) -> String {
    let kept = Kept::of(page, packed::BUDGET);
    let title = page.texts.first().map_or(String::new(), |(_, text)| format::title(text));
    let mut document = Document::new(&format!("Inside the encoder: {title}"));
    document
        .kind(KIND)
        .lead(&lead(page))
        .style(&colour::scale_style())
        .style(token_map::STYLE)
        .style(inside::STYLE)
        .style(STYLE);
    document.section("prediction", "Prediction", &prediction::section(page));
    document.section("relevance", "Relevance of each token", &relevance::section(page));
    for relevance in &page.relevance {
        if let Some(effects) = &relevance.effects {
            let output = format!("the output that relevance is shown for first ({})", escape(&relevance.name));
            document.section("effects", "Without each head", &inside::effects(effects, &output));
        }
    }
    if !page.attention.is_empty() {
        document.section("attention", "Attention of every layer and head", &maps(page, kept));
        document.section("lines", "Attention from token to token", &lines(page));
    }
    if !page.fillings.is_empty() {
        document.section("fillings", "What each layer would fill in", &fillings::section(page));
    }
    if !page.attention.is_empty() {
        document.data("explain-data", &data(page, kept)).script(&token_map::script(MODULES, SCRIPT));
    }
    document.finish()
}

fn lead(page: &TextPage) -> String {
    let fact = |name: &str, html: &str| format!("<dt>{name}</dt><dd>{html}</dd>");
    let texts: String =
        page.texts.iter().map(|(name, text)| fact(name, &format!("<bdi>{}</bdi>", escape(text)))).collect();
    let special = page.special.iter().filter(|special| **special).count();
    format!(
        "<p>An encoder-only Transformer and one text: {} with {} each. Layers, heads and tokens count from 0.</p>\
         <dl class=\"facts\">{texts}{}{}</dl>",
        format::count(page.layers, "layer", "layers"),
        format::count(page.heads, "head", "heads"),
        fact("Tokens", &format!("{}, of which the tokenizer added {special}", page.tokens.len())),
        fact("Model", &format!("<span class=\"mono\">{}</span>", escape(&page.model))),
    )
}

/// A token as HTML, wherever it may be put: its letters are no markup, and their direction ends with it.
pub(crate) fn token(name: &str) -> String {
    format!("<bdi>{}</bdi>", escape(name))
}

pub(crate) fn data(page: &TextPage, kept: Kept) -> Value {
    let layers: Vec<Value> = kept.layers(page).iter().map(|attention| packed::layer(attention, kept.heads)).collect();
    json!({
        "tokens": page.tokens,
        "layers": layers,
        "heads": if kept.heads { page.attention.first().map(|layer| layer.heads.clone()) } else { None }.unwrap_or_default(),
        "fillings": fillings::data(page),
    })
}
