//! Plain text to learn a language model from: every character as it is, in parts that fit into memory.

use std::path::PathBuf;

use super::lines::Lines;
use super::plain::{Documents, MOST_LINE_MIB, PlainTexts};
use super::{PairsError, PlainFile};
use crate::dataset::extension;

/// A longer document comes in parts of about this many bytes, cut behind a line.
const PART_BYTES: usize = 1 << 20;

/// Where one document ends and the next begins.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum DocumentBreak {
    /// Each file is a document; of JSON lines, each `text`.
    Files,
    /// Blank lines separate documents.
    BlankLines,
}

/// A part of a document.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TextPart {
    /// The text.
    pub text: String,
    /// Whether the document ends with it.
    pub ends: bool,
}

impl PlainTexts {
    /// All text in order, a part at a time. After an error there is no more.
    pub fn parts(&self, separated_by: DocumentBreak) -> TextParts {
        match separated_by {
            DocumentBreak::BlankLines => TextParts::Documents(self.documents()),
            DocumentBreak::Files => {
                TextParts::Files { waiting: self.files().to_vec().into_iter(), open: None, failed: false }
            }
        }
    }
}

/// The parts of [`PlainTexts`].
pub enum TextParts {
    /// Documents, each in one part.
    Documents(Documents),
    /// Whole files.
    Files {
        /// Files that are not open yet.
        waiting: std::vec::IntoIter<PlainFile>,
        /// The open file.
        open: Option<OpenFile>,
        /// Whether there was an error.
        failed: bool,
    },
}

/// A file that is being read.
pub enum OpenFile {
    /// Text, and the first line of the next part.
    Text(Lines, PathBuf, Option<String>),
    /// JSON lines, each of which is a document.
    Lines(Documents),
}

impl Iterator for TextParts {
    type Item = Result<TextPart, PairsError>;

    fn next(&mut self) -> Option<Result<TextPart, PairsError>> {
        let whole = |document: Result<String, PairsError>| document.map(|text| TextPart { text, ends: true });
        match self {
            TextParts::Documents(documents) => documents.next().map(whole),
            TextParts::Files { failed: true, .. } => None,
            TextParts::Files { waiting, open, failed } => loop {
                if let Some(file) = open {
                    match next_part(file).transpose() {
                        None => *open = None,
                        Some(part) => {
                            *failed = part.is_err();
                            return Some(part);
                        }
                    }
                    continue;
                }
                match OpenFile::new(waiting.next()?) {
                    Ok(file) => *open = Some(file),
                    Err(error) => {
                        *failed = true;
                        return Some(Err(error));
                    }
                }
            },
        }
    }
}

impl OpenFile {
    fn new(file: PlainFile) -> Result<OpenFile, PairsError> {
        let path = file.path().to_path_buf();
        match extension(&path).as_deref() {
            Some("jsonl" | "ndjson") => Ok(OpenFile::Lines(Documents::of(vec![file]))),
            _ => {
                let lines = Lines::open_regular(&path)?.with_most_mib(MOST_LINE_MIB);
                Ok(OpenFile::Text(lines, path, None))
            }
        }
    }
}

/// The next part of a file, with its line ends as LF.
fn next_part(file: &mut OpenFile) -> Result<Option<TextPart>, PairsError> {
    let (lines, first) = match file {
        OpenFile::Lines(documents) => {
            return documents.next().transpose().map(|text| text.map(|text| TextPart { text, ends: true }));
        }
        OpenFile::Text(lines, _, first) => (lines, first),
    };
    let mut text = first.take().unwrap_or_default();
    let begun = !text.is_empty();
    while let Some(line) = lines.next_line()? {
        if text.len() >= PART_BYTES {
            *first = Some(format!("{line}\n"));
            return Ok(Some(TextPart { text, ends: false }));
        }
        text.push_str(line);
        text.push('\n');
    }
    Ok((begun || !text.is_empty()).then_some(TextPart { text, ends: true }))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::text::open_plain;

    #[test]
    fn files_are_documents_with_all_their_lines() {
        let folder = tempfile::tempdir().expect("a folder");
        let write = |name: &str, text: &str| std::fs::write(folder.path().join(name), text).expect("written");
        let long = "0123456789012345678901234567890\n".repeat(40_000);
        write("a.txt", "one\n\n  two\r\nthree");
        write("b.txt", &long);
        write("c.jsonl", "{\"text\": \"four\\n\"}\n{\"text\": \"five\"}\n");
        let texts = open_plain(folder.path()).expect("texts");
        let parts: Vec<TextPart> = texts.parts(DocumentBreak::Files).map(|part| part.expect("a part")).collect();
        assert_eq!(parts[0], TextPart { text: "one\n\n  two\nthree\n".to_string(), ends: true });
        let (b, rest) = parts[1..].split_at(parts.len() - 3);
        assert_eq!((b.len(), b.iter().filter(|part| part.ends).count()), (2, 1));
        assert_eq!(b.iter().map(|part| part.text.as_str()).collect::<String>(), long);
        assert_eq!(rest.iter().map(|part| part.text.as_str()).collect::<Vec<_>>(), ["four\n", "five"]);
        let parts: Vec<TextPart> = texts.parts(DocumentBreak::BlankLines).map(|part| part.expect("a part")).collect();
        assert_eq!(parts[..2].iter().map(|part| part.text.as_str()).collect::<Vec<_>>(), ["one", "  two\nthree"]);
    }
}
