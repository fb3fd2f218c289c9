//! From rows to labelled texts: labels become indices or numbers, and a validation part is drawn.

use std::path::Path;

use super::super::PairsError;
use super::super::split_files::file_name;
use super::classes::{Classes, Meaning, labels_of, meaning, number};
use super::columns::{short, shown};
use super::rows::{Row, Written};
use super::{LabelledSplits, LabelledText, OpenLabelled, Part};
use crate::dataset::{Split, counted, draw_texts, name_hash};

/// How many classes are counted in a note.
const COUNTED_CLASSES: usize = 10;

pub(super) fn assemble(
    mut parts: Vec<Part>,
    path: &Path,
    options: &OpenLabelled,
    notes: Vec<String>,
) -> Result<LabelledSplits, PairsError> {
    let mut splits = LabelledSplits { name: file_name(path), notes, ..LabelledSplits::default() };
    parts.iter_mut().for_each(|part| prepare(part, &mut splits.notes));
    let meaning = meaning(&parts, options);
    splits.is_regression = meaning == Meaning::Number;
    splits.several_labels = meaning == Meaning::Several;
    let classes = match meaning {
        Meaning::Number => None,
        Meaning::Class | Meaning::Several => Some(Classes::of(&parts, options, path)?),
    };
    // A row that cannot be read says more than that the labels are odd as a whole.
    for part in &parts {
        let texts = convert(part, classes.as_ref(), meaning, options)?;
        splits.notes.push(format!("{}: {}", file_name(&part.path), summary(&texts, classes.as_ref())));
        match part.split {
            Split::Train => splits.train = texts,
            Split::Validation => splits.validation = texts,
            Split::Test => splits.test = texts,
        }
    }
    if let Some(classes) = &classes {
        classes.check(&parts, meaning, path)?;
    }
    drop(parts);
    if splits.is_regression && options.kind == super::LabelKind::Auto {
        splits.notes.push("the labels are numbers with fractions, which are to be predicted (regression)".to_string());
    }
    splits.classes = classes.map(|classes| classes.names).unwrap_or_default();
    splits.note_unseen_classes();
    if splits.validation.is_empty() && options.validation_share > 0.0 && !splits.train.is_empty() {
        splits.draw(options.validation_share);
    }
    Ok(splits)
}

/// Drops empty texts, except of the test part, whose rows must stay countable; there, labels that are all -1 mean that there are none.
fn prepare(part: &mut Part, notes: &mut Vec<String>) {
    if part.split == Split::Test {
        let is_hidden = |row: &Row| matches!(&row.label, Written::One(label) if label == "-1");
        if part.rows.iter().all(is_hidden) {
            part.rows.iter_mut().for_each(|row| row.label = Written::Missing);
            notes.push(format!("{}: all labels are -1, which means that there are none", file_name(&part.path)));
        }
        return;
    }
    let before = part.rows.len();
    let is_empty =
        |row: &Row| row.text.trim().is_empty() && row.pair.as_ref().is_none_or(|pair| pair.trim().is_empty());
    part.rows.retain(|row| !is_empty(row));
    if part.rows.len() < before {
        let dropped = counted(before - part.rows.len(), "row was", "rows were");
        notes.push(format!("{}: {dropped} dropped because the text is empty", file_name(&part.path)));
    }
}

fn convert(
    part: &Part,
    classes: Option<&Classes>,
    meaning: Meaning,
    options: &OpenLabelled,
) -> Result<Vec<LabelledText>, PairsError> {
    let one = |row: &Row| {
        let refused = |reason: String| match row.line {
            0 => PairsError::content(&part.path, reason),
            line => PairsError::line(&part.path, line, reason),
        };
        let (labels, number) = labels(row, part, classes, meaning, options).map_err(refused)?;
        Ok(LabelledText { text: row.text.clone(), pair: row.pair.clone(), labels, number })
    };
    part.rows.iter().map(one).collect()
}

