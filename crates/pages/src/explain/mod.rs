//! The page of one image: attention, rollout, relevance and more, to look at and to explore.

pub mod attention;
pub mod index;
pub mod json;
pub mod maps;
pub mod packed;
pub mod parts;
pub mod patches;
pub mod sections;
pub mod weights;

use serde_json::{Value, json};
use vitreous_data::image::{Image, ImageError};
use vitreous_explain::{Explanation, Reader, TokenGrid};
use vitreous_models::Size;

use crate::{Document, colour, escape, flow, inside, png_uri, views};
use vitreous_runtime::scores::{best, label, softmax};

use packed::Kept;
use weights::WeightPictures;

pub use sections::{class_name, distance_charts};

/// The kind of this page.
pub const KIND: &str = "explain";
const STYLE: &str = include_str!("explain.css");
const SCRIPT: &str = include_str!("explain.js");
/// Images with fewer pixels per side are shown with hard edges; larger ones are photographs.
pub const HARD_EDGES_BELOW: usize = 128;

/// How much of an image a model sees.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct PartSeen {
    /// The image's own size.
    pub image: Size,
    /// The part in its middle, in the image's own pixels.
    pub seen: Size,
}

impl PartSeen {
    /// The share of the image's area.
    pub fn share(self) -> f64 {
        let area = |size: Size| size.height as f64 * size.width as f64;
        area(self.seen) / area(self.image).max(1.0)
    }
}

type Result<T> = std::result::Result<T, ImageError>;

/// What pages say about a model for images.
#[derive(Clone, Debug)]
pub struct ImageModel {
    /// The model directory or file.
    pub path: String,
    /// Names of the classes; empty where the model has none.
    pub labels: Vec<String>,
    /// Number of layers.
    pub layers: usize,
    /// Heads per layer.
    pub heads: usize,
    /// Names of the tokens in front of the patches: `class token`, `register 0`.
    pub prefix: Vec<String>,
}

/// What the page of one image shows.
pub struct ImagePage<'a> {
    /// The image's file, as the user named it.
    pub path: &'a str,
    /// The model.
    pub model: &'a ImageModel,
    /// The image as the model sees it.
    pub seen: &'a Image,
    /// How much of the image that is.
    pub part: PartSeen,
    /// What was computed of it.
    pub explanation: &'a Explanation,
    /// What parts of the model do for its class, if it has a head.
    pub parts: Option<&'a parts::ImageParts>,
    /// Pictures of the model's weights.
    pub weights: &'a WeightPictures,
    /// The drawing of the data flow.
    pub flow: &'a str,
    /// How many classes are shown.
    pub top: usize,
}

/// The page.
pub fn page(page: &ImagePage) -> Result<String> {
    let name = page.path.rsplit(['/', '\\']).next().unwrap_or(page.path);
    let kept = Kept::within_budget(page.explanation);
    let mut document = Document::new(&format!("Inside the model: {name}"));
    document.kind(KIND).style(flow::STYLE);
    document.lead(&lead(page)).style(&root_style(page)?).style(&colour::scale_style()).style(STYLE);
    document.section("attention", "Attention", &attention::section(page, kept)?);
    if let Some(features) = &page.explanation.patches {
        document.section("patches", "Patch features", &patches::section(&page.explanation.layout, features)?);
    }
    document
        .section("prediction", "Input and prediction", &sections::prediction(page)?)
        .section("rollout", "Attention rollout", &sections::rollout(page)?)
        .section("relevance", "Relevance", &sections::relevance(page)?)
        .section("distance", "Attention distance and entropy", &sections::distance(page.explanation));
    if let Some(parts) = page.parts {
        document.style(inside::STYLE);
        document.section("lens", "What every layer would say", &parts::lens(page, parts));
        document.section("attribution", "Which parts speak for it", &parts::attribution(page, parts));
        if let Some(effects) = parts::effects(page, parts) {
            document.section("effects", "Without each head", &effects);
        }
    }
    document.section("model", "Model weights", &page.weights.html).section(
        "flow",
        "Data flow",
        &sections::flow(page.flow),
    );
    document.data("explain-data", &data(page, kept)).script(&views::script(views::MAPS, SCRIPT));
    Ok(document.finish())
}

