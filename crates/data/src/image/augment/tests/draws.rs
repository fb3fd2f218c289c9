//! What is random follows its law: ranges, means, numbers of operations; and nothing else is random.

use super::super::crop::{random_part, random_shift};
use super::super::erase::random_box;
use super::super::jitter::colour_jitter;
use super::super::policy::{Policy, draw_without_return};
use super::super::{Augment, AugmentSettings, CropKind, EraseMode, MixMode, Mixer, Picture};
use super::{picture_of, plain, some_image};
use crate::image::decode::{Channels, Image};
use crate::image::preprocess::{Preprocess, Scratch};
use crate::random::Random;

fn augmented(settings: &AugmentSettings, preprocess: &Preprocess, image: &Image, random: &mut Random) -> Vec<f32> {
    let augment = Augment::new(settings, preprocess).unwrap();
    let [height, width] = augment.output_size();
    let mut out = vec![f32::NAN; preprocess.channels.count() * height * width];
    augment.apply(image, random, &mut Scratch::default(), &mut out).unwrap();
    out
}

/// Everything at once.
fn everything() -> AugmentSettings {
    AugmentSettings {
        crop: CropKind::Resized,
        flip: 0.5,
        vertical_flip: 0.5,
        policy: "rand-m9-mstd0.5-inc1".to_string(),
        color_jitter: 0.4,
        grey: 0.2,
        blur: 0.3,
        erase: 0.5,
        erase_count: 3,
        ..AugmentSettings::default()
    }
}

#[test]
fn equal_seeds_give_equal_numbers_and_others_differ() {
    for channels in [Channels::Rgb, Channels::Grey] {
        let (image, preprocess) = (some_image(30, 41, channels), plain([24, 20], channels));
        let draw =
            |seed, epoch, sample| augmented(&everything(), &preprocess, &image, &mut Random::new(seed, epoch, sample));
        for sample in 0..20 {
            let once = draw(1, 2, sample);
            assert_eq!(once, draw(1, 2, sample));
            assert_ne!(once, draw(2, 2, sample));
            assert_ne!(once, draw(1, 3, sample));
            assert_ne!(once, draw(1, 2, sample + 1));
            assert!(once.iter().all(|number| number.is_finite()));
        }
    }
}

#[test]
fn what_earlier_images_left_in_memory_changes_nothing() {
    let (large, small) = (some_image(64, 50, Channels::Rgb), some_image(9, 17, Channels::Rgb));
    let augment = Augment::new(&everything(), &plain([16, 16], Channels::Rgb)).unwrap();
    let (mut used, mut out, mut again) = (Scratch::default(), vec![0.0; 768], vec![0.0; 768]);
    for sample in 0..30 {
        for image in [&large, &small] {
            augment.apply(image, &mut Random::new(0, 0, sample), &mut used, &mut out).unwrap();
            augment.apply(image, &mut Random::new(0, 0, sample), &mut Scratch::default(), &mut again).unwrap();
            assert_eq!(out, again, "sample {sample}");
        }
    }
}

#[test]
fn without_settings_it_is_what_testing_shows() {
    // With a crop, without one, and where the image does not cover the crop.
    let usual = Preprocess::default_for([24, 24], Channels::Rgb);
    let mut uncovered = usual.clone();
    uncovered.resize = crate::image::Resize::ShorterSide(16);
    uncovered.crop.as_mut().unwrap().fill = vec![10, 20, 30];
    for preprocess in [usual, uncovered, plain([24, 24], Channels::Rgb), plain([30, 40], Channels::Rgb)] {
        let image = some_image(30, 40, Channels::Rgb);
        let size = preprocess.output_size().unwrap();
        let mut tested = vec![0.0; 3 * size[0] * size[1]];
        preprocess.apply(&image, &mut Scratch::default(), &mut tested).unwrap();
        // Probabilities of 0 do nothing, and neither does a policy of no operations on its way over bytes.
        let unpadded = AugmentSettings { crop: CropKind::Padded, padding: 0, ..AugmentSettings::default() };
        let nothing = AugmentSettings { policy: "rand-n0".to_string(), ..AugmentSettings::default() };
        let never = AugmentSettings { policy: "rand-m9-p0".to_string(), ..AugmentSettings::default() };
        for settings in [AugmentSettings::default(), unpadded, nothing, never] {
            for sample in 0..5 {
                let ours = augmented(&settings, &preprocess, &image, &mut Random::new(3, 0, sample));
                assert_eq!(ours, tested);
            }
        }
    }
}

