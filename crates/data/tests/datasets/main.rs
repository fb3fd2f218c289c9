//! Data sets opened from paths: compared with what the peers read, in every layout, and with everything that can be wrong.

mod captions;
#[path = "../common/mod.rs"]
mod common;
mod formats;
mod hostile;
mod layouts;
mod peers;

use std::io::Cursor;
use std::path::Path;

use vitreous_data::dataset::{Dataset, OpenDataset, Splits, open};

/// Opens with the usual options.
fn opened(path: &Path) -> Splits {
    open(path, &OpenDataset::default()).unwrap_or_else(|error| panic!("{error}"))
}

/// What is said of a path that is refused.
fn refused(path: &Path) -> String {
    refused_with(path, &OpenDataset::default())
}

fn refused_with(path: &Path, options: &OpenDataset) -> String {
    match open(path, options) {
        Ok(splits) => panic!("{} was opened as {}", path.display(), splits.kind),
        Err(error) => error.to_string(),
    }
}

/// Panics unless the text has all of these.
fn says(text: &str, parts: &[&str]) {
    for part in parts {
        assert!(text.contains(part), "`{part}` is not in: {text}");
    }
}

fn labels(dataset: &dyn Dataset) -> Vec<Vec<u32>> {
    (0..dataset.len()).map(|index| dataset.labels(index).to_vec()).collect()
}

/// The names of the samples, from a folder on.
fn names(dataset: &dyn Dataset, root: &Path) -> Vec<String> {
    let prefix = format!("{}/", root.display());
    (0..dataset.len()).map(|index| dataset.name(index).replace(&prefix, "")).collect()
}

/// A PNG of one colour.
fn png(value: u8) -> Vec<u8> {
    let mut bytes = Cursor::new(Vec::new());
    let image = image::RgbImage::from_pixel(3, 2, image::Rgb([value, value / 2, 0]));
    image.write_to(&mut bytes, image::ImageFormat::Png).expect("a PNG");
    bytes.into_inner()
}

/// Writes a file, and the folders it is in.
fn write(path: &Path, content: impl AsRef<[u8]>) {
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("folders");
    std::fs::write(path, content).expect("a file");
}

/// An archive of these files.
fn tar_of(files: &[(&str, Vec<u8>)]) -> Vec<u8> {
    let mut tar = tar::Builder::new(Vec::new());
    for (name, content) in files {
        let mut header = tar::Header::new_gnu();
        header.set_size(content.len() as u64);
        header.set_mode(0o644);
        tar.append_data(&mut header, name, &content[..]).expect("a file in an archive");
    }
    tar.into_inner().expect("an archive")
}

/// An IDX file.
fn idx(axes: &[u32], values: &[u8]) -> Vec<u8> {
    let header = [0, 0, 8, axes.len() as u8].into_iter();
    header.chain(axes.iter().flat_map(|axis| axis.to_be_bytes())).chain(values.iter().copied()).collect()
}
