//! A shard: the input as it is, and with the checksums of its headers made right, without which little is read.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vitreous_fuzz::{read_data_set, with_files};

fn repaired(input: &[u8]) -> Vec<u8> {
    let mut file = input.to_vec();
    for block in file.chunks_exact_mut(512).filter(|block| block[257..262] == *b"ustar") {
        block[148..156].fill(b' ');
        let sum: u32 = block.iter().map(|&byte| u32::from(byte)).sum();
        block[148..156].copy_from_slice(format!("{sum:06o}\0 ").as_bytes());
    }
    file
}

fuzz_target!(|input: &[u8]| {
    for file in [input, &repaired(input)] {
        with_files(&[("set-000.tar", file)], |folder| read_data_set(folder, true));
    }
});
