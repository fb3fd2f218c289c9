//! Texts with labels: CSV, TSV and JSON lines, or class folders of text files.

mod classes;
mod columns;
mod folders;
mod rows;
mod splits;
mod table;

use std::path::{Path, PathBuf};

use super::PairsError;
use super::split_files::{content_of, file_name, split_files, split_named};
use crate::dataset::{Split, list};
use rows::{Row, RowReader, is_supported};

/// A text with its label.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LabelledText {
    /// The text, or the first one of a pair.
    pub text: String,
    /// The second text of a pair.
    pub pair: Option<String>,
    /// Indices of classes, ascending: one, or any number where [`LabelledSplits::several_labels`]. Empty if the text is not labelled,
    /// and in regression.
    pub labels: Vec<u32>,
    /// The number to predict, in regression.
    pub number: Option<f32>,
}

/// Labelled texts, split for training and evaluation.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct LabelledSplits {
    /// What a model is trained on; empty where there are only other parts.
    pub train: Vec<LabelledText>,
    /// What is evaluated during training, and chooses the best checkpoint; may be empty.
    pub validation: Vec<LabelledText>,
    /// The held-out test part; may be empty, and its texts need not be labelled.
    pub test: Vec<LabelledText>,
    /// Names of the classes, in order; none in regression.
    pub classes: Vec<String>,
    /// Whether texts are of several classes, or of none.
    pub several_labels: bool,
    /// Whether the labels are numbers to predict.
    pub is_regression: bool,
    /// The name of the file or folder.
    pub name: String,
    /// What a user should know about how it was read: files, columns, what was dropped, how it was split.
    pub notes: Vec<String>,
}

/// What labels are.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash)]
pub enum LabelKind {
    /// Lists are several labels, numbers of which some are not whole are numbers, all others are classes.
    #[default]
    Auto,
    /// One class per text.
    Class,
    /// Any number of classes per text.
    Several,
    /// A number to predict.
    Number,
}

/// How labelled texts are opened. Empty strings and lists are found out.
#[derive(Clone, Debug, PartialEq)]
pub struct OpenLabelled {
    /// The share of the training texts to draw for validation where there is no validation part.
    pub validation_share: f64,
    /// The column or key of the text; in a table without a header, its number from 1.
    pub text: String,
    /// The column or key of the second text.
    pub pair: String,
    /// The column or key of the label.
    pub label: String,
    /// What separates several labels in a cell. If it is given, cells have several labels; if not, and the kind is
    /// [`LabelKind::Several`], it is `|`.
    pub separator: String,
    /// What labels are.
    pub kind: LabelKind,
    /// The classes in order, as of a model that is trained further or evaluated. Labels are their names or indices.
    pub classes: Vec<String>,
}

impl Default for OpenLabelled {
    fn default() -> OpenLabelled {
        OpenLabelled {
            validation_share: 0.1,
            text: String::new(),
            pair: String::new(),
            label: String::new(),
            separator: String::new(),
            kind: LabelKind::Auto,
            classes: Vec::new(),
        }
    }
}

/// The rows of one part.
struct Part {
    split: Split,
    path: PathBuf,
    rows: Vec<Row>,
    /// Whether cells may have several labels.
    is_table: bool,
}

/// Opens a file (CSV, TSV, JSON lines), which is the training part, a folder with such files called `train`, `validation` (or `valid`,
/// `val`, `dev`) and `test`, or class folders of text files (`train/pos/*.txt`).
///
/// If there is no validation part, a share of the training part is drawn by the hash of each text, the same share of every class: texts
/// that are equal are never in both.
pub fn open_labelled(path: &Path, options: &OpenLabelled) -> Result<LabelledSplits, PairsError> {
    if !(0.0..1.0).contains(&options.validation_share) {
        let share = options.validation_share;
        return Err(PairsError::Option(format!("validation_share must be at least 0 and under 1, but it is {share}")));
    }
    let mut notes = Vec::new();
    let parts = if path.is_dir() {
        folder(path, options, &mut notes)?
    } else {
        files(&[(Split::Train, path.to_path_buf())], options, &mut notes)?
    };
    splits::assemble(parts, path, options, notes)
}

fn folder(path: &Path, options: &OpenLabelled, notes: &mut Vec<String>) -> Result<Vec<Part>, PairsError> {
    let split_of = |file: &Path| {
        let stem = file.file_stem().and_then(|stem| stem.to_str())?;
        split_named(stem).filter(|_| is_supported(file))
    };
    let (mut found, classes) = (split_files(path, split_of)?, folders::find(path)?);
    if found.is_empty() && classes.is_empty() {
        // A folder of a single file.
        let all: Vec<PathBuf> = list(path)?.files.into_iter().filter(|file| is_supported(file)).collect();
        if let [only] = &all[..] {
            found.push((Split::Train, only.clone()));
        }
    }
    match (found.is_empty(), classes.is_empty()) {
        (false, true) => files(&found, options, notes),
        (true, false) => classes.iter().map(|(split, classes)| folders::read(*split, classes, notes)).collect(),
        (false, false) => Err(PairsError::Ambiguous {
            path: path.to_path_buf(),
            found: format!("it has {} and class folders of texts", file_name(&found[0].1)),
            advice: "keep one of them, or give the file".to_string(),
        }),
        (true, true) => {
            let there = content_of(path)?;
            Err(PairsError::content(
                path,
                format!(
                    "no labelled texts were found here; {there}. Supported are train.csv, train.tsv and train.jsonl (with validation and \
                     test files beside them), and class folders (train/pos/1.txt, train/neg/2.txt)"
                ),
            ))
        }
    }
}

fn files(found: &[(Split, PathBuf)], options: &OpenLabelled, notes: &mut Vec<String>) -> Result<Vec<Part>, PairsError> {
    let mut reader = RowReader::new(options);
    let mut parts = Vec::new();
    for (split, path) in found {
        let rows = reader.read(path, *split != Split::Test)?;
        if rows.is_empty() {
            let reason = "it has no rows with a text: is it empty, or only a header?";
            return Err(PairsError::content(path, reason));
        }
        let is_table = rows::is_table(path);
        parts.push(Part { split: *split, path: path.clone(), rows, is_table });
    }
    notes.append(&mut reader.notes);
    Ok(parts)
}
