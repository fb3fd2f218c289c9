//! What is known of a model, and of one image in it.

use crate::token_grid::TokenGrid;

/// What one image does inside a model.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// Where tokens lie.
    pub layout: TokenGrid,
    /// A number a class, where the model has a head. The same bits as without an explanation.
    pub logits: Option<Vec<f32>>,
    /// What the head sees.
    pub features: Vec<f32>,
    /// The weights of the layers and heads that were asked for, first layer first.
    pub attention: Vec<LayerAttention>,
    /// Rollout of the whole model, by how heads are joined and how much is left out.
    pub rollout: Vec<Rollout>,
    /// Relevance for classes, in the order that they were asked for.
    pub relevance: Vec<Relevance>,
    /// What the patches' final tokens say, where the model has no head: the tokens are then its result.
    pub patches: Option<PatchFeatures>,
}

/// The final tokens of the patches, and how they relate.
#[derive(Clone, Debug)]
pub struct PatchFeatures {
    /// `[patches, dim]`, after the last norm where that is over tokens.
    pub tokens: Vec<f32>,
    /// Width of a token.
    pub dim: usize,
    /// The scores of the first three principal components, per patch; 0 where there are fewer components.
    pub scores: Vec<[f32; 3]>,
    /// The share of the variance that each of the three explains.
    pub shares: [f64; 3],
    /// `[patches, patches]`: cosine similarity.
    pub similarity: Vec<f32>,
}

/// The weights of one layer.
#[derive(Clone, Debug)]
pub struct LayerAttention {
    /// Which layer, from 0.
    pub layer: usize,
    /// Which heads, from 0.
    pub heads: Vec<usize>,
    /// `[heads, tokens, tokens]`: of each head, a row a query, which sums to 1.
    pub weights: Vec<f32>,
    /// How far each head looks, in pixels; see `distance.rs`.
    pub distance: Vec<f64>,
    /// How widely each head looks, in nats; see `distance.rs`.
    pub entropy: Vec<f64>,
}

/// How the heads of a layer become one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fusion {
    /// Their mean.
    Mean,
    /// The largest at each place.
    Max,
    /// The smallest at each place.
    Min,
}

impl Fusion {
    /// All of them.
    pub const ALL: [Fusion; 3] = [Fusion::Mean, Fusion::Max, Fusion::Min];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Fusion::Mean => "mean",
            Fusion::Max => "max",
            Fusion::Min => "min",
        }
    }
}

/// How much of each patch reaches the answer through attention and residual stream.
#[derive(Clone, Debug)]
pub struct Rollout {
    /// How heads were joined.
    pub fusion: Fusion,
    /// The share of the smallest weights that was left out of every layer.
    pub discard: f32,
    /// A number a patch, row by row of the grid.
    pub patches: Vec<f32>,
}

/// How much each patch speaks for a class, by attention weighted with the class' gradient.
#[derive(Clone, Debug)]
pub struct Relevance {
    /// The class; `None` for a model without a head, where it is for the length of its features.
    pub class: Option<usize>,
    /// A number a patch, row by row of the grid; never negative.
    pub patches: Vec<f32>,
}

/// What a model looks like by itself.
#[derive(Clone, Debug)]
pub struct ModelPictures {
    /// Where tokens lie.
    pub layout: TokenGrid,
    /// Position embeddings, where it has some.
    pub positions: Option<PositionPictures>,
    /// The first principal components of the patch embedding, the largest first.
    pub filters: Vec<Filter>,
}

/// What can be seen of position embeddings.
#[derive(Clone, Debug)]
pub struct PositionPictures {
    /// The table, `[rows, dim]`: first the tokens in front of the patches that have a position, then the patches.
    pub table: Vec<f32>,
    /// Rows of the table.
    pub rows: usize,
    /// Rows in front of the patches.
    pub prefix: usize,
    /// Whether they were learned; otherwise they are of sines and cosines.
    pub learned: bool,
    /// `[patches, patches]`: the cosine of the angle between every two patches' positions.
    pub similarity: Vec<f32>,
}

/// A principal component of the patch embedding's filters.
#[derive(Clone, Debug)]
pub struct Filter {
    /// `[channels, height, width]` of a patch; of length 1, its largest number (by size) positive.
    pub pixels: Vec<f32>,
    /// The share of the filters' variance that lies along it.
    pub share: f64,
}
