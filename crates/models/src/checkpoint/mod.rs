//! Checkpoints of any family: how the tensors of a file correspond to the parameters of a graph.
//!
//! A [`Dialect`] is a list of rename [`Rule`]s. Applied to the parameters of a model's graph it becomes a table of
//! [`Entry`]s, which serves for reading, for writing, and for checking. No family is named here.

mod entries;
pub mod json;
pub mod resize;
mod rules;

use std::collections::BTreeMap;

pub use entries::{Entry, GridTable, Presence, Problem, Storage, problems};
pub use rules::{Dialect, Rule};

/// The names and shapes of a file's tensors: all that is needed to tell what it holds.
pub type Inventory = BTreeMap<String, Vec<usize>>;

/// What training tools put before the names of a model's tensors. Where a file has several models, the one with the earlier
/// word is taken: the teacher rather than the student, the model rather than its average.
const WRAPPERS: [&str; 14] = [
    "model",
    "state_dict",
    "module",
    "_orig_mod",
    "timm_model",
    "net",
    "network",
    "teacher",
    "backbone",
    "encoder",
    "model_ema",
    "state_dict_ema",
    "ema",
    "student",
];

/// What stands before a name that every model of a dialect has (`anchor`): nothing, wrappers of training tools, or the name of
/// a base model (`vit.`), which comes before all wrappers.
pub fn prefix_of<'a>(inventory: &'a Inventory, anchor: &str, base_models: &[&str]) -> Option<&'a str> {
    let rank = |word: &str| match base_models.contains(&word) {
        true => Some(0),
        false => WRAPPERS.iter().position(|known| *known == word).map(|place| place + 1),
    };
    let known = |prefix: &&str| {
        let words = prefix.strip_suffix('.').map(|words| words.split('.'));
        prefix.is_empty() || words.is_some_and(|mut words| words.all(|word| rank(word).is_some()))
    };
    let prefixes = inventory.keys().filter_map(|name| name.strip_suffix(anchor)).filter(known);
    prefixes.min_by_key(|prefix| (prefix.split('.').filter_map(rank).max(), prefix.len()))
}
