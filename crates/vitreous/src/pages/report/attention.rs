//! Where the model looks in a few test images.

use vitreous_data::dataset::{Dataset, Splits};
use vitreous_data::image::{Preprocess, Scratch};
use vitreous_engine::Device;
use vitreous_explain::{Choice, Classes, Explainer, Explanation, Fusion, Reader, Settings};
use vitreous_models::Model;
use vitreous_pages::{escape, image};
use vitreous_train::RunRecord;

use super::Sources;
use crate::pages::explain::HARD_EDGES_BELOW;
use crate::pages::explain::maps::overlay;
use crate::pages::explain::packed::reader_rows;
use crate::samples::{shown_part, spread};
use crate::scores::{label, softmax};
use crate::source;

/// How much may be spent on a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Between two epochs, where training waits.
    Little,
    /// At the end, and when a report is asked for.
    Usual,
}

const IMAGES: usize = 6;
/// Larger models, and more tokens, are left to `vitreous explain`.
const MOST_PARAMETERS: usize = 100_000_000;
const MOST_TOKENS: usize = 1500;
/// While a run goes on.
const FEW_PARAMETERS: usize = 10_000_000;
const FEW_TOKENS: usize = 300;

/// The section; a sentence where there is nothing to show.
pub fn html(run: &RunRecord, sources: &Sources, effort: Effort) -> String {
    match maps(run, sources, effort) {
        Ok(html) => html,
        Err(why) => format!("<p>{}</p>", escape(&why)),
    }
}

fn maps(run: &RunRecord, sources: &Sources, effort: Effort) -> Result<String, String> {
    let directory = run.path.join("model");
    if !directory.join("config.json").is_file() {
        // It is written before the line of its test.
        return Err(match run.finished() || !run.history.tested.is_empty() {
            true => "model/ is missing, or is no model: it was removed or changed after the run saved it.".to_string(),
            false => "There is no model yet: it is saved at each test.".to_string(),
        });
    }
    let data =
        sources.data.as_ref().map_err(|error| format!("No images are shown: the data cannot be opened. {error}"))?;
    let (part, _) = shown_part(data);
    let (model, preprocess) = source::open(&directory, None, None).map_err(|failure| failure.text())?;
    bounded(&model, effort)?;
    let settings = Settings {
        choice: Choice { layers: vec![model.config.depth - 1], heads: (0..model.config.heads).collect() },
        fusions: vec![Fusion::Mean],
        discards: vec![0.0],
        classes: Classes::Top(0),
        ..Settings::usual(&model.config, sources.threads)
    };
    // A run may be on the GPU, and have planned all of its memory.
    let device = Device::Cpu { threads: sources.threads };
    let mut explainer = Explainer::new(&model, settings, &device).map_err(|error| error.to_string())?;
    let reader = match explainer.layout().reader {
        Reader::ClassToken => "of the class token",
        Reader::MeanOfPatches => "of all patches together",
    };
    let mut html = format!(
        "<p>Of each test image: as the model sees it; the attention {reader} in the last layer, as the mean over heads; and rollout, \
         which follows attention through all layers. Bright patches count most. \
         <code>vitreous explain {} IMAGE</code> shows every layer and head (without IMAGE, of test images).</p><div class=\"attention\">",
        escape(&directory.display().to_string())
    );
    let mut scratch = Scratch::default();
    let mut shown = 0;
    for sample in spread(part, data.classes.len(), IMAGES) {
        // One that cannot be read is passed over.
        if let Ok(figure) = one(sample, part, data, &model, &preprocess, &mut explainer, &mut scratch) {
            html.push_str(&figure);
            shown += 1;
        }
    }
    html.push_str("</div>");
    if shown > 0 { Ok(html) } else { Err("No image could be read.".to_string()) }
}

