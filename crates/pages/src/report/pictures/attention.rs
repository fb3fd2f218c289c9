//! Attention in a few validation images, for the report of a run.

use vitreous_data::dataset::{Dataset, Splits};
use vitreous_data::image::Scratch;
use vitreous_engine::Device;
use vitreous_explain::{Choice, Classes, Explainer, Explanation, Fusion, Settings, Structure};
use vitreous_models::OpenOptions;
use vitreous_runtime::ImageModel;
use vitreous_runtime::scores::softmax;
use vitreous_train::RunRecord;

use super::samples::{shown_part, spread};
use crate::explain::packed::reader_rows;
use crate::report::attention::{AttentionExample, AttentionExamples};

/// How much may be spent on a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Effort {
    /// Between two epochs, while training waits.
    Little,
    /// At the end, and when a report is asked for.
    Usual,
}

const IMAGES: usize = 6;
/// Larger models, and longer sequences, are left to `vitreous explain`.
const MOST_PARAMETERS: usize = 100_000_000;
const MOST_TOKENS: usize = 1500;
/// The same while training waits.
const FEW_PARAMETERS: usize = 10_000_000;
const FEW_TOKENS: usize = 300;

/// Runs the saved model on a few images; in place of a result, why there is none.
pub fn examples(
    run: &RunRecord,
    data: &Result<Splits, String>,
    threads: usize,
    effort: Effort,
) -> Result<AttentionExamples, String> {
    let directory = run.path.join("model");
    if !directory.join("config.json").is_file() {
        // The model is saved before the line of its evaluation is written.
        return Err(match run.finished() || !run.history.evaluations.is_empty() {
            true => "model/ is missing, or is no model: it was removed or changed after the run saved it.".to_string(),
            false => "There is no model yet: it is saved at each evaluation.".to_string(),
        });
    }
    let data = data.as_ref().map_err(|error| format!("No images are shown: the data cannot be opened. {error}"))?;
    let (part, _) = shown_part(data);
    let model = ImageModel::open(&directory, &OpenOptions::default()).map_err(|error| error.to_string())?;
    bounded(&model, effort)?;
    let structure = Structure::of(model.model.architecture.as_ref()).map_err(|error| error.to_string())?;
    let settings = Settings {
        choice: Choice { layers: vec![structure.layers - 1], heads: (0..structure.heads).collect() },
        fusions: vec![Fusion::Mean],
        discards: vec![0.0],
        classes: Classes::Top(0),
        ..Settings::usual(structure, threads)
    };
    // The run may be on the GPU and have planned all of its memory.
    let device = Device::Cpu { threads };
    let mut explainer = Explainer::new(&model.model, settings, &device).map_err(|error| error.to_string())?;
    let mut scratch = Scratch::default();
    let samples = spread(part, data.classes.len(), IMAGES);
    // An image that cannot be read is left out.
    let images =
        samples.into_iter().filter_map(|sample| example(sample, part, data, &model, &mut explainer, &mut scratch).ok());
    let images = images.collect();
    Ok(AttentionExamples { model: directory.display().to_string(), reader: explainer.layout().reader, images })
}

/// Refuses, in one sentence, what would take long.
fn bounded(model: &ImageModel, effort: Effort) -> Result<(), String> {
    let parameters: usize = model.model.parameters().iter().map(|parameter| parameter.shape.elements()).sum();
    let tokens = model.input.tokens();
    if parameters > MOST_PARAMETERS || tokens > MOST_TOKENS {
        return Err("The model is large, so its attention is not shown here; `vitreous explain` shows it.".to_string());
    }
    match effort {
        Effort::Little if parameters > FEW_PARAMETERS || tokens > FEW_TOKENS => Err(
            "Attention is shown when the run has ended, so that training does not wait; `vitreous report` shows it at any time."
                .to_string(),
        ),
        _ => Ok(()),
    }
}

fn example(
    sample: usize,
    part: &dyn Dataset,
    data: &Splits,
    model: &ImageModel,
    explainer: &mut Explainer,
    scratch: &mut Scratch,
) -> Result<AttentionExample, String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let (preprocess, size) = (&model.preprocess, [model.input.size.height, model.input.size.width]);
    let mut pixels = vec![0.0; model.input.floats()];
    let decoded = part.image(sample, preprocess.channels).map_err(|error| text(&error))?;
    preprocess.apply(&decoded, scratch, &mut pixels).map_err(|error| text(&error))?;
    let seen = preprocess.undo(&pixels, size).map_err(|error| text(&error))?;
    let explanation = explainer.explain(&pixels).map_err(|error| text(&error))?;
    let classes = part.labels(sample).iter().filter_map(|&class| data.classes.get(class as usize));
    let logits = explanation.logits.as_deref();
    Ok(AttentionExample {
        truth: classes.cloned().collect::<Vec<_>>().join(", "),
        answer: logits.map(|logits| answer(model, logits, data.several_labels)).unwrap_or_default(),
        seen,
        grid: explanation.layout.grid,
        last_layer: last_layer(&explanation),
        rollout: explanation.rollout.first().map(|rollout| rollout.patches.clone()).unwrap_or_default(),
    })
}

/// What the model says about it.
fn answer(model: &ImageModel, logits: &[f32], several: bool) -> String {
    if several {
        let there = logits.iter().enumerate().filter(|(_, logit)| **logit > 0.0).map(|(class, _)| model.label(class));
        let there: Vec<String> = there.take(8).collect();
        return format!("; predicted: {}", if there.is_empty() { "nothing".to_string() } else { there.join(", ") });
    }
    let scores = softmax(logits);
    match (0..scores.len()).reduce(|best, class| if scores[class] > scores[best] { class } else { best }) {
        Some(best) => {
            format!("; predicted: {}, {:.1} %", model.label(best), (1000.0 * scores[best]).floor() / 10.0)
        }
        None => String::new(),
    }
}

/// The reader's attention to patches in the last layer, averaged over heads.
fn last_layer(explanation: &Explanation) -> Vec<f32> {
    let layout = &explanation.layout;
    let rows = explanation.attention.first().map(|layer| reader_rows(layer, layout)).unwrap_or_default();
    rows.last().map(|mean| mean[layout.prefix..].to_vec()).unwrap_or_default()
}
