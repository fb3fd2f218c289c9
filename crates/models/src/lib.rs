//! Vitreous' models: architectures as functions that build graphs, their presets, and the checkpoints that people already have.

pub mod config;
pub mod positions;
pub mod presets;
pub mod stages;
pub mod vit;

pub use config::{ConfigError, Size, VitConfig};
pub use presets::preset;
pub use vit::{Vit, vit};
