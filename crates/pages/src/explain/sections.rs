//! The sections of the page, each with what it shows and how to read it.

use std::fmt::Write;

use super::Result;
use crate::chart::{Bars, Dots};
use crate::{base64, escape, image, png_uri};
use vitreous_explain::{Explanation, LayerAttention, Layout, Reader, Rollout};
use vitreous_models::Size;

use super::own::{legend, number};
use super::{ImagePage, PartSeen, maps, reader_name};
use crate::scores::{best, label, softmax};

/// The image with its grid, and bars.
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
            "<div class=\"prediction\">{figure}<p>This model has no head, so it names no class. It describes the image by \
             {features} numbers, its features.</p></div>"
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
        "<div class=\"prediction\">{figure}<div><p>The classes that it holds likeliest, of {}. The shares of all classes sum \
         to 100 % (softmax of the logits).</p>{}</div></div>",
        logits.len(),
        bars.svg()
    ))
}

/// How much of the image that is. Sizes are height x width.
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
fn discard_name(discard: f32) -> String {
    match discard {
        0.0 => "with all weights".to_string(),
        share => format!("without the weakest {} %", (1000.0 * share).round() / 10.0),
    }
}

/// Rollouts: a row for each share left out, a column for each way to join heads.
pub fn rollout(page: &ImagePage) -> Result<String> {
    let explanation = page.explanation;
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
        let (first, rest) = what.split_at(1);
        let _ = write!(html, "<h3>{}{rest}</h3><div class=\"maps three\">", first.to_uppercase());
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
pub fn relevance(page: &ImagePage) -> Result<String> {
    let explanation = page.explanation;
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
    if explanation.layout.reader == Reader::MeanOfPatches {
        let _ = write!(
            html,
            "<p>The answer is read from the mean of all {} patches, so each of them has {} to begin with, whatever the class; what \
             is above that speaks for it.</p>",
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
        html.push_str(&map_figure(grid, &relevance.patches, &text, &caption)?);
    }
    html.push_str(
        "</div><p class=\"source\">Chefer, Gur and Wolf, “Generic attention-model explainability”, 2021. A map shows what moved this \
         answer, not whether the answer is right.</p>",
    );
    Ok(html)
}

/// What relevance is for.
pub fn class_name(page: &ImagePage, class: Option<usize>) -> String {
    class.map_or("the features".to_string(), |class| label(&page.model.labels, class))
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
         input, weighted by attention among patches (whose weights are made to sum to 1) and averaged over the patches of {over}: small for heads that look nearby as a convolution \
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
