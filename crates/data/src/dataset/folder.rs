//! Image folders: `train/CLASS/x.jpg` and `val/CLASS/y.jpg`, or just `CLASS/x.jpg`.

use std::collections::BTreeMap;
use std::ffi::OsString;
use std::path::{Path, PathBuf};

use super::files::{Listing, SkippedFiles, counted, images_under, list, some_of, text};
use super::gather::{Found, Gathered};
use super::samples::Place;
use super::split::{Part, is_drawn};
use super::{DatasetError, OpenDataset, Splits};
use crate::image::has_image_extension;

/// An image under a folder of classes.
struct Image {
    part: Part,
    class: OsString,
    /// Its path from the folder of classes on, with `/`.
    key: Vec<u8>,
    path: PathBuf,
}

/// Reads a folder if it holds folders of images.
pub(super) fn open(folder: &Path, listing: &Listing, options: &OpenDataset) -> Result<Option<Splits>, DatasetError> {
    let mut reader = Reader::default();
    match parts(listing) {
        Some(parts) => {
            for (part, path) in parts {
                reader.classes_of(part, path, &list(path)?)?;
            }
        }
        None => {
            reader.classes_of(Part::Train, folder, listing)?;
            // What unpacking often makes, `flowers/flowers/CLASS/x.jpg`: one folder that has no image of its own.
            if let ([only], []) = (&listing.folders[..], &listing.files[..]) {
                let inner = list(only)?;
                if !inner.files.iter().any(|file| has_image_extension(file)) && !inner.folders.is_empty() {
                    return open(only, &inner, options);
                }
            }
        }
    }
    if reader.images.is_empty() {
        return match reader.skipped.images.note() {
            None => Ok(None),
            Some(note) => Err(DatasetError::NoSupportedImages { path: folder.to_path_buf(), note }),
        };
    }
    options.only_one_sort_of_labels("an image folder")?;
    Ok(Some(reader.gathered(options).into_splits(options)))
}

/// Folders that are called like parts. A `test` beside classes is a class, unless there is a `train`, too.
fn parts(listing: &Listing) -> Option<Vec<(Part, &Path)>> {
    let named = |path: &'_ PathBuf| path.file_name().and_then(|name| name.to_str()).and_then(Part::named);
    let parts: Vec<(Part, &Path)> =
        listing.folders.iter().filter_map(|path| named(path).map(|part| (part, path.as_path()))).collect();
    let trains = parts.iter().any(|(part, _)| *part == Part::Train);
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
    /// Takes in a folder whose folders are classes.
    fn classes_of(&mut self, part: Part, root: &Path, listing: &Listing) -> Result<(), DatasetError> {
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
                self.images.push(Image { part, class: name.to_os_string(), key, path });
            }
        }
        Ok(())
    }

    fn gathered(self, options: &OpenDataset) -> Gathered {
        let mut classes: BTreeMap<OsString, u32> = self.images.iter().map(|image| (image.class.clone(), 0)).collect();
        for (place, class) in classes.values_mut().enumerate() {
            *class = place as u32;
        }
        let found = self.images.into_iter().map(|image| Found {
            part: image.part,
            drawn: is_drawn(&image.key, options.validation_share),
            labels: Box::new([classes[&image.class]]),
            place: Place::File(image.path),
        });
        let found = found.collect();
        let mut notes = self.skipped.notes();
        if self.loose > 0 {
            notes.push(format!(
                "{} passed over",
                counted(
                    self.loose,
                    "image that lies in no folder of a class was",
                    "images that lie in no folder of a class were"
                )
            ));
        }
        if !self.empty.is_empty() {
            let names = some_of(self.empty.iter().map(String::as_str), 5);
            notes.push(format!(
                "{}: {names}",
                counted(self.empty.len(), "folder of a class has no image", "folders of classes have no image")
            ));
        }
        let classes = classes.keys().map(text).collect();
        Gathered { kind: "image folder".to_string(), found, classes, several_labels: false, notes }
    }
}

/// A relative path as bytes that are the same on every system.
fn key(path: &Path) -> Vec<u8> {
    let parts: Vec<&[u8]> = path.iter().map(|part| part.as_encoded_bytes()).collect();
    parts.join(&b'/')
}
