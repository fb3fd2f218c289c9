//! The page of one image: what a model makes of it, to be looked at and played with.

mod attention;
pub mod index;
pub mod maps;
pub mod own;
pub mod packed;
mod sections;

use anyhow::Result;
use serde_json::{Value, json};
use vitreous_data::image::Image;
use vitreous_explain::{Explanation, Layout, Reader};
use vitreous_models::{Model, VitConfig};
use vitreous_pages::{Document, base64, colour, escape, png_uri};

use crate::pages::flow;
use crate::prepared::PartSeen;

use own::Own;
use packed::Kept;

pub use sections::{class_name, distance_charts};

/// What kind of page it is.
pub const KIND: &str = "explain";
const STYLE: &str = include_str!("explain.css");
const SCRIPT: &str = include_str!("explain.js");
/// Images of fewer pixels a side are shown with hard edges; larger ones are photographs.
pub const HARD_EDGES_BELOW: usize = 128;

/// All that a page shows.
pub struct Subject<'a> {
    /// The image's file, as the user named it.
    pub path: &'a str,
    /// The model.
    pub model: &'a Model,
    /// The image as the model sees it.
    pub seen: &'a Image,
    /// How much of the image that is.
    pub part: PartSeen,
    /// What the model makes of it.
    pub explanation: &'a Explanation,
    /// What the model looks like by itself.
    pub own: &'a Own,
    /// The drawing of the data flow.
    pub flow: &'a str,
    /// How many classes are shown.
    pub top: usize,
}

/// The page.
pub fn page(subject: &Subject) -> Result<String> {
    let name = subject.path.rsplit(['/', '\\']).next().unwrap_or(subject.path);
    let kept = Kept::within_budget(subject.explanation);
    let mut document = Document::new(&format!("Inside the model: {name}"));
    document.kind(KIND).style(flow::STYLE);
    document.lead(&lead(subject)).style(&root_style(subject)?).style(&scale_style()).style(STYLE);
    document
        .section("prediction", "What it sees and says", &sections::prediction(subject)?)
        .section("attention", "Attention", &attention::section(subject, kept)?)
        .section("rollout", "Attention rollout", &sections::rollout(subject)?)
        .section("relevance", "Relevance", &sections::relevance(subject)?)
        .section("distance", "How far and how widely heads look", &sections::distance(subject.explanation))
        .section("model", "The model by itself", &subject.own.html)
        .section("flow", "The data flow", &sections::flow(subject.flow));
    document.data("explain-data", &data(subject, kept)).script(SCRIPT);
    Ok(document.finish())
}

fn lead(subject: &Subject) -> String {
    let config = &subject.model.config;
    let from = subject.model.path.as_ref().map(|path| path.display().to_string()).unwrap_or_default();
    format!(
        "<p>What a Vision Transformer of {} layers with {} heads makes of one image, seen as {} tokens: {}. \
         Layers, heads, rows and columns count from 0.</p>\
         <dl class=\"facts\"><dt>Image</dt><dd class=\"mono\">{}</dd><dt>Model</dt><dd class=\"mono\">{}</dd></dl>",
        config.depth,
        config.heads,
        subject.explanation.layout.tokens(),
        escape(&tokens_in_words(subject)),
        escape(subject.path),
        escape(&from),
    )
}

fn tokens_in_words(subject: &Subject) -> String {
    let layout = &subject.explanation.layout;
    let (config, registers) = (&subject.model.config, subject.model.config.registers);
    let mut parts = prefix_names(config);
    if registers > 1 {
        parts.truncate(layout.prefix - registers);
        parts.push(format!("{registers} registers"));
    }
    parts.push(format!("{} patches of {} pixels in {} rows", layout.patches(), layout.patch, layout.grid.height));
    parts.join(", ")
}

/// What the tokens in front of the patches are called.
fn prefix_names(config: &VitConfig) -> Vec<String> {
    let special = [("class token", config.class_token), ("distillation token", config.distillation_token)];
    let special = special.into_iter().filter(|(_, there)| *there).map(|(name, _)| name.to_string());
    special.chain((0..config.registers).map(|register| format!("register {register}"))).collect()
}

/// Whose attention stands for the whole image's, in words.
pub fn reader_name(layout: &Layout) -> &'static str {
    match layout.reader {
        Reader::ClassToken => "class token",
        Reader::MeanOfPatches => "mean of patches",
    }
}

/// What the mean over the heads that are shown is called: where some were chosen, it is of those alone.
pub fn mean_name(explanation: &Explanation, config: &VitConfig) -> String {
    let chosen = explanation.attention.first().map_or(&[][..], |layer| &layer.heads);
    let numbers: Vec<String> = chosen.iter().map(ToString::to_string).collect();
    match chosen.len() {
        all if all == config.heads => "mean over heads".to_string(),
        1 => format!("mean of head {}", numbers[0]),
        _ => format!("mean of heads {}", numbers.join(", ")),
    }
}

/// The image once, for everything that lies over it.
fn root_style(subject: &Subject) -> Result<String> {
    let (width, height) = (subject.seen.width(), subject.seen.height());
    let rendering = if width.max(height) < HARD_EDGES_BELOW { "pixelated" } else { "auto" };
    let (uri, opacity) = (png_uri(subject.seen)?, maps::OPACITY);
    Ok(format!(
        ":root {{ --seen: url({uri}); --shape: {width} / {height}; --rendering: {rendering}; --heat: {opacity}; }}\n"
    ))
}

/// The bar of colours beside numbers.
fn scale_style() -> String {
    let stops: Vec<String> = (0..=16).map(|stop| colour::hex(colour::sequential(stop as f32 / 16.0))).collect();
    format!(":root {{ --scale: linear-gradient(to right, {}); }}\n", stops.join(", "))
}

fn data(subject: &Subject, kept: Kept) -> Value {
    let explanation = subject.explanation;
    let layout = &explanation.layout;
    let colours: Vec<u8> = (0..=255).flat_map(|step| colour::sequential(step as f32 / 255.0)).collect();
    let layers: Vec<Value> = explanation.attention.iter().map(|layer| packed::layer(layer, layout, kept)).collect();
    json!({
        "grid": [layout.grid.height, layout.grid.width],
        "prefix": prefix_names(&subject.model.config),
        "reader": reader_name(layout),
        "mean": mean_name(explanation, &subject.model.config),
        "kept": kept.name(),
        "colours": base64(&colours),
        "layers": layers,
    })
}
