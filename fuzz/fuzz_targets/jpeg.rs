//! JPEG files: the input as the rest of one.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vitreous_fuzz::decode_image;

fuzz_target!(|input: &[u8]| {
    if input.starts_with(&[0xff, 0xd8, 0xff]) {
        return decode_image(input);
    }
    decode_image(&[&[0xff, 0xd8, 0xff], input].concat());
});
