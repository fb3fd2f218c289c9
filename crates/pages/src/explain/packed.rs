//! Attention weights in few bytes, for the page's script.
//!
//! A row of weights over patches is kept as its largest weight `m` in f32 and one byte per patch, `q = round(255 √(w / m))`, so
//! that `w ≈ m (q / 255)²`. The root keeps weak weights apart: the smallest that is not 0 is `m / 65025`. Weights on the tokens in
//! front of the patches are kept in f32: a class token often takes nearly all of a row, which would leave no steps for the patches.

use crate::base64;
use serde_json::{Value, json};
use vitreous_explain::{Explanation, LayerAttention, PatchFeatures, Reader, TokenGrid};

/// The most bytes of weights in a page, before they become text.
const BUDGET: usize = 8_000_000;

/// What a page holds of the weights.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Kept {
    /// Every head's row of every query, and their mean: a mean of what the script gets would be less exact.
    All,
    /// The mean over heads of every query, and every head's row of the reader.
    MeanAndReader,
    /// Every head's row of the reader.
    Reader,
}

impl Kept {
    /// As much as the budget allows.
    pub fn within_budget(explanation: &Explanation) -> Kept {
        Kept::within(explanation, BUDGET)
    }

    fn within(explanation: &Explanation, budget: usize) -> Kept {
        let layout = &explanation.layout;
        let row = layout.patches() + 4 * (1 + layout.prefix);
        let (layers, heads) =
            (explanation.attention.len(), explanation.attention.iter().map(|layer| layer.heads.len()).sum::<usize>());
        let reader = (layers + heads).saturating_mul(row);
        let with_queries =
            |maps: usize| maps.saturating_mul(layout.tokens()).saturating_mul(row).saturating_add(reader);
        if with_queries(heads + layers) <= budget {
            Kept::All
        } else if with_queries(layers) <= budget {
            Kept::MeanAndReader
        } else {
            Kept::Reader
        }
    }

    /// Its name, for the script.
    pub fn name(self) -> &'static str {
        match self {
            Kept::All => "all",
            Kept::MeanAndReader => "mean",
            Kept::Reader => "reader",
        }
    }
}

/// The most bytes of cosines between patches in a page: about 2000 patches.
const SIMILARITY_BUDGET: usize = 4_000_000;

/// Whether a page has room for the cosines between all patches.
pub fn holds_similarity(features: &PatchFeatures) -> bool {
    features.similarity.len() <= SIMILARITY_BUDGET
}

/// Cosines between all patches, one byte each: `q = round(255 (cos + 1) / 2)`. `None` where they would take too much room.
pub fn similarity(features: &PatchFeatures) -> Option<String> {
    let byte = |cosine: &f32| (127.5 * (cosine.clamp(-1.0, 1.0) + 1.0)).round() as u8;
    holds_similarity(features).then(|| base64(&features.similarity.iter().map(byte).collect::<Vec<u8>>()))
}

/// Numbers of any size, four bytes each.
pub fn floats(values: &[f32]) -> String {
    base64(&values.iter().flat_map(|value| value.to_le_bytes()).collect::<Vec<u8>>())
}

/// Rows of weights, packed.
#[derive(Default)]
struct Packed {
    patches: Vec<u8>,
    largest: Vec<u8>,
    prefix: Vec<u8>,
}

impl Packed {
    fn add(&mut self, row: &[f32], prefix: usize) {
        let (front, patches) = row.split_at(prefix);
        let largest = patches.iter().copied().fold(0.0, f32::max);
        self.largest.extend(largest.to_le_bytes());
        self.prefix.extend(front.iter().flat_map(|weight| weight.to_le_bytes()));
        // NaN becomes 0.
        self.patches.extend(patches.iter().map(|weight| (255.0 * (weight / largest).sqrt()).round() as u8));
    }

    fn json(&self) -> Value {
        json!({ "patches": base64(&self.patches), "largest": base64(&self.largest), "prefix": base64(&self.prefix) })
    }
}

/// A layer for the script: `reader` is a row for each head, then their mean; `all` a row for each head and query; `mean` a row for
/// each query. What is not kept is not there.
pub fn layer(layer: &LayerAttention, layout: &TokenGrid, kept: Kept) -> Value {
    let (tokens, prefix) = (layout.tokens(), layout.prefix);
    let pack = |rows: &mut dyn Iterator<Item = &[f32]>| {
        let mut packed = Packed::default();
        rows.for_each(|row| packed.add(row, prefix));
        packed.json()
    };
    let mut fields = json!({ "layer": layer.layer, "heads": layer.heads });
    fields["reader"] = pack(&mut reader_rows(layer, layout).iter().map(Vec::as_slice));
    if kept == Kept::All {
        fields["all"] = pack(&mut layer.weights.chunks_exact(tokens));
    }
    if kept != Kept::Reader {
        let mean = mean_of(layer.weights.chunks_exact(tokens * tokens), tokens * tokens);
        fields["mean"] = pack(&mut mean.chunks_exact(tokens));
    }
    fields
}

/// The reader's row of weights over all tokens: of each head, then the mean of these.
pub fn reader_rows(layer: &LayerAttention, layout: &TokenGrid) -> Vec<Vec<f32>> {
    let tokens = layout.tokens();
    let row = |head: &[f32]| match layout.reader {
        Reader::ClassToken => head[..tokens].to_vec(),
        Reader::MeanOfPatches => mean_of(head.chunks_exact(tokens).skip(layout.prefix), tokens),
    };
    let mut rows: Vec<Vec<f32>> = layer.weights.chunks_exact(tokens * tokens).map(row).collect();
    rows.push(mean_of(rows.iter().map(Vec::as_slice), tokens));
    rows
}

