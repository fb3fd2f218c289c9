//! How long augmentation takes for one image on one thread: `scripts/bench_augment.py` runs this beside `timm`.
//!
//! Prints a line for each case: its name and microseconds an image, the median of several rounds.

use std::time::Instant;

use vitreous_data::image::augment::{Augment, AugmentSettings, CropKind, Mixer};
use vitreous_data::image::{Channels, Image, Preprocess, Scratch};
use vitreous_data::random::Random;

fn image(height: usize, width: usize) -> Image {
    let mut random = Random::new(0, 0, 0);
    // Waves with noise: equalizing and contrast have something to do.
    let value = |place: usize| {
        let (row, column, channel) = (place / 3 / width, place / 3 % width, place % 3);
        let wave = (row as f64 / 17.0 + channel as f64).sin() + (column as f64 / 23.0).sin();
        (128.0 + 50.0 * wave) as u8
    };
    let pixels = (0..height * width * 3).map(|place| value(place).wrapping_add((random.bits() & 15) as u8)).collect();
    Image::new(width, height, Channels::Rgb, pixels).expect("the size fits")
}

/// The median over rounds of the microseconds that one call takes.
fn median_of_rounds(calls: u64, mut call: impl FnMut(u64)) -> f64 {
    let mut rounds: Vec<f64> = (0..9)
        .map(|round| {
            let start = Instant::now();
            (0..calls).for_each(|index| call(round * calls + index));
            start.elapsed().as_secs_f64() * 1e6 / calls as f64
        })
        .collect();
    rounds.sort_by(f64::total_cmp);
    rounds[rounds.len() / 2]
}

fn main() {
    let policy = |text: &str| AugmentSettings {
        crop: CropKind::Resized,
        flip: 0.5,
        policy: text.to_string(),
        ..AugmentSettings::default()
    };
    let padded = AugmentSettings { crop: CropKind::Padded, flip: 0.5, ..AugmentSettings::default() };
    let erased = AugmentSettings { erase: 0.25, ..policy("rand-m8-inc1") };
    let jitter = AugmentSettings { color_jitter: 0.3, ..policy("3a") };
    let cases = [
        ("32x32 padded crop, flip", [32, 32], 32, padded),
        ("32x32 resized crop, flip", [32, 32], 32, policy("")),
        ("32x32 resized crop, RandAugment", [32, 32], 32, policy("rand-m8-inc1")),
        ("500x375 to 224, resized crop, flip", [375, 500], 224, policy("")),
        ("500x375 to 224, resized crop, RandAugment", [375, 500], 224, policy("rand-m8-inc1")),
        ("500x375 to 224, resized crop, RandAugment, erasing", [375, 500], 224, erased),
        ("500x375 to 224, resized crop, 3-Augment, jitter", [375, 500], 224, jitter),
    ];
    for (name, [height, width], side, settings) in cases {
        let image = image(height, width);
        let preprocess = Preprocess::default_for([side, side], Channels::Rgb).with_image_size([side, side]);
        // A picture of the model's own size is not resized, as in the recipes for small pictures.
        let preprocess =
            Preprocess { resize: vitreous_data::image::Resize::Exact([side, side]), crop: None, ..preprocess };
        let augment = Augment::new(&settings, &preprocess).expect("the settings are sound");
        let (mut scratch, mut out) = (Scratch::default(), vec![0.0; 3 * side * side]);
        let calls = if side == 32 { 2000 } else { 50 };
        let micros = median_of_rounds(calls, |sample| {
            augment.apply(&image, &mut Random::new(0, 0, sample), &mut scratch, &mut out).expect("it is an image");
        });
        println!("{micros:9.1} {name}");
    }
    let settings = AugmentSettings { mixup: 0.8, cutmix: 1.0, ..AugmentSettings::default() };
    let mixer = Mixer::new(&settings).expect("the settings are sound").expect("they mix");
    let (mut images, mut targets) = (vec![0.5; 128 * 3 * 32 * 32], vec![0.1; 128 * 10]);
    let micros = median_of_rounds(20, |step| {
        mixer.mix(&mut images, [128, 3, 32, 32], &mut targets, &mut Random::new(0, step, 0));
    });
    println!("{:9.1} 32x32 Mixup and CutMix, batch 128", micros / 128.0);
}
