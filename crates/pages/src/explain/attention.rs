//! The section to play with: the map, its controls, all heads, all layers.

use std::fmt::Write;

use super::Result;
use crate::image;
use vitreous_data::image::Image;
use vitreous_explain::{Explanation, LayerAttention};

use super::packed::{Kept, reader_rows};
use super::{ImagePage, maps, mean_name, reader_name};

/// The map with its controls, all heads, all layers.
pub fn section(page: &ImagePage, kept: Kept) -> Result<String> {
    let explanation = page.explanation;
    let (layout, layers) = (&explanation.layout, &explanation.attention);
    let reader = reader_name(layout);
    let Some(first) = layers.first() else { return Ok("<p class=\"note\">No layer was asked for.</p>".to_string()) };
    let mean = mean_name(explanation, page.model);
    let mut html = "<p>In every layer each token looks at all tokens and takes from each by its weight; a row of weights sums to 1. \
                    The map shows how much the <em>query</em> takes from each patch."
        .to_string();
    if kept != Kept::Reader {
        html.push_str(
            " Click on the image to ask for another patch, drag over it to follow a head around, or use the arrow keys on it.",
        );
    }
    html.push_str(
        " In trained models some heads of early layers look nearby; those of later layers gather around objects.",
    );
    if layout.prefix > 0 {
        html.push_str(
            " Much weight on the tokens in front of the patches often means a head that has little to do here.",
        );
    }
    html.push_str("</p>");
    html.push_str("<noscript><style>.needs-script { display: none; }</style></noscript><div class=\"needs-script\">");
    html.push_str("<div class=\"explorer\">");
    let (rows, columns) = (layout.grid.height, layout.grid.width);
    let _ = write!(
        html,
        "<div class=\"over stage\"><canvas id=\"map\" width=\"{columns}\" height=\"{rows}\" tabindex=\"0\" role=\"img\" \
         aria-label=\"Attention over the image\"></canvas><div id=\"marker\" hidden style=\"width:{:.4}%;height:{:.4}%\"></div></div>",
        100.0 / columns as f64,
        100.0 / rows as f64
    );
    html.push_str(&controls(page, kept));
    html.push_str("</div>");
    let canvas = format!(
        "<span class=\"over\"><canvas width=\"{columns}\" height=\"{rows}\" aria-hidden=\"true\"></canvas></span>"
    );
    html.push_str("<h3>All heads of <span id=\"heads-of\">the layer</span></h3><div class=\"strip\" id=\"heads\">");
    for (head, name) in head_places(first) {
        let _ = write!(html, "<button type=\"button\" class=\"cell\" data-head=\"{head}\">{canvas}{name}</button>");
    }
    html.push_str(
        "</div><h3>Through the layers: <span id=\"layers-of\">the head</span></h3><div class=\"strip\" id=\"layers\">",
    );
    for (place, layer) in layers.iter().enumerate() {
        let name = layer.layer;
        let _ =
            write!(html, "<button type=\"button\" class=\"cell\" data-layer=\"{place}\">{canvas}layer {name}</button>");
    }
    html.push_str("</div>");
    let _ = write!(
        html,
        "<h3>Every layer and head, from the {reader}</h3><p class=\"note\">A row a layer, the first at the top; a column a head. \
         Each map has a scale of its own, from its smallest weight to its largest. Choose one to see it large.</p>"
    );
    html.push_str(&overview(layers, &canvas));
    html.push_str("</div>");
    let sheet = plain_sheet(explanation)?;
    let text =
        format!("Attention of the {reader} over the image, a row a layer, a column a head, the last column the {mean}");
    let _ = write!(
        html,
        "<noscript><p class=\"note\">Without scripts only this overview can be shown: the {reader}'s attention, a row a layer, a \
         column a head, the last column the {mean}.</p>{}</noscript>",
        image(&sheet, &text, "pixels")?
    );
    html.push_str(
        "<p class=\"source\">Vaswani et al., “Attention is all you need”, 2017; Dosovitskiy et al., “An image is worth 16x16 \
         words”, 2021; on weight that gathers on single tokens: Darcet et al., “Vision transformers need registers”, 2024.</p>",
    );
    Ok(html)
}

/// The mean, which the script calls -1, then each head by its place.
fn head_places(layer: &LayerAttention) -> Vec<(isize, String)> {
    let heads = layer.heads.iter().enumerate().map(|(place, head)| (place as isize, format!("head {head}")));
    std::iter::once((-1, "mean".to_string())).chain(heads).collect()
}

