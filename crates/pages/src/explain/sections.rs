//! The other sections of the page, each with what it shows and how to read it.

use std::fmt::Write;

use vitreous_explain::{Explanation, LayerAttention, Reader, Rollout, TokenGrid};
use vitreous_models::Size;

use super::maps::{self, ROLLOUT_PERCENTILE, Scale};
use super::weights::{legend, number};
use super::{ImagePage, PartSeen, Result, packed, reader_name};
use crate::chart::{Bars, Dots};
use crate::{escape, image};
use vitreous_runtime::scores::{best, label, softmax};

/// The image with its patches, and the most probable classes.
pub fn prediction(page: &ImagePage) -> Result<String> {
    let layout = &page.explanation.layout;
    let (size, grid) = (layout.image, layout.grid);
    let text = format!("The image as the model sees it, {size} pixels in {grid} patches");
    let picture = image(page.seen, &text, "seen-image")?;
    let figure = format!(
        "<figure><div class=\"seen\">{picture}{}</div><figcaption>As the model sees it, after its own resizing and cropping: \
         {size} pixels, {grid} patches of {}. {}</figcaption></figure>",
        grid_lines(grid),
        layout.patch,
        part_in_words(page.part),
    );
    let Some(logits) = &page.explanation.logits else {
        let features = page.explanation.features.len();
        return Ok(format!(
            "<div class=\"prediction\">{figure}<p>This model has no head, so it predicts no class. Its features are a vector of \
             {features} values.</p></div>"
        ));
    };
    let scores = softmax(logits);
    let mut bars = Bars::new("Prediction").full(1.0);
    for (place, class) in best(&scores, page.top).into_iter().enumerate() {
        let (name, score) = (label(&page.model.labels, class), scores[class]);
        let text = format!("{:.1} %", 100.0 * score);
        bars = if place == 0 { bars.strong_bar(&name, score, &text) } else { bars.bar(&name, score, &text) };
    }
    Ok(format!(
        "<div class=\"prediction\">{figure}<div><p>The most probable of {} classes (softmax of the logits).</p>{}</div></div>",
        logits.len(),
        bars.svg()
    ))
}

/// How much of the image the model sees. Sizes are height x width.
fn part_in_words(part: PartSeen) -> String {
    match part.seen == part.image {
        true => format!("It is all of the image's {} pixels.", part.image),
        false => format!(
            "It is the middle {} of the image's {} pixels, {:.1} % of its area.",
            part.seen,
            part.image,
            100.0 * part.share()
        ),
    }
}

/// Lines between patches, dark and light, so that they show on every image.
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

/// A map over the image, with its caption in HTML: a picture, and its values for the script that draws it on another scale.
/// `percent` is the percentile at which the scale ends.
fn map_figure(grid: Size, values: &[f32], percent: f64, alternative: &str, caption: &str) -> Result<String> {
    let scale = Scale::up_to(values, percent);
    Ok(format!(
        "<figure><div class=\"over\"><img data-map=\"{}\" data-percentile=\"{percent}\" width=\"{}\" height=\"{}\" alt=\"{}\" src=\"{}\">\
         </div><figcaption>{caption}{}</figcaption></figure>",
        packed::floats(values),
        grid.width,
        grid.height,
        escape(alternative),
        maps::veil_uri(grid, values, scale)?,
        legend(scale.low, scale.high)
    ))
}

/// Where a map is strongest, in words.
fn strongest(grid: Size, values: &[f32]) -> String {
    let place = (0..values.len()).max_by(|&a, &b| values[a].total_cmp(&values[b])).unwrap_or(0);
    format!("strongest at row {}, column {}", place / grid.width, place % grid.width)
}

/// How much is discarded, in words.
fn discard_name(discard: f32) -> String {
    match discard {
        0.0 => "All weights".to_string(),
        share => format!("The smallest {} % of the weights discarded", (1000.0 * share).round() / 10.0),
    }
}

