//! All arrays of a sentence, for NumPy.

use std::borrow::Cow;
use std::path::Path;

use vitreous_explain::text::TextExplanation;
use vitreous_models::archive::{ElementType, Result, TensorToWrite, write_npz};

/// Writes `arrays.npz`; see the guide for what is in it.
pub fn write(path: &Path, explanation: &TextExplanation) -> Result<()> {
    let (source, target) = (explanation.source.len(), explanation.written.len());
    let sides = [("source", &explanation.source), ("read", &explanation.read), ("written", &explanation.written)];
    let mut tensors: Vec<TensorToWrite> = sides.map(|(name, tokens)| numbers(name, &[tokens.len()], tokens)).into();
    tensors.push(TensorToWrite::f32("probability", &[target], &explanation.probabilities));
    let kinds = [
        ("encoder", &explanation.encoder, [source, source]),
        ("decoder", &explanation.decoder, [target, target]),
        ("cross", &explanation.cross, [target, source]),
    ];
    for (kind, layers, [rows, columns]) in kinds {
        for layer in layers {
            let name = format!("{kind}.{}", layer.layer);
            tensors.push(TensorToWrite::f32(name, &[layer.heads.len(), rows, columns], &layer.weights));
        }
    }
    write_npz(path, tensors)
}

/// Tokens, as 32-bit integers.
pub fn numbers<'a>(name: &str, shape: &[usize], tokens: &'a [u32]) -> TensorToWrite<'a> {
    let bytes = move || Ok(Cow::Owned(tokens.iter().flat_map(|&token| (token as i32).to_le_bytes()).collect()));
    TensorToWrite::new(name, shape, ElementType::I32, bytes)
}
