//! Plain text to pre-train on, document by document.

use std::collections::HashSet;
use std::io::Read;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use vitreous_files::open::open_regular;

use super::PairsError;
use super::lines::Lines;
use super::split_files::{content_of, file_name};
use crate::dataset::{counted, extension, list, some_of};

/// The maximum length of a line of plain text, in MiB: a line may be a whole book, but must fit in memory.
pub(super) const MOST_LINE_MIB: usize = 16;
/// A document without blank lines is cut at the end of the line with which it becomes this long.
pub const MOST_DOCUMENT_BYTES: usize = 16 << 20;
/// Extensions of text in folders.
const EXTENSIONS: [&str; 12] =
    ["txt", "text", "md", "markdown", "rst", "tex", "org", "adoc", "raw", "tokens", "jsonl", "ndjson"];
/// Files under a folder are looked for this deep.
const MOST_DEPTH: usize = 16;
/// A file with a zero among so many first bytes is not text.
const LOOKED_AT: u64 = 8192;

/// A file of plain text.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainFile {
    /// The path under the folder that was opened, or the name of the file.
    pub name: String,
    /// Its size.
    pub bytes: u64,
    path: PathBuf,
}

/// Files of plain text; their content is read by [`PlainTexts::documents`].
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct PlainTexts {
    files: Vec<PlainFile>,
    notes: Vec<String>,
}

/// Opens a file of text, or a folder of `.txt`, `.md` and similar files and JSON lines, sorted by name.
pub fn open_plain(path: &Path) -> Result<PlainTexts, PairsError> {
    let mut texts = PlainTexts { files: Vec::new(), notes: Vec::new() };
    if !path.is_dir() {
        let (bytes, is_binary) = look_at(path)?;
        if is_binary {
            return Err(PairsError::content(path, "these are bytes, not text: give a file of UTF-8 text"));
        }
        texts.files.push(PlainFile { name: file_name(path), bytes, path: path.to_path_buf() });
    } else {
        let mut skipped: Vec<String> = Vec::new();
        for file in files_under(path)? {
            let name = file.strip_prefix(path).unwrap_or(&file).to_string_lossy().into_owned();
            if !extension(&file).is_some_and(|extension| EXTENSIONS.contains(&extension.as_str())) {
                skipped.push(name);
                continue;
            }
            let (bytes, is_binary) = look_at(&file)?;
            if is_binary { skipped.push(name) } else { texts.files.push(PlainFile { name, bytes, path: file }) }
        }
        if texts.files.is_empty() {
            let there = content_of(path)?;
            let reason = format!(
                "there is no text here; {there}. Supported are .txt, .md, .jsonl and similar: give another file itself"
            );
            return Err(PairsError::content(path, reason));
        }
        if !skipped.is_empty() {
            let files = counted(skipped.len(), "file that is not text was", "files that are not text were");
            texts.notes.push(format!("{files} skipped: {}", some_of(skipped.iter().map(String::as_str), 4)));
        }
    }
    if texts.bytes() == 0 {
        let what = if texts.files.len() == 1 { "it is empty" } else { "all files are empty" };
        return Err(PairsError::content(path, format!("{what}: there is no text to learn from")));
    }
    Ok(texts)
}

/// The size of a file, and whether it has zero bytes, which text has not.
fn look_at(path: &Path) -> Result<(u64, bool), PairsError> {
    let failed = |error| PairsError::io(path, error);
    let file = open_regular(path).map_err(failed)?;
    let bytes = file.metadata().map_err(failed)?.len();
    let mut start = Vec::new();
    file.take(LOOKED_AT).read_to_end(&mut start).map_err(failed)?;
    // UTF-16 is full of zeros, and is refused with advice when it is read.
    let is_wide = start.starts_with(&[0xff, 0xfe]) || start.starts_with(&[0xfe, 0xff]);
    Ok((bytes, start.contains(&0) && !is_wide))
}

