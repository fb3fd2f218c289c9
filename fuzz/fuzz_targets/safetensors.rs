#![no_main]
//! The whole file, and the header alone with its length corrected.

use libfuzzer_sys::fuzz_target;
use vitreous_fuzz::read_everything;

fuzz_target!(|input: &[u8]| {
    read_everything(input.to_vec());
    if let Some(rest) = input.get(8..) {
        let end = rest.iter().rposition(|byte| *byte == b'}').map_or(0, |end| end + 1);
        let mut file = (end as u64).to_le_bytes().to_vec();
        file.extend(rest);
        read_everything(file);
    }
});