/// Few lines: the first screen is for attention.
fn lead(page: &ImagePage) -> String {
    let mut facts = vec![("Image", format!("<span class=\"mono\">{}</span>", escape(page.path)))];
    facts.push(("Model", format!("<span class=\"mono\">{}</span>", escape(&page.model.path))));
    if let Some((name, score)) = prediction(page) {
        facts.push(("Prediction", format!("<strong>{}</strong>, {:.1} %", escape(&name), 100.0 * score)));
    }
    let facts: String = facts.iter().map(|(name, html)| format!("<div><dt>{name}</dt><dd>{html}</dd></div>")).collect();
    format!(
        "<dl class=\"facts inline\">{facts}</dl><p class=\"note\">{} layers with {} heads each; {} tokens: {}. Layers, heads, \
         rows and columns count from 0.</p>",
        page.model.layers,
        page.model.heads,
        page.explanation.layout.tokens(),
        escape(&tokens_in_words(page)),
    )
}

/// The most probable class and its probability.
fn prediction(page: &ImagePage) -> Option<(String, f64)> {
    let scores = softmax(page.explanation.logits.as_ref()?);
    let class = *best(&scores, 1).first()?;
    Some((label(&page.model.labels, class), scores[class]))
}

fn tokens_in_words(page: &ImagePage) -> String {
    let layout = &page.explanation.layout;
    let (registers, mut parts): (Vec<String>, Vec<String>) =
        page.model.prefix.iter().cloned().partition(|name| name.starts_with("register "));
    match registers.len() {
        0 | 1 => parts.extend(registers),
        many => parts.push(format!("{many} registers")),
    }
    parts.push(format!("{} patches of {} pixels", layout.grid, layout.patch));
    parts.join(", ")
}

/// Whose attention stands for the whole image's, in words.
pub fn reader_name(layout: &TokenGrid) -> &'static str {
    match layout.reader {
        Reader::ClassToken => "class token",
        Reader::MeanOfPatches => "mean of patches",
    }
}

/// The name of the mean over the heads that are shown; where some were chosen, it is of those alone.
pub fn mean_name(explanation: &Explanation, model: &ImageModel) -> String {
    let chosen = explanation.attention.first().map_or(&[][..], |layer| &layer.heads);
    let numbers: Vec<String> = chosen.iter().map(ToString::to_string).collect();
    match chosen.len() {
        all if all == model.heads => "mean over heads".to_string(),
        1 => format!("mean of head {}", numbers[0]),
        _ => format!("mean of heads {}", numbers.join(", ")),
    }
}

/// The image once, for all maps over it.
fn root_style(page: &ImagePage) -> Result<String> {
    let (width, height) = (page.seen.width(), page.seen.height());
    let rendering = if width.max(height) < HARD_EDGES_BELOW { "pixelated" } else { "auto" };
    let (uri, opacity) = (png_uri(page.seen)?, maps::OPACITY);
    Ok(format!(
        ":root {{ --seen: url({uri}); --shape: {width} / {height}; --ratio: {:.4}; --rendering: {rendering}; --heat: {opacity}; }}\n",
        width as f64 / height as f64
    ))
}

fn data(page: &ImagePage, kept: Kept) -> Value {
    let explanation = page.explanation;
    let layout = &explanation.layout;
    let layers: Vec<Value> = explanation.attention.iter().map(|layer| packed::layer(layer, layout, kept)).collect();
    json!({
        "grid": [layout.grid.height, layout.grid.width],
        "prefix": page.model.prefix,
        "reader": reader_name(layout),
        "mean": mean_name(explanation, page.model),
        "kept": kept.name(),
        "layers": layers,
        "similarity": explanation.patches.as_ref().and_then(packed::similarity),
    })
}