#[test]
fn flips_happen_as_often_as_asked() {
    let image = Image::new(2, 2, Channels::Grey, vec![1, 2, 3, 4]).unwrap();
    let settings = AugmentSettings { flip: 0.3, vertical_flip: 0.8, ..AugmentSettings::default() };
    let mut counts = [0; 4];
    for sample in 0..4000 {
        let out = augmented(&settings, &plain([2, 2], Channels::Grey), &image, &mut Random::new(0, 0, sample));
        counts[out[0] as usize - 1] += 1;
    }
    // The pixel that comes to the corner tells: none, left-right, upside-down, both.
    for (count, share) in counts.into_iter().zip([0.7 * 0.2, 0.3 * 0.2, 0.7 * 0.8, 0.3 * 0.8]) {
        assert!((f64::from(count) / 4000.0 - share).abs() < 0.03, "{counts:?}");
    }
}

#[test]
fn a_padded_crop_comes_to_all_places_equally_often() {
    let mut counts = [0; 49];
    for sample in 0..4900 {
        let (top, left) = random_shift(3, &mut Random::new(0, 1, sample));
        counts[((top + 3) * 7 + left + 3) as usize] += 1;
    }
    assert!(counts.iter().all(|count| (50..160).contains(count)), "{counts:?}");
}

#[test]
fn parts_have_the_shares_and_ratios_asked_for() {
    let (size, scale, ratio) = ([375, 500], [0.08, 0.6], [0.75, 4.0 / 3.0]);
    let (mut share, mut log_ratio, mut share_squared) = (0.0, 0.0, 0.0);
    let count = 4000;
    for sample in 0..count {
        let part = random_part(size, scale, ratio, &mut Random::new(0, 0, sample));
        assert!(part.top + part.height <= 375 && part.left + part.width <= 500);
        let own = (part.height * part.width) as f64 / (375.0 * 500.0);
        assert!((0.078..0.604).contains(&own), "{own}");
        share += own / count as f64;
        share_squared += own * own / count as f64;
        log_ratio += (part.width as f64 / part.height as f64).ln() / count as f64;
    }
    // Evenly between 0.08 and 0.6: mean 0.34, variance 0.52^2 / 12.
    assert!((share - 0.34).abs() < 0.01, "{share}");
    assert!((share_squared - share * share - 0.52 * 0.52 / 12.0).abs() < 0.002);
    assert!(log_ratio.abs() < 0.01, "{log_ratio}");
    // Nothing of this form fits: the middle.
    let part = random_part([10, 100], [0.9, 1.0], ratio, &mut Random::new(0, 0, 0));
    assert_eq!((part.top, part.left, part.height, part.width), (0, 43, 10, 13));
    // The smallest image keeps a pixel.
    let part = random_part([1, 1], [0.08, 0.09], ratio, &mut Random::new(0, 0, 0));
    assert_eq!((part.height, part.width), (1, 1));
}

/// How often a picture is changed, of 2000.
fn share_changed(policy: &str) -> f64 {
    let policy = Policy::parse(policy).unwrap();
    let image = some_image(24, 24, Channels::Rgb);
    let before = picture_of(&image).bytes;
    let changed = (0..2000).filter(|&sample| {
        let mut picture = picture_of(&image);
        policy.apply(&mut picture, &[1, 2, 3], &mut Random::new(0, 0, sample));
        picture.bytes != before
    });
    changed.count() as f64 / 2000.0
}

#[test]
fn operations_are_done_as_often_as_asked() {
    // Of the fifteen, AutoContrast leaves this picture alone, and each drawn one is done with probability p.
    let mut stretched = picture_of(&some_image(24, 24, Channels::Rgb));
    let before = stretched.bytes.clone();
    stretched.auto_contrast();
    assert_eq!(stretched.bytes, before);
    for (policy, layers, probability) in [
        ("rand-m9-inc1", 2, 0.5),
        ("rand-m9-n1-inc1", 1, 0.5),
        ("rand-m9-n3-p0.2-inc1", 3, 0.2),
        ("rand-n1-p1-m7-inc1", 1, 1.0),
    ] {
        let one = probability * 14.0 / 15.0;
        let expected = 1.0 - (1.0f64 - one).powi(layers);
        let share = share_changed(policy);
        assert!((share - expected).abs() < 0.035, "{policy}: {share}, expected {expected}");
    }
}

