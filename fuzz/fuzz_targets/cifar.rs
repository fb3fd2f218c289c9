//! CIFAR's binary files: CIFAR-10 or CIFAR-100, and the archive as it is downloaded.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vitreous_fuzz::{read_data_set, with_files};

fuzz_target!(|input: &[u8]| {
    let Some((kind, content)) = input.split_first() else { return };
    match kind % 3 {
        0 => with_files(&[("data_batch_1.bin", content)], |folder| read_data_set(folder, true)),
        1 => with_files(&[("train.bin", content)], |folder| read_data_set(folder, true)),
        _ => with_files(&[("cifar-10-binary.tar.gz", content)], |folder| {
            read_data_set(&folder.join("cifar-10-binary.tar.gz"), true)
        }),
    }
});
