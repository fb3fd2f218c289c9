//! `--patch-from` and `--at`: values of a run on another input, put in place of this one's.

use std::path::PathBuf;

use anyhow::anyhow;
use vitreous_engine::{Device, Edit, EditValues, Intervention};
use vitreous_explain::ExplainError;
use vitreous_explain::live::{Live, LiveInput};
use vitreous_models::Model;
use vitreous_runtime::ImageModel;

use super::{Explain, failure};
use crate::failure::Failure;
use crate::intervention_options::path_and_tokens;
use crate::prepared;

/// The values at `--at` in a run on the other input, as edits.
pub fn taken_over(
    explain: &Explain,
    model: &Model,
    other: &LiveInput,
    device: &Device,
) -> Result<Vec<Intervention>, Failure> {
    let mut live = Live::new(model, device);
    let mut edits = Vec::new();
    for text in &explain.at {
        let (path, tokens) = path_and_tokens("--at", text).map_err(Failure::Input)?;
        let values = live.taken(other, &path).map_err(failure)?;
        edits.push(Intervention { path, edit: Edit::Replace(EditValues::Numbers(values)), tokens });
    }
    Ok(edits)
}

/// Refuses `--patch-from` without `--at` where there is no map of all places.
pub fn check_at(explain: &Explain) -> Result<(), Failure> {
    match explain.at.is_empty() {
        true => Err(Failure::input(anyhow!("--patch-from: say which value is taken over, as in --at blocks.3.mlp"))),
        false => Ok(()),
    }
}

/// Refuses two texts of different lengths: their values have different shapes.
pub fn check_length(own: usize, other: usize) -> Result<(), Failure> {
    match own == other {
        true => Ok(()),
        false => Err(failure(ExplainError::OtherLength { own, other })),
    }
}

/// The edits that were asked for, and those that put values of `--patch-from`, which is an image, in place of a model's own.
pub fn edits_with_image(explain: &Explain, model: &ImageModel, device: &Device) -> Result<Vec<Intervention>, Failure> {
    let mut edits = explain.interventions.list()?;
    if let Some(other) = &explain.patch_from {
        check_at(explain)?;
        let floats = model.input.floats();
        let mut prepare = prepared::worker(model.preprocess.clone(), model.input.channels, floats);
        let pixels = prepare(Ok(PathBuf::from(other))).pixels;
        let pixels = pixels.map_err(|error| Failure::input(anyhow!("--patch-from {other}: {error}")))?;
        edits.extend(taken_over(explain, &model.model, &LiveInput::Image(pixels.numbers.into()), device)?);
    }
    Ok(edits)
}
