//! The families of models. A new one is its folder, and its line in [`FAMILIES`].

pub mod bert;
pub mod transformer;
pub mod vit;

use crate::family::{Architecture, Family};

/// All families.
pub static FAMILIES: [&dyn Family; 3] = [&vit::FAMILY, &transformer::FAMILY, &bert::FAMILY];

/// The family of a name.
pub fn family(name: &str) -> Option<&'static dyn Family> {
    FAMILIES.into_iter().find(|family| family.name() == name)
}

/// The model of a preset's name, of any family.
pub fn preset(name: &str) -> Option<Box<dyn Architecture>> {
    FAMILIES.into_iter().find_map(|family| family.preset(name))
}

/// The presets of all families.
pub fn preset_names() -> Vec<String> {
    FAMILIES.into_iter().flat_map(Family::presets).collect()
}