/// Rollouts: one row per share that is discarded, one column per way to fuse heads.
pub fn rollout(page: &ImagePage) -> Result<String> {
    let explanation = page.explanation;
    let grid = explanation.layout.grid;
    let mut html = format!(
        "<p>How much of each patch reaches the {} through all layers, if information flows only through attention and residual \
         connections: the attention matrices, each averaged with the identity, multiplied from the first layer to the last. The heads \
         of a layer are fused by their mean, maximum or minimum; discarding the smallest weights reduces noise.</p>\
         <p class=\"note\">Values above the {ROLLOUT_PERCENTILE:.0}th percentile of a map are clipped: they have its full colour.</p>",
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
        let _ = write!(html, "<h3>{what}</h3><div class=\"maps three\">");
        for rollout in of {
            let name = rollout.fusion.name();
            let text = format!("Rollout by the {name} over heads, {what}: {}", strongest(grid, &rollout.patches));
            let caption = format!("{name} over heads");
            html.push_str(&map_figure(grid, &rollout.patches, ROLLOUT_PERCENTILE, &text, &caption)?);
        }
        html.push_str("</div>");
    }
    html.push_str(
        "<p class=\"source\">Abnar and Zuidema, “Quantifying attention flow in transformers”, 2020. It does not depend on the \
         class.</p>",
    );
    Ok(html)
}

/// Relevance for classes, side by side.
pub fn relevance(page: &ImagePage) -> Result<String> {
    let explanation = page.explanation;
    let grid = explanation.layout.grid;
    let mut html = match &explanation.logits {
        Some(_) => "<p>Which patches support a class: attention weights times the gradient of the class's logit, negative products set \
                    to 0, accumulated over all layers. Compare two classes to see what distinguishes them. <code>--class</code> adds \
                    classes.</p>"
            .to_string(),
        None => "<p>Which patches shape the features: attention weights times the gradient of half the squared norm of the features, \
                 negative products set to 0, accumulated over all layers. (The model has no classes.)</p>"
            .to_string(),
    };
    if explanation.relevance.is_empty() {
        html.push_str("<p class=\"note\">No class was chosen.</p>");
        return Ok(html);
    }
    if explanation.layout.reader == Reader::MeanOfPatches {
        let _ = write!(
            html,
            "<p>The model averages all {} patches, so each of them starts with {}, whatever the class; what is above that supports \
             it.</p>",
            explanation.layout.patches(),
            number(1.0 / explanation.layout.patches() as f32)
        );
    }
    let scores = explanation.logits.as_deref().map(softmax);
    html.push_str("<div class=\"maps\">");
    for relevance in &explanation.relevance {
        let name = class_name(page, relevance.class);
        let score = relevance.class.zip(scores.as_ref()).and_then(|(class, scores)| scores.get(class));
        let score = score.map(|score| format!(", {:.1} %", 100.0 * score)).unwrap_or_default();
        let text = format!("Relevance for {name}: {}", strongest(grid, &relevance.patches));
        let caption = format!("<strong>{}</strong>{score}", escape(&name));
        html.push_str(&map_figure(grid, &relevance.patches, 100.0, &text, &caption)?);
    }
    html.push_str(
        "</div><p class=\"source\">Chefer, Gur and Wolf, “Generic attention-model explainability”, 2021. A map shows what contributed \
         to this prediction, not whether it is right.</p>",
    );
    Ok(html)
}

/// What relevance is for.
pub fn class_name(page: &ImagePage, class: Option<usize>) -> String {
    class.map_or("the features".to_string(), |class| label(&page.model.labels, class))
}

/// The distance and entropy of one image.
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

/// Both charts, for one image or for many.
pub fn describe_spread(layout: &TokenGrid, distance: &str, entropy: &str, over: &str) -> String {
    let most = (layout.tokens() as f64).ln();
    format!(
        "<p>One dot per head. <em>Distance</em> is the distance from a query patch to the patches it attends to, in pixels of the \
         model's input, weighted by attention (renormalised over patches) and averaged over all patches of {over}: small for heads \
         that look at neighbours, as a convolution does, large for heads that look everywhere. <em>Entropy</em> is how widely a head \
         spreads its weights: 0 if all is on one token, {most:.2} nats if all {} tokens get the same.</p>\
         <div class=\"columns\"><figure>{distance}</figure><figure>{entropy}</figure></div>\
         <p class=\"source\">Distance as in figures 7 and 11 of Dosovitskiy et al., 2021.</p>",
        layout.tokens()
    )
}

/// One column of dots per layer up to the last; layers and heads that were not chosen stay empty.
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
        "<p>The forward pass from top to bottom, with the shape of each value beside its arrow. The frame is one layer, drawn once for \
         all that are equal. Lines around steps that join again are residual connections.</p>\
         <figure class=\"drawn\">{drawing}</figure>"
    )
}
