//! Whatever the bytes are, decoding them gives an image or an error.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vitreous_data::image::{Channels, decode};

fuzz_target!(|bytes: &[u8]| {
    for channels in [Channels::Rgb, Channels::Grey] {
        if let Ok(image) = decode(bytes, channels) {
            assert_eq!(image.pixels().len(), image.width() * image.height() * channels.count());
        }
    }
});
