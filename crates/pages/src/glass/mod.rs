//! The glass house: the page of a server where a model is watched while it thinks. Plain ES modules, style sheets and one HTML file, all of
//! them in the binary; they ask for nothing from anywhere else.
//!
//! A debug build takes the files from the source folder as they are now, where that is there, so that JavaScript is changed without a build.

use std::borrow::Cow;

use crate::chart::CURVES_SCRIPT;

/// A file of the page.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Asset {
    /// Its content type.
    pub kind: &'static str,
    /// Its content.
    pub bytes: Cow<'static, [u8]>,
    /// A hash of its content, for `ETag` and for addresses that never change.
    pub hash: String,
}

/// Lists files of this folder.
macro_rules! files {
    ($($name:literal),* $(,)?) => { &[$(($name, include_bytes!($name))),*] };
}

/// The files of this folder by name.
const FILES: &[(&str, &[u8])] = files![
    "address.js",
    "answer.js",
    "api.js",
    "app.js",
    "attention.js",
    "cells.js",
    "changes.js",
    "chart.js",
    "clothes.png",
    "compare.js",
    "dom.js",
    "examples.js",
    "flow.js",
    "giving.js",
    "glass.css",
    "headgrid.js",
    "icon.svg",
    "index.html",
    "inputs.js",
    "lecture.js",
    "lens.js",
    "looking.js",
    "main.js",
    "other.js",
    "painting.js",
    "parts.js",
    "picture.js",
    "picturemap.js",
    "runs.css",
    "runs.js",
    "scheme.js",
    "sound.js",
    "stage.js",
    "strings-views.js",
    "strings.js",
    "tokens.js",
    "views.css",
    "tour/block.js",
    "tour/hand.js",
    "tour/head.js",
    "tour/heads.js",
    "tour/index.js",
    "tour/kit.js",
    "tour/math.js",
    "tour/next.js",
    "tour/pieces.js",
    "tour/text.js",
    "tour/tour.css",
    "tour/training.js",
    "tour/whole.js",
    "tour/writes.js",
];

/// Lists modules that pages of files have, too.
macro_rules! shared {
    ($($name:literal),* $(,)?) => { &[$((concat!("views/", $name), include_bytes!(concat!("../views/", $name)))),*] };
}

/// Those modules by name.
const SHARED: &[(&str, &[u8])] = shared!["board.js", "choose.js", "colours.js", "heat.js", "lines.js", "numbers.js"];

/// The file of a name, such as `index.html` or `tour/index.js`.
pub fn file(name: &str) -> Option<Asset> {
    let kind = kind_of(name)?;
    let bytes = match from_source(name).or_else(|| composed(name).map(String::into_bytes)) {
        Some(bytes) => Cow::Owned(bytes),
        None => Cow::Borrowed(FILES.iter().chain(SHARED).find(|(known, _)| *known == name)?.1),
    };
    let hash = hash_of(&bytes);
    Some(Asset { kind, bytes, hash })
}

/// Files that are put together from those of `vitreous report`, so that a run looks the same in both.
fn composed(name: &str) -> Option<String> {
    match name {
        "report.css" => Some(crate::report::style_within(".run-report")),
        "views/curves.js" => Some(format!("{CURVES_SCRIPT}\nexport {{ Curves }};\n")),
        _ => None,
    }
}

/// The content type of a file by the end of its name; `None` of names that no file of ours has.
fn kind_of(name: &str) -> Option<&'static str> {
    let is_usual = |letter: char| letter.is_ascii_alphanumeric() || "-_./".contains(letter);
    if name.len() > 100
        || !name.chars().all(is_usual)
        || name.split('/').any(|part| part.is_empty() || part.starts_with('.'))
    {
        return None;
    }
    Some(match name.rsplit_once('.')?.1 {
        "html" => "text/html; charset=utf-8",
        "css" => "text/css; charset=utf-8",
        "js" => "text/javascript; charset=utf-8",
        "json" => "application/json",
        "svg" => "image/svg+xml",
        "png" => "image/png",
        "bin" => "application/octet-stream",
        _ => return None,
    })
}

/// A file as it is in the source folder, in debug builds.
fn from_source(name: &str) -> Option<Vec<u8>> {
    if !cfg!(debug_assertions) {
        return None;
    }
    let folder = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src");
    let folder = if name.starts_with("views/") { folder } else { folder.join("glass") };
    std::fs::read(folder.join(name)).ok()
}

/// FNV-1a with 64 bits: it tells versions of our own files apart, and nothing depends on it being hard to find two that are equal.
fn hash_of(bytes: &[u8]) -> String {
    let hash = bytes
        .iter()
        .fold(0xcbf2_9ce4_8422_2325u64, |hash, byte| (hash ^ u64::from(*byte)).wrapping_mul(0x0100_0000_01b3));
    format!("{hash:016x}")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn files_have_their_kind_and_nothing_else_is_given() {
        let page = file("index.html").expect("a page");
        assert_eq!(page.kind, "text/html; charset=utf-8");
        assert_eq!(page.hash.len(), 16);
        for wrong in [
            "",
            "nothing.js",
            "../lib.rs",
            "tour/../index.html",
            "/index.html",
            "index",
            "mod.rs",
            ".hidden.js",
            "a\u{e9}.js",
        ] {
            assert_eq!(file(wrong), None, "{wrong}");
        }
    }

    /// A debug build finds files that are not in the list, a release build does not.
    #[test]
    fn every_file_of_the_folder_is_listed() {
        let source = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("src/glass");
        for folder in ["", "tour/"] {
            for entry in std::fs::read_dir(source.join(folder)).expect("a folder") {
                let name = format!("{folder}{}", entry.expect("a file").file_name().to_string_lossy());
                if kind_of(&name).is_some() {
                    assert!(FILES.iter().any(|(known, _)| *known == name), "{name}");
                    assert!(file(&name).is_some(), "{name}");
                }
            }
        }
    }

    /// What modules and the page ask for is there, and nothing of it is from anywhere else.
    #[test]
    fn everything_that_is_imported_is_there() {
        let mut seen = 0;
        for (name, bytes) in FILES.iter().chain(SHARED).filter(|(name, _)| name.ends_with(".js")) {
            let text = std::str::from_utf8(bytes).expect("UTF-8");
            for line in text.lines().filter(|line| line.starts_with("import ")) {
                let path = line.split('"').nth(1).expect("a path in quotes");
                let folder = name.rsplit_once('/').map_or("", |(folder, _)| folder);
                let wanted = match (path.strip_prefix("./"), path.strip_prefix("../")) {
                    (Some(path), _) if folder.is_empty() => path.to_string(),
                    (Some(path), _) => format!("{folder}/{path}"),
                    (None, Some(path)) => path.to_string(),
                    (None, None) => panic!("{name}: {line}"),
                };
                assert!(file(&wanted).is_some(), "{name} imports {wanted}");
                seen += 1;
            }
        }
        assert!(seen > 50, "{seen} imports");
        let page = file("index.html").expect("a page");
        let page = String::from_utf8(page.bytes.into_owned()).expect("UTF-8");
        for wanted in page.split("/glass/app/").skip(1).filter_map(|rest| rest.split('"').next()) {
            assert!(file(wanted).is_some(), "{wanted}");
        }
    }

    #[test]
    fn the_page_is_small() {
        let bytes: usize = FILES.iter().chain(SHARED).map(|(_, bytes)| bytes.len()).sum();
        assert!(bytes < 500_000, "{bytes} bytes");
    }
}
