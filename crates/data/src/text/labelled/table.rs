//! Rows of CSV and TSV files: quotes, line breaks within quotes, and the line on which each row begins.
//!
//! The rows of the `csv` crate grow as long as a quote is open, and its line numbers do not count empty lines: a quote that never ends must
//! not take the file's size in memory, and an error must name the line that an editor shows.

use std::path::{Path, PathBuf};

use super::super::PairsError;
use super::super::lines::{Lines, MOST_LINE_BYTES};

/// A row.
pub(super) struct Record {
    /// The line on which it begins, from 1.
    pub line: usize,
    pub cells: Vec<String>,
}

/// The rows of a file; all have as many cells as the first one.
pub(super) struct Records {
    path: PathBuf,
    lines: Lines,
    separator: char,
    /// The number of cells of the first row.
    columns: Option<usize>,
}

impl Records {
    pub(super) fn open(path: &Path, separator: char) -> Result<Records, PairsError> {
        Ok(Records { path: path.to_path_buf(), lines: Lines::open_regular(path)?, separator, columns: None })
    }

    /// The next row that is not blank.
    pub(super) fn next_record(&mut self) -> Result<Option<Record>, PairsError> {
        let mut partial = Partial::default();
        let (mut start, mut bytes) = (0, 0);
        while let Some(line) = self.lines.next_line()? {
            if partial.open.is_none() && line.trim().is_empty() {
                continue;
            }
            bytes += line.len();
            let is_first = partial.open.is_none();
            partial.add(line, self.separator);
            if is_first {
                // Many TSV files are written without quoting, and have texts that begin with a quotation mark.
                let literal = line.split(self.separator).count();
                let fits = partial.open.is_none() && self.columns.is_none_or(|columns| columns == partial.cells.len());
                if self.separator == '\t' && !fits && self.columns.is_none_or(|columns| columns == literal) {
                    partial = Partial { cells: line.split('\t').map(str::to_string).collect(), open: None };
                }
            }
            if is_first {
                start = self.lines.number();
            }
            if partial.open.is_none() {
                return self.checked(Record { line: start, cells: partial.cells }).map(Some);
            }
            if bytes > MOST_LINE_BYTES {
                return Err(self.unclosed(start, "within 1 MiB"));
            }
        }
        if partial.open.is_some() { Err(self.unclosed(start, "before the end of the file")) } else { Ok(None) }
    }

    fn unclosed(&self, start: usize, until: &str) -> PairsError {
        let reason =
            format!("a quote that opens in this row is not closed {until}: close it, or write it twice (\"\")");
        PairsError::line(&self.path, start, reason)
    }

    fn checked(&mut self, record: Record) -> Result<Record, PairsError> {
        let (columns, expected) = (record.cells.len(), *self.columns.get_or_insert(record.cells.len()));
        if columns == expected {
            return Ok(record);
        }
        let separator = if self.separator == '\t' { "a tab".to_string() } else { format!("`{}`", self.separator) };
        let reason = format!(
            "this row has {columns} columns, but the first one has {expected}: put texts that contain {separator} in quotes"
        );
        Err(PairsError::line(&self.path, record.line, reason))
    }
}

/// A row that is being read.
#[derive(Default)]
struct Partial {
    cells: Vec<String>,
    /// The quoted cell that goes on in the next line.
    open: Option<String>,
}

impl Partial {
    fn add(&mut self, line: &str, separator: char) {
        let mut rest = Some(line);
        while let Some(text) = rest {
            let opened = match self.open.take() {
                Some(cell) => Some((cell, text)),
                None => text
                    .strip_prefix('"')
                    .filter(|quoted| separator != '\t' || closes_cell(quoted))
                    .map(|quoted| (String::new(), quoted)),
            };
            let Some((mut cell, quoted)) = opened else {
                let (cell, more) = cut(text, separator);
                self.cells.push(cell.to_string());
                rest = more;
                continue;
            };
            let Some(after) = unquote(quoted, &mut cell) else {
                cell.push('\n');
                self.open = Some(cell);
                return;
            };
            // What stands between the closing quote and the separator belongs to the cell, as in the `csv` crate.
            let (tail, more) = cut(after, separator);
            cell.push_str(tail);
            self.cells.push(cell);
            rest = more;
        }
    }
}

/// The text before the separator, and what follows it, if there is one.
fn cut(text: &str, separator: char) -> (&str, Option<&str>) {
    text.split_once(separator).map_or((text, None), |(cell, more)| (cell, Some(more)))
}

/// Adds quoted text to a cell; what follows the closing quote, or None if it is not in this line.
fn unquote<'a>(mut quoted: &'a str, cell: &mut String) -> Option<&'a str> {
    loop {
        let Some((text, after)) = quoted.split_once('"') else {
            cell.push_str(quoted);
            return None;
        };
        cell.push_str(text);
        match after.strip_prefix('"') {
            Some(more) => {
                cell.push('"');
                quoted = more;
            }
            None => return Some(after),
        }
    }
}

/// Whether the quote that closes ends the cell of a TSV file, or is not in this line. In `"So" he said` the quotes are part of the text.
fn closes_cell(quoted: &str) -> bool {
    unquote(quoted, &mut String::new()).is_none_or(|after| after.is_empty() || after.starts_with('\t'))
}
