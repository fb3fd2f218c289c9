//! The attention weights of one layer between tokens, collected head by head.

use std::ops::Range;

/// The attention of one layer.
#[derive(Clone, Debug, PartialEq)]
pub struct TextAttention {
    /// Which layer of its stack.
    pub layer: usize,
    /// Whose weights are kept.
    pub heads: Vec<usize>,
    /// `[heads, queries, keys]`.
    pub weights: Vec<f32>,
    /// The mean over all heads of the layer, whichever are kept: `[queries, keys]`.
    pub mean: Vec<f32>,
}

/// Keeps the chosen heads of a layer while all of them come by, and their mean.
pub(crate) struct AttentionKeeper {
    layer: usize,
    chosen: Vec<usize>,
    weights: Vec<f32>,
    sum: Vec<f64>,
    seen: usize,
}

impl AttentionKeeper {
    /// For a layer whose heads have `one_head` weights each.
    pub fn new(layer: usize, chosen: &[usize], one_head: usize) -> AttentionKeeper {
        let mut chosen = chosen.to_vec();
        chosen.sort_unstable();
        AttentionKeeper { layer, chosen, weights: Vec::new(), sum: vec![0.0; one_head], seen: 0 }
    }

    /// Adds heads, in the order of their numbers: `[heads, queries, keys]`.
    pub fn add(&mut self, heads: Range<usize>, weights: &[f32]) {
        for (head, weights) in heads.zip(weights.chunks_exact(self.sum.len())) {
            self.seen += 1;
            self.sum.iter_mut().zip(weights).for_each(|(sum, &weight)| *sum += f64::from(weight));
            if self.chosen.contains(&head) {
                self.weights.extend_from_slice(weights);
            }
        }
    }

    /// What was kept.
    pub fn finish(self) -> TextAttention {
        let heads = self.seen.max(1) as f64;
        let mean = self.sum.into_iter().map(|sum| (sum / heads) as f32).collect();
        TextAttention { layer: self.layer, heads: self.chosen, weights: self.weights, mean }
    }
}