#[test]
fn the_magnitude_has_the_deviation_asked_for() {
    let Policy::RandAugment(policy) = Policy::parse("rand-m5-mstd0.5").unwrap() else { panic!() };
    let moments = |policy: &super::super::policy::RandAugment| {
        let draws: Vec<f64> = (0..4000).map(|sample| policy.draw_magnitude(&mut Random::new(0, 0, sample))).collect();
        let mean = draws.iter().sum::<f64>() / 4000.0;
        let variance = draws.iter().map(|draw| (draw - mean).powi(2)).sum::<f64>() / 4000.0;
        let (least, most) = draws.iter().fold((f64::MAX, f64::MIN), |(a, b), &draw| (a.min(draw), b.max(draw)));
        (mean, variance.sqrt(), least, most)
    };
    let (mean, deviation, ..) = moments(&policy);
    assert!((mean - 5.0).abs() < 0.03 && (deviation - 0.5).abs() < 0.03, "{mean} {deviation}");
    // Evenly from 0 to the magnitude.
    let Policy::RandAugment(policy) = Policy::parse("rand-m8-mstd101").unwrap() else { panic!() };
    let (mean, deviation, least, most) = moments(&policy);
    assert!((mean - 4.0).abs() < 0.15 && (deviation - 8.0 / 12f64.sqrt()).abs() < 0.1);
    assert!(least >= 0.0 && most < 8.0);
    // Not beyond 10, unless that is allowed.
    let Policy::RandAugment(policy) = Policy::parse("rand-m9-mstd3").unwrap() else { panic!() };
    assert_eq!(moments(&policy).3, 10.0);
    let Policy::RandAugment(policy) = Policy::parse("rand-m9-mstd3-mmax15").unwrap() else { panic!() };
    assert_eq!(moments(&policy).3, 15.0);
    let Policy::RandAugment(policy) = Policy::parse("rand-m3").unwrap() else { panic!() };
    assert_eq!(moments(&policy), (3.0, 0.0, 3.0, 3.0));
}

#[test]
fn three_augment_does_one_of_three_each_time() {
    let policy = Policy::parse("3a").unwrap();
    let image = some_image(16, 16, Channels::Rgb);
    let of = |change: fn(&mut Picture)| {
        let mut picture = picture_of(&image);
        change(&mut picture);
        picture.bytes
    };
    let (solarized, grey, unchanged) = (of(|picture| picture.solarize(128)), of(Picture::grey), of(|_| {}));
    let mut counts = [0; 4];
    for sample in 0..900 {
        let mut picture = picture_of(&image);
        policy.apply(&mut picture, &[0; 3], &mut Random::new(0, 0, sample));
        let known = [&solarized, &grey, &unchanged].iter().position(|bytes| **bytes == picture.bytes);
        counts[known.unwrap_or(3)] += 1;
    }
    // A blur of little radius is no change in bytes: those are counted together.
    let blurred = counts[2] + counts[3];
    assert!([counts[0], counts[1], blurred].iter().all(|count| (240..360).contains(count)), "{counts:?}");
    assert!(counts[3] > 240, "{counts:?}");
}

#[test]
fn colour_jitter_comes_in_all_orders_and_ranges() {
    // Of a flat picture only the brightness shows: 100 * factor, with factors between 0.6 and 1.4.
    let image = Image::new(4, 4, Channels::Rgb, vec![100; 48]).unwrap();
    let settings = AugmentSettings { color_jitter: 0.4, ..AugmentSettings::default() };
    let draws: Vec<f32> = (0..2000)
        .map(|sample| augmented(&settings, &plain([4, 4], Channels::Rgb), &image, &mut Random::new(0, 0, sample))[0])
        .collect();
    let mean = draws.iter().sum::<f32>() / 2000.0;
    assert!(draws.iter().all(|draw| (60.0..=140.0).contains(draw)), "{draws:?}");
    assert!((mean - 99.5).abs() < 2.0, "{mean}");
    assert!(draws.iter().any(|draw| *draw < 63.0) && draws.iter().any(|draw| *draw > 137.0));
}

#[test]
fn colour_jitter_does_its_steps_in_every_order() {
    let image = some_image(8, 8, Channels::Rgb);
    let steps = [Picture::brightness, Picture::contrast, Picture::saturation];
    let mut orders = std::collections::BTreeSet::new();
    for sample in 0..100 {
        let (mut ours, mut expected) = (picture_of(&image), picture_of(&image));
        let mut random = Random::new(0, 0, sample);
        colour_jitter(&mut ours, 0.4, &mut random.clone());
        let mut order = [0, 1, 2];
        random.shuffle(&mut order);
        order.iter().for_each(|&step| steps[step](&mut expected, random.between(0.6, 1.4)));
        assert_eq!(ours.bytes, expected.bytes);
        orders.insert(order);
    }
    assert_eq!(orders.len(), 6);
}

