//! The final tokens of the patches, for models without a head: principal components as colours, and similarity to one patch.

use vitreous_explain::{PatchFeatures, TokenGrid};

use super::{Result, maps, packed};
use crate::image;

/// Both pictures side by side.
pub fn section(layout: &TokenGrid, features: &PatchFeatures) -> Result<String> {
    let grid = layout.grid;
    let shares = features.shares.map(|share| format!("{:.1} %", 100.0 * share));
    let components = maps::components(grid, &features.scores)?;
    let text = "The patches coloured by the first three principal components of their tokens";
    let mut html = format!(
        "<p>This model has no head: its result is one token of {} values per patch. Patches of the same object, or of the same part \
         of an object, have similar tokens.</p><div class=\"two-maps\"><figure><div class=\"stage opaque\">{}\
         <div class=\"marker\" hidden></div></div><figcaption>First three principal components of the patch tokens as red, green and \
         blue; they explain {} of the variance.</figcaption></figure>",
        features.dim,
        image(&components, text, "pixels")?,
        shares.join(", ")
    );
    html.push_str(&match packed::holds_similarity(features) {
        true => format!(
            "<figure class=\"needs-script\"><div class=\"over stage\"><canvas id=\"similar\" width=\"{}\" height=\"{}\" role=\"img\" \
             aria-label=\"Cosine similarity to one patch\"></canvas><div class=\"marker\" hidden></div></div>\
             <figcaption><span id=\"similar-says\">Cosine similarity to one patch.</span>\
             <div class=\"legend\"><output id=\"similar-low\">0</output><span class=\"scale\"></span>\
             <output id=\"similar-high\">1</output></div></figcaption></figure>",
            grid.width, grid.height
        ),
        false => format!(
            "<p class=\"note warn\">Similarity between {} patches is left out, so that the page stays small; --arrays writes the \
             tokens.</p>",
            layout.patches()
        ),
    });
    html.push_str(
        "</div><p class=\"note needs-script\">Click a patch in any picture of this page to compare it with all others.</p>\
         <p class=\"source\">Oquab et al., “DINOv2: Learning robust visual features without supervision”, 2024, figures 1 and 9.</p>",
    );
    Ok(html)
}
