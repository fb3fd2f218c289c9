//! Tar shards, as in WebDataset: files with the same name up to the first dot are a sample, `000.jpg` and `000.cls`.
//!
//! Each archive is indexed once, from header to header; then images are read from their offsets.

use std::collections::HashMap;
use std::io::{BufReader, Read, Seek, SeekFrom};
use std::path::{Path, PathBuf};
use std::sync::Arc;

use serde_json::{Map, Value};

use vitreous_files::open::open_regular;

use super::files::{self, Listing, counted, extension, file_name, list, some_of};
use super::labels::Labels;
use super::manifest::lines::spellings;
use super::sample_list::{ListedSample, SampleList};
use super::samples::ImageLocation;
use super::split::{Split, name_hash};
use super::{DatasetError, OpenDataset, Splits};
use crate::image::{IMAGE_EXTENSIONS, SkippedImages};

/// The maximum size of a label.
const MOST_LABEL_BYTES: u64 = 1 << 20;
/// The maximum number of names of a pattern.
const MOST_NAMES: usize = 1 << 20;
/// Keys of the label in a sample's JSON.
const KEYS: [&str; 4] = ["label", "labels", "class", "cls"];

/// Expands `name-{000..003}.tar` and `name-{a,b}.tar`; None if it is not such a pattern, or has too many names.
pub(super) fn expand(pattern: &str) -> Option<Vec<PathBuf>> {
    let mut names = vec![String::new()];
    let mut rest = pattern;
    if !rest.contains('{') {
        return None;
    }
    while let Some((before, behind)) = rest.split_once('{') {
        let (inside, after) = behind.split_once('}')?;
        let choices: Vec<String> = match inside.split_once("..") {
            Some((first, last)) => {
                let width = if first.starts_with('0') { first.len() } else { 0 };
                let (first, last): (usize, usize) = (first.parse().ok()?, last.parse().ok()?);
                let count = last.checked_sub(first)?.checked_add(1)?;
                (count <= MOST_NAMES).then_some(())?;
                (first..=last).map(|number| format!("{number:0width$}")).collect()
            }
            None => inside.split(',').map(str::to_string).collect(),
        };
        (names.len().checked_mul(choices.len())? <= MOST_NAMES).then_some(())?;
        names =
            names.iter().flat_map(|name| choices.iter().map(move |choice| format!("{name}{before}{choice}"))).collect();
        rest = after;
    }
    Some(names.into_iter().map(|name| PathBuf::from(name + rest)).collect())
}

/// The archives of a folder, or of its `train/`, `val/` and so on.
pub(super) fn in_folder(listing: &Listing) -> Result<Option<Vec<PathBuf>>, DatasetError> {
    let is_tar = |path: &&PathBuf| extension(path).as_deref() == Some("tar");
    let mut found: Vec<PathBuf> = listing.files.iter().filter(is_tar).cloned().collect();
    for folder in &listing.folders {
        if Split::named(&file_name(folder)).is_some() {
            found.extend(list(folder)?.files.iter().filter(is_tar).cloned());
        }
    }
    Ok((!found.is_empty()).then_some(found))
}

/// A sample that may be incomplete.
#[derive(Default)]
struct Partial {
    image: Option<(String, u64, u64)>,
    label: Option<(Vec<String>, bool)>,
}

/// What was left out, for notes.
#[derive(Default)]
struct LeftOut {
    without_image: usize,
    without_label: usize,
    repeated: usize,
    skipped: SkippedImages,
    cut: Vec<String>,
    wrong_labels: usize,
    first_wrong_label: Option<String>,
}

