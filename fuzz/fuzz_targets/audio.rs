//! Whatever the bytes are, reading them gives samples or an error; samples are within bounds, and a spectrogram of them is finite.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vitreous_data::audio::{AudioReader, Behind, Spectrogram, read_samples};

/// More samples are not read: decoding them only costs time.
const MOST: usize = 1 << 18;

fuzz_target!(|bytes: &[u8]| {
    let Ok(mut reader) = AudioReader::from_bytes(bytes.into()) else { return };
    let Ok(samples) = read_samples(&mut reader, MOST) else { return };
    // A resampling filter may swing a little beyond what it was given.
    assert!(samples.iter().all(|sample| sample.abs() <= 2.0));
    let mut spectrogram = Spectrogram::of_samples(samples, 80).expect("finite samples");
    let mut window = vec![0.0; 100 * 80];
    spectrogram.window(0, usize::MAX, Behind::Silence, &mut window).expect("there");
    assert!(window.iter().all(|value| value.is_finite()));
});
