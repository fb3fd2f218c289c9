//! The sections of the page, each with what it shows and how to read it.

use std::fmt::Write;

use anyhow::Result;
use vitreous_data::Image;
use vitreous_explain::{Explanation, LayerAttention, Layout, Rollout};
use vitreous_models::Size;
use vitreous_pages::chart::{Bars, Dots};
use vitreous_pages::{base64, escape, image, png_uri};

use super::own::legend;
use super::packed::{Kept, reader_rows};
use super::{Subject, maps, prefix_names, reader_name};
use crate::scores::{best, label, softmax};

/// The image with its grid, and bars.
pub fn prediction(subject: &Subject) -> Result<String> {
    let layout = &subject.explanation.layout;
    let (size, grid) = (layout.image, layout.grid);
    let text = format!("The image as the model sees it, {size} pixels in {grid} patches");
    let picture = image(subject.seen, &text, "seen-image")?;
    let figure = format!(
        "<figure><div class=\"seen\">{picture}{}</div><figcaption>As the model sees it: {size} pixels, {grid} patches of {}. \
         Colours are what is left after the model's own preparation.</figcaption></figure>",
        grid_lines(grid),
        layout.patch,
    );
    let Some(logits) = &subject.explanation.logits else {
        let features = subject.explanation.features.len();
        return Ok(format!(
            "<div class=\"prediction\">{figure}<p>This model has no head, so it names no class. It describes the image by \
             {features} numbers, its features.</p></div>"
        ));
    };
    let scores = softmax(logits);
    let mut bars = Bars::new("Prediction").full(1.0);
    for (place, class) in best(&scores, subject.top).into_iter().enumerate() {
        let (name, score) = (label(subject.model, class), scores[class]);
        let text = format!("{:.1} %", 100.0 * score);
        bars = if place == 0 { bars.strong_bar(&name, score, &text) } else { bars.bar(&name, score, &text) };
    }
    Ok(format!(
        "<div class=\"prediction\">{figure}<div><p>The classes that it holds likeliest, of {}. The shares of all classes sum \
         to 100 % (softmax of the logits).</p>{}</div></div>",
        logits.len(),
        bars.svg()
    ))
}

/// Lines between patches, dark and light, so that they are seen on every image.
fn grid_lines(Size { height, width }: Size) -> String {
    let mut path = String::new();
    for row in 1..height {
        let _ = write!(path, "M0 {row}H{width}");
    }
    for column in 1..width {
        let _ = write!(path, "M{column} 0V{height}");
    }
    let line = |colour: &str, thickness: f32| {
        format!(
            "<path d=\"{path}\" fill=\"none\" stroke=\"{colour}\" stroke-width=\"{thickness}\" vector-effect=\"non-scaling-stroke\"/>"
        )
    };
    let (dark, light) = (line("rgba(0,0,0,.35)", 2.0), line("rgba(255,255,255,.75)", 1.0));
    format!(
        "<svg viewBox=\"0 0 {width} {height}\" preserveAspectRatio=\"none\" aria-hidden=\"true\">{dark}{light}</svg>"
    )
}