/// Refuses, in a sentence, what would take long.
fn bounded(model: &Model, effort: Effort) -> Result<(), String> {
    let parameters: usize = model.parameters().map(|(_, shape)| shape.iter().product::<usize>()).sum();
    let tokens = model.config.tokens();
    if parameters > MOST_PARAMETERS || tokens > MOST_TOKENS {
        return Err("The model is large, so its attention is not shown here; `vitreous explain` shows it.".to_string());
    }
    match effort {
        Effort::Little if parameters > FEW_PARAMETERS || tokens > FEW_TOKENS => {
            Err("Attention is shown when the run has ended, so as not to hold it up; `vitreous report` shows it at any time.".to_string())
        }
        _ => Ok(()),
    }
}

fn one(
    sample: usize,
    part: &dyn Dataset,
    data: &Splits,
    model: &Model,
    preprocess: &Preprocess,
    explainer: &mut Explainer,
    scratch: &mut Scratch,
) -> Result<String, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let size = [model.config.image.height, model.config.image.width];
    let mut pixels = vec![0.0; model.config.channels * size[0] * size[1]];
    let decoded = part.image(sample, preprocess.channels).map_err(|error| text(&error))?;
    preprocess.apply(&decoded, scratch, &mut pixels).map_err(|error| text(&error))?;
    let seen = preprocess.undo(&pixels, size).map_err(|error| text(&error))?;
    let explanation = explainer.explain(&pixels).map_err(|error| text(&error))?;
    let is = part
        .labels(sample)
        .iter()
        .filter_map(|&class| data.classes.get(class as usize))
        .cloned()
        .collect::<Vec<_>>()
        .join(", ");
    let said =
        explanation.logits.as_deref().map(|logits| answer(model, logits, data.several_labels)).unwrap_or_default();
    let grid = explanation.layout.grid;
    let last = overlay(&seen, grid, &read(&explanation)).map_err(|error| text(&error))?;
    let rollout = explanation.rollout.first().map(|rollout| overlay(&seen, grid, &rollout.patches));
    let pictures = [
        ("image", Some(seen), format!("The image, {is}")),
        ("last layer", Some(last), format!("Attention in the last layer over the image, {is}")),
        ("rollout", rollout.transpose().map_err(|error| text(&error))?, format!("Rollout over the image, {is}")),
    ];
    let mut html = "<figure><div class=\"maps\">".to_string();
    for (name, picture, alternative) in pictures {
        if let Some(picture) = picture {
            let class = if picture.width() < HARD_EDGES_BELOW { "pixels" } else { "" };
            let element = image(&picture, &alternative, class).map_err(|error| text(&error))?;
            html.push_str(&format!("<div>{element}<span>{name}</span></div>"));
        }
    }
    html.push_str(&format!(
        "</div><figcaption><strong>{}</strong>{}</figcaption></figure>",
        escape(&is),
        escape(&said)
    ));
    Ok(html)
}

/// What the model says of it.
fn answer(model: &Model, logits: &[f32], several: bool) -> String {
    if several {
        let there = logits.iter().enumerate().filter(|(_, logit)| **logit > 0.0).map(|(class, _)| label(model, class));
        let there: Vec<String> = there.take(8).collect();
        return format!("; the model says {}", if there.is_empty() { "nothing".to_string() } else { there.join(", ") });
    }
    let scores = softmax(logits);
    match (0..scores.len()).reduce(|best, class| if scores[class] > scores[best] { class } else { best }) {
        Some(best) => {
            format!("; the model says {}, {:.1} % sure", label(model, best), (1000.0 * scores[best]).floor() / 10.0)
        }
        None => String::new(),
    }
}

/// The reader's attention over patches in the last layer, the mean over heads.
fn read(explanation: &Explanation) -> Vec<f32> {
    let layout = &explanation.layout;
    let rows = explanation.attention.first().map(|layer| reader_rows(layer, layout)).unwrap_or_default();
    rows.last().map(|mean| mean[layout.prefix..].to_vec()).unwrap_or_default()
}
