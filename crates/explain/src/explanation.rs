//! The results: what is computed for a model, and for one image.

use crate::token_grid::TokenGrid;

/// The explanation of one image.
#[derive(Clone, Debug)]
pub struct Explanation {
    /// Where tokens lie in the image.
    pub layout: TokenGrid,
    /// Logits, one per class, if the model has a head. The same bits as without an explanation.
    pub logits: Option<Vec<f32>>,
    /// The input of the head.
    pub features: Vec<f32>,
    /// Attention weights of the chosen layers and heads, first layer first.
    pub attention: Vec<LayerAttention>,
    /// Attention rollout, for each way of fusing heads and each discarded fraction.
    pub rollout: Vec<Rollout>,
    /// Relevance for classes, in the requested order.
    pub relevance: Vec<Relevance>,
    /// The final patch tokens, if the model has no head: they are its result.
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
    /// The layer, counted from 0.
    pub layer: usize,
    /// The heads, counted from 0.
    pub heads: Vec<usize>,
    /// `[heads, tokens, tokens]`: one row per query, which sums to 1.
    pub weights: Vec<f32>,
    /// Mean attention distance of each head, in pixels; see `distance.rs`.
    pub distance: Vec<f64>,
    /// Attention entropy of each head, in nats; see `distance.rs`.
    pub entropy: Vec<f64>,
}

/// How the heads of a layer are fused.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Fusion {
    /// Their mean.
    Mean,
    /// Their elementwise maximum.
    Max,
    /// Their elementwise minimum.
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

/// How much of each patch reaches the output through attention and residual connections.
#[derive(Clone, Debug)]
pub struct Rollout {
    /// How heads were fused.
    pub fusion: Fusion,
    /// The fraction of the smallest weights that was discarded in each layer.
    pub discard: f32,
    /// One value per patch, row by row of the grid.
    pub patches: Vec<f32>,
}

/// The relevance of each patch for a class: attention weighted by the gradient of its logit.
#[derive(Clone, Debug)]
pub struct Relevance {
    /// The class; `None` for a model without a head, whose relevance is for the norm of its features.
    pub class: Option<usize>,
    /// One value per patch, row by row of the grid; never negative.
    pub patches: Vec<f32>,
}

/// What can be seen in the weights alone.
#[derive(Clone, Debug)]
pub struct ModelPictures {
    /// Where tokens lie in the image.
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
