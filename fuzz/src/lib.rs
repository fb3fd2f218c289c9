//! Shared by all targets.

use std::path::Path;

use vitreous_data::dataset::{OpenDataset, open};
use vitreous_data::image::{Channels, decode};
use vitreous_models::archive::Archive;

/// Larger tensors are not read: filling them only costs time.
const LARGEST_READ: usize = 1 << 20;

/// Opens a file and reads everything in it.
pub fn read_everything(file: Vec<u8>) {
    let bytes = file.len();
    let Ok(archive) = Archive::from_bytes(file) else { return };
    let mut numbers = Vec::new();
    for view in archive.tensors() {
        assert!(archive.tensor(view.name()).is_ok());
        // Deflate expands by at most 1032, and an element has at least one byte.
        assert!(view.elements() <= (bytes + 1) * 1032, "{} elements from {bytes} bytes", view.elements());
        if view.elements() > LARGEST_READ {
            continue;
        }
        numbers.clear();
        numbers.resize(view.elements(), 0.0);
        let filled = view.read_into(&mut numbers);
        let read = view.to_f32();
        assert_eq!(filled.is_ok(), read.is_ok());
        if let Ok(read) = read {
            assert!(read.iter().zip(&numbers).all(|(one, other)| one.to_bits() == other.to_bits()));
            let expected = view.elements() / view.element.values() * view.element.bytes();
            assert_eq!(view.to_bytes().map(|bytes| bytes.len()).ok(), Some(expected));
        }
    }
}

/// A zip file of stored entries.
pub fn stored_zip(entries: &[(&str, &[u8])]) -> Vec<u8> {
    let mut file = Vec::new();
    let mut directory = Vec::new();
    for (name, content) in entries {
        let start = file.len() as u32;
        let sizes = [content.len() as u32; 2].map(u32::to_le_bytes).concat();
        let name_length = (name.len() as u16).to_le_bytes();
        // Version, flags, method, time, date and checksum are the same in both headers; checksums of stored entries are not read.
        file.extend(b"PK\x03\x04");
        file.extend([0; 14]);
        file.extend(&sizes);
        file.extend(name_length);
        file.extend([0; 2]);
        file.extend(name.as_bytes());
        file.extend(*content);
        directory.extend(b"PK\x01\x02");
        directory.extend([0; 16]);
        directory.extend(&sizes);
        directory.extend(name_length);
        directory.extend([0; 12]);
        directory.extend(start.to_le_bytes());
        directory.extend(name.as_bytes());
    }
    let directory_start = file.len() as u32;
    file.extend(&directory);
    file.extend(b"PK\x05\x06");
    file.extend([0; 4]);
    file.extend([entries.len() as u16; 2].map(u16::to_le_bytes).concat());
    file.extend((directory.len() as u32).to_le_bytes());
    file.extend(directory_start.to_le_bytes());
    file.extend([0; 2]);
    file
}

/// Readers that take a path get the input in files of a folder that each input finds empty.
pub fn with_files(files: &[(&str, &[u8])], read: impl FnOnce(&Path)) {
    let folder = std::env::temp_dir().join(format!("vitreous-fuzz-{}", std::process::id()));
    let _ = std::fs::remove_dir_all(&folder);
    std::fs::create_dir_all(&folder).expect("a folder");
    for (name, content) in files {
        std::fs::write(folder.join(name), content).expect("written");
    }
    read(&folder);
    let _ = std::fs::remove_dir_all(&folder);
}

/// Opens a data set and looks at its first samples.
pub fn read_data_set(path: &Path, decode: bool) {
    let Ok(splits) = open(path, &OpenDataset { keep_bytes: 0, ..OpenDataset::default() }) else { return };
    let parts = [Some(&splits.train), Some(&splits.validation), splits.test.as_ref()];
    for part in parts.into_iter().flatten() {
        for index in 0..part.len().min(8) {
            assert!(!part.name(index).is_empty());
            assert!(part.labels(index).iter().all(|&label| (label as usize) < splits.classes.len()));
            if decode && let Ok(image) = part.image(index, part.channels()) {
                assert_eq!(image.pixels().len(), image.width() * image.height() * part.channels().count());
            }
        }
    }
}

/// Decodes an image in both ways.
pub fn decode_image(bytes: &[u8]) {
    for channels in [Channels::Rgb, Channels::Grey] {
        if let Ok(image) = decode(bytes, channels) {
            assert_eq!(image.pixels().len(), image.width() * image.height() * channels.count());
        }
    }
}