/// Opens archives. `path` is that of the user.
pub(super) fn open(path: &Path, archives: Vec<PathBuf>, options: &OpenDataset) -> Result<Splits, DatasetError> {
    let mut labels = Labels::default();
    let (mut samples, mut several, mut left_out) = (Vec::new(), false, LeftOut::default());
    for archive in &archives {
        let split = split_of(archive);
        let shared = Arc::new(archive.clone());
        for (key, sample) in index(archive, options, &mut left_out)? {
            let Some((name, offset, bytes)) = sample.image else {
                left_out.without_image += 1;
                continue;
            };
            let Some((spellings, is_list)) = sample.label else {
                left_out.without_label += 1;
                continue;
            };
            several |= is_list;
            let hash = name_hash(&[file_name(archive).as_bytes(), b"/", &key].concat());
            let mut labels: Vec<u32> = spellings.iter().map(|label| labels.add(label)).collect();
            labels.sort_unstable();
            labels.dedup();
            let location = ImageLocation::Within { archive: shared.clone(), name, offset, bytes };
            samples.push(ListedSample { split, hash, location, labels: labels.into() });
        }
    }
    if samples.is_empty() {
        return Err(DatasetError::damaged(path, left_out.nothing(options)));
    }
    let folder = if path.is_dir() { path } else { path.parent().unwrap_or(Path::new("")) };
    let (classes, map) = labels.classes(files::names(&folder.join("classes.txt"))?, path)?;
    for label in samples.iter_mut().flat_map(|sample: &mut ListedSample| &mut sample.labels) {
        *label = map[*label as usize];
    }
    let kind = format!("tar shards ({} {})", archives.len(), if archives.len() == 1 { "file" } else { "files" });
    Ok(SampleList { kind, samples, classes, several_labels: several, notes: left_out.notes() }.into_splits(options))
}

/// The split that an archive's name or its folder names.
fn split_of(archive: &Path) -> Split {
    let folder = archive.parent().map(file_name).unwrap_or_default();
    Split::named_within(&file_name(archive)).or_else(|| Split::named(&folder)).unwrap_or(Split::Train)
}

/// The samples of an archive, in the order in which they begin.
fn index(
    archive: &Path,
    options: &OpenDataset,
    left_out: &mut LeftOut,
) -> Result<Vec<(Vec<u8>, Partial)>, DatasetError> {
    let failed = |error| DatasetError::io(archive, error);
    let mut file = open_regular(archive).map_err(failed)?;
    let length = file.seek(SeekFrom::End(0)).map_err(failed)?;
    file.seek(SeekFrom::Start(0)).map_err(failed)?;
    let mut samples: Vec<(Vec<u8>, Partial)> = Vec::new();
    let mut places: HashMap<Vec<u8>, usize> = HashMap::new();
    let mut tar = tar::Archive::new(BufReader::with_capacity(1 << 12, file));
    let mut entries = tar.entries_with_seek().map_err(failed)?;
    loop {
        let mut entry = match entries.next() {
            None => break,
            Some(Ok(entry)) => entry,
            // The samples before it are complete.
            Some(Err(error)) => {
                left_out.cut.push(format!("{} ({error})", archive.display()));
                break;
            }
        };
        if !entry.header().entry_type().is_file() {
            continue;
        }
        let (offset, bytes) = (entry.raw_file_position(), entry.size());
        let name = entry.path_bytes().into_owned();
        if offset.checked_add(bytes).is_none_or(|end| end > length) {
            left_out.cut.push(format!("{} (it ends within {})", archive.display(), String::from_utf8_lossy(&name)));
            break;
        }
        let Some((key, ending)) = key_and_ending(&name) else { continue };
        let place = *places.entry(key.clone()).or_insert_with(|| {
            samples.push((key, Partial::default()));
            samples.len() - 1
        });
        let sample = &mut samples[place].1;
        if IMAGE_EXTENSIONS.contains(&ending.as_str()) {
            match sample.image {
                Some(_) => left_out.repeated += 1,
                None => sample.image = Some((String::from_utf8_lossy(&name).into_owned(), offset, bytes)),
            }
        } else if left_out.skipped.add(&files::path_of(&name)) {
            // Its format cannot be decoded.
        } else if sample.label.is_none() && (ending == "cls" || ending == "json") && bytes <= MOST_LABEL_BYTES {
            let mut content = Vec::new();
            entry.read_to_end(&mut content).map_err(failed)?;
            match label(&content, &ending, options.labels.as_deref()) {
                Ok(label) => sample.label = label,
                Err(reason) => left_out.add_wrong_label(&name, &reason),
            }
        }
    }
    Ok(samples)
}