#[test]
fn weighted_operations_are_drawn_as_they_weigh_and_never_twice() {
    let mut counts = [[0; 3]; 2];
    for sample in 0..4000 {
        let (mut weights, mut random) = ([3.0, 1.0, 1.0], Random::new(0, 0, sample));
        let first = draw_without_return(&mut weights, &mut random);
        let second = draw_without_return(&mut weights, &mut random);
        assert_ne!(first, second);
        counts[0][first] += 1;
        counts[1][second] += 1;
    }
    let share = |count: i32| f64::from(count) / 4000.0;
    assert!((share(counts[0][0]) - 0.6).abs() < 0.03, "{counts:?}");
    // The second is the heavy one if the first was one of the others: 2/5 * 3/4.
    assert!((share(counts[1][0]) - 0.3).abs() < 0.03, "{counts:?}");
    assert!((share(counts[0][1]) - 0.2).abs() < 0.03, "{counts:?}");
}

#[test]
fn policies_fill_with_the_mean_colour() {
    let mut preprocess = plain([8, 8], Channels::Rgb);
    preprocess.mean = vec![0.485, 0.456, 0.406];
    // timm's `img_mean` of these.
    assert_eq!(Augment::new(&everything(), &preprocess).unwrap().mean, [124, 116, 104]);
}

#[test]
fn erased_boxes_have_all_forms() {
    let ratios: Vec<f64> = (0..4000)
        .map(|sample| random_box([400, 400], 1, &mut Random::new(0, 0, sample)).unwrap())
        .map(|part| (part.height as f64 / part.width as f64).ln())
        .collect();
    // Height over width evenly between 0.3 and its inverse, in the logarithm: variance (2 ln 0.3)^2 / 12.
    let limit = 0.3f64.ln().abs();
    let mean = ratios.iter().sum::<f64>() / 4000.0;
    let variance = ratios.iter().map(|ratio| ratio * ratio).sum::<f64>() / 4000.0;
    assert!(ratios.iter().all(|ratio| ratio.abs() < limit + 0.02));
    assert!(mean.abs() < 0.04 && (variance - limit * limit / 3.0).abs() < 0.03, "{mean} {variance}");
}

#[test]
fn erased_boxes_have_their_size_their_number_and_their_content() {
    let image = Image::new(32, 24, Channels::Rgb, vec![200; 32 * 24 * 3]).unwrap();
    let run = |mode: EraseMode, erase: f64, sample: u64| {
        let settings = AugmentSettings { erase, erase_mode: mode, ..AugmentSettings::default() };
        augmented(&settings, &plain([24, 32], Channels::Rgb), &image, &mut Random::new(0, 0, sample))
    };
    let plane = 24 * 32;
    let (mut hit, mut total, mut pixels) = (0, 0, Vec::new());
    for sample in 0..1000 {
        let out = run(EraseMode::Constant, 0.25, sample);
        assert!(out.iter().all(|number| *number == 200.0 || *number == 0.0));
        let erased = out[..plane].iter().filter(|number| **number == 0.0).count();
        // 0.02 to 1/3 of 768 pixels, with sides rounded.
        assert!(erased == 0 || (8..=290).contains(&erased), "{erased}");
        hit += usize::from(erased > 0);
        total += erased;
        // All channels are erased alike; one colour each, or one a pixel.
        let out = run(EraseMode::Random, 1.0, sample);
        let colours: std::collections::BTreeSet<u32> = out[..plane].iter().map(|number| number.to_bits()).collect();
        assert!(colours.len() <= 2);
        pixels.extend(run(EraseMode::Pixel, 1.0, sample).into_iter().filter(|number| *number != 200.0));
    }
    assert!((180..320).contains(&hit), "{hit}");
    // The mean of the area is (0.02 + 1/3) / 2; large boxes of long form are drawn again, which takes a little off.
    let mean = total as f64 / hit as f64 / plane as f64;
    assert!((0.14..0.19).contains(&mean), "{mean}");
    let mean = pixels.iter().sum::<f32>() / pixels.len() as f32;
    let variance = pixels.iter().map(|number| number * number).sum::<f32>() / pixels.len() as f32;
    assert!(mean.abs() < 0.02 && (variance - 1.0).abs() < 0.02, "{mean} {variance}");
}

fn mixer(change: impl FnOnce(&mut AugmentSettings)) -> Mixer {
    let mut settings = AugmentSettings::default();
    change(&mut settings);
    Mixer::new(&settings).unwrap().unwrap()
}

