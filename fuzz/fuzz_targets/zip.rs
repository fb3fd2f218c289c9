//! Zip files: the input as it is, and with the record at the end that points to a directory in it.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vitreous_fuzz::{read_everything, stored_zip};

fuzz_target!(|input: &[u8]| {
    read_everything(input.to_vec());
    let Some(start) = input.windows(4).position(|bytes| bytes == b"PK\x01\x02") else {
        return read_everything(stored_zip(&[("archive/data.pkl", input), ("archive/version", b"3")]));
    };
    let entries = input.windows(4).filter(|bytes| *bytes == b"PK\x01\x02").count() as u16;
    let mut file = input.to_vec();
    file.extend(b"PK\x05\x06");
    file.extend([0; 4]);
    file.extend([entries; 2].map(u16::to_le_bytes).concat());
    file.extend(((input.len() - start) as u32).to_le_bytes());
    file.extend((start as u32).to_le_bytes());
    file.extend([0; 2]);
    read_everything(file);
});