/// `a/b.seg.png` is the file `seg.png` of the sample `a/b`. Hidden files are skipped.
fn key_and_ending(name: &[u8]) -> Option<(Vec<u8>, String)> {
    let start = name.iter().rposition(|&byte| byte == b'/').map_or(0, |slash| slash + 1);
    let dot = name[start..].iter().position(|&byte| byte == b'.')?;
    let ending = String::from_utf8_lossy(&name[start + dot + 1..]).to_ascii_lowercase();
    (dot > 0).then(|| (name[..start + dot].to_vec(), ending))
}

/// The label in a file of a sample; None if it has none.
fn label(content: &[u8], ending: &str, asked: Option<&str>) -> Result<Option<(Vec<String>, bool)>, String> {
    if ending == "cls" {
        if asked.is_some_and(|asked| asked != "cls") {
            return Ok(None);
        }
        let text = String::from_utf8_lossy(content);
        let text = text.trim();
        return if text.is_empty() {
            Err("it is empty".to_string())
        } else {
            Ok(Some((vec![text.to_string()], false)))
        };
    }
    let object: Map<String, Value> =
        serde_json::from_slice(content).map_err(|error| format!("this is not a JSON object: {error}"))?;
    let value = match asked {
        Some(asked) => object.get(asked),
        None => KEYS.into_iter().find_map(|key| object.get(key)),
    };
    value.filter(|value| !value.is_null()).map(spellings).transpose()
}

impl LeftOut {
    fn add_wrong_label(&mut self, name: &[u8], reason: &str) {
        self.wrong_labels += 1;
        self.first_wrong_label.get_or_insert_with(|| format!("{}: {reason}", String::from_utf8_lossy(name)));
    }

    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if !self.cut.is_empty() {
            let names = some_of(self.cut.iter().map(String::as_str), 3);
            notes.push(format!(
                "{} too early; complete samples are used: {names}",
                counted(self.cut.len(), "archive ends", "archives end")
            ));
        }
        notes.extend(self.skipped.note());
        let kinds = [
            (self.without_image, ["sample has no image", "samples have no image"]),
            (self.without_label, ["sample has no label", "samples have no label"]),
            (self.repeated, ["file is a second image of its sample", "files are second images of their samples"]),
        ];
        let counted_notes = kinds.into_iter().filter(|(count, _)| *count > 0);
        notes.extend(counted_notes.map(|(count, [one, many])| counted(count, one, many)));
        if let Some(first) = &self.first_wrong_label {
            notes.push(format!("{} invalid: {first}", counted(self.wrong_labels, "label is", "labels are")));
        }
        notes
    }

    /// Why nothing was found.
    fn nothing(&self, options: &OpenDataset) -> String {
        let label =
            options.labels.as_ref().map_or("`label` in .json".to_string(), |asked| format!("`{asked}` in .json"));
        let notes = self.notes();
        let why = if notes.is_empty() { String::new() } else { format!(": {}", notes.join("; ")) };
        format!(
            "no sample with an image ({}) and a label (.cls, or {label}) was found{why}",
            IMAGE_EXTENSIONS.join(", ")
        )
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn patterns_are_expanded() {
        let names =
            |pattern: &str| expand(pattern).map(|names| names.iter().map(|name| file_name(name)).collect::<Vec<_>>());
        assert_eq!(names("a-{008..010}.tar").unwrap(), ["a-008.tar", "a-009.tar", "a-010.tar"]);
        assert_eq!(names("{9..10}{x,y}").unwrap(), ["9x", "9y", "10x", "10y"]);
        for wrong in ["a.tar", "a-{3..1}.tar", "a-{0..99999999999}.tar", "{1..2", "{a..b}", "{0..9999}{0..9999}"] {
            assert_eq!(names(wrong), None, "{wrong}");
        }
    }

    #[test]
    fn samples_are_named_up_to_the_first_dot() {
        let split =
            |name: &str| key_and_ending(name.as_bytes()).map(|(key, ending)| (String::from_utf8(key).unwrap(), ending));
        assert_eq!(split("v1.0/b.seg.PNG"), Some(("v1.0/b".to_string(), "seg.png".to_string())));
        assert_eq!(split("x.jpg"), Some(("x".to_string(), "jpg".to_string())));
        assert_eq!(split("a/.hidden"), None);
        assert_eq!(split("a/none"), None);
    }
}
