//! Whatever a configuration contains, it gives an error, or it preprocesses an image; and what is written reads back
//! equal.
#![no_main]

use libfuzzer_sys::fuzz_target;
use vitreous_data::image::{Image, Preprocess, Scratch};

fuzz_target!(|json: &[u8]| {
    for read in [Preprocess::from_hugging_face(json), Preprocess::from_timm(json)] {
        let Ok(preprocess) = read else { continue };
        if let Ok(written) = preprocess.to_hugging_face() {
            assert_eq!(Preprocess::from_hugging_face(written.as_bytes()).as_ref(), Ok(&preprocess), "{written}");
        }
        prepare(&preprocess);
        prepare(&preprocess.with_image_size([7, 5]));
    }
});

fn prepare(preprocess: &Preprocess) {
    let channels = preprocess.channels;
    let pixels = (0..6 * 4 * channels.count()).map(|index| index as u8).collect();
    let image = Image::new(6, 4, channels, pixels).expect("the pixels fill the size");
    let [height, width] = preprocess.output_size_for(&image);
    // Larger ones are valid as well, but slow the search down.
    if height * width <= 64 * 64 {
        let mut out = vec![0.0; channels.count() * height * width];
        preprocess.apply(&image, &mut Scratch::default(), &mut out).expect("a small image can be prepared");
    }
}
