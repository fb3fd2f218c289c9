//! IDX files as MNIST has them: labels, whose length the first byte is, and images, compressed or not.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vitreous_fuzz::{read_data_set, with_files};

fuzz_target!(|input: &[u8]| {
    let Some((&length, rest)) = input.split_first() else { return };
    let (labels, images) = rest.split_at(rest.len().min(length as usize));
    // The name says whether a file is compressed.
    let end = if images.starts_with(&[0x1f, 0x8b]) { ".gz" } else { "" };
    let label_end = if labels.starts_with(&[0x1f, 0x8b]) { ".gz" } else { "" };
    let names = [format!("train-images-idx3-ubyte{end}"), format!("train-labels-idx1-ubyte{label_end}")];
    with_files(&[(&names[0], images), (&names[1], labels)], |folder| read_data_set(folder, true));
});
