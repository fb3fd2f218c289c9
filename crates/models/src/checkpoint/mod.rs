//! Checkpoints of any family: how the tensors of a file correspond to the parameters of a graph.
//!
//! A [`Dialect`] is a list of rename [`Rule`]s. Applied to the parameters of a model's graph, it gives a list of
//! [`Entry`]s, which is used for reading, writing and checking. No family is named here.

mod entries;
pub mod gguf;
pub mod json;
pub mod resize;
mod rules;

use std::collections::BTreeMap;

pub use entries::{Entry, GridTable, Presence, Problem, Storage, problems};
pub use rules::{Dialect, Rule};

/// The names and shapes of a file's tensors: enough to identify the model.
pub type Inventory = BTreeMap<String, Vec<usize>>;

/// Prefixes that training tools add to tensor names. If a file contains several models, the earlier prefix wins: the
/// teacher over the student, the model over its moving average.
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

/// The prefix of a name that every model of a dialect has (`anchor`): empty, wrappers of training tools, or the name of
/// a base model (`vit.`), which is preferred to all wrappers.
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
