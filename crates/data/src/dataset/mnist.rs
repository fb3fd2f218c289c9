//! The MNIST family: folders of IDX files, compressed or not.

use std::path::{Path, PathBuf};
use std::sync::Arc;

use super::builtin::FASHION;
use super::files::{self, Listing, file_name};
use super::idx::{self, Idx};
use super::memory::InMemory;
use super::split::numbered_splits;
use super::{Dataset, DatasetError, OpenDataset, Splits, ValidationFrom};
use crate::image::Channels;

/// The first labels of Fashion-MNIST and MNIST, in the training and in the test part. Their files have the same names and sizes; the labels
/// distinguish them.
const FASHION_BEGINS: [&[u8]; 2] = [&[9, 0, 0, 3, 0, 2, 7, 2, 5, 5], &[9, 2, 1, 1, 6, 1, 4, 6, 5, 7]];
const DIGITS_BEGIN: [&[u8]; 2] = [&[5, 0, 4, 1, 9, 2, 1, 3, 1, 4], &[7, 2, 1, 0, 4, 1, 4, 9, 5, 9]];

/// The files of one part.
struct Pair {
    images: PathBuf,
    labels: PathBuf,
}

/// The files of one part, if they are there. `train-images-idx3-ubyte` and `train-images.idx3-ubyte` are the same, also with
/// `.gz`; an uncompressed file is preferred.
fn pair(folder: &Path, listing: &Listing, part: &str) -> Result<Option<Pair>, DatasetError> {
    let find = |what: &str| {
        let wanted = format!("{part}-{what}-ubyte");
        let called = |path: &&PathBuf, ending: &str| {
            file_name(path)
                .strip_suffix(ending)
                .is_some_and(|name| name.replace('.', "-").eq_ignore_ascii_case(&wanted))
        };
        let plain = listing.files.iter().find(|path| called(path, ""));
        plain.or_else(|| listing.files.iter().find(|path| called(path, ".gz"))).cloned()
    };
    let missing = |there: &Path, missing: &str| DatasetError::Incomplete {
        path: folder.to_path_buf(),
        there: file_name(there),
        missing: format!("{part}-{missing}-ubyte (or .gz)"),
    };
    match (find("images-idx3"), find("labels-idx1")) {
        (None, None) => Ok(None),
        (Some(images), Some(labels)) => Ok(Some(Pair { images, labels })),
        (Some(images), None) => Err(missing(&images, "labels-idx1")),
        (None, Some(labels)) => Err(missing(&labels, "images-idx3")),
    }
}

/// Opens a folder of such files; None if there are none.
pub(super) fn open(folder: &Path, listing: &Listing, options: &OpenDataset) -> Result<Option<Splits>, DatasetError> {
    let train = pair(folder, listing, "train")?;
    let test = match pair(folder, listing, "t10k")? {
        Some(test) => Some(test),
        None => pair(folder, listing, "test")?,
    };
    if train.is_none() && test.is_none() {
        return Ok(None);
    }
    options.only_one_kind_of_labels("IDX")?;
    let [train, test] = [train, test].map(|part| part.map(|part| part.read()).transpose());
    let (train, test) = (train?, test?);
    let parts = [train.as_ref(), test.as_ref()];
    let (kind, classes) = classes(folder, parts)?;
    for part in parts.into_iter().flatten() {
        if let Some(label) = part.labels.iter().find(|&&label| label as usize >= classes.len()) {
            let reason = format!("the label {label} is not one of the {} classes in classes.txt", classes.len());
            return Err(DatasetError::Label { path: folder.to_path_buf(), reason });
        }
    }
    let validation_from = if test.is_some() { ValidationFrom::TestPart } else { ValidationFrom::TrainingPart };
    let [train, test] = [train, test].map(|part| Arc::new(part.unwrap_or_else(nothing)) as Arc<dyn Dataset>);
    Ok(Some(numbered_splits([train, test], validation_from, classes, kind, options)))
}

/// A part that is not there.
fn nothing() -> InMemory {
    InMemory { name: String::new(), size: [1, 1], channels: Channels::Grey, pixels: [].into(), labels: Vec::new() }
}

impl Pair {
    fn read(&self) -> Result<InMemory, DatasetError> {
        let read = |path: &Path, rank: usize, expected: Option<(usize, &str)>| -> Result<Idx, DatasetError> {
            idx::read(files::open_unpacked(path)?, rank, expected).map_err(|reason| DatasetError::damaged(path, reason))
        };
        // Labels first: they are small, and say how many images there are.
        let labels = read(&self.labels, 1, None)?;
        let images = read(&self.images, 3, Some((labels.axes[0], &file_name(&self.labels))))?;
        if images.axes[0] > 0 && images.values.is_empty() {
            return Err(DatasetError::damaged(&self.images, "its images have no pixels"));
        }
        Ok(InMemory {
            name: self.images.display().to_string(),
            size: [images.axes[1], images.axes[2]],
            channels: Channels::Grey,
            pixels: images.values.into(),
            labels: labels.values.into_iter().map(u32::from).collect(),
        })
    }
}

/// The names of the classes: from `classes.txt`, else those of the data set with these labels, else numbers.
fn classes(folder: &Path, parts: [Option<&InMemory>; 2]) -> Result<(String, Vec<String>), DatasetError> {
    let begin = |begins: [&[u8]; 2]| {
        let begins_so = |(part, begin): (Option<&InMemory>, &[u8])| {
            part.is_some_and(|part| {
                part.labels.len() >= 10_000
                    && part.labels.iter().zip(begin).all(|(&label, &known)| label == u32::from(known))
            })
        };
        parts.into_iter().zip(begins).any(begins_so)
    };
    let (kind, usual) = if begin(FASHION_BEGINS) {
        ("Fashion-MNIST (IDX)", Some(FASHION.map(str::to_string).to_vec()))
    } else if begin(DIGITS_BEGIN) {
        ("MNIST (IDX)", None)
    } else {
        ("IDX", None)
    };
    let named = files::names(&folder.join("classes.txt"))?;
    let count = || parts.into_iter().flatten().flat_map(|part| &part.labels).max().map_or(0, |&most| most + 1);
    let classes = named.or(usual).unwrap_or_else(|| (0..count()).map(|class| class.to_string()).collect());
    Ok((kind.to_string(), classes))
}
