//! Writes pages and other results: atomically, and never over a file that vitreous did not write.

use std::fs::File;
use std::io::{self, Read};
use std::path::{Path, PathBuf};

use vitreous_files::partial;

use crate::GENERATOR;

/// A file that is not written.
#[derive(Debug, thiserror::Error)]
pub enum WriteError {
    /// A path at which nothing can or should be written; it says what to do.
    #[error("{0}")]
    Refused(String),
    /// Writing failed.
    #[error("{path}: cannot be written: {source}", path = path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// Why.
        source: io::Error,
    },
}

/// Generator and kind are within so many bytes: in the head, after a few lines.
const HEAD: u64 = 4096;

/// Writes a page, to a temporary file first, so that a reader never sees half of one. Only pages of the same kind are
/// overwritten, and the directory must exist.
pub fn write_page(path: &Path, html: &str) -> Result<(), WriteError> {
    check_place(path, kind_of(html).unwrap_or_default())?;
    write_whole(path, html.as_bytes())
}

/// Writes a file that does not exist yet, in the same way.
pub fn write_new(path: &Path, bytes: &[u8]) -> Result<(), WriteError> {
    check_new(path)?;
    write_whole(path, bytes)
}

fn write_whole(path: &Path, bytes: &[u8]) -> Result<(), WriteError> {
    partial::write(path, bytes).map_err(|source| WriteError::Io { path: path.to_path_buf(), source })
}

/// Refuses a path at which a page of this kind cannot or must not be written; call it before long work.
pub fn check_place(path: &Path, kind: &str) -> Result<(), WriteError> {
    check_place_or(path, kind, "name another file")
}

/// The same, with another remedy in the error.
pub fn check_place_or(path: &Path, kind: &str, otherwise: &str) -> Result<(), WriteError> {
    check_directory(path, otherwise)?;
    if !path.exists() {
        return Ok(());
    }
    let name = path.display();
    let head = head_of(path).map_err(|error| WriteError::Refused(format!("{name}: cannot be read: {error}")))?;
    let is = match kind_of(&head) {
        Some(there) if there == kind => return Ok(()),
        Some(there) => format!("is another page of vitreous ({there}, not {kind})"),
        None => "was not written by vitreous".to_string(),
    };
    Err(WriteError::Refused(format!("{name} exists and {is}; it is not overwritten: {otherwise}, or remove it")))
}

/// Refuses a path where a file exists already, or cannot be written; call it before long work.
pub fn check_new(path: &Path) -> Result<(), WriteError> {
    check_directory(path, "name another file")?;
    match path.symlink_metadata() {
        Err(_) => Ok(()),
        Ok(_) => Err(WriteError::Refused(format!(
            "{} exists; it is not overwritten: name another file, or remove it",
            path.display()
        ))),
    }
}

fn check_directory(path: &Path, otherwise: &str) -> Result<(), WriteError> {
    let name = path.display();
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if !directory.is_dir() {
        let directory = directory.display();
        return Err(WriteError::Refused(format!(
            "{name}: there is no directory {directory}; create it, or {otherwise}"
        )));
    }
    match path.is_dir() {
        true => Err(WriteError::Refused(format!("{name} is a directory; name a file in it, such as {name}/page.html"))),
        false => Ok(()),
    }
}

/// Whether vitreous wrote a page, of any kind.
pub fn is_ours(path: &Path) -> io::Result<bool> {
    Ok(kind_of(&head_of(path)?).is_some())
}

fn head_of(path: &Path) -> io::Result<String> {
    let mut head = Vec::new();
    if path.is_file() {
        File::open(path)?.take(HEAD).read_to_end(&mut head)?;
    }
    Ok(String::from_utf8_lossy(&head).into_owned())
}

/// The kind of a page, from its text or the beginning of it; `None` if vitreous did not write it.
fn kind_of(html: &str) -> Option<&str> {
    html.split_once(GENERATOR)?.1.split_once('"').map(|(kind, _)| kind)
}

#[cfg(test)]
mod tests {
    use std::fs;

    use crate::Document;

    use super::*;

    fn refusal(result: Result<(), WriteError>) -> String {
        match result {
            Err(WriteError::Refused(error)) => error,
            other => panic!("not refused: {other:?}"),
        }
    }

    #[test]
    fn our_pages_are_replaced_and_other_files_left_alone() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("page.html");
        let page = |title: &str, kind: &str| Document::new(title).kind(kind).finish();
        write_page(&path, &page("first", "report")).expect("written");
        write_page(&path, &page("second", "report")).expect("written again");
        assert!(fs::read_to_string(&path).expect("read").contains("second"));
        let refused = refusal(write_page(&path, &page("third", "summary")));
        assert!(refused.contains("another page of vitreous (report, not summary)"), "{refused}");
        assert!(refused.contains("not overwritten"), "{refused}");
        assert!(fs::read_to_string(&path).expect("read").contains("second"));
        assert_eq!(fs::read_dir(place.path()).expect("listed").count(), 1, "nothing is left aside");

        let other = place.path().join("thesis.html");
        fs::write(&other, "<html>years of work</html>").expect("written");
        assert!(refusal(write_page(&other, "x")).contains("not overwritten"));
        assert_eq!(fs::read_to_string(&other).expect("read"), "<html>years of work</html>");
        fs::write(&other, "").expect("written");
        assert!(refusal(write_page(&other, "x")).contains("not overwritten"));
    }

    #[test]
    fn places_that_cannot_be_are_refused_with_what_to_do() {
        let place = tempfile::tempdir().expect("a directory");
        assert!(refusal(write_page(&place.path().join("no/where.html"), "x")).contains("there is no directory"));
        assert!(refusal(write_page(place.path(), "x")).contains("is a directory"));
    }
}
