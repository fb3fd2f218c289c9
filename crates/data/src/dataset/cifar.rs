//! CIFAR's binary files: records of one label (CIFAR-10) or two (CIFAR-100: coarse, fine), then 32 x 32 bytes of red, green and blue.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::files::{self, Listing, file_name};
use super::memory::InMemory;
use super::split::numbered_splits;
use super::{Dataset, DatasetError, OpenDataset, Splits, ValidationFrom};
use crate::image::Channels;

const SIDE: usize = 32;
const PIXELS: usize = SIDE * SIDE;
/// More than the official files have (154 MB).
const MOST_BYTES: u64 = 1 << 30;

/// The source of the files: a folder, or an archive.
pub(super) trait Files {
    /// The names of the files.
    fn names(&self) -> Vec<String>;
    /// The content of one.
    fn read(&self, name: &str) -> Result<Vec<u8>, DatasetError>;
    /// The path of one, for messages.
    fn path(&self, name: &str) -> PathBuf;
}

/// The files of a folder.
pub(super) struct Folder<'a> {
    pub path: &'a Path,
    pub listing: &'a Listing,
}

impl Files for Folder<'_> {
    fn names(&self) -> Vec<String> {
        self.listing.files.iter().map(|path| file_name(path)).collect()
    }

    fn read(&self, name: &str) -> Result<Vec<u8>, DatasetError> {
        files::read(&self.path.join(name), MOST_BYTES)
    }

    fn path(&self, name: &str) -> PathBuf {
        self.path.join(name)
    }
}

/// Opens the files if they are those of CIFAR.
pub(super) fn open(files: &dyn Files, options: &OpenDataset) -> Result<Option<Splits>, DatasetError> {
    let names = files.names();
    let has = |name: &str| names.iter().any(|there| there == name);
    let mut batches: Vec<(u32, String)> =
        names.iter().filter_map(|name| Some((batch_number(name)?, name.clone()))).collect();
    batches.sort();
    if !batches.is_empty() || has("test_batch.bin") {
        options.only_one_kind_of_labels("CIFAR-10")?;
        return ten(files, &batches, has("test_batch.bin"), options).map(Some);
    }
    // `train.bin` alone may be anything.
    let of_hundred = ["fine_label_names.txt", "coarse_label_names.txt"].into_iter().any(has);
    match (has("train.bin"), has("test.bin")) {
        (train, test) if train && test || (train || test) && of_hundred => {
            hundred(files, train, test, options).map(Some)
        }
        _ => Ok(None),
    }
}

/// The number in `data_batch_3.bin`.
fn batch_number(name: &str) -> Option<u32> {
    name.strip_prefix("data_batch_")?.strip_suffix(".bin")?.parse().ok()
}

fn ten(
    files: &dyn Files,
    batches: &[(u32, String)],
    test: bool,
    options: &OpenDataset,
) -> Result<Splits, DatasetError> {
    const CLASSES: [&str; 10] =
        ["airplane", "automobile", "bird", "cat", "deer", "dog", "frog", "horse", "ship", "truck"];
    let classes = class_names(files, "batches.meta.txt")?.unwrap_or_else(|| CLASSES.map(str::to_string).to_vec());
    let train: Vec<&str> = batches.iter().map(|(_, name)| name.as_str()).collect();
    let test: &[&str] = if test { &["test_batch.bin"] } else { &[] };
    let mut splits = parts(files, &train, test, Records { labels: 1, label: 0 }, classes, "CIFAR-10 binary", options)?;
    let missing: Vec<String> = (1..=5)
        .filter(|number| !batches.iter().any(|(there, _)| there == number))
        .map(|number| format!("data_batch_{number}.bin"))
        .collect();
    if !missing.is_empty() && !batches.is_empty() {
        splits.notes.push(format!("not all of CIFAR-10 is there: {} is missing", missing.join(", ")));
    }
    Ok(splits)
}

