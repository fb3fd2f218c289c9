//! The images that a command is given: files, folders, patterns, or a list on standard input.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io::BufRead;
use std::path::{Path, PathBuf};

use vitreous_data::image::{IMAGE_EXTENSIONS, SkippedImages, has_image_extension};

use crate::format;

/// The path of an image, or why there is none.
pub type ImagePath = Result<PathBuf, MissingImage>;

/// A path without an image.
#[derive(Debug)]
pub struct MissingImage {
    /// The path.
    pub path: PathBuf,
    /// Why there is no image.
    pub error: String,
}

/// The images that arguments name, searched for lazily. `-` stands for a list on standard input, one path per line.
pub struct Images {
    arguments: VecDeque<OsString>,
    /// Found, but not taken yet.
    ready: VecDeque<ImagePath>,
    reads_list: bool,
}

impl Images {
    pub fn new(arguments: Vec<OsString>) -> Images {
        Images { arguments: arguments.into(), ready: VecDeque::new(), reads_list: false }
    }

    /// Whether all images are known without waiting for standard input.
    pub fn are_known(&self) -> bool {
        !self.reads_list && self.arguments.iter().all(|argument| argument != "-")
    }

    /// The next line, as bytes: file names need not be UTF-8.
    fn next_of_list(&mut self) -> Option<OsString> {
        let mut line = Vec::new();
        match std::io::stdin().lock().read_until(b'\n', &mut line) {
            Ok(0) => None,
            Ok(_) => {
                while line.pop_if(|byte| matches!(byte, b'\n' | b'\r')).is_some() {}
                Some(name_of(line))
            }
            Err(error) => {
                let error = format!("the list on standard input cannot be read: {error}");
                self.ready.push_back(Err(MissingImage { path: PathBuf::from("-"), error }));
                None
            }
        }
    }

    fn find(&mut self, argument: &OsStr) {
        let path = Path::new(argument);
        let pattern = argument.to_str().filter(|text| text.contains(['*', '?', '[']));
        match std::fs::metadata(path) {
            Ok(metadata) if metadata.is_dir() => self.find_in_folder(path),
            Ok(_) => self.ready.push_back(Ok(path.to_path_buf())),
            Err(error) => match pattern {
                Some(pattern) => self.find_by_pattern(pattern),
                None => self.miss(path, error.to_string()),
            },
        }
    }

    fn find_in_folder(&mut self, folder: &Path) {
        let before = self.ready.len();
        let mut skipped = SkippedImages::default();
        walk(folder, &mut self.ready, &mut skipped);
        match (self.ready.len() - before, skipped.note()) {
            (0, None) => {
                let looked_for = IMAGE_EXTENSIONS.join(", ");
                self.miss(folder, format!("no image in this folder (looked for {looked_for})"));
            }
            (0, Some(note)) => self.miss(folder, format!("no images in supported formats in this folder; {note}")),
            (_, None) => {}
            (_, Some(note)) => say!("note: {}", format::one_line(&format!("{}: {note}", folder.display()))),
        }
    }

    fn find_by_pattern(&mut self, pattern: &str) {
        let matches = match glob::glob(pattern) {
            Ok(matches) => matches,
            Err(error) => return self.miss(Path::new(pattern), format!("no such file, and not a valid pattern: {error}")),
        };
        let before = self.ready.len();
        for found in matches {
            match found {
                Ok(path) if path.is_dir() => {}
                Ok(path) => self.ready.push_back(Ok(path)),
                Err(error) => {
                    let path = error.path().to_path_buf();
                    self.ready.push_back(Err(MissingImage { path, error: error.error().to_string() }));
                }
            }
        }
        if self.ready.len() == before {
            self.miss(Path::new(pattern), "no files match this pattern".to_string());
        }
    }

    fn miss(&mut self, path: &Path, error: String) {
        self.ready.push_back(Err(MissingImage { path: path.to_path_buf(), error }));
    }
}

impl Iterator for Images {
    type Item = ImagePath;

    fn next(&mut self) -> Option<ImagePath> {
        loop {
            if let Some(found) = self.ready.pop_front() {
                return Some(found);
            }
            if self.reads_list {
                match self.next_of_list() {
                    Some(line) if line.as_encoded_bytes().trim_ascii().is_empty() => {}
                    Some(line) => self.find(&line),
                    None => self.reads_list = false,
                }
                continue;
            }
            let argument = self.arguments.pop_front()?;
            if argument == "-" {
                self.reads_list = true;
            } else {
                self.find(&argument);
            }
        }
    }
}

#[cfg(unix)]
fn name_of(bytes: Vec<u8>) -> OsString {
    std::os::unix::ffi::OsStringExt::from_vec(bytes)
}

#[cfg(not(unix))]
fn name_of(bytes: Vec<u8>) -> OsString {
    String::from_utf8_lossy(&bytes).into_owned().into()
}

/// All images under a folder, sorted by path. Links to folders are not followed, so there are no cycles; pipes and devices are skipped,
/// because reading them may never end.
fn walk(folder: &Path, found: &mut VecDeque<ImagePath>, skipped: &mut SkippedImages) {
    let entries = std::fs::read_dir(folder).and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
    let mut entries = match entries {
        Ok(entries) => entries,
        Err(error) => {
            let error = format!("this folder cannot be read: {error}");
            return found.push_back(Err(MissingImage { path: folder.to_path_buf(), error }));
        }
    };
    entries.sort_by_key(|entry| entry.file_name());
    for entry in entries {
        let path = entry.path();
        match entry.file_type() {
            Ok(kind) if kind.is_dir() => walk(&path, found, skipped),
            _ if has_image_extension(&path) && may_be_file(&path) => found.push_back(Ok(path)),
            _ => _ = skipped.add(&path),
        }
    }
}

/// Whether this is a file, or a link to one. A broken link counts: reading it will fail with an error.
fn may_be_file(path: &Path) -> bool {
    std::fs::metadata(path).map_or(true, |metadata| metadata.is_file())
}
