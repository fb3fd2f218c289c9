//! The page of many images: the prediction for each, and attention distance and entropy over all of them.

use std::fmt::Write;

use super::Result;
use crate::{Document, colour, escape, image};
use vitreous_data::image::{Image, Interpolation, resize};
use vitreous_explain::{LayerSpread, TokenGrid};

use super::sections::{columns, describe_spread, distance_chart, entropy_chart, flow as flow_section};
use super::weights::WeightPictures;
use super::{ImageModel, STYLE};
use crate::flow;
use crate::format;

/// The kind of this page.
pub const KIND: &str = "explain-index";
/// The longer side of a thumbnail, in pixels.
const THUMBNAIL: usize = 160;
/// At most so many paths without an image are named.
const MOST_FAILED: usize = 100;

/// An image that has a page.
pub struct Entry {
    /// The image's file, as the user named it.
    pub path: String,
    /// The folder of its page, beside the index.
    pub folder: String,
    /// The image as the model sees it, small.
    pub thumbnail: Image,
    /// The most probable class and its probability, where the model has classes.
    pub answer: Option<(String, f64)>,
}

/// What the index shows.
pub struct Index<'a> {
    /// The model.
    pub model: &'a ImageModel,
    /// Where its tokens lie.
    pub layout: TokenGrid,
    /// The images that have pages.
    pub entries: &'a [Entry],
    /// How many images there were.
    pub images: usize,
    /// Paths that gave no image, and why.
    pub failed: &'a [(String, String)],
    /// Means over all of them.
    pub spread: &'a [LayerSpread],
    /// Pictures of the model's weights.
    pub weights: &'a WeightPictures,
    /// The drawing of the data flow.
    pub flow: &'a str,
}

/// The image, small.
pub fn thumbnail(seen: &Image) -> Result<Image> {
    let (width, height) = (seen.width(), seen.height());
    let longer = width.max(height);
    let side = |side: usize| (side * THUMBNAIL / longer).max(1);
    let filter = if longer < THUMBNAIL { Interpolation::Nearest } else { Interpolation::Bicubic };
    resize(seen, side(height), side(width), filter)
}

/// Distance and entropy over all images, as charts.
pub fn spread_charts(layers: &[LayerSpread]) -> [String; 2] {
    let of = |values: fn(&LayerSpread) -> &[f64]| {
        columns(layers.iter().map(|layer| (layer.layer, layer.heads.as_slice(), values(layer))))
    };
    [distance_chart(&of(|layer| &layer.distance)), entropy_chart(&of(|layer| &layer.entropy))]
}

/// The page.
pub fn page(index: &Index) -> Result<String> {
    let images = format::count(index.images, "image", "images");
    let mut document = Document::new(&format!("Inside the model: {images}"));
    document
        .lead(&format!("<dl class=\"facts\"><dt>Model</dt><dd class=\"mono\">{}</dd></dl>", escape(&index.model.path)));
    document.kind(KIND).style(flow::STYLE).style(&colour::scale_style()).style(STYLE);
    let [distance, entropy] = spread_charts(index.spread);
    document
        .section("images", "Images", &thumbnails(index)?)
        .section(
            "distance",
            "Attention distance and entropy",
            &describe_spread(&index.layout, &distance, &entropy, &format!("{images} together")),
        )
        .section("model", "Model weights", &index.weights.html)
        .section("flow", "Data flow", &flow_section(index.flow));
    Ok(document.finish())
}

fn thumbnails(index: &Index) -> Result<String> {
    let mut html = String::new();
    let (pages, images) = (index.entries.len(), index.images);
    if pages < images {
        let _ = write!(
            html,
            "<p class=\"note\">{pages} of {images} images have pages; <code>--pages</code> sets how many. The charts below include \
             all images.</p>"
        );
    }
    let common = common_folder(index.entries);
    html.push_str("<div class=\"tiles images\">");
    for entry in index.entries {
        let answer = match &entry.answer {
            Some((name, score)) => format!("{}, {:.1} %", escape(name), 100.0 * score),
            None => String::new(),
        };
        let picture = image(&entry.thumbnail, &format!("The image {}", entry.path), "pixels")?;
        let _ = write!(
            html,
            "<a class=\"image\" href=\"{}/explain.html\">{picture}<span class=\"mono\">{}</span><span>{answer}</span></a>",
            escape(&address(&entry.folder)),
            escape(&entry.path[common..]),
        );
    }
    html.push_str("</div>");
    html.push_str(&failed_paths(index.failed));
    Ok(html)
}

/// Paths that gave no image, and why.
fn failed_paths(failed: &[(String, String)]) -> String {
    if failed.is_empty() {
        return String::new();
    }
    let mut html =
        format!("<p class=\"note warn\">{} gave no image:</p><ul>", format::count(failed.len(), "path", "paths"));
    for (path, reason) in failed.iter().take(MOST_FAILED) {
        let _ = write!(html, "<li><span class=\"mono\">{}</span>: {}</li>", escape(path), escape(reason));
    }
    if failed.len() > MOST_FAILED {
        let _ = write!(html, "<li>and {} more</li>", failed.len() - MOST_FAILED);
    }
    html.push_str("</ul>");
    html
}

/// The length in bytes of the folder that all paths share.
fn common_folder(entries: &[Entry]) -> usize {
    let folder = |path: &str| path.rfind(['/', '\\']).map_or(0, |end| end + 1);
    let Some(first) = entries.first() else { return 0 };
    let mut common = &first.path[..folder(&first.path)];
    for entry in entries {
        while !entry.path.starts_with(common) {
            common = &common[..folder(&common[..common.len() - 1])];
        }
    }
    common.len()
}

/// A name as part of an address, percent-encoded.
fn address(name: &str) -> String {
    let mut address = String::new();
    for byte in name.bytes() {
        match byte {
            b'a'..=b'z' | b'A'..=b'Z' | b'0'..=b'9' | b'-' | b'_' | b'.' => address.push(byte as char),
            byte => {
                let _ = write!(address, "%{byte:02X}");
            }
        }
    }
    address
}
