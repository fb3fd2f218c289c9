//! All arrays of an image, for NumPy.

use std::path::Path;

use vitreous_explain::{Explanation, ModelPictures};
use vitreous_models::archive::{Result, TensorToWrite, write_npz};
use vitreous_pages::explain::json::{relevance_name, rollout_name};
use vitreous_runtime::ImageModel;

use super::language::arrays::NumberArray;

/// Writes `arrays.npz`; see the guide for what is in it.
pub fn write(
    path: &Path,
    pixels: &[f32],
    explanation: &Explanation,
    model: &ImageModel,
    pictures: &ModelPictures,
    more: &[NumberArray],
) -> Result<()> {
    let layout = &explanation.layout;
    let (tokens, patches) = (layout.tokens(), layout.patches());
    let grid = [layout.grid.height, layout.grid.width];
    let (channels, size, patch) = (model.input.channels, model.input.size, layout.patch);
    let filters: Vec<f32> = pictures.filters.iter().flat_map(|filter| filter.pixels.iter().copied()).collect();
    let mut tensors = vec![
        TensorToWrite::f32("pixels", &[channels, size.height, size.width], pixels),
        TensorToWrite::f32("features", &[explanation.features.len()], &explanation.features),
    ];
    if let Some(logits) = &explanation.logits {
        tensors.push(TensorToWrite::f32("logits", &[logits.len()], logits));
    }
    for layer in &explanation.attention {
        let shape = [layer.heads.len(), tokens, tokens];
        tensors.push(TensorToWrite::f32(format!("attention.{}", layer.layer), &shape, &layer.weights));
    }
    for rollout in &explanation.rollout {
        tensors.push(TensorToWrite::f32(rollout_name(rollout), &grid, &rollout.patches));
    }
    for relevance in &explanation.relevance {
        tensors.push(TensorToWrite::f32(relevance_name(relevance), &grid, &relevance.patches));
    }
    if let Some(features) = &explanation.patches {
        tensors.push(TensorToWrite::f32("patch_tokens", &[patches, features.dim], &features.tokens));
        tensors.push(TensorToWrite::f32("patch_components", &[grid[0], grid[1], 3], features.scores.as_flattened()));
    }
    if let Some(positions) = &pictures.positions {
        let dim = positions.table.len() / positions.rows.max(1);
        tensors.push(TensorToWrite::f32("positions", &[positions.rows, dim], &positions.table));
        tensors.push(TensorToWrite::f32("similarity", &[patches, patches], &positions.similarity));
    }
    let shape = [pictures.filters.len(), channels, patch.height, patch.width];
    tensors.push(TensorToWrite::f32("filters", &shape, &filters));
    tensors.extend(more.iter().map(|(name, shape, values)| TensorToWrite::f32(name.clone(), shape, values)));
    write_npz(path, tensors)
}
