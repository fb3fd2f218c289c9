//! Lists of recordings with what is said in them: CSV or TSV with a header, or JSON lines.

use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use super::error::AudioError;

/// The most bytes of a list.
const MOST_BYTES: u64 = 1 << 30;
/// The columns that name a recording, and those that have its text.
const PATHS: [&str; 5] = ["path", "audio", "file", "audio_path", "file_name"];
const TEXTS: [&str; 4] = ["text", "transcript", "sentence", "transcription"];

/// A recording and what is said in it.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TranscribedAudio {
    /// The file.
    pub path: PathBuf,
    /// What is said.
    pub text: String,
}

/// Reads a list. Paths are relative to its folder. An error says what is wrong in which line.
pub fn read_transcripts(list: &Path) -> Result<Vec<TranscribedAudio>, AudioError> {
    let text = vitreous_files::open::read_text(list, MOST_BYTES)?;
    let folder = list.parent().unwrap_or(Path::new(""));
    let extension = list.extension().and_then(|extension| extension.to_str()).unwrap_or_default().to_lowercase();
    let rows = match extension.as_str() {
        "jsonl" | "ndjson" | "json" => json_rows(&text)?,
        "tsv" => table_rows(&text, b'\t')?,
        _ => table_rows(&text, b',')?,
    };
    let mut found = Vec::with_capacity(rows.len());
    for (line, path, text) in rows {
        if path.trim().is_empty() {
            return Err(wrong(line, "names no recording"));
        }
        let path = folder.join(path.trim());
        if !path.is_file() {
            return Err(wrong(line, &format!("{}: there is no such file", path.display())));
        }
        found.push(TranscribedAudio { path, text: text.trim().to_string() });
    }
    match found.is_empty() {
        true => Err(AudioError::List("it has no recordings".to_string())),
        false => Ok(found),
    }
}

fn wrong(line: u64, what: &str) -> AudioError {
    AudioError::List(format!("line {line} {what}"))
}

fn columns() -> String {
    format!("`{}` (or {}) and `{}` (or {})", PATHS[0], PATHS[1..].join(", "), TEXTS[0], TEXTS[1..].join(", "))
}

fn table_rows(text: &str, separator: u8) -> Result<Vec<(u64, String, String)>, AudioError> {
    let mut reader = csv::ReaderBuilder::new().delimiter(separator).flexible(true).from_reader(text.as_bytes());
    let header = reader.headers().map_err(|error| AudioError::List(error.to_string()))?.clone();
    let column = |names: &[&str]| header.iter().position(|name| names.contains(&name.trim().to_lowercase().as_str()));
    let (Some(path), Some(transcript)) = (column(&PATHS), column(&TEXTS)) else {
        return Err(AudioError::List(format!("its first line must name the columns {}", columns())));
    };
    let mut rows = Vec::new();
    for record in reader.records() {
        let record = record.map_err(|error| AudioError::List(error.to_string()))?;
        let line = record.position().map_or(0, csv::Position::line);
        let field = |column: usize| record.get(column).ok_or_else(|| wrong(line, "has too few columns"));
        rows.push((line, field(path)?.to_string(), field(transcript)?.to_string()));
    }
    Ok(rows)
}

fn json_rows(text: &str) -> Result<Vec<(u64, String, String)>, AudioError> {
    let mut rows = Vec::new();
    for (line, content) in (1..).zip(text.lines()).filter(|(_, content)| !content.trim().is_empty()) {
        let object: Json =
            serde_json::from_str(content).map_err(|error| wrong(line, &format!("is not JSON: {error}")))?;
        let field = |names: &[&str]| names.iter().find_map(|name| object.get(name)?.as_str()).map(str::to_string);
        let (Some(path), Some(text)) = (field(&PATHS), field(&TEXTS)) else {
            return Err(wrong(line, &format!("must have the keys {}", columns())));
        };
        rows.push((line, path, text));
    }
    Ok(rows)
}
