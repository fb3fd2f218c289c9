//! Shared by all targets.

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
            assert_eq!(view.to_bytes().map(|bytes| bytes.len()).ok(), Some(view.elements() * view.element.bytes()));
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
