//! Whether all ranks were started with the same: before the first step, because nothing would show it later but a strange loss, or ranks
//! that wait for each other.

use std::collections::{BTreeMap, BTreeSet};

use serde::{Deserialize, Serialize};
use vitreous_engine::State;

use super::Ranks;
use crate::error::TrainError;

/// What must be the same on all ranks.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub(crate) struct Facts {
    /// The version of this program.
    pub version: String,
    /// The instructions that its kernels use: others may round differently, and parameters that are updated on each rank would drift
    /// apart.
    pub instruction_set: String,
    /// "cpu" or "cuda".
    pub device: String,
    /// Training samples.
    pub samples: usize,
    /// The recipe but for its paths. How ranks divide their work is a part of it, and when they do other things than train.
    pub recipe: BTreeMap<String, String>,
    /// Checksums of the data.
    pub data: BTreeMap<String, u32>,
    /// `--watch`: what is told of gradients, ranks put together.
    pub watch_gradients: bool,
}

/// The version of this program and a checksum of its file: builds of one version may round differently.
pub(crate) fn build() -> String {
    let bytes = std::env::current_exe().and_then(std::fs::read).unwrap_or_default();
    format!("{} (checksum of the program {:08x})", env!("CARGO_PKG_VERSION"), crc32c::crc32c(&bytes))
}

/// Refuses ranks that were started with something else than rank 0.
pub(crate) fn agree(ranks: &Ranks, own: impl FnOnce() -> Facts) -> Result<(), TrainError> {
    if ranks.size() == 1 {
        return Ok(());
    }
    let own = own();
    let all = ranks.gather(own)?;
    for (rank, facts) in all.iter().enumerate().skip(1) {
        let differences = differences(&all[0], facts);
        if !differences.is_empty() {
            return Err(TrainError::Ranks(format!(
                "{} was started with something else than rank 0: {}. Start all ranks with the same command, version and data",
                ranks.name_of(rank),
                differences.join("; ")
            )));
        }
    }
    Ok(())
}

/// Refuses ranks that begin with other parameters than rank 0, as those of another pretrained model are.
pub(crate) fn agree_on_parameters(ranks: &Ranks, state: &State) -> Result<(), TrainError> {
    if ranks.size() == 1 {
        return Ok(());
    }
    let sums = ranks.gather(crc32c::crc32c(bytemuck::cast_slice(state.parameters())))?;
    match sums.iter().position(|sum| *sum != sums[0]) {
        None => Ok(()),
        Some(rank) => Err(TrainError::Ranks(format!(
            "{} begins with other parameters than rank 0: is the model that it starts from (finetune.init) another one there?              Give all ranks the same",
            ranks.name_of(rank)
        ))),
    }
}

fn differences(first: &Facts, other: &Facts) -> Vec<String> {
    let mut found = Vec::new();
    let mut compare = |what: &str, first: &str, other: &str| {
        if first != other {
            found.push(format!("{what} is {other}, and {first} on rank 0"));
        }
    };
    compare("the version", &first.version, &other.version);
    compare("the instruction set of the kernels", &first.instruction_set, &other.instruction_set);
    compare("the device", &first.device, &other.device);
    compare("the number of training samples", &first.samples.to_string(), &other.samples.to_string());
    let watches = |facts: &Facts| if facts.watch_gradients { "on" } else { "off" };
    compare("--watch=gradients", watches(first), watches(other));
    let keys: BTreeSet<&String> = first.recipe.keys().chain(other.recipe.keys()).collect();
    let value = |of: &Facts, key: &String| of.recipe.get(key).cloned().unwrap_or_else(|| "not set".to_string());
    for key in keys {
        compare(&format!("`{key}`"), &value(first, key), &value(other, key));
    }
    for (aspect, mark) in &first.data {
        if other.data.get(aspect) != Some(mark) {
            found.push(format!("the {aspect} differ"));
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_differs_is_named() {
        let facts = |rate: &str, mark: u32| Facts {
            version: "1".to_string(),
            instruction_set: "AVX2".to_string(),
            device: "cpu".to_string(),
            samples: 7,
            recipe: [("optimizer.lr".to_string(), rate.to_string())].into(),
            data: [("labels of training images".to_string(), mark)].into(),
            watch_gradients: mark == 2,
        };
        assert_eq!(differences(&facts("0.1", 1), &facts("0.1", 1)), Vec::<String>::new());
        let found = differences(&facts("0.1", 1), &Facts { samples: 8, ..facts("0.2", 2) });
        assert_eq!(
            found,
            [
                "the number of training samples is 8, and 7 on rank 0",
                "--watch=gradients is on, and off on rank 0",
                "`optimizer.lr` is 0.2, and 0.1 on rank 0",
                "the labels of training images differ"
            ]
        );
    }
}
