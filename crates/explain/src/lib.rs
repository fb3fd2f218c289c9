//! What a Vision Transformer does inside, as numbers: attention weights, rollout, relevance, distances, entropy, the similarity of
//! positions, the principal components of the patch embedding; for models without a head, components and
//! similarity of the patches' tokens. Of translators, [`text`]: attention between words. Of encoders of texts, [`encoder`]: attention
//! between tokens, the relevance of each token, what each layer would fill in.
//!
//! Everything is read through taps on the graph; the models know nothing of it. Of a layer's weights only some heads' are there at
//! a time, so that memory stays bounded on large models and long sequences.

mod backward;
pub mod distance;
pub mod eigen;
pub mod encoder;
mod error;
mod explainer;
mod explanation;
pub mod filters;
mod forward;
mod heads;
pub mod image_text;
mod inputs;
pub mod inside;
pub mod language;
pub mod live;
mod matrix;
mod parallel;
pub mod patches;
mod pictures;
pub mod principal;
pub mod relevance;
pub mod rollout;
mod settings;
pub mod similarity;
mod spread;
mod taps;
pub mod text;
mod token_grid;
mod tokens;

pub use error::ExplainError;
pub use explainer::Explainer;
pub use explanation::{
    Explanation, Filter, Fusion, LayerAttention, ModelPictures, PatchFeatures, PositionPictures, Relevance, Rollout,
};
pub use pictures::pictures;
pub use settings::{Choice, Classes, Settings, Structure};
pub use spread::{LayerSpread, Spread};
pub use token_grid::{Reader, TokenGrid};