fn controls(page: &ImagePage, kept: Kept) -> String {
    let explanation = page.explanation;
    let last = explanation.attention.len() - 1;
    let mut html =
        "<div class=\"controls\"><div class=\"pair\"><label>Layer <select id=\"layer\" autocomplete=\"off\">"
            .to_string();
    for (place, layer) in explanation.attention.iter().enumerate() {
        let selected = if place == last { " selected" } else { "" };
        let _ = write!(html, "<option value=\"{place}\"{selected}>{}</option>", layer.layer);
    }
    html.push_str("</select></label><label>Head <select id=\"head\" autocomplete=\"off\">");
    for (place, name) in head_places(&explanation.attention[last]) {
        let name = if place < 0 { mean_name(explanation, page.model) } else { name };
        let _ = write!(html, "<option value=\"{place}\">{name}</option>");
    }
    html.push_str("</select></label></div>");
    let reader = reader_name(&explanation.layout);
    let _ = write!(
        html,
        "<div>Query: <strong id=\"query-name\">{reader}</strong></div><div class=\"buttons\" id=\"queries\">\
         <button type=\"button\" data-query=\"-1\" aria-pressed=\"true\">{reader}</button>"
    );
    if kept != Kept::Reader {
        for (token, name) in page.model.prefix.iter().enumerate().filter(|(_, name)| *name != reader) {
            let _ =
                write!(html, "<button type=\"button\" data-query=\"{token}\" aria-pressed=\"false\">{name}</button>");
        }
    }
    let opacity = (100.0 * maps::OPACITY) as usize;
    let _ = write!(
        html,
        "</div><div class=\"legend\"><output id=\"low\">0</output><span class=\"scale\"></span><output id=\"high\">1</output></div>\
         <p id=\"says\" aria-live=\"polite\" style=\"--lines:{}\"></p><p id=\"readout\" class=\"note\">&nbsp;</p>\
         <h3>All maps of this page</h3><div class=\"pair\"><label>strength <input type=\"range\" id=\"opacity\" min=\"0\" max=\"100\" value=\"{opacity}\" \
         autocomplete=\"off\"></label></div>\
         <div class=\"pair\"><label><input type=\"checkbox\" id=\"smooth\" autocomplete=\"off\"> smooth between patches</label>\
         <label><input type=\"checkbox\" id=\"root\" autocomplete=\"off\"> square-root scale, to see what is weak</label></div>{}</div>",
        3 + explanation.layout.prefix / 2,
        left_out(kept, reader, &mean_name(explanation, page.model))
    );
    html
}

/// What of the weights the page has not, and how to get it.
fn left_out(kept: Kept, reader: &str, mean: &str) -> String {
    let (has, misses) = match kept {
        Kept::All => return String::new(),
        Kept::MeanAndReader => {
            (format!("the {mean}, and every head from the {reader}"), "single heads from other tokens")
        }
        Kept::Reader => (format!("every head from the {reader}"), "all other queries"),
    };
    format!(
        "<p class=\"note warn\">To stay small, this page holds {has}. It misses {misses}: ask for fewer layers and heads to have \
         them, as in <code>--layers last --heads 0-2</code>, or for all numbers with <code>--arrays</code>.</p>"
    )
}

fn overview(layers: &[LayerAttention], canvas: &str) -> String {
    let heads = layers.first().map(head_places).unwrap_or_default();
    let mut html = format!(
        "<div class=\"overview\" id=\"overview\" style=\"grid-template-columns:max-content repeat({},minmax(0,1fr));max-width:{}px\">",
        heads.len(),
        40 + heads.len() * 76
    );
    html.push_str("<span></span>");
    for (place, _) in &heads {
        let name = if *place < 0 { "mean".to_string() } else { layers[0].heads[*place as usize].to_string() };
        let _ = write!(html, "<span class=\"name\">{name}</span>");
    }
    for (place, layer) in layers.iter().enumerate() {
        let _ = write!(html, "<span class=\"row\">{}</span>", layer.layer);
        for (head, name) in &heads {
            let _ = write!(
                html,
                "<button type=\"button\" class=\"cell\" tabindex=\"-1\" data-layer=\"{place}\" data-head=\"{head}\" \
                 aria-label=\"layer {}, {name}\">{canvas}</button>",
                layer.layer
            );
        }
    }
    html.push_str("</div>");
    html
}

/// The overview without the image below, a pixel a patch: small enough to be there for who has no scripts.
fn plain_sheet(explanation: &Explanation) -> Result<Image> {
    let layout = &explanation.layout;
    let grid = layout.grid;
    let columns = explanation.attention.first().map_or(0, |layer| layer.heads.len() + 1);
    let mut board =
        maps::Board::new(columns * (grid.width + 1) - 1, explanation.attention.len() * (grid.height + 1) - 1);
    for (line, layer) in explanation.attention.iter().enumerate() {
        for (place, row) in reader_rows(layer, layout).iter().enumerate() {
            let picture = maps::heat(grid, &row[layout.prefix..])?;
            board.picture(line * (grid.height + 1), place * (grid.width + 1), &picture);
        }
    }
    Ok(board.finish()?)
}
