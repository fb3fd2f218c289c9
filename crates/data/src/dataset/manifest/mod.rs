//! Manifests: a table (CSV, TSV) or JSON lines of image paths and labels.

pub(super) mod lines;
mod table;

use std::collections::HashMap;
use std::path::{Path, PathBuf};

use super::files::{self, Listing, counted, extension};
use super::labels::Labels;
use super::sample_list::{ListedSample, SampleList};
use super::samples::ImageLocation;
use super::split::{Split, TEST_NAMES, TRAIN_NAMES, VALIDATION_NAMES, name_hash};
use super::{DatasetError, OpenDataset, Splits};

/// Names of the columns or keys, the usual one first.
const PATH_NAMES: [&str; 8] = ["path", "file", "file_name", "filename", "image", "image_path", "filepath", "file_path"];
const LABEL_NAMES: [&str; 6] = ["label", "labels", "class", "classes", "category", "target"];
const SPLIT_NAMES: [&str; 3] = ["split", "subset", "part"];
/// Names of a manifest of all splits.
const WHOLE_NAMES: [&str; 5] = ["manifest", "metadata", "labels", "data", "dataset"];

/// The maximum size; a hundred million images take less.
const MOST_BYTES: u64 = 4 << 30;

/// One row.
struct Row {
    /// The path as it is written, in bytes: it need not be UTF-8.
    path: Vec<u8>,
    labels: Vec<String>,
    /// Whether the labels are written as a list, even of one.
    is_list: bool,
    split: Option<String>,
}

/// The rows of a manifest, with their numbers.
type Rows = Box<dyn Iterator<Item = Result<(usize, Row), DatasetError>>>;

/// Whether a file has the extension of a manifest.
pub(super) fn is_manifest(path: &Path) -> bool {
    matches!(extension(path).as_deref(), Some("csv" | "tsv" | "jsonl" | "ndjson"))
}

fn rows(path: &Path, options: &OpenDataset) -> Result<Rows, DatasetError> {
    let is_lines = matches!(extension(path).as_deref(), Some("jsonl" | "ndjson"));
    let bytes = files::read(path, MOST_BYTES)?;
    let labels = options.labels.as_deref();
    if is_lines { lines::rows(path, bytes, labels) } else { table::rows(path, bytes, labels) }
}

/// The manifests of a folder: `train.csv` with `val.csv` and so on, or one of all splits. Files without the columns do not count.
pub(super) fn in_folder(listing: &Listing) -> Vec<(Option<Split>, PathBuf)> {
    let any = OpenDataset::default();
    let reads = |path: &Path| rows(path, &any).is_ok_and(|mut rows| rows.next().is_some_and(|row| row.is_ok()));
    let called = |names: &[&str]| {
        let is_called = |path: &&PathBuf| {
            let stem = path.file_stem().and_then(|stem| stem.to_str()).unwrap_or_default().to_ascii_lowercase();
            is_manifest(path) && names.contains(&stem.as_str()) && reads(path)
        };
        listing.files.iter().find(is_called).cloned()
    };
    let parts = [
        (Split::Train, called(&TRAIN_NAMES)),
        (Split::Validation, called(&VALIDATION_NAMES)),
        (Split::Test, called(&TEST_NAMES)),
    ];
    let parts: Vec<(Option<Split>, PathBuf)> =
        parts.into_iter().filter_map(|(part, path)| path.map(|path| (Some(part), path))).collect();
    if !parts.is_empty() {
        return parts;
    }
    called(&WHOLE_NAMES).map(|path| (None, path)).into_iter().collect()
}

/// Rows that repeat an image.
#[derive(Default)]
struct Repeated {
    same: usize,
    contradicting: usize,
}

/// Opens manifests, each of one split or of all.
pub(super) fn open(manifests: &[(Option<Split>, PathBuf)], options: &OpenDataset) -> Result<Splits, DatasetError> {
    let mut labels = Labels::default();
    let mut samples: Vec<ListedSample> = Vec::new();
    let (mut several, mut repeated) = (false, Repeated::default());
    // The first row without a label: a mistake, unless rows have several labels.
    let mut without: Option<(PathBuf, usize)> = None;
    let mut seen: HashMap<(Split, PathBuf), usize> = HashMap::new();
    for (of_file, manifest) in manifests {
        let folder = manifest.parent().unwrap_or(Path::new(""));
        for row in rows(manifest, options)? {
            let (number, row) = row?;
            let split = match row.split.as_deref().map(str::trim).filter(|name| !name.is_empty()) {
                None => of_file.unwrap_or(Split::Train),
                Some(name) => Split::named(name).ok_or_else(|| {
                    let reason = format!("`{name}` is not a split: write train, validation or test");
                    DatasetError::row(manifest, number, reason)
                })?,
            };
            several |= row.is_list || row.labels.len() > 1;
            if row.labels.is_empty() && without.is_none() {
                without = Some((manifest.clone(), number));
            }
            let mut places: Vec<u32> = row.labels.iter().map(|label| labels.add(label)).collect();
            places.sort_unstable();
            places.dedup();
            let path = folder.join(files::path_of(&row.path));
            match seen.entry((split, path.clone())) {
                std::collections::hash_map::Entry::Occupied(first) => {
                    match samples[*first.get()].labels[..] == places[..] {
                        true => repeated.same += 1,
                        false => repeated.contradicting += 1,
                    }
                }
                std::collections::hash_map::Entry::Vacant(new) => {
                    new.insert(samples.len());
                    let (hash, location) = (name_hash(&row.path), ImageLocation::File(path));
                    samples.push(ListedSample { split, hash, location, labels: places.into() });
                }
            }
        }
    }
    if let Some((path, row)) = without.filter(|_| !several) {
        return Err(DatasetError::row(&path, row, "there is no label"));
    }
    let (_, first) = &manifests[0];
    let named = files::names(&first.with_file_name("classes.txt"))?;
    let (classes, map) = labels.classes(named, first)?;
    for label in samples.iter_mut().flat_map(|sample| &mut sample.labels) {
        *label = map[*label as usize];
    }
    let kind = format!("manifest ({})", extension(first).unwrap_or_default().to_ascii_uppercase());
    Ok(SampleList { kind, samples, classes, several_labels: several, notes: repeated.notes() }.into_splits(options))
}

impl Repeated {
    fn notes(&self) -> Vec<String> {
        let mut notes = Vec::new();
        if self.same > 0 {
            notes.push(format!(
                "{} an image that was named before; each is taken once",
                counted(self.same, "row names", "rows name")
            ));
        }
        if self.contradicting > 0 {
            notes.push(format!(
                "{} an image that was named before, with other labels; the first row counts",
                counted(self.contradicting, "row names", "rows name")
            ));
        }
        notes
    }
}