fn mean_of<'a>(parts: impl Iterator<Item = &'a [f32]>, length: usize) -> Vec<f32> {
    let (mut sum, mut count) = (vec![0.0f64; length], 0);
    for part in parts {
        count += 1;
        sum.iter_mut().zip(part).for_each(|(sum, &number)| *sum += f64::from(number));
    }
    sum.into_iter().map(|sum| (sum / f64::from(count.max(1))) as f32).collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use vitreous_models::Size;

    fn explanation(side: usize, heads: usize) -> Explanation {
        let layout = TokenGrid {
            image: Size::square(side * 4),
            patch: Size::square(4),
            grid: Size::square(side),
            prefix: 1,
            reader: Reader::ClassToken,
        };
        let tokens = layout.tokens();
        let weights: Vec<f32> = (0..heads * tokens * tokens).map(|at| (at % 13) as f32 / 100.0).collect();
        let layer = LayerAttention {
            layer: 0,
            heads: (0..heads).collect(),
            weights,
            distance: vec![0.0; heads],
            entropy: vec![0.0; heads],
        };
        Explanation {
            layout,
            logits: None,
            features: Vec::new(),
            attention: vec![layer],
            rollout: Vec::new(),
            relevance: Vec::new(),
            patches: None,
        }
    }

    #[test]
    fn a_page_holds_as_much_as_its_budget_allows() {
        let explanation = explanation(4, 3);
        let row = 16 + 8;
        assert_eq!(Kept::within(&explanation, 4 * (17 + 1) * row), Kept::All);
        assert_eq!(Kept::within(&explanation, 4 * (17 + 1) * row - 1), Kept::MeanAndReader);
        assert_eq!(Kept::within(&explanation, (17 + 4) * row), Kept::MeanAndReader);
        assert_eq!(Kept::within(&explanation, (17 + 4) * row - 1), Kept::Reader);
    }

    #[test]
    fn weights_come_back_nearly_as_they_were() {
        let row = [0.9, 0.0, 1e-6, 0.003, 0.05, f32::NAN];
        let mut packed = Packed::default();
        packed.add(&row, 1);
        let largest = f32::from_le_bytes(packed.largest[..4].try_into().expect("four bytes"));
        assert_eq!(largest, 0.05);
        assert_eq!(packed.prefix, 0.9f32.to_le_bytes());
        for (byte, weight) in packed.patches.iter().zip(&row[1..5]) {
            let back = largest * (f32::from(*byte) / 255.0).powi(2);
            assert!((back - weight).abs() <= 0.004 * largest, "{weight} became {back}");
        }
        assert_eq!(packed.patches[4], 0);
    }

    /// The bytes of a field that the script reads.
    fn bytes(value: &Value, field: &str) -> Vec<u8> {
        let text = value[field].as_str().expect("text");
        let digit = |byte: u8| match byte {
            b'A'..=b'Z' => u32::from(byte - b'A'),
            b'a'..=b'z' => u32::from(byte - b'a') + 26,
            b'0'..=b'9' => u32::from(byte - b'0') + 52,
            b'+' => 62,
            _ => 63,
        };
        let mut found = Vec::new();
        for four in text.trim_end_matches('=').as_bytes().chunks(4) {
            let number = four.iter().enumerate().fold(0, |sum, (place, &byte)| sum | digit(byte) << (18 - 6 * place));
            found.extend(number.to_be_bytes()[1..four.len()].iter());
        }
        found
    }

    #[test]
    fn rows_stand_by_head_and_query_and_the_reader_is_the_class_token() {
        let explanation = explanation(2, 3);
        let (attention, layout) = (&explanation.attention[0], &explanation.layout);
        let value = layer(attention, layout, Kept::All);
        let of = |field: &str, row: usize, patch: usize| {
            let floats = bytes(&value[field], "largest");
            let largest = f32::from_le_bytes(floats[4 * row..4 * row + 4].try_into().expect("four bytes"));
            largest * (f32::from(bytes(&value[field], "patches")[row * 4 + patch]) / 255.0).powi(2)
        };
        let tokens = layout.tokens();
        for head in 0..3 {
            for query in 0..tokens {
                for patch in 0..4 {
                    let weight = attention.weights[(head * tokens + query) * tokens + 1 + patch];
                    assert!((of("all", head * tokens + query, patch) - weight).abs() < 1e-3, "{head} {query} {patch}");
                    if query == 0 {
                        assert!((of("reader", head, patch) - weight).abs() < 1e-3, "{head} {patch}");
                    }
                }
            }
        }
    }

    #[test]
    fn the_mean_stands_behind_the_heads() {
        let explanation = explanation(2, 2);
        let rows = reader_rows(&explanation.attention[0], &explanation.layout);
        assert_eq!(rows.len(), 3);
        let mean: Vec<f32> = rows[0].iter().zip(&rows[1]).map(|(a, b)| (a + b) / 2.0).collect();
        assert!(mean.iter().zip(&rows[2]).all(|(a, b)| (a - b).abs() < 1e-7));
    }
}
