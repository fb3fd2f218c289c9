//! Whether all ranks were started with the same: before the first step, because nothing would show it later but a strange loss.

use serde::{Deserialize, Serialize};

use super::Ranks;
use crate::error::TrainError;
use crate::fingerprint::Fingerprint;

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
    /// Recipe and data.
    pub fingerprint: Fingerprint,
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
    let keys = first.fingerprint.recipe.keys().chain(other.fingerprint.recipe.keys());
    let keys: std::collections::BTreeSet<&String> = keys.collect();
    let value = |of: &Fingerprint, key: &String| of.recipe.get(key).cloned().unwrap_or_else(|| "not set".to_string());
    for key in keys {
        compare(&format!("`{key}`"), &value(&first.fingerprint, key), &value(&other.fingerprint, key));
    }
    for (aspect, mark) in &first.fingerprint.data {
        if other.fingerprint.data.get(aspect) != Some(mark) {
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
            fingerprint: Fingerprint {
                recipe: [("optimizer.lr".to_string(), rate.to_string())].into(),
                data: [("labels of training images".to_string(), mark)].into(),
            },
        };
        assert_eq!(differences(&facts("0.1", 1), &facts("0.1", 1)), Vec::<String>::new());
        let found = differences(&facts("0.1", 1), &Facts { samples: 8, ..facts("0.2", 2) });
        assert_eq!(
            found,
            [
                "the number of training samples is 8, and 7 on rank 0",
                "`optimizer.lr` is 0.2, and 0.1 on rank 0",
                "the labels of training images differ"
            ]
        );
    }
}
