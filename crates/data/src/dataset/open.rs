//! Detects what a path holds.

use std::path::Path;

use super::files::{Listing, extension, file_name, list, some_of};
use super::{DatasetError, Splits, ValidationRule, archive, cifar, folder, manifest, mnist, shards};
use crate::image::{FileFormat, SkippedImages, has_image_extension};

/// How a data set is opened.
#[derive(Debug, Clone)]
pub struct OpenDataset {
    /// The share of the training part that is drawn for validation where there is neither a validation nor a test part.
    pub validation_share: f64,
    /// How it is drawn.
    pub validation_rule: ValidationRule,
    /// Which labels to use, where there are several: `fine` or `coarse` for CIFAR-100; a column of a table; a key of the JSON in shards.
    pub labels: Option<String>,
    /// Decoded images are cached up to this many bytes.
    pub keep_bytes: u64,
}

impl Default for OpenDataset {
    /// A tenth for validation, stratified by class; the usual labels; 1 GiB of decoded images.
    fn default() -> OpenDataset {
        OpenDataset {
            validation_share: 0.1,
            validation_rule: ValidationRule::default(),
            labels: None,
            keep_bytes: 1 << 30,
        }
    }
}

impl OpenDataset {
    fn check(&self) -> Result<(), DatasetError> {
        match self.validation_share {
            share if (0.0..1.0).contains(&share) => Ok(()),
            share => Err(DatasetError::Option(format!(
                "the share for validation must be at least 0 and under 1, but it is {share}"
            ))),
        }
    }

    /// Refuses a choice of labels for a data set that has one kind of labels only.
    pub(super) fn only_one_kind_of_labels(&self, kind: &str) -> Result<(), DatasetError> {
        match &self.labels {
            None => Ok(()),
            Some(asked) => {
                Err(DatasetError::Option(format!("{kind} has one kind of labels, so `{asked}` cannot be chosen")))
            }
        }
    }
}

/// Where the files of well-known data sets are, relative to the path that a user may give.
const INNER: [&str; 5] = ["cifar-10-batches-bin", "cifar-100-binary", "raw", "MNIST/raw", "FashionMNIST/raw"];

/// Opens the data set at a path, whatever it is.
pub fn open(path: &Path, options: &OpenDataset) -> Result<Splits, DatasetError> {
    options.check()?;
    let metadata = match std::fs::metadata(path) {
        Ok(metadata) => metadata,
        Err(error) => {
            return match path.to_str().map(shards::expand) {
                Some(Some(shards)) => shards::open(path, shards, options),
                _ => Err(DatasetError::io(path, error)),
            };
        }
    };
    let splits = if metadata.is_dir() { open_folder(path, options)? } else { open_file(path, options)? };
    match splits {
        Some(splits) if splits.train.is_empty() && splits.validation.is_empty() && splits.test.is_none() => {
            Err(DatasetError::damaged(path, format!("this {} has no samples", splits.kind)))
        }
        Some(splits) => Ok(splits),
        None => Err(DatasetError::Unknown { path: path.to_path_buf(), found: found(path, metadata.is_dir()) }),
    }
}

fn open_file(path: &Path, options: &OpenDataset) -> Result<Option<Splits>, DatasetError> {
    let name = file_name(path).to_ascii_lowercase();
    if manifest::is_manifest(path) {
        return manifest::open(&[(None, path.to_path_buf())], options).map(Some);
    }
    if name.ends_with(".tar") {
        return shards::open(path, vec![path.to_path_buf()], options).map(Some);
    }
    if name.ends_with(".tar.gz") || name.ends_with(".tgz") {
        return archive::open(path, options);
    }
    // One file of a data set: the others are beside it.
    let of_a_set = name.contains("idx3-ubyte") || name.contains("idx1-ubyte") || name.ends_with(".bin");
    match path.parent().filter(|_| of_a_set) {
        Some(parent) if parent.as_os_str().is_empty() => open_known(Path::new("."), options),
        Some(parent) => open_known(parent, options),
        None => Ok(None),
    }
}

fn open_folder(path: &Path, options: &OpenDataset) -> Result<Option<Splits>, DatasetError> {
    if let Some(splits) = open_known(path, options)? {
        return Ok(Some(splits));
    }
    for inner in INNER.map(|inner| path.join(inner)) {
        if inner.is_dir()
            && let Some(splits) = open_known(&inner, options)?
        {
            return Ok(Some(splits));
        }
    }
    let listing = list(path)?;
    let manifests = manifest::in_folder(&listing);
    if !manifests.is_empty() {
        return manifest::open(&manifests, options).map(Some);
    }
    if let Some(found) = shards::in_folder(&listing)? {
        return shards::open(path, found, options).map(Some);
    }
    folder::open(path, &listing, options)
}

/// IDX or CIFAR files in this folder.
fn open_known(path: &Path, options: &OpenDataset) -> Result<Option<Splits>, DatasetError> {
    let listing = list(path)?;
    match mnist::open(path, &listing, options)? {
        Some(splits) => Ok(Some(splits)),
        None => cifar::open(&cifar::Folder { path, listing: &listing }, options),
    }
}

/// What is there, for the message that it is not a data set.
fn found(path: &Path, is_folder: bool) -> String {
    if !is_folder {
        return match (extension(path).as_deref(), has_image_extension(path)) {
            (_, true) => "it is one image".to_string(),
            _ if FileFormat::not_decoded(path).is_some() => {
                let mut skipped = SkippedImages::default();
                skipped.add(path);
                skipped.note().unwrap_or_default()
            }
            (Some("zip" | "gz" | "tgz" | "bz2" | "xz" | "7z" | "zst"), _) => {
                "it is an archive: unpack it first".to_string()
            }
            (Some("parquet" | "arrow" | "h5" | "hdf5" | "npz" | "npy" | "tfrecord" | "pt" | "pkl"), _) => {
                "this file format is not supported".to_string()
            }
            _ => "it is another kind of file".to_string(),
        };
    }
    let Ok(Listing { folders, files }) = list(path) else { return "the folder cannot be listed".to_string() };
    let names: Vec<String> = folders
        .iter()
        .map(|path| format!("{}/", file_name(path)))
        .chain(files.iter().map(|path| file_name(path)))
        .collect();
    let images = files.iter().filter(|file| has_image_extension(file)).count();
    let mut skipped = SkippedImages::default();
    files.iter().for_each(|file| _ = skipped.add(file));
    if names.is_empty() {
        return "the folder is empty".to_string();
    }
    let names = some_of(names.iter().map(String::as_str), 6);
    let python = ["data_batch_1", "test_batch"].iter().any(|name| path.join(name).is_file());
    let hint = if python || path.join("cifar-10-batches-py").is_dir() || path.join("cifar-100-python").is_dir() {
        "; this is CIFAR's Python version; the binary version is supported: `vitreous data get cifar10`"
    } else if images > 0 {
        "; these images are not in class folders, so they have no labels"
    } else {
        ""
    };
    let parquet = files.iter().any(|file| extension(file).as_deref() == Some("parquet"));
    let hint = if parquet { "; Parquet is not supported" } else { hint };
    let skipped = skipped.note().map(|note| format!("; {note}")).unwrap_or_default();
    format!("found {names}{hint}{skipped}")
}
