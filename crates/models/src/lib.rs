//! Vitreous' models: architectures as functions that build graphs, their presets, and the checkpoints that people already have.

pub mod archive;
