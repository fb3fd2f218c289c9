//! JSON lines that names images and their labels. The images are not read: a manifest may name any file.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vitreous_fuzz::{read_data_set, with_files};

fuzz_target!(|input: &[u8]| {
    with_files(&[("set.jsonl", input), ("1.png", b"")], |folder| read_data_set(&folder.join("set.jsonl"), false));
});
