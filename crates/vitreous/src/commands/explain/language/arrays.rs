//! All arrays of a language model's text, for NumPy.

use std::path::Path;

use vitreous_explain::inside::{Attribution, HeadEffects, HeadScores};
use vitreous_models::archive::{Result, TensorToWrite, write_npz};
use vitreous_pages::explain_language::LanguagePage;

use super::super::text::arrays::numbers;

/// An array before it is written: its name, its shape, its numbers.
pub type NumberArray = (String, Vec<usize>, Vec<f32>);

/// Writes `arrays.npz`; see the guide for what is in it.
pub fn write(path: &Path, page: &LanguagePage) -> Result<()> {
    let (text, count) = (&page.text, page.text.tokens.len());
    let top = text.fillings.first().and_then(|layer| layer.tokens.first()).map_or(0, Vec::len);
    let all = text.fillings.iter().flat_map(|layer| &layer.tokens).flatten();
    let (lens_ids, lens_scores): (Vec<u32>, Vec<f32>) = all.map(|(id, _, score)| (*id, *score)).unzip();
    let probability: Vec<f32> = page.actual.iter().map(|actual| actual.map_or(f32::NAN, |(share, _)| share)).collect();
    let rank: Vec<u32> = page.actual.iter().map(|actual| actual.map_or(0, |(_, rank)| rank as u32)).collect();
    let more = number_arrays(page);
    let mut tensors = vec![numbers("ids", &[count], &text.ids), numbers("rank", &[count], &rank)];
    tensors.push(TensorToWrite::f32("probability", &[count], &probability));
    let shape = [text.fillings.len(), count, top];
    tensors.push(numbers("lens.ids", &shape, &lens_ids));
    tensors.push(TensorToWrite::f32("lens.scores", &shape, &lens_scores));
    for layer in &text.attention {
        let shape = [layer.heads.len(), count, count];
        tensors.push(TensorToWrite::f32(format!("attention.{}", layer.layer), &shape, &layer.weights));
    }
    let more = more.iter().filter(|(_, _, values)| !values.is_empty());
    tensors.extend(more.map(|(name, shape, values)| TensorToWrite::f32(name.clone(), shape, values)));
    write_npz(path, tensors)
}

/// What is there besides tokens, their lens and their attention.
fn number_arrays(page: &LanguagePage) -> Vec<NumberArray> {
    let count = page.text.tokens.len();
    let mut more = of_effects(&page.effects);
    more.extend(page.attribution.iter().flat_map(of_attribution));
    for (name, scores) in [("scores", &page.scores), ("repeated_scores", &page.repeated_scores)] {
        let of = |score: fn(&HeadScores) -> f64| scores.iter().flatten().map(|head| score(head) as f32).collect();
        let shape = vec![scores.len(), scores.first().map_or(0, Vec::len)];
        more.push((format!("{name}.induction"), shape.clone(), of(|scores| scores.induction)));
        more.push((format!("{name}.previous_token"), shape.clone(), of(|scores| scores.previous_token)));
        more.push((format!("{name}.duplicate_token"), shape, of(|scores| scores.duplicate_token)));
    }
    if let Some(patching) = &page.patching {
        let patched: Vec<f32> = patching.effects.patched.iter().flatten().map(|x| *x as f32).collect();
        more.push(("patched".to_string(), vec![patching.effects.patched.len(), count], patched));
    }
    more
}

/// Arrays of what happens without parts.
pub fn of_effects(effects: &HeadEffects) -> Vec<NumberArray> {
    let (layers, heads) = (effects.heads.len(), effects.heads.first().map_or(0, Vec::len));
    let flat = |rows: &[Vec<f64>]| rows.iter().flatten().map(|x| *x as f32).collect();
    vec![
        ("effects.heads".to_string(), vec![layers, heads], flat(&effects.heads)),
        ("effects.head_logits".to_string(), vec![layers, heads], flat(&effects.head_logits)),
        ("effects.mlps".to_string(), vec![layers], effects.mlps.iter().map(|x| *x as f32).collect()),
        ("effects.mlp_logits".to_string(), vec![layers], effects.mlp_logits.iter().map(|x| *x as f32).collect()),
    ]
}

/// Arrays of what parts add to a logit.
pub fn of_attribution(parts: &Attribution) -> Vec<NumberArray> {
    let (layers, heads) = (parts.layers.len(), parts.layers.first().map_or(0, |layer| layer.heads.len()));
    let each = |part: fn(&vitreous_explain::inside::LayerParts) -> f64| -> Vec<f32> {
        parts.layers.iter().map(|layer| part(layer) as f32).collect()
    };
    let all_heads = parts.layers.iter().flat_map(|layer| &layer.heads).map(|x| *x as f32).collect();
    vec![
        ("attribution.embedding".to_string(), vec![1], vec![parts.embedding as f32]),
        ("attribution.heads".to_string(), vec![layers, heads], all_heads),
        ("attribution.attention_bias".to_string(), vec![layers], each(|layer| layer.attention_bias)),
        ("attribution.mlp".to_string(), vec![layers], each(|layer| layer.mlp)),
        ("attribution.bias".to_string(), vec![1], vec![parts.bias as f32]),
    ]
}