/// The first image's share of itself, by its target, for many batches of 6 one-pixel-wide pictures; and whether it was cut.
fn shares(mixer: &Mixer, batches: u64) -> Vec<([f32; 6], bool)> {
    let size = 16 * 16;
    (0..batches)
        .map(|batch| {
            let mut images: Vec<f32> = (0..6 * size).map(|place| (place / size) as f32).collect();
            let mut targets: Vec<f32> = (0..36).map(|place| f32::from(u8::from(place / 6 == place % 6))).collect();
            mixer.mix(&mut images, [6, 1, 16, 16], &mut targets, &mut Random::new(0, 0, batch));
            for (sample, (image, target)) in images.chunks(size).zip(targets.chunks(6)).enumerate() {
                // The mean of a picture tells what it is made of, and so does its target.
                let mean = image.iter().sum::<f32>() / size as f32;
                let told: f32 = target.iter().zip(0u8..).map(|(share, class)| share * f32::from(class)).sum();
                assert!((mean - told).abs() < 1e-3, "sample {sample}: {mean} {told}");
                let partner = 5 - sample;
                assert!((target[sample] + target[partner] - 1.0).abs() < 1e-5);
            }
            let cut = images.iter().all(|number| number.fract() == 0.0);
            (std::array::from_fn(|sample| targets[sample * 6 + sample]), cut)
        })
        .collect()
}

#[test]
fn modes_of_mixing_share_draws_as_they_say() {
    let different = |shares: &[f32]| {
        let mut bits: Vec<u32> = shares.iter().map(|share| share.to_bits()).collect();
        bits.sort_unstable();
        bits.dedup();
        bits.len()
    };
    for (mode, expected) in [(MixMode::Batch, 1), (MixMode::Pair, 3), (MixMode::Element, 6)] {
        let mixer = mixer(|settings| (settings.mixup, settings.mix_mode) = (0.8, mode));
        let draws = shares(&mixer, 50);
        assert!(draws.iter().all(|(shares, _)| different(shares) == expected), "{mode:?}: {draws:?}");
    }
}

#[test]
fn mixing_has_the_probabilities_and_shares_asked_for() {
    let both = mixer(|settings| {
        (settings.mixup, settings.cutmix) = (0.8, 1.0);
        (settings.mix_probability, settings.mix_switch) = (0.75, 0.4);
    });
    let draws = shares(&both, 2000);
    let untouched = draws.iter().filter(|(shares, _)| shares[0] == 1.0).count() as f64 / 2000.0;
    let blended = draws.iter().filter(|(_, cut)| !cut).count() as f64 / 2000.0;
    assert!((untouched - 0.25).abs() < 0.04, "{untouched}");
    assert!((blended - 0.75 * 0.6).abs() < 0.04, "{blended}");
    // Mixup alone: Beta(0.8, 0.8) has mean 1/2 and variance 1 / (4 (2 alpha + 1)).
    let draws = shares(&mixer(|settings| settings.mixup = 0.8), 2000);
    let mean = draws.iter().map(|(shares, _)| shares[0]).sum::<f32>() / 2000.0;
    let variance = draws.iter().map(|(shares, _)| (shares[0] - mean).powi(2)).sum::<f32>() / 2000.0;
    assert!((mean - 0.5).abs() < 0.03 && (variance - 1.0 / 10.4).abs() < 0.01, "{mean} {variance}");
    // CutMix alone is never a blend, and clipped boxes leave more than half on the average.
    let draws = shares(&mixer(|settings| settings.cutmix = 1.0), 2000);
    let mean = draws.iter().map(|(shares, _)| shares[0]).sum::<f32>() / 2000.0;
    assert!(draws.iter().all(|(_, cut)| *cut) && (0.55..0.75).contains(&mean), "{mean}");
}

#[test]
fn the_middle_of_an_odd_batch_stays_alone() {
    let mixer = mixer(|settings| settings.mixup = 1.0);
    let (mut images, mut targets) = (vec![0.3, 0.1, 0.9], vec![1.0, 0.0, 0.0, 1.0, 1.0, 0.0]);
    mixer.mix(&mut images, [3, 1, 1, 1], &mut targets, &mut Random::new(0, 0, 0));
    assert_eq!((images[1], &targets[2..4]), (0.1, &[0.0, 1.0][..]));
    assert_ne!(images[0], 0.3);
    mixer.mix(&mut [], [0, 1, 1, 1], &mut [], &mut Random::new(0, 0, 0));
}