fn labels(
    row: &Row,
    part: &Part,
    classes: Option<&Classes>,
    meaning: Meaning,
    options: &OpenLabelled,
) -> Result<(Vec<u32>, Option<f32>), String> {
    let is_without = match row.label {
        Written::Missing => true,
        // Of several labels there may be none.
        Written::Blank => meaning != Meaning::Several,
        Written::One(_) | Written::List(_) => false,
    };
    if is_without {
        return match part.split {
            Split::Test => Ok((Vec::new(), None)),
            Split::Train | Split::Validation => {
                Err("there is no label: label this row or remove it (only test files may lack labels)".to_string())
            }
        };
    }
    let Some(classes) = classes else {
        let Written::One(label) = &row.label else {
            return Err("a list is not a number to predict".to_string());
        };
        let value = number(label).map(|number| number as f32).filter(|number| number.is_finite());
        let value =
            value.ok_or_else(|| format!("the label `{}` is not a number that can be predicted", short(label)))?;
        return Ok((Vec::new(), Some(value)));
    };
    let written = labels_of(&row.label, part, options);
    if meaning == Meaning::Class && written.len() != 1 {
        return Err(format!("it has {} labels ({}), but one class is expected", written.len(), shown(&written)));
    }
    let mut labels = written.into_iter().map(|label| classes.index(label)).collect::<Result<Vec<u32>, String>>()?;
    labels.sort_unstable();
    labels.dedup();
    Ok((labels, None))
}

/// The number of texts, and of each class.
fn summary(texts: &[LabelledText], classes: Option<&Classes>) -> String {
    let total = counted(texts.len(), "text", "texts");
    let without = texts.iter().filter(|text| text.labels.is_empty() && text.number.is_none()).count();
    let without = if without == 0 { String::new() } else { format!("; {without} without a label") };
    let Some(names) = classes.map(|classes| &classes.names).filter(|names| names.len() <= COUNTED_CLASSES) else {
        return format!("{total}{without}");
    };
    let mut counts = vec![0usize; names.len()];
    texts.iter().flat_map(|text| &text.labels).for_each(|&label| counts[label as usize] += 1);
    let counts: Vec<String> =
        names.iter().zip(counts).map(|(name, count)| format!("{} {count}", short(name))).collect();
    format!("{total} ({}){without}", counts.join(", "))
}

impl LabelledSplits {
    fn note_unseen_classes(&mut self) {
        let mut is_seen = vec![false; self.classes.len()];
        self.train.iter().flat_map(|text| &text.labels).for_each(|&label| is_seen[label as usize] = true);
        let unseen: Vec<&str> =
            self.classes.iter().zip(is_seen).filter(|(_, seen)| !seen).map(|(name, _)| name.as_str()).collect();
        if !unseen.is_empty() && !self.train.is_empty() {
            self.notes
                .push(format!("no training text is of these classes, which cannot be learnt: {}", shown(&unseen)));
        }
    }

    fn draw(&mut self, share: f64) {
        let all = std::mem::take(&mut self.train);
        let hashed = |text: &LabelledText| {
            let mut content = text.text.clone().into_bytes();
            if let Some(pair) = &text.pair {
                content.push(0);
                content.extend(pair.as_bytes());
            }
            // Texts of several labels are drawn as if all were of one class.
            let class = if self.several_labels { 0 } else { text.labels.first().copied().unwrap_or_default() };
            (name_hash(&content), class)
        };
        let drawn = draw_texts(&all.iter().map(hashed).collect::<Vec<_>>(), share);
        let total = all.len();
        for (text, is_drawn) in all.into_iter().zip(drawn) {
            if is_drawn { self.validation.push(text) } else { self.train.push(text) }
        }
        let how =
            if self.classes.is_empty() || self.several_labels { "by their hashes" } else { "stratified by class" };
        let were = counted(self.validation.len(), "training text was", "training texts were");
        self.notes
            .push(format!("there is no validation part: {were} drawn for it, {how} (a share of {share} of {total})"));
    }
}
