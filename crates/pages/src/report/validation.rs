//! Whether runs were evaluated on the same validation set: only then can their results be compared.

use std::path::Path;

use vitreous_train::tasks::classify::ClassifyReport;
use vitreous_train::{Evaluation, RunRecord};

use crate::format;

/// How the validation sets of some runs differ, one sentence each; empty where nothing is known to differ.
pub fn differences(runs: &[RunRecord]) -> Vec<String> {
    let mut found = Vec::new();
    let evaluations: Vec<&Evaluation> = runs.iter().filter_map(|run| run.evaluation.as_ref()).collect();
    let samples: Vec<u64> = evaluations.iter().map(|evaluation| samples(evaluation)).collect();
    if !all_equal(&samples) {
        found.push(format!("They have {} samples.", list(samples.iter().map(|&count| format::thousands(count)))));
    }
    let reports = evaluations.iter().map(|evaluation| evaluation.scores.report::<ClassifyReport>());
    let classes: Vec<Option<&Vec<String>>> = reports.map(|report| report.map(|report| &report.names)).collect();
    if !all_equal(&classes) {
        found.push("Their classes differ.".to_string());
    }
    let known = runs.iter().filter(|run| !run.lacks("data.path"));
    let paths: Vec<String> = known.filter_map(|run| run.recipe.as_ref().ok()?.values().remove("data.path")).collect();
    let places: Vec<String> = paths.iter().map(|path| place(path)).collect();
    let data: Vec<&String> = evaluations.iter().map(|evaluation| &evaluation.about.data).collect();
    if !all_equal(&places) {
        found.push(format!("Their data differs: {}.", list(paths.into_iter())));
    } else if !all_equal(&data) {
        found.push(format!("Their data differs: {}.", list(data.into_iter().cloned())));
    }
    found
}

/// How many samples an evaluation had.
pub fn samples(evaluation: &Evaluation) -> u64 {
    evaluation.scores.any_report().samples().0
}

/// A path as TOML writes it, resolved where it exists, so that two ways to write it are equal.
fn place(path: &str) -> String {
    let plain = path.trim_matches('"');
    Path::new(plain).canonicalize().map_or(plain.to_string(), |real| real.display().to_string())
}

fn all_equal<T: PartialEq>(values: &[T]) -> bool {
    values.windows(2).all(|pair| pair[0] == pair[1])
}

/// `a, b and c`.
fn list(items: impl Iterator<Item = String>) -> String {
    let mut items: Vec<String> = items.collect();
    let last = items.pop().unwrap_or_default();
    if items.is_empty() { last } else { format!("{} and {last}", items.join(", ")) }
}
