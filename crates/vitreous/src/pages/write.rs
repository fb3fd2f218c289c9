//! Pages on disk.

use std::fs::{self, File};
use std::io::{self, Read, Write};
use std::path::{Path, PathBuf};

use anyhow::{Context, anyhow};
use vitreous_pages::GENERATOR;

use crate::failure::Failure;

/// How far into a file its generator is looked for. It stands in the head, after a few lines.
const HEAD: u64 = 4096;

/// Writes a page: aside first, so that a reader never sees half of one. A file that is not one of our pages is left alone, and
/// the directory must be there.
pub fn write_page(path: &Path, html: &str) -> Result<(), Failure> {
    check_place(path)?;
    let aside = aside(path);
    let write = || -> io::Result<()> {
        let mut file = File::create(&aside)?;
        file.write_all(html.as_bytes())?;
        file.sync_all()?;
        fs::rename(&aside, path)
    };
    write().map_err(|error| {
        let _ = fs::remove_file(&aside);
        Failure::work(anyhow!(error).context(format!("{}: cannot be written", path.display())))
    })
}

/// Refuses a place at which a page cannot or should not be written; to be asked before long work.
pub fn check_place(path: &Path) -> Result<(), Failure> {
    check_place_or(path, "name another file")
}

/// The same, with what else a user can do.
pub fn check_place_or(path: &Path, otherwise: &str) -> Result<(), Failure> {
    let name = path.display();
    let directory = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    if !directory.is_dir() {
        let directory = directory.display();
        return Err(Failure::input(anyhow!("{name}: there is no directory {directory}; make it, or {otherwise}")));
    }
    if path.is_dir() {
        return Err(Failure::input(anyhow!("{name} is a directory; name a file in it, such as {name}/page.html")));
    }
    if path.exists() && !is_ours(path).with_context(|| format!("{name}: cannot be read")).map_err(Failure::Input)? {
        return Err(Failure::input(anyhow!(
            "{name} is there and no page of vitreous; it is not overwritten: {otherwise}, or remove it"
        )));
    }
    Ok(())
}

/// Whether a file is a page of vitreous.
pub fn is_ours(path: &Path) -> io::Result<bool> {
    if !path.is_file() {
        return Ok(false);
    }
    let mut head = Vec::new();
    File::open(path)?.take(HEAD).read_to_end(&mut head)?;
    Ok(head.windows(GENERATOR.len()).any(|part| part == GENERATOR.as_bytes()))
}

/// Beside the page, so that it can be renamed; of this process, so that two do not share it.
fn aside(path: &Path) -> PathBuf {
    let mut name = path.file_name().unwrap_or_default().to_os_string();
    name.push(format!(".{}.partial", std::process::id()));
    path.with_file_name(name)
}

#[cfg(test)]
mod tests {
    use vitreous_pages::Document;

    use super::*;

    fn refusal(result: Result<(), Failure>) -> String {
        match result {
            Err(Failure::Input(error)) => error.to_string(),
            other => panic!("not refused: {other:?}"),
        }
    }

    #[test]
    fn our_pages_are_replaced_and_other_files_left_alone() {
        let place = tempfile::tempdir().expect("a directory");
        let path = place.path().join("page.html");
        write_page(&path, &Document::new("first").finish()).expect("written");
        write_page(&path, &Document::new("second").finish()).expect("written again");
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
