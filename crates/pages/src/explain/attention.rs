//! The first section: the image beside its attention map, the controls, all heads, all layers.

use std::fmt::Write;

use vitreous_data::image::Image;
use vitreous_explain::{Explanation, LayerAttention};

use super::packed::{Kept, reader_rows};
use super::{ImagePage, Result, maps, mean_name, reader_name};
use crate::image;

/// The image and the map side by side with their controls; below them all heads, all layers, and how to read them.
pub fn section(page: &ImagePage, kept: Kept) -> Result<String> {
    let explanation = page.explanation;
    let (layout, layers) = (&explanation.layout, &explanation.attention);
    let reader = reader_name(layout);
    let Some(first) = layers.first() else { return Ok("<p class=\"note\">No layer was chosen.</p>".to_string()) };
    let (rows, columns) = (layout.grid.height, layout.grid.width);
    let click = match kept {
        Kept::Reader => "",
        Kept::All | Kept::MeanAndReader => ". Click a patch to see what it attends to; drag to follow a head.",
    };
    let mut html = format!(
        "<noscript><style>.needs-script {{ display: none; }}</style></noscript><div class=\"needs-script\"><div class=\"explorer\">\
         <figure><div class=\"stage photo\" id=\"photo\" role=\"img\" aria-label=\"The image as the model sees it\">\
         <div class=\"marker\" hidden></div></div><figcaption>The image, as the model sees it</figcaption></figure>\
         <figure><div class=\"over stage\"><canvas id=\"map\" width=\"{columns}\" height=\"{rows}\" tabindex=\"0\" role=\"img\" \
         aria-label=\"Attention over the image\"></canvas><div class=\"marker\" hidden></div></div>\
         <figcaption>Attention to each patch{click}</figcaption></figure>"
    );
    html.push_str(&controls(page, kept));
    html.push_str("</div>");
    let canvas = format!(
        "<span class=\"over\"><canvas width=\"{columns}\" height=\"{rows}\" aria-hidden=\"true\"></canvas></span>"
    );
    html.push_str("<h3>All heads of <span id=\"heads-of\">the layer</span></h3><div class=\"strip\" id=\"heads\">");
    for (head, name) in heads_and_mean(first) {
        let _ = write!(html, "<button type=\"button\" class=\"cell\" data-head=\"{head}\">{canvas}{name}</button>");
    }
    html.push_str(
        "</div><h3>All layers, <span id=\"layers-of\">the head</span></h3><div class=\"strip\" id=\"layers\">",
    );
    for (place, layer) in layers.iter().enumerate() {
        let name = layer.layer;
        let _ =
            write!(html, "<button type=\"button\" class=\"cell\" data-layer=\"{place}\">{canvas}layer {name}</button>");
    }
    let _ = write!(
        html,
        "</div><h3>Every layer and head, from the {reader}</h3><p class=\"note\">Rows are layers, columns are heads. \
         <span id=\"overview-scale\">Each map has its own scale.</span> Choose one to see it large.</p>"
    );
    html.push_str(&overview(layers, &canvas));
    html.push_str("</div>");
    html.push_str(&without_scripts(page)?);
    html.push_str(&how_to_read(layout.prefix));
    Ok(html)
}

/// What attention is, below what it looks like.
fn how_to_read(prefix: usize) -> String {
    let sinks = match prefix {
        0 => "",
        _ => {
            " Much weight on the tokens in front of the patches often means a head that has little to do in this image."
        }
    };
    format!(
        "<h3>How to read the maps</h3><p>In every layer each token attends to all tokens: it takes a weighted sum of their values, and \
         its weights sum to 1. A map shows the weights of one <em>query</em> token over the patches. Opacity and colour follow the \
         weight, from the smallest in the map to the largest, so what gets no attention stays visible. In trained models some heads \
         of early layers attend to neighbouring patches; those of later layers gather around objects.{sinks}</p>\
         <p class=\"source\">Vaswani et al., “Attention is all you need”, 2017; Dosovitskiy et al., “An image is worth 16x16 \
         words”, 2021; on weight that gathers on single tokens: Darcet et al., “Vision transformers need registers”, 2024.</p>"
    )
}