/// The map with its controls, all heads, all layers.
pub fn attention(subject: &Subject, kept: Kept) -> Result<String> {
    let explanation = subject.explanation;
    let (layout, layers) = (&explanation.layout, &explanation.attention);
    let reader = reader_name(layout);
    let Some(first) = layers.first() else { return Ok("<p class=\"note\">No layer was asked for.</p>".to_string()) };
    let mut html = format!(
        "<p>In every layer each token looks at all tokens and takes from each by its weight; a row of weights sums to 1. The map \
         shows how much the <em>query</em> takes from each patch. Click on the image, or use the arrow keys on it, to ask for \
         another patch. In trained models early layers have heads that look nearby; later ones gather around objects. Much \
         weight on the tokens in front of the patches means a head that has little to do here. {}</p>",
        match kept {
            Kept::Reader => "",
            _ => "Drag over the image to follow a head around.",
        }
    );
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
    html.push_str(&controls(subject, kept));
    html.push_str("</div>");
    let canvas = format!("<span class=\"over\"><canvas width=\"{columns}\" height=\"{rows}\"></canvas></span>");
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
        format!("Attention of the {reader} over the image, a row a layer, a column a head, the last column their mean");
    let _ = write!(
        html,
        "<noscript><p class=\"note\">Without scripts only this overview can be shown: the {reader}'s attention, a row a layer, a \
         column a head, the last column the mean over heads.</p>{}</noscript>",
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

fn controls(subject: &Subject, kept: Kept) -> String {
    let explanation = subject.explanation;
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
        let name = if place < 0 { "mean over heads".to_string() } else { name };
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
        for (token, name) in prefix_names(&subject.model.config).iter().enumerate().filter(|(_, name)| *name != reader)
        {
            let _ =
                write!(html, "<button type=\"button\" data-query=\"{token}\" aria-pressed=\"false\">{name}</button>");
        }
    }
    let opacity = (100.0 * maps::OPACITY) as usize;
    let _ = write!(
        html,
        "</div><div class=\"legend\"><output id=\"low\">0</output><span class=\"scale\"></span><output id=\"high\">1</output></div>\
         <p id=\"says\" aria-live=\"polite\"></p><p id=\"readout\" class=\"note\">&nbsp;</p>\
         <h3>All maps of this page</h3><div class=\"pair\"><label>strength <input type=\"range\" id=\"opacity\" min=\"0\" max=\"100\" value=\"{opacity}\" \
         autocomplete=\"off\"></label></div>\
         <div class=\"pair\"><label><input type=\"checkbox\" id=\"smooth\" autocomplete=\"off\"> smooth between patches</label>\
         <label><input type=\"checkbox\" id=\"root\" autocomplete=\"off\"> square-root scale, to see what is weak</label></div>{}</div>",
        left_out(kept, reader)
    );
    html
}

/// What of the weights the page has not, and how to get it.
fn left_out(kept: Kept, reader: &str) -> String {
    let (has, misses) = match kept {
        Kept::All => return String::new(),
        Kept::MeanAndReader => {
            (format!("the mean over heads, and every head from the {reader}"), "single heads from other tokens")
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

/// A map over the image, with its caption in HTML. It is a picture, and its numbers for a script that draws it on another scale.
fn map_figure(grid: Size, values: &[f32], alternative: &str, caption: &str) -> Result<String> {
    let [low, high] = maps::range(values);
    let bytes: Vec<u8> = values.iter().flat_map(|value| value.to_le_bytes()).collect();
    Ok(format!(
        "<figure><div class=\"over\"><img data-map=\"{}\" width=\"{}\" height=\"{}\" alt=\"{}\" src=\"{}\"></div><figcaption>{caption}{}</figcaption></figure>",
        base64(&bytes),
        grid.width,
        grid.height,
        escape(alternative),
        png_uri(&maps::heat(grid, values)?)?,
        legend(low, high)
    ))
}

/// Where a map is strongest, in words.
fn strongest(grid: Size, values: &[f32]) -> String {
    let place = (0..values.len()).max_by(|&a, &b| values[a].total_cmp(&values[b])).unwrap_or(0);
    format!("strongest at row {}, column {}", place / grid.width, place % grid.width)
}

/// A share left out, in words.
pub fn discard_name(discard: f32) -> String {
    match discard {
        0.0 => "all weights".to_string(),
        share => format!("without the weakest {} %", (1000.0 * share).round() / 10.0),
    }
}

/// Rollouts: a row for each share left out, a column for each way to join heads.
pub fn rollout(subject: &Subject) -> Result<String> {
    let explanation = subject.explanation;
    let grid = explanation.layout.grid;
    let mut html = format!(
        "<p>How much of each patch reaches the {} through all layers, if information only flows by attention and past it: the \
         weights of every layer, with the residual connection as an identity beside them, multiplied from the first layer to the \
         last. The heads of a layer become one by their mean, largest or smallest weight; leaving out the weakest weights takes \
         noise away.</p>",
        reader_name(&explanation.layout)
    );
    let mut discards: Vec<f32> = Vec::new();
    for rollout in &explanation.rollout {
        if !discards.contains(&rollout.discard) {
            discards.push(rollout.discard);
        }
    }
    for discard in discards {
        let of: Vec<&Rollout> = explanation.rollout.iter().filter(|rollout| rollout.discard == discard).collect();
        let what = discard_name(discard);
        let _ =
            write!(html, "<h3>With {what}</h3><div class=\"maps three\">", what = what.trim_start_matches("without "));
        for rollout in of {
            let name = rollout.fusion.name();
            let text = format!("Rollout by the {name} over heads, {what}: {}", strongest(grid, &rollout.patches));
            html.push_str(&map_figure(grid, &rollout.patches, &text, &format!("{name} over heads"))?);
        }
        html.push_str("</div>");
    }
    html.push_str(
        "<p class=\"source\">Abnar and Zuidema, “Quantifying attention flow in transformers”, 2020. It knows nothing of what \
         tokens say, so it is the same for every class.</p>",
    );
    Ok(html)
}

/// Relevance for classes, side by side.
pub fn relevance(subject: &Subject) -> Result<String> {
    let explanation = subject.explanation;
    let grid = explanation.layout.grid;
    let mut html = match &explanation.logits {
        Some(_) => "<p>Which patches speak for a class: attention weights times the gradient of the class's logit, negative products \
                    left out, gathered over all layers. Compare two classes to see what the model tells them apart by. <code>--class</code> \
                    asks for others.</p>"
            .to_string(),
        None => "<p>Which patches make the features what they are: attention weights times the gradient of the length of the \
                 features, negative products left out, gathered over all layers. (The model has no classes to ask for.)</p>"
            .to_string(),
    };
    if explanation.relevance.is_empty() {
        html.push_str("<p class=\"note\">No class was asked for.</p>");
        return Ok(html);
    }
    let scores = explanation.logits.as_deref().map(softmax);
    html.push_str("<div class=\"maps\">");
    for relevance in &explanation.relevance {
        let name = class_name(subject, relevance.class);
        let score = relevance.class.zip(scores.as_ref()).and_then(|(class, scores)| scores.get(class));
        let score = score.map(|score| format!(", {:.1} %", 100.0 * score)).unwrap_or_default();
        let text = format!("Relevance for {name}: {}", strongest(grid, &relevance.patches));
        let caption = format!("<strong>{}</strong>{score}", escape(&name));
        html.push_str(&map_figure(grid, &relevance.patches, &text, &caption)?);
    }
    html.push_str(
        "</div><p class=\"source\">Chefer, Gur and Wolf, “Generic attention-model explainability”, 2021. A map shows what moved this \
         answer, not whether the answer is right.</p>",
    );
    Ok(html)
}

/// What relevance is for.
pub fn class_name(subject: &Subject, class: Option<usize>) -> String {
    class.map_or("the features".to_string(), |class| label(subject.model, class))
}

/// Dots for distance and entropy.
pub fn distance(explanation: &Explanation) -> String {
    let [distance, entropy] = distance_charts(explanation);
    describe_spread(&explanation.layout, &distance, &entropy, "this image")
}

/// Distance and entropy of one image, as charts.
pub fn distance_charts(explanation: &Explanation) -> [String; 2] {
    let of = |values: fn(&LayerAttention) -> &[f64]| {
        columns(explanation.attention.iter().map(|layer| (layer.layer, layer.heads.as_slice(), values(layer))))
    };
    [distance_chart(&of(|layer| &layer.distance)), entropy_chart(&of(|layer| &layer.entropy))]
}

/// The same for one image and for many.
pub fn describe_spread(layout: &Layout, distance: &str, entropy: &str, over: &str) -> String {
    let most = (layout.tokens() as f64).ln();
    format!(
        "<p>A dot a head. <em>Distance</em> is how far from a patch those patches lie that it looks at, in pixels of the model's \
         input, weighted by attention and averaged over the patches of {over}: small for heads that look nearby as a convolution \
         does, large for heads that look everywhere. <em>Entropy</em> is how widely a head spreads its weight: 0 if all lies on \
         one token, {most:.2} nats if all {} tokens get the same.</p>\
         <div class=\"columns\"><figure>{distance}</figure><figure>{entropy}</figure></div>\
         <p class=\"source\">Distance as in figures 7 and 11 of Dosovitskiy et al., 2021.</p>",
        layout.tokens()
    )
}

/// A column of dots for each layer up to the last: those that were not asked for stay empty, and so do heads.
pub fn columns<'a>(layers: impl Iterator<Item = (usize, &'a [usize], &'a [f64])>) -> Vec<Vec<f64>> {
    let mut columns: Vec<Vec<f64>> = Vec::new();
    for (layer, heads, values) in layers {
        columns.resize(columns.len().max(layer + 1), Vec::new());
        columns[layer] = vec![f64::NAN; heads.iter().max().map_or(0, |head| head + 1)];
        for (&head, &value) in heads.iter().zip(values) {
            columns[layer][head] = value;
        }
    }
    columns
}

/// Distances by layer and head.
pub fn distance_chart(columns: &[Vec<f64>]) -> String {
    chart("Mean attention distance", "distance in pixels", columns)
}

/// Entropies by layer and head.
pub fn entropy_chart(columns: &[Vec<f64>]) -> String {
    chart("Entropy of attention", "entropy in nats", columns)
}

fn chart(title: &str, unit: &str, columns: &[Vec<f64>]) -> String {
    let chart = Dots::new(title).x("layer").y(unit).dot("head").with_means();
    columns.iter().fold(chart, |chart, column| chart.column(column)).svg()
}

/// The drawing of the data flow, with how to read it.
pub fn flow(drawing: &str) -> String {
    format!(
        "<p>What happens to the image, from top to bottom, with the shape of what flows beside each arrow. The frame is one layer, \
         drawn once for all that are the same. Lines that go around steps and join again are residual connections.</p>\
         <figure class=\"drawn\">{drawing}</figure>"
    )
}
