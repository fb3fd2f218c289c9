//! All arrays of a text, for NumPy.

use std::path::Path;

use vitreous_models::archive::{Result, TensorToWrite, write_npz};
use vitreous_pages::explain_encoder::{TextPage, TextPrediction};

use super::super::language::arrays::of_effects;
use super::super::text::arrays::numbers;

/// Writes `arrays.npz`; see the guide for what is in it.
pub fn write(path: &Path, page: &TextPage, logits: &[f32]) -> Result<()> {
    let count = page.tokens.len();
    // The embeddings first, then each layer.
    let top = page.fillings.first().and_then(|layer| layer.tokens.first()).map_or(0, Vec::len);
    let all = page.fillings.iter().flat_map(|layer| &layer.tokens).flatten();
    let (ids, scores): (Vec<u32>, Vec<f32>) = all.map(|(id, _, score)| (*id, *score)).unzip();
    let effects: Vec<_> = page.relevance.iter().flat_map(|relevance| &relevance.effects).flat_map(of_effects).collect();
    let mut tensors = vec![numbers("ids", &[count], &page.ids)];
    if !logits.is_empty() {
        // One row for the text, or one for each token.
        let rows = match &page.prediction {
            TextPrediction::TokenClasses(_) | TextPrediction::Answers(_) => count,
            _ => 1,
        };
        let shape = [rows, logits.len() / rows];
        tensors.push(TensorToWrite::f32("logits", if rows == 1 { &shape[1..] } else { &shape }, logits));
    }
    for layer in &page.attention {
        let shape = [layer.heads.len(), count, count];
        tensors.push(TensorToWrite::f32(format!("attention.{}", layer.layer), &shape, &layer.weights));
    }
    for relevance in &page.relevance {
        let name = |method: &str| format!("{method}.{}", relevance.key);
        tensors.push(TensorToWrite::f32(name("gradient_attention"), &[count], &relevance.gradient_attention));
        if let Some(integrated) = &relevance.integrated {
            tensors.push(TensorToWrite::f32(name("integrated_gradients"), &[count], &integrated.tokens));
        }
    }
    for (name, shape, values) in &effects {
        tensors.push(TensorToWrite::f32(name.clone(), shape, values));
    }
    if top > 0 {
        let shape = [page.fillings.len(), count, top];
        tensors.push(numbers("fillings.ids", &shape, &ids));
        tensors.push(TensorToWrite::f32("fillings.scores", &shape, &scores));
    }
    write_npz(path, tensors)
}
