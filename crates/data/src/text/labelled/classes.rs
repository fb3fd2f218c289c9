//! Classes: from labels as they are written to indices.

use std::collections::{HashMap, HashSet};
use std::path::Path;

use super::super::PairsError;
use super::columns::{short, shown};
use super::rows::Written;
use super::{LabelKind, OpenLabelled, Part};
use crate::dataset::Split;

/// The maximum number of classes.
pub(super) const MOST_CLASSES: usize = 1 << 16;
/// Fewer classes than this are believed however few texts there are.
const FEW_CLASSES: usize = 20;

/// What a label means, once it is decided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(super) enum Meaning {
    Class,
    Several,
    Number,
}

/// Decides what the labels mean.
pub(super) fn meaning(parts: &[Part], options: &OpenLabelled) -> Meaning {
    match options.kind {
        LabelKind::Class => return Meaning::Class,
        LabelKind::Several => return Meaning::Several,
        LabelKind::Number => return Meaning::Number,
        LabelKind::Auto => {}
    }
    let labels = || parts.iter().flat_map(|part| &part.rows).map(|row| &row.label);
    if !options.separator.is_empty() || labels().any(|label| matches!(label, Written::List(_))) {
        return Meaning::Several;
    }
    let numbers =
        || labels().filter_map(|label| if let Written::One(label) = label { Some(number(label)) } else { None });
    let is_fraction = |number: Option<f64>| number.is_some_and(|number| number.fract() != 0.0);
    match options.classes.is_empty() && numbers().all(|number| number.is_some()) && numbers().any(is_fraction) {
        true => Meaning::Number,
        false => Meaning::Class,
    }
}

/// A finite number that is written in digits; `nan` and `inf` are words.
pub(super) fn number(label: &str) -> Option<f64> {
    let is_number = label.starts_with(|first: char| first.is_ascii_digit() || "+-.".contains(first));
    label.parse::<f64>().ok().filter(|number| is_number && number.is_finite())
}

/// The classes of a data set.
pub(super) struct Classes {
    pub names: Vec<String>,
    indices: HashMap<String, u32>,
    /// Whether labels that are numbers are compared by value.
    are_numbers: bool,
    are_given: bool,
}

impl Classes {
    /// The given classes, or all labels of the parts: numbers by value, words by name.
    pub(super) fn of(parts: &[Part], options: &OpenLabelled, path: &Path) -> Result<Classes, PairsError> {
        let are_given = !options.classes.is_empty();
        let mut written: HashSet<&str> = HashSet::new();
        if !are_given {
            for row in
                parts.iter().flat_map(|part| part.rows.iter().map(move |row| labels_of(&row.label, part, options)))
            {
                written.extend(row);
            }
        }
        // Larger numbers are not exact, and are names rather than numbers.
        let is_exact = |label: &&str| number(label).is_some_and(|number| number.abs() < (1u64 << 53) as f64);
        let are_numbers = !are_given && written.iter().all(is_exact);
        let mut names: Vec<String> = match are_given {
            true => options.classes.iter().map(|name| name.trim().to_string()).collect(),
            false => written.into_iter().map(|label| spelled(label, are_numbers)).collect(),
        };
        if !are_given {
            names.sort_by(|one, other| match (are_numbers, number(one), number(other)) {
                (true, Some(one), Some(other)) => one.total_cmp(&other),
                _ => one.cmp(other),
            });
            names.dedup();
        }
        if names.len() > MOST_CLASSES {
            let count = names.len();
            let reason = format!(
                "it has {count} classes, but {MOST_CLASSES} is the most: name another column with data.label=NAME"
            );
            return Err(PairsError::content(path, reason));
        }
        let indices: HashMap<String, u32> = names.iter().cloned().zip(0..).collect();
        if indices.len() < names.len() || indices.contains_key("") {
            let reason = format!("the classes must have different names, and none may be empty: {}", shown(&names));
            return Err(PairsError::Option(reason));
        }
        Ok(Classes { names, indices, are_numbers, are_given })
    }

    /// The index of a label: of its name, or, among given classes, the index that it is itself.
    pub(super) fn index(&self, label: &str) -> Result<u32, String> {
        let found = self.indices.get(&spelled(label, self.are_numbers)).copied();
        let given = || label.parse::<u32>().ok().filter(|&index| self.are_given && (index as usize) < self.names.len());
        found.or_else(given).ok_or_else(|| {
            let (label, count) = (short(label), self.names.len());
            format!("the label `{label}` is not one of the {count} classes: {}", shown(&self.names))
        })
    }

    /// Refuses labels that teach nothing, or are not classes but texts or numbers of rows.
    pub(super) fn check(&self, parts: &[Part], meaning: Meaning, path: &Path) -> Result<(), PairsError> {
        let train = parts.iter().filter(|part| part.split == Split::Train);
        let texts: usize = train.map(|part| part.rows.len()).sum();
        let count = self.names.len();
        if texts == 0 || self.are_given {
            return Ok(());
        }
        let refused = |reason: String| Err(PairsError::content(path, reason));
        if count == 0 {
            return refused("no text has a label: name the column of the labels with data.label=NAME".to_string());
        }
        if count == 1 && meaning == Meaning::Class {
            return refused(format!(
                "all texts are of the class `{}`, so there is nothing to learn: if this is not the label, name its column with data.label=NAME",
                short(&self.names[0])
            ));
        }
        if count > FEW_CLASSES && count > texts / 2 && meaning == Meaning::Class {
            return refused(format!(
                "it has {count} classes for {texts} texts ({}): this does not look like a label: name its column with data.label=NAME",
                shown(&self.names[..3])
            ));
        }
        Ok(())
    }
}

/// A label as a class is named: numbers without a fraction of zeros.
fn spelled(label: &str, are_numbers: bool) -> String {
    match number(label) {
        // Adding zero makes -0 the same as 0.
        Some(number) if are_numbers => (number + 0.0).to_string(),
        _ => label.to_string(),
    }
}

/// The labels of a row. What is a single label may be several in one cell, if there is a separator.
pub(super) fn labels_of<'a>(label: &'a Written, part: &Part, options: &OpenLabelled) -> Vec<&'a str> {
    let separator = match options.separator.as_str() {
        "" if options.kind == LabelKind::Several && part.is_table => "|",
        separator => separator,
    };
    let is_several = matches!(options.kind, LabelKind::Several | LabelKind::Auto);
    match label {
        Written::Missing | Written::Blank => Vec::new(),
        Written::One(label) if is_several && !separator.is_empty() => {
            label.split(separator).map(str::trim).filter(|label| !label.is_empty()).collect()
        }
        Written::One(label) => vec![label],
        Written::List(labels) => labels.iter().map(String::as_str).collect(),
    }
}
