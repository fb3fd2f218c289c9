#![no_main]
//! The whole file, and the input as the one array in a file.

use libfuzzer_sys::fuzz_target;
use vitreous_fuzz::{read_everything, stored_zip};

fuzz_target!(|input: &[u8]| {
    read_everything(input.to_vec());
    read_everything(stored_zip(&[("array.npy", input)]));
    let mut array = b"\x93NUMPY\x01\x00\x40\x00".to_vec();
    array.extend(input);
    read_everything(stored_zip(&[("array.npy", &array)]));
});
