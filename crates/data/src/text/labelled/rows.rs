//! The rows of one file: texts, and labels as they are written.

use std::path::Path;

use serde_json::{Map, Value};

use super::super::PairsError;
use super::super::lines::Lines;
use super::OpenLabelled;
use super::columns::{Columns, Positions, is_header, short, shown};
use super::table::{Record, Records};
use crate::dataset::extension;

/// How many rows tell which column of a table without a header is the label.
const LOOKED_AT: usize = 200;

/// A label as it is written.
#[derive(Clone, Debug, PartialEq, Eq)]
pub(super) enum Written {
    /// There is no column or key, or it is null.
    Missing,
    /// The cell is empty.
    Blank,
    One(String),
    List(Vec<String>),
}

/// A text and its label, as it is written.
pub(super) struct Row {
    /// The line on which it begins, from 1.
    pub line: usize,
    pub text: String,
    pub pair: Option<String>,
    pub label: Written,
}

/// The formats, by extension.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
enum Format {
    Csv,
    Tsv,
    JsonLines,
}

fn format(path: &Path) -> Option<Format> {
    match extension(path).as_deref()? {
        "csv" => Some(Format::Csv),
        "tsv" | "tab" | "txt" => Some(Format::Tsv),
        "jsonl" | "ndjson" | "json" => Some(Format::JsonLines),
        _ => None,
    }
}

/// Whether a file has the extension of a format.
pub(super) fn is_supported(path: &Path) -> bool {
    format(path).is_some()
}

/// Whether a file is a table, whose cells are text only.
pub(super) fn is_table(path: &Path) -> bool {
    matches!(format(path), Some(Format::Csv | Format::Tsv))
}

/// Reads the files of a data set; what is found out about one holds for the next.
pub(super) struct RowReader<'a> {
    pub options: &'a OpenLabelled,
    positions: Option<Positions>,
    /// What a user should know about the columns.
    pub notes: Vec<String>,
}

impl RowReader<'_> {
    pub(super) fn new(options: &OpenLabelled) -> RowReader<'_> {
        RowReader { options, positions: None, notes: Vec::new() }
    }

    /// The rows of a file; test files need no labels.
    pub(super) fn read(&mut self, path: &Path, needs_label: bool) -> Result<Vec<Row>, PairsError> {
        match format(path) {
            Some(Format::Csv) => {
                let separator = self.separator(path)?;
                self.table(path, separator, needs_label)
            }
            Some(Format::Tsv) => self.table(path, '\t', needs_label),
            Some(Format::JsonLines) => self.json_lines(path, needs_label),
            None if !path.exists() => Err(PairsError::content(path, "there is no such file or directory")),
            None => {
                let reason =
                    "its name must end in .csv, .tsv or .jsonl: give one of these, or a directory with train.csv";
                Err(PairsError::content(path, reason))
            }
        }
    }

    /// What separates the columns of a file that is called CSV: the first of these that gives known names, or else several columns.
    fn separator(&self, path: &Path) -> Result<char, PairsError> {
        let mut several = None;
        for separator in [',', '\t', ';'] {
            // A quote that does not close is an error when the rows are read.
            let Ok(Some(first)) = Records::open(path, separator)?.next_record() else { continue };
            if first.cells.len() > 1 && is_header(&first.cells, self.options) {
                return Ok(separator);
            }
            several = several.or((first.cells.len() > 1).then_some(separator));
        }
        Ok(several.unwrap_or(','))
    }

    fn table(&mut self, path: &Path, separator: char, needs_label: bool) -> Result<Vec<Row>, PairsError> {
        let mut from = Records::open(path, separator)?;
        let Some(first) = from.next_record()? else { return Ok(Vec::new()) };
        let mut records = Vec::new();
        let has_header = is_header(&first.cells, self.options);
        let columns = if has_header {
            let found = Columns::find(&first.cells, self.options, needs_label);
            found.map_err(|reason| PairsError::line(path, first.line, reason))?
        } else {
            records.push(first);
            while records.len() < LOOKED_AT
                && let Some(record) = from.next_record()?
            {
                records.push(record);
            }
            self.positions(path, &records)?
        };
        let mut rows: Vec<Row> = records.into_iter().map(|record| row(record, columns)).collect();
        while let Some(record) = from.next_record()? {
            rows.push(row(record, columns));
        }
        if !has_header {
            unknown_header(path, &rows)?;
        }
        Ok(rows)
    }

    /// The columns of a table without a header; those of the first such table hold for the others.
    fn positions(&mut self, path: &Path, records: &[Record]) -> Result<Columns, PairsError> {
        let cells: Vec<&[String]> = records.iter().map(|record| &record.cells[..]).collect();
        let count = cells.first().map_or(0, |row| row.len());
        if let Some(columns) = self.positions.and_then(|positions| positions.of_columns(count)) {
            return Ok(columns);
        }
        let found = Positions::find(&cells, self.options).map_err(|reason| PairsError::content(path, reason))?;
        self.notes.push(format!("{}: {}", super::file_name(path), found.note()));
        self.positions = Some(found);
        found.of_columns(count).ok_or_else(|| PairsError::content(path, "it has no columns"))
    }

    fn json_lines(&mut self, path: &Path, needs_label: bool) -> Result<Vec<Row>, PairsError> {
        let mut lines = Lines::open_regular(path)?;
        let mut names: Option<Names> = None;
        let mut rows = Vec::new();
        while let Some(line) = lines.next_line()? {
            if line.trim().is_empty() {
                continue;
            }
            let read = json_row(line, &mut names, self.options, needs_label);
            let (text, pair, label) = read.map_err(|reason| PairsError::line(path, lines.number(), reason))?;
            rows.push(Row { line: lines.number(), text, pair, label });
        }
        Ok(rows)
    }
}

