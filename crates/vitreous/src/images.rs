//! The images that a command was asked for: files, folders, patterns; on standard input an image, or a list of paths.

use std::collections::VecDeque;
use std::ffi::{OsStr, OsString};
use std::io::{BufRead, Read};
use std::path::{Path, PathBuf};
use std::sync::OnceLock;

use vitreous_data::image::{FileFormat, IMAGE_EXTENSIONS, SkippedImages, has_image_extension};

use vitreous_pages::format;

/// An image to look at, or why there is none.
pub type ListedImage = Result<PathBuf, NotFound>;

/// The image that came on standard input, where that is one: its path is `-`.
static STANDARD_INPUT: OnceLock<Vec<u8>> = OnceLock::new();

/// The bytes of the image on standard input, if this is its path.
pub fn standard_input(path: &Path) -> Option<&'static [u8]> {
    STANDARD_INPUT.get().filter(|_| path == Path::new("-")).map(Vec::as_slice)
}

/// More than any image has that is decoded.
const MOST_BYTES: u64 = 1 << 30;

/// Something that was asked for and is not there.
#[derive(Debug)]
pub struct NotFound {
    /// What was asked for.
    pub path: PathBuf,
    /// Why it is not there.
    pub error: String,
}

/// The images that some arguments name, found as they are asked for. `-` stands for standard input: an
/// image, or a list with one path per line.
pub struct Images {
    arguments: VecDeque<OsString>,
    /// Found, but not given yet.
    ready: VecDeque<ListedImage>,
    reads_list: bool,
}

impl Images {
    pub fn new(arguments: Vec<OsString>) -> Images {
        Images { arguments: arguments.into(), ready: VecDeque::new(), reads_list: false }
    }

    /// Whether all images can be known now, without waiting for standard input.
    pub fn are_known(&self) -> bool {
        !self.reads_list && self.arguments.iter().all(|argument| argument != "-")
    }

    /// An image on standard input is told by its first bytes; anything else is a list of paths.
    fn read_standard_input(&mut self) {
        let mut input = std::io::stdin().lock();
        // Every format has bytes that no path has; a path may begin as one does ("BMW.jpg").
        let is_image =
            |bytes: &[u8]| FileFormat::of_bytes(bytes).is_some() && bytes.iter().take(64).any(|&byte| byte < b'\t');
        let is_image = input.fill_buf().is_ok_and(is_image);
        if !is_image || STANDARD_INPUT.get().is_some() {
            self.reads_list = true;
            return;
        }
        let mut bytes = Vec::new();
        match input.take(MOST_BYTES).read_to_end(&mut bytes) {
            Ok(_) => {
                STANDARD_INPUT.get_or_init(|| bytes);
                self.ready.push_back(Ok(PathBuf::from("-")));
            }
            Err(error) => self.miss(Path::new("-"), format!("the image on standard input cannot be read: {error}")),
        }
    }

    /// The next line, whatever bytes are in it: names of files need not be UTF-8.
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
                self.ready.push_back(Err(NotFound { path: PathBuf::from("-"), error }));
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
            Err(error) => return self.miss(Path::new(pattern), format!("no such file, and no pattern: {error}")),
        };
        let before = self.ready.len();
        for found in matches {
            match found {
                Ok(path) if path.is_dir() => {}
                Ok(path) => self.ready.push_back(Ok(path)),
                Err(error) => {
                    let path = error.path().to_path_buf();
                    self.ready.push_back(Err(NotFound { path, error: error.error().to_string() }));
                }
            }
        }
        if self.ready.len() == before {
            self.miss(Path::new(pattern), "no files match this pattern".to_string());
        }
    }

    fn miss(&mut self, path: &Path, error: String) {
        self.ready.push_back(Err(NotFound { path: path.to_path_buf(), error }));
    }
}

impl Iterator for Images {
    type Item = ListedImage;

    fn next(&mut self) -> Option<ListedImage> {
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
                self.read_standard_input();
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

/// All images of a folder and of the folders in it, by name. Links to folders are not followed, so there is no going round;
/// pipes and devices are left alone, since nobody may ever write to them.
fn walk(folder: &Path, found: &mut VecDeque<ListedImage>, skipped: &mut SkippedImages) {
    let entries = std::fs::read_dir(folder).and_then(|entries| entries.collect::<Result<Vec<_>, _>>());
    let mut entries = match entries {
        Ok(entries) => entries,
        Err(error) => {
            let error = format!("this folder cannot be read: {error}");
            return found.push_back(Err(NotFound { path: folder.to_path_buf(), error }));
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

/// Whether this is a file, or a link to one. A link to nothing is one: whoever reads it will say so.
fn may_be_file(path: &Path) -> bool {
    std::fs::metadata(path).map_or(true, |metadata| metadata.is_file())
}