/// The files under a folder, sorted by path. Links are followed, but each folder is visited once.
fn files_under(folder: &Path) -> Result<Vec<PathBuf>, PairsError> {
    let (mut files, mut seen) = (Vec::new(), HashSet::new());
    let mut waiting = vec![(folder.to_path_buf(), 0)];
    while let Some((folder, depth)) = waiting.pop() {
        if !seen.insert(folder.canonicalize().map_err(|error| PairsError::io(&folder, error))?) {
            continue;
        }
        let listing = list(&folder)?;
        files.extend(listing.files);
        if !listing.folders.is_empty() && depth == MOST_DEPTH {
            return Err(PairsError::content(
                &folder,
                format!("it is {MOST_DEPTH} folders deep: give a folder nearer to the text"),
            ));
        }
        waiting.extend(listing.folders.into_iter().map(|folder| (folder, depth + 1)));
    }
    files.sort();
    Ok(files)
}

impl PlainFile {
    /// Where it is.
    pub fn path(&self) -> &Path {
        &self.path
    }
}

impl PlainTexts {
    /// These files, and others behind them.
    pub fn and(mut self, others: PlainTexts) -> PlainTexts {
        self.files.extend(others.files);
        self.notes.extend(others.notes);
        self
    }

    /// The size of all files.
    pub fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    /// Names and sizes, which tell whether a run is resumed with the same text.
    pub fn files(&self) -> &[PlainFile] {
        &self.files
    }

    /// What a user should know about how it was opened.
    pub fn notes(&self) -> &[String] {
        &self.notes
    }

    /// The documents in order: what stands between blank lines or the ends of a file, or the `text` of each JSON line. One document and
    /// one line are in memory at a time, each of at most 16 MiB: a longer line is refused, a longer document is cut. After an error
    /// there are no more.
    pub fn documents(&self) -> Documents {
        Documents::of(self.files.clone())
    }
}

/// The documents of [`PlainTexts`].
pub struct Documents {
    waiting: std::vec::IntoIter<PlainFile>,
    open: Option<(Lines, PathBuf)>,
}

impl Iterator for Documents {
    type Item = Result<String, PairsError>;

    fn next(&mut self) -> Option<Result<String, PairsError>> {
        let next = self.next_document().transpose();
        if let Some(Err(_)) = next {
            (self.waiting, self.open) = (Vec::new().into_iter(), None);
        }
        next
    }
}

impl Documents {
    /// The documents of some files.
    pub(super) fn of(files: Vec<PlainFile>) -> Documents {
        Documents { waiting: files.into_iter(), open: None }
    }

    fn next_document(&mut self) -> Result<Option<String>, PairsError> {
        loop {
            let Some((lines, path)) = &mut self.open else {
                let Some(PlainFile { path, .. }) = self.waiting.next() else { return Ok(None) };
                self.open = Some((Lines::open_regular(&path)?.with_most_mib(MOST_LINE_MIB), path));
                continue;
            };
            let document = match extension(path).as_deref() {
                Some("jsonl" | "ndjson") => json_document(lines, path)?,
                _ => document(lines)?,
            };
            if document.is_some() {
                return Ok(document);
            }
            self.open = None;
        }
    }
}

/// The lines up to a blank one.
fn document(lines: &mut Lines) -> Result<Option<String>, PairsError> {
    let mut document = String::new();
    while let Some(line) = lines.next_line()? {
        match (line.trim().is_empty(), document.is_empty()) {
            (true, true) => continue,
            (true, false) => break,
            (false, true) => {}
            (false, false) => document.push('\n'),
        }
        document.push_str(line);
        if document.len() >= MOST_DOCUMENT_BYTES {
            break;
        }
    }
    Ok((!document.is_empty()).then_some(document))
}

/// The next text that is not empty.
fn json_document(lines: &mut Lines, path: &Path) -> Result<Option<String>, PairsError> {
    #[derive(Deserialize)]
    struct Document {
        text: String,
    }
    while let Some(line) = lines.next_line()? {
        if line.trim().is_empty() {
            continue;
        }
        // A struct would be read from an array, too.
        let parsed = match line.trim_start().starts_with('{') {
            true => serde_json::from_str::<Document>(line).map_err(|error| error.to_string()),
            false => Err("this is not an object".to_string()),
        };
        let document = parsed.map_err(|error| {
            let reason = format!("it must be a JSON object with a string `text`: {error}");
            PairsError::line(path, lines.number(), reason)
        })?;
        if !document.text.trim().is_empty() {
            return Ok(Some(document.text));
        }
    }
    Ok(None)
}
