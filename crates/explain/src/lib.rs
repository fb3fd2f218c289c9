//! What a Vision Transformer does inside, as numbers: attention weights, rollout, relevance, distances, entropy, the similarity of
//! positions, the principal components of the patch embedding.
//!
//! Everything is read through taps on the graph; the models know nothing of it. Weights are taken some layers at a time, so that
//! memory stays bounded on large models and long sequences.

mod explanation;
mod layout;

pub use explanation::{
    Explanation, Filter, Fusion, LayerAttention, ModelPictures, PositionPictures, Relevance, Rollout,
};
pub use layout::{Layout, Reader};