fn hundred(files: &dyn Files, train: bool, test: bool, options: &OpenDataset) -> Result<Splits, DatasetError> {
    let (records, list, count) = match options.labels.as_deref() {
        None | Some("fine") => (Records { labels: 2, label: 1 }, "fine_label_names.txt", 100),
        Some("coarse") => (Records { labels: 2, label: 0 }, "coarse_label_names.txt", 20),
        Some(other) => {
            let message = format!("CIFAR-100 has the labels `fine` and `coarse`, not `{other}`");
            return Err(DatasetError::Option(message));
        }
    };
    let classes = class_names(files, list)?.unwrap_or_else(|| (0..count).map(|class| class.to_string()).collect());
    let (train, test) =
        (["train.bin"].map(|name| train.then_some(name)), ["test.bin"].map(|name| test.then_some(name)));
    let [train, test] = [train, test].map(|names| names.into_iter().flatten().collect::<Vec<&str>>());
    parts(files, &train, &test, records, classes, "CIFAR-100 binary", options)
}

fn class_names(files: &dyn Files, list: &str) -> Result<Option<Vec<String>>, DatasetError> {
    if !files.names().iter().any(|name| name == list) {
        return Ok(None);
    }
    let bytes = files.read(list)?;
    let text = String::from_utf8_lossy(&bytes);
    let names: Vec<String> = text.lines().map(str::trim).filter(|line| !line.is_empty()).map(str::to_string).collect();
    Ok((!names.is_empty()).then_some(names))
}

/// The beginning of a record: its number of labels, and which of them to use.
#[derive(Clone, Copy)]
struct Records {
    labels: usize,
    label: usize,
}

fn parts(
    files: &dyn Files,
    train: &[&str],
    test: &[&str],
    records: Records,
    classes: Vec<String>,
    kind: &str,
    options: &OpenDataset,
) -> Result<Splits, DatasetError> {
    let read = |names: &[&str]| -> Result<Arc<dyn Dataset>, DatasetError> {
        let (mut pixels, mut labels) = (Vec::new(), Vec::new());
        for name in names {
            records
                .read(&files.read(name)?, classes.len(), &mut pixels, &mut labels)
                .map_err(|reason| DatasetError::damaged(&files.path(name), reason))?;
        }
        let name = names.first().map(|name| files.path(name)).unwrap_or_default();
        let name = if names.len() == 1 { name } else { name.parent().unwrap_or(Path::new("")).join("data_batch") };
        let (name, pixels) = (name.display().to_string(), pixels.into());
        Ok(Arc::new(InMemory { name, size: [SIDE, SIDE], channels: Channels::Rgb, pixels, labels }))
    };
    let validation_from = if test.is_empty() { ValidationFrom::TrainingPart } else { ValidationFrom::TestPart };
    let parts = [read(train)?, read(test)?];
    Ok(numbered_splits(parts, validation_from, classes, kind.to_string(), options))
}

impl Records {
    /// Adds the records of one file, with channels interleaved.
    fn read(self, bytes: &[u8], classes: usize, pixels: &mut Vec<u8>, labels: &mut Vec<u32>) -> Result<(), String> {
        let record = self.labels + 3 * PIXELS;
        if bytes.is_empty() || !bytes.len().is_multiple_of(record) {
            return Err(format!(
                "{} bytes are not a multiple of the record size, {record} bytes: is it cut off?",
                bytes.len()
            ));
        }
        pixels.reserve(bytes.len() / record * 3 * PIXELS);
        for (number, record) in bytes.chunks_exact(record).enumerate() {
            let (label, planes) = (record[self.label], &record[self.labels..]);
            if usize::from(label) >= classes {
                return Err(format!("record {number} has the label {label}, but there are {classes} classes"));
            }
            labels.push(u32::from(label));
            let (red, rest) = planes.split_at(PIXELS);
            let (green, blue) = rest.split_at(PIXELS);
            pixels.extend(red.iter().zip(green).zip(blue).flat_map(|((&red, &green), &blue)| [red, green, blue]));
        }
        Ok(())
    }
}
