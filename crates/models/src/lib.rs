//! Vitreous' models: families of architectures as functions that build graphs, and readers for the checkpoints that
//! people have.
//!
//! A family is a folder of [`families`]. Everything else here is common to all: what a model takes and gives ([`Signature`]),
//! opening and saving ([`Model`]), rename rules between libraries ([`checkpoint`]), file formats ([`archive`]), decoding ([`generate`]).

pub mod adapters;
pub mod archive;
mod blocks;
mod call;
pub mod checkpoint;
pub mod encode;
pub mod families;
mod family;
pub mod generate;
pub mod initial;
pub mod model;
mod on_device;
mod pooling;
pub mod positions;
pub mod score;
mod settings;
mod signature;
pub mod stages;
#[cfg(test)]
mod testing;

pub use adapters::{Adapters, merge_adapters};
pub use call::{CacheFormat, Call, Outputs, Part, StepShape};
pub use families::{FAMILIES, family, preset, preset_names};
pub use family::{Architecture, Checkpoint, Family, Format, OpenOptions, Reading};
pub use initial::{Initialisation, initialise};
pub use model::{Assets, Model, ModelError, Preprocessing, SaveOptions, StoredFormat, WeightType, Written};
pub use on_device::{OnDevice, Weights, WeightsByName};
pub use pooling::{POOLED, Pooling, pool};
pub use settings::{Activation, ConfigError, NormOrder, Settings, Size};
pub use signature::{
    AudioInput, CaptionInput, CaptionToken, Gives, Head, ImageInput, PooledFrom, Signature, SpecialTokens, Takes,
    TokenInput,
};