/// The overview as one picture.
fn without_scripts(page: &ImagePage) -> Result<String> {
    let explanation = page.explanation;
    let (reader, mean) = (reader_name(&explanation.layout), mean_name(explanation, page.model));
    let text = format!(
        "Attention of the {reader} over the image: rows are layers, columns are heads, the last column is the {mean}"
    );
    Ok(format!(
        "<noscript><p class=\"note\">Without scripts this page shows only an overview: the attention of the {reader}. Rows are \
         layers, columns are heads, the last column is the {mean}.</p>{}</noscript>",
        image(&plain_sheet(explanation)?, &text, "pixels")?
    ))
}

/// The mean, which the script numbers -1, then each head by its place.
fn heads_and_mean(layer: &LayerAttention) -> Vec<(isize, String)> {
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
    for (place, name) in heads_and_mean(&explanation.attention[last]) {
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
    let _ = write!(
        html,
        "</div><div class=\"legend\"><output id=\"low\">0</output><span class=\"scale\"></span><output id=\"high\">1</output></div>\
         <p id=\"says\" aria-live=\"polite\" style=\"--lines:{}\"></p><p id=\"readout\" class=\"note\">&nbsp;</p>{}{}</div>",
        3 + explanation.layout.prefix / 2,
        display_controls(),
        left_out(kept, reader, &mean_name(explanation, page.model))
    );
    html
}

/// How all maps of the page are drawn.
fn display_controls() -> String {
    format!(
        "<fieldset><legend>All maps</legend><label>Opacity <input type=\"range\" id=\"opacity\" min=\"0\" max=\"100\" value=\"{}\" \
         autocomplete=\"off\"></label>\
         <label><input type=\"checkbox\" id=\"shared\" autocomplete=\"off\"> one scale for all maps of a group</label>\
         <label><input type=\"checkbox\" id=\"root\" autocomplete=\"off\"> square-root scale: shows weak values</label>\
         <label><input type=\"checkbox\" id=\"smooth\" autocomplete=\"off\"> interpolate between patches</label></fieldset>",
        (100.0 * maps::OPACITY).round() as usize
    )
}

/// What is left out of the page, and how to get it.
fn left_out(kept: Kept, reader: &str, mean: &str) -> String {
    let (has, misses) = match kept {
        Kept::All => return String::new(),
        Kept::MeanAndReader => {
            (format!("the {mean}, and every head from the {reader}"), "single heads from other tokens")
        }
        Kept::Reader => (format!("every head from the {reader}"), "all other queries"),
    };
    format!(
        "<p class=\"note warn\">To stay small, this page holds {has}. It leaves out {misses}: choose fewer layers and heads to include \
         them, as in <code>--layers last --heads 0-2</code>, or get all weights with <code>--arrays</code>.</p>"
    )
}

fn overview(layers: &[LayerAttention], canvas: &str) -> String {
    let heads = layers.first().map(heads_and_mean).unwrap_or_default();
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

/// The overview without the image, one pixel per patch, for browsers without scripts.
fn plain_sheet(explanation: &Explanation) -> Result<Image> {
    let layout = &explanation.layout;
    let grid = layout.grid;
    let columns = explanation.attention.first().map_or(0, |layer| layer.heads.len() + 1);
    let mut board =
        maps::Board::new(columns * (grid.width + 1) - 1, explanation.attention.len() * (grid.height + 1) - 1);
    for (line, layer) in explanation.attention.iter().enumerate() {
        for (place, row) in reader_rows(layer, layout).iter().enumerate() {
            let picture = maps::heat(grid, &row[layout.prefix..], maps::Scale::of(&row[layout.prefix..]))?;
            board.picture(line * (grid.height + 1), place * (grid.width + 1), &picture);
        }
    }
    board.finish()
}
