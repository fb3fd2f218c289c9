#![no_main]
//! The whole file (a zip file or a stream), and the input as the pickle of a checkpoint with two storages.

use libfuzzer_sys::fuzz_target;
use vitreous_fuzz::{read_everything, stored_zip};

fuzz_target!(|input: &[u8]| {
    read_everything(input.to_vec());
    let storage = [1; 96];
    read_everything(stored_zip(&[("a/data.pkl", input), ("a/data/0", &storage), ("a/data/1", &storage[..24])]));
});
