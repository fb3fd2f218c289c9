//! How far and how widely heads look in many images: means by layer and head, kept up while images come.

use std::collections::BTreeMap;

use crate::explanation::{Explanation, LayerAttention};

/// Running means over images of [`distance`](crate::distance::distance) and [`entropy`](crate::distance::entropy).
#[derive(Clone, Debug, Default)]
pub struct Spread {
    images: usize,
    /// By layer and head.
    sums: BTreeMap<(usize, usize), Sums>,
}

#[derive(Clone, Copy, Debug, Default)]
struct Sums {
    images: usize,
    distance: f64,
    entropy: f64,
}

/// The means of one layer's heads.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerSpread {
    /// Which layer, from 0.
    pub layer: usize,
    /// Which heads, from 0.
    pub heads: Vec<usize>,
    /// How far each looks, in pixels.
    pub distance: Vec<f64>,
    /// How widely each looks, in nats.
    pub entropy: Vec<f64>,
}

impl Spread {
    /// Of no image yet.
    pub fn new() -> Spread {
        Spread::default()
    }

    /// Adds the layers and heads that an explanation kept.
    pub fn add(&mut self, explanation: &Explanation) {
        for LayerAttention { layer, heads, distance, entropy, .. } in &explanation.attention {
            self.add_layer(*layer, heads, distance, entropy);
        }
        self.count_image();
    }

    pub(crate) fn add_layer(&mut self, layer: usize, heads: &[usize], distances: &[f64], entropies: &[f64]) {
        for ((&head, distance), entropy) in heads.iter().zip(distances).zip(entropies) {
            let sums = self.sums.entry((layer, head)).or_default();
            sums.images += 1;
            sums.distance += distance;
            sums.entropy += entropy;
        }
    }

    pub(crate) fn count_image(&mut self) {
        self.images += 1;
    }

    /// How many images were added.
    pub fn images(&self) -> usize {
        self.images
    }

    /// The means, the first layer first.
    pub fn layers(&self) -> Vec<LayerSpread> {
        let mut layers: Vec<LayerSpread> = Vec::new();
        for (&(layer, head), sums) in &self.sums {
            if layers.last().is_none_or(|last| last.layer != layer) {
                layers.push(LayerSpread { layer, heads: Vec::new(), distance: Vec::new(), entropy: Vec::new() });
            }
            if let Some(last) = layers.last_mut() {
                last.heads.push(head);
                last.distance.push(sums.distance / sums.images as f64);
                last.entropy.push(sums.entropy / sums.images as f64);
            }
        }
        layers
    }
}
