//! CSV and TSV.

use std::io::Cursor;
use std::path::Path;

use csv::{ByteRecord, ReaderBuilder};

use super::super::DatasetError;
use super::super::files::{extension, some_of};
use super::{LABEL_NAMES, PATH_NAMES, Row, Rows, SPLIT_NAMES};

/// The indices of the columns.
#[derive(Clone, Copy)]
struct Columns {
    path: usize,
    label: usize,
    split: Option<usize>,
    /// Whether the name of the label's column is `labels` or `classes`.
    is_list: bool,
    separator: u8,
}

/// Parses a table with a header. Several labels in a row are separated by `|` or `;`.
pub(super) fn rows(path: &Path, mut bytes: Vec<u8>, labels: Option<&str>) -> Result<Rows, DatasetError> {
    if bytes.starts_with(b"\xef\xbb\xbf") {
        bytes.drain(..3);
    }
    let separators: &[u8] = if extension(path).as_deref() == Some("tsv") { b"\t" } else { b",\t;" };
    let columns = separators.iter().find_map(|&separator| columns(&bytes, separator, labels));
    let Some(columns) = columns else {
        return Err(no_columns(path, &bytes, labels));
    };
    let reader = ReaderBuilder::new().delimiter(columns.separator).flexible(true).from_reader(Cursor::new(bytes));
    let path = path.to_path_buf();
    let rows = reader.into_byte_records().enumerate().filter(|(_, record)| !record.as_ref().is_ok_and(is_blank));
    Ok(Box::new(rows.map(move |(index, record)| {
        let number = index + 1;
        let record = record.map_err(|error| DatasetError::row(&path, number, error.to_string()))?;
        let row = columns.row(&record).map_err(|reason| DatasetError::row(&path, number, reason))?;
        Ok((number, row))
    })))
}

fn is_blank(record: &ByteRecord) -> bool {
    record.iter().all(|cell| cell.trim_ascii().is_empty())
}

fn header(bytes: &[u8], separator: u8) -> Vec<String> {
    let mut reader = ReaderBuilder::new().delimiter(separator).flexible(true).from_reader(Cursor::new(bytes));
    let header = reader
        .byte_headers()
        .map(|header| header.iter().map(String::from_utf8_lossy).map(|name| name.trim().to_string()).collect());
    header.unwrap_or_default()
}

fn columns(bytes: &[u8], separator: u8, labels: Option<&str>) -> Option<Columns> {
    let header = header(bytes, separator);
    let place = |name: &str| header.iter().position(|there| there.eq_ignore_ascii_case(name));
    let label_name = match labels {
        Some(name) => name,
        None => LABEL_NAMES.into_iter().find(|name| place(name).is_some())?,
    };
    Some(Columns {
        path: PATH_NAMES.into_iter().find_map(place)?,
        label: place(label_name)?,
        split: SPLIT_NAMES.into_iter().find_map(place),
        is_list: matches!(label_name, "labels" | "classes"),
        separator,
    })
}

fn no_columns(path: &Path, bytes: &[u8], labels: Option<&str>) -> DatasetError {
    let separator = if extension(path).as_deref() == Some("tsv") { b'\t' } else { b',' };
    let header = header(bytes, separator);
    let wanted = labels.map_or_else(|| format!("one of {}", LABEL_NAMES.join(", ")), |name| format!("`{name}`"));
    let header = some_of(header.iter().map(String::as_str), 12);
    DatasetError::damaged(
        path,
        format!(
            "its first row must name the columns: one of {} for the paths and {wanted} for the labels, but it is: {}",
            PATH_NAMES.join(", "),
            header.chars().take(200).collect::<String>()
        ),
    )
}

impl Columns {
    fn row(&self, record: &ByteRecord) -> Result<Row, String> {
        let cell = |place: usize| record.get(place).map(<[u8]>::trim_ascii);
        let path = cell(self.path).filter(|path| !path.is_empty()).ok_or("there is no path")?.to_vec();
        let text = cell(self.label).ok_or("there is no label: the row is too short")?;
        let text = String::from_utf8_lossy(text);
        let parts = text.split(['|', ';']);
        let labels = parts.map(str::trim).filter(|label| !label.is_empty()).map(str::to_string).collect();
        let split = self.split.and_then(cell).map(|split| String::from_utf8_lossy(split).into_owned());
        Ok(Row { path, labels, is_list: self.is_list && text.contains(['|', ';']), split })
    }
}