fn row(mut record: Record, columns: Columns) -> Row {
    let mut cell = |place: usize| std::mem::take(&mut record.cells[place]);
    let label = match columns.label.map(&mut cell) {
        None => Written::Missing,
        Some(label) if label.trim().is_empty() => Written::Blank,
        Some(label) => Written::One(label.trim().to_string()),
    };
    Row { line: record.line, text: cell(columns.text), pair: columns.pair.map(cell), label }
}

/// Refuses a table whose first row seems to name the columns by names that are not known: its label occurs once, and all others are
/// numbers or occur again.
fn unknown_header(path: &Path, rows: &[Row]) -> Result<(), PairsError> {
    let Some((Row { label: Written::One(first), line, .. }, others)) = rows.split_first() else { return Ok(()) };
    let mut counts = std::collections::HashMap::new();
    for row in others {
        if let Written::One(label) = &row.label {
            *counts.entry(label.as_str()).or_insert(0usize) += 1;
        }
    }
    let is_number = |label: &str| label.parse::<f64>().is_ok();
    let all_numbers = !is_number(first) && counts.keys().all(|label| is_number(label));
    let all_again = others.len() >= 8 && counts.values().all(|&count| count > 1);
    if counts.is_empty() || counts.contains_key(first.as_str()) || !(all_numbers || all_again) {
        return Ok(());
    }
    let reason = format!(
        "no other row has the label `{}`: if this row names the columns, name them with data.text=NAME and data.label=NAME, or call them \
         text and label",
        short(first)
    );
    Err(PairsError::line(path, *line, reason))
}

/// The keys of the objects of a file.
struct Names {
    text: String,
    pair: Option<String>,
    label: Option<String>,
}

impl Names {
    fn find(object: &Map<String, Value>, options: &OpenLabelled, needs_label: bool) -> Result<Names, String> {
        let keys: Vec<&str> = object.keys().map(String::as_str).collect();
        let found = Columns::find(&keys, options, needs_label)?;
        let name = |place: usize| keys[place].to_string();
        Ok(Names { text: name(found.text), pair: found.pair.map(name), label: found.label.map(name) })
    }
}

type TextPairLabel = (String, Option<String>, Written);

fn json_row(
    line: &str,
    names: &mut Option<Names>,
    options: &OpenLabelled,
    needs_label: bool,
) -> Result<TextPairLabel, String> {
    let value: Value = serde_json::from_str(line).map_err(|error| match line.trim_start().starts_with('[') {
        true => "this is a JSON array: write one object per line (jq -c '.[]' does)".to_string(),
        false => format!("this is not JSON: {error}"),
    })?;
    let Value::Object(mut object) = value else {
        return Err(
            "this is not a JSON object: write one object per line, {\"text\": \"..\", \"label\": \"..\"}".to_string()
        );
    };
    // A first row without a label does not say that there are none.
    if names.as_ref().is_none_or(|names| names.label.is_none()) {
        *names = Some(Names::find(&object, options, needs_label)?);
    }
    let Some(names) = names.as_ref() else { return Err("it has no keys".to_string()) };
    let text = string(&mut object, &names.text)?;
    let pair = names.pair.as_ref().map(|name| string(&mut object, name)).transpose()?;
    let label = names.label.as_ref().and_then(|name| object.remove(name)).unwrap_or(Value::Null);
    Ok((text, pair, written(label)?))
}

fn string(object: &mut Map<String, Value>, key: &str) -> Result<String, String> {
    match object.remove(key) {
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(format!("`{}` must be a string", short(key))),
        None => {
            let keys: Vec<&str> = object.keys().map(String::as_str).collect();
            Err(format!("`{}` is missing; the keys are: {}", short(key), shown(&keys)))
        }
    }
}

fn written(label: Value) -> Result<Written, String> {
    let one = |value: Value| match value {
        Value::String(text) => Ok(text.trim().to_string()),
        Value::Number(number) => Ok(number.to_string()),
        Value::Bool(truth) => Ok(truth.to_string()),
        other => Err(format!(
            "a label must be a string, a number or a list of these, but it is {}",
            short(&other.to_string())
        )),
    };
    match label {
        Value::Null => Ok(Written::Missing),
        Value::Array(labels) => {
            let labels = labels.into_iter().map(one).collect::<Result<Vec<String>, String>>()?;
            let is_empty = labels.iter().any(String::is_empty);
            if is_empty { Err("a label in the list is empty".to_string()) } else { Ok(Written::List(labels)) }
        }
        label => one(label).map(|label| if label.is_empty() { Written::Blank } else { Written::One(label) }),
    }
}
