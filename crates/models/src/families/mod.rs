//! The model families. A new one is its folder, and a line in [`FAMILIES`].

pub mod albert;
pub mod bart;
pub mod bert;
pub mod clip;
mod decoder;
mod encoder;
pub mod gpt2;
pub mod llama;
mod pairs;
pub mod t5;
pub mod transformer;
pub mod vit;
pub mod whisper;

use crate::family::{Architecture, Family};

/// All families.
pub static FAMILIES: [&dyn Family; 10] = [
    &vit::FAMILY,
    &transformer::FAMILY,
    &bert::FAMILY,
    &albert::FAMILY,
    &gpt2::FAMILY,
    &llama::FAMILY,
    &t5::FAMILY,
    &bart::FAMILY,
    &clip::FAMILY,
    &whisper::FAMILY,
];

/// The family with this name.
pub fn family(name: &str) -> Option<&'static dyn Family> {
    FAMILIES.into_iter().find(|family| family.name() == name)
}

/// The model of a preset, of any family.
pub fn preset(name: &str) -> Option<Box<dyn Architecture>> {
    FAMILIES.into_iter().find_map(|family| family.preset(name))
}

/// The names of all presets.
pub fn preset_names() -> Vec<String> {
    FAMILIES.into_iter().flat_map(Family::presets).collect()
}
