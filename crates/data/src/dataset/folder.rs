//! Image folders: `train/CLASS/x.jpg` and `val/CLASS/y.jpg`, or just `CLASS/x.jpg`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::files::{Listing, SkippedFiles, counted, images_under, list, some_of, text};
use super::sample_list::{ListedSample, SampleList};
use super::samples::ImageLocation;
use super::split::{Split, name_hash};
use super::{DatasetError, OpenDataset, Splits};
use crate::image::has_image_extension;

/// An image in a class folder.
struct Image {
    split: Split,
    class: OsString,
    /// Its path relative to the folder of classes, with `/`: its name, of which the hash is taken.
    key: Vec<u8>,
    path: PathBuf,
}

/// Opens a folder if it has folders of images.
pub(super) fn open(folder: &Path, listing: &Listing, options: &OpenDataset) -> Result<Option<Splits>, DatasetError> {
    let mut reader = Reader::default();
    match parts(listing) {
        Some(parts) => {
            for (split, path) in parts {
                reader.classes_of(split, path, &list(path)?)?;
            }
        }
        None => {
            // What unpacking often leaves, `flowers/flowers/CLASS/x.jpg`: one folder that has no images of its own.
            if let ([only], []) = (&listing.folders[..], &listing.files[..]) {
                let inner = list(only)?;
                if !inner.files.iter().any(|file| has_image_extension(file)) && !inner.folders.is_empty() {
                    return open(only, &inner, options);
                }
            }
            reader.classes_of(Split::Train, folder, listing)?;
        }
    }
    if reader.images.is_empty() {
        return match reader.skipped.images.note() {
            None => Ok(None),
            Some(note) => Err(DatasetError::NoSupportedImages { path: folder.to_path_buf(), note }),
        };
    }
    options.only_one_kind_of_labels("an image folder")?;
    Ok(Some(reader.into_list().into_splits(options)))
}

/// Folders with names of splits. A `test` beside classes is a class, unless there is a `train`, too.
fn parts(listing: &Listing) -> Option<Vec<(Split, &Path)>> {
    let named = |path: &'_ PathBuf| path.file_name().and_then(|name| name.to_str()).and_then(Split::named);
    let parts: Vec<(Split, &Path)> =
        listing.folders.iter().filter_map(|path| named(path).map(|split| (split, path.as_path()))).collect();
    let trains = parts.iter().any(|(split, _)| *split == Split::Train);
    (trains || (!parts.is_empty() && parts.len() == listing.folders.len())).then_some(parts)
}

#[derive(Default)]
struct Reader {
    images: Vec<Image>,
    skipped: SkippedFiles,
    loose: usize,
    empty: Vec<String>,
}

impl Reader {
    /// Lists the images of a folder whose folders are classes.
    fn classes_of(&mut self, split: Split, root: &Path, listing: &Listing) -> Result<(), DatasetError> {
        for file in &listing.files {
            if has_image_extension(file) { self.loose += 1 } else { self.skipped.add(file) }
        }
        for class in &listing.folders {
            let Some(name) = class.file_name() else { continue };
            let images = images_under(class, &mut self.skipped)?;
            if images.is_empty() {
                self.empty.push(text(name));
            }
            for path in images {
                let key = key(path.strip_prefix(root).unwrap_or(&path));
                self.images.push(Image { split, class: name.to_os_string(), key, path });
            }
        }
        Ok(())
    }

    fn into_list(self) -> SampleList {
        let mut classes: BTreeMap<OsString, u32> = self.images.iter().map(|image| (image.class.clone(), 0)).collect();
        for (place, class) in classes.values_mut().enumerate() {
            *class = place as u32;
        }
        let samples = self.images.into_iter().map(|image| ListedSample {
            split: image.split,
            hash: name_hash(&image.key),
            labels: Box::new([classes[&image.class]]),
            location: ImageLocation::File(image.path),
        });
        let samples = samples.collect();
        let mut notes = self.skipped.notes();
        if self.loose > 0 {
            notes.push(format!(
                "{} skipped",
                counted(self.loose, "image that is in no class folder was", "images that are in no class folder were")
            ));
        }
        if !self.empty.is_empty() {
            let names = some_of(self.empty.iter().map(String::as_str), 5);
            notes.push(format!(
                "{}: {names}",
                counted(self.empty.len(), "class folder has no images", "class folders have no images")
            ));
        }
        let classes = classes.keys().map(text).collect();
        SampleList { kind: "image folder".to_string(), samples, classes, several_labels: false, notes }
    }
}

/// A relative path as bytes, the same on every system.
fn key(path: &Path) -> Vec<u8> {
    let parts: Vec<&[u8]> = path.iter().map(|part| part.as_encoded_bytes()).collect();
    parts.join(&b'/')
}
