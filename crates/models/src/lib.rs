//! Vitreous' models: architectures as functions that build graphs, their presets, and the checkpoints that people already have.

pub mod adapters;
pub mod archive;
pub mod checkpoint;
pub mod config;
pub mod generate;
pub mod initial;
mod layers;
pub mod model;
pub mod positions;
pub mod presets;
pub mod stages;
pub mod text_model;
pub mod transformer;
pub mod vit;

pub use adapters::{Adapters, merge_adapters};
pub use config::{ConfigError, Size, VitConfig};
pub use initial::{Initialisation, initialise};
pub use model::{Model, ModelError, OpenOptions, Preprocessing, SaveOptions, Written};
pub use presets::preset;
pub use text_model::TextModel;
pub use transformer::{Transformer, TransformerConfig, transformer};
pub use vit::{Vit, vit, vit_of, vit_with};
