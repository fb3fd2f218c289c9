//! With the numbers that a peer was given, each step gives the peer's pixels. Made by `tests/fixtures/make_augment.py`.

use serde_json::Value;
use vitreous_engine::ops::image_draws::Laying;

use super::super::affine::Sampling;
use super::super::crop::{Rectangle, middle_part, part_size};
use super::super::erase::box_size;
use super::super::mix::{Mix, cut_box, mix_pairs};
use super::super::normalise::normalise;
use super::super::operation::Operation;
use super::super::{Augment, AugmentSettings, CropKind, Picture};
use super::{Expected, Pictures, fixture, picture_of, plain};
use crate::image::decode::{Channels, Image};
use crate::image::preprocess::Scratch;
use crate::image::resample::{Interpolation, ResampleScratch, Span, resize_part};
use crate::image::view::View;
use crate::random::Random;

fn list() -> Value {
    serde_json::from_slice(&fixture("augment.json")).unwrap()
}

/// The cases of a list; a list that lost its cases would make a test that cannot fail.
fn cases<'a>(list: &'a Value, key: &str, at_least: usize) -> &'a [Value] {
    let cases = list[key].as_array().unwrap();
    assert!(cases.len() >= at_least, "{key} has {} cases", cases.len());
    cases
}

fn whole(value: &Value) -> usize {
    value.as_u64().unwrap_or_else(|| panic!("{value}")) as usize
}

fn sizes(value: &Value) -> [usize; 2] {
    [whole(&value[0]), whole(&value[1])]
}

fn operation(name: &str) -> Operation {
    match name {
        "auto_contrast" => Operation::AutoContrast,
        "equalize" => Operation::Equalize,
        "invert" => Operation::Invert,
        "rotate" => Operation::Rotate,
        "posterize" => Operation::Posterize,
        "solarize" => Operation::Solarize,
        "solarize_add" => Operation::SolarizeAdd,
        "colour" => Operation::Colour,
        "contrast" => Operation::Contrast,
        "brightness" => Operation::Brightness,
        "sharpness" => Operation::Sharpness,
        "shear_x" => Operation::ShearX,
        "shear_y" => Operation::ShearY,
        "translate_x" => Operation::TranslateX,
        "translate_y" => Operation::TranslateY,
        "desaturate" => Operation::Desaturate,
        "gaussian_blur" => Operation::GaussianBlur,
        other => panic!("{other}"),
    }
}

#[test]
fn every_operation_equals_timm_and_pillow() {
    let (list, bytes) = (list(), fixture("augment/operations.bytes"));
    let (pictures, mut expected) = (Pictures::read(&list), Expected::new(&bytes));
    let fill: Vec<u8> = list["fill"].as_array().unwrap().iter().map(|value| whole(value) as u8).collect();
    let (mut seen, mut wrong) = (Vec::new(), Vec::new());
    for case in cases(&list, "operations", 150) {
        let operation = operation(case["operation"].as_str().unwrap());
        let negate = case["negate"].as_bool().unwrap();
        let increasing = case["increasing"].as_bool().unwrap();
        let argument = operation.argument(case["magnitude"].as_f64().unwrap(), increasing, || negate);
        let theirs = case["argument"].as_f64().unwrap();
        assert!((argument - theirs).abs() <= 1e-15 * theirs.abs(), "{argument} for {case}");
        let sampling = if case["sampling"] == "bicubic" { Sampling::Bicubic } else { Sampling::Bilinear };
        let mut picture = picture_of(pictures.get(&case["picture"]));
        operation.apply(&mut picture, argument, sampling, &fill);
        let different = picture.bytes.iter().zip(expected.bytes(picture.bytes.len())).filter(|(a, b)| a != b).count();
        if different > 0 {
            wrong.push(format!("{different} bytes differ: {case}"));
        }
        seen.push(operation);
    }
    assert!(wrong.is_empty(), "{}", wrong.join("\n"));
    assert!(expected.rest.is_empty());
    assert!(Operation::USUAL.iter().all(|operation| seen.contains(operation)));
}

#[test]
fn gaussian_blur_equals_pillow() {
    let (list, bytes) = (list(), fixture("augment/blurs.bytes"));
    let (pictures, mut expected) = (Pictures::read(&list), Expected::new(&bytes));
    for case in cases(&list, "blurs", 15) {
        let mut picture = picture_of(pictures.get(&case["picture"]));
        picture.gaussian_blur(case["radius"].as_f64().unwrap());
        assert!(picture.bytes == expected.bytes(picture.bytes.len()), "{case}");
    }
    assert!(expected.rest.is_empty());
}

#[test]
fn steps_of_colour_jitter_and_grey_equal_torchvision() {
    let (list, bytes) = (list(), fixture("augment/jitter.bytes"));
    let (pictures, mut expected) = (Pictures::read(&list), Expected::new(&bytes));
    for case in cases(&list, "jitter", 6) {
        let mut picture = picture_of(pictures.get(&case["picture"]));
        for step in case["steps"].as_array().unwrap() {
            let factor = step[1].as_f64().unwrap();
            match step[0].as_str().unwrap() {
                "brightness" => picture.brightness(factor),
                "contrast" => picture.contrast(factor),
                "saturation" => picture.saturation(factor),
                _ => picture.grey(),
            }
        }
        assert!(picture.bytes == expected.bytes(picture.bytes.len()), "{case}");
    }
    assert!(expected.rest.is_empty());
}

#[test]
fn crops_equal_torchvision() {
    let (list, bytes) = (list(), fixture("augment/crops.bytes"));
    let (pictures, mut expected) = (Pictures::read(&list), Expected::new(&bytes));
    let large = pictures.get(&Value::from("large"));
    for case in cases(&list, "parts", 10) {
        let number = |key: &str| whole(&case[key]);
        let part = View::of(large).part(number("top"), number("left"), [number("height"), number("width")]);
        let bicubic = case["sampling"] == "bicubic";
        let interpolation = if bicubic { Interpolation::Bicubic } else { Interpolation::Bilinear };
        let mut scratch = ResampleScratch::default();
        resize_part(part, [16, 16], interpolation, Span::whole(16), Span::whole(16), &mut scratch).unwrap();
        assert!(scratch.resized == expected.bytes(16 * 16 * 3), "{case}");
    }
    let identity: [f32; 256] = std::array::from_fn(|byte| byte as f32);
    for case in cases(&list, "padded", 10) {
        let image = pictures.get(&case["picture"]);
        let laid = Laying {
            top: 4 - whole(&case["row"]) as i32,
            left: 4 - whole(&case["column"]) as i32,
            mirrored: case["mirrored"].as_bool().unwrap(),
            upside_down: case["upside_down"].as_bool().unwrap(),
        };
        let (size, channels) = ([image.height(), image.width()], image.channels().count());
        let theirs = expected.bytes(image.pixels().len());
        let mut out = vec![-1.0; image.pixels().len()];
        normalise(View::of(image), laid, &vec![identity; channels], size, &mut out);
        // Theirs has a pixel's channels side by side, ours the channels one behind the other.
        let plane = size[0] * size[1];
        for (place, &byte) in theirs.iter().enumerate() {
            assert_eq!(out[place % channels * plane + place / channels], f32::from(byte), "{place} of {case}");
        }
        // The way over a picture in between, which policies take.
        let mut picture = Picture::default();
        picture.fill(size, image.channels(), &[0; 3][..channels]);
        picture.paste(View::of(image), laid.top as isize, laid.left as isize);
        if laid.mirrored {
            picture.mirror();
        }
        if laid.upside_down {
            picture.turn_upside_down();
        }
        assert!(picture.bytes == theirs, "{case}");
    }
    assert!(expected.rest.is_empty());
}

#[test]
fn sizes_of_parts_and_boxes_equal_timm() {
    let list = list();
    for case in cases(&list, "part_sizes", 25) {
        let (share, log_ratio) = (case["share"].as_f64().unwrap(), case["log_ratio"].as_f64().unwrap());
        let theirs = case["part"].as_array().map(|_| sizes(&case["part"]));
        assert_eq!(part_size(sizes(&case["size"]), share, log_ratio), theirs, "{case}");
    }
    for case in cases(&list, "middles", 5) {
        let theirs: Vec<usize> = case["middle"].as_array().unwrap().iter().map(whole).collect();
        let Rectangle { top, left, height, width } = middle_part(sizes(&case["size"]), [3.0 / 4.0, 4.0 / 3.0]);
        assert_eq!([top, left, height, width], *theirs, "{case}");
    }
    for case in cases(&list, "boxes", 50) {
        let (share, log_ratio) = (case["share"].as_f64().unwrap(), case["log_ratio"].as_f64().unwrap());
        let count = case["count"].as_f64().unwrap();
        let theirs = case["box"].as_array().map(|_| sizes(&case["box"]));
        // What the peer leaves to see is the same for a box without pixels and for none.
        let ours =
            box_size(sizes(&case["size"]), share / count, log_ratio).filter(|[height, width]| height * width > 0);
        assert_eq!(ours, theirs, "{case}");
    }
}

#[test]
fn mixup_and_cutmix_equal_timm() {
    let (list, bytes) = (list(), fixture("augment/mixes.bytes"));
    let mut expected = Expected::new(&bytes);
    let (batch, height, width, classes) = (4, 7, 6, 5);
    let (images, targets) = (expected.numbers(batch * 2 * height * width), expected.numbers(batch * classes));
    for case in cases(&list, "mixes", 12) {
        let mix = |sample: usize| {
            let draw = &case["draws"][sample];
            let share = draw[0].as_f64().unwrap();
            match draw[1].as_bool().unwrap() {
                true => Mix::Paste(cut_box([height, width], share, [whole(&draw[2]), whole(&draw[3])])),
                false => Mix::Blend(share),
            }
        };
        let (mut ours, mut our_targets) = (images.clone(), targets.clone());
        mix_pairs(&mut ours, [batch, height, width], &mut our_targets, |first| match case["mode"].as_str().unwrap() {
            "batch" => [mix(0), mix(0)],
            "pair" => [mix(first), mix(first)],
            _ => [mix(first), mix(batch - 1 - first)],
        });
        for (ours, theirs) in [(&ours, expected.numbers(ours.len())), (&our_targets, expected.numbers(targets.len()))] {
            let largest = ours.iter().zip(&theirs).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
            assert!(largest <= 1e-6, "{largest} in {case}");
        }
        for row in our_targets.chunks_exact(classes) {
            assert!((row.iter().sum::<f32>() - 1.0).abs() < 1e-6, "{case}");
        }
    }
    assert!(expected.rest.is_empty());
}

#[test]
fn whole_transforms_equal_timm() {
    let (list, bytes) = (list(), fixture("augment/pipelines.bytes"));
    let (pictures, mut expected) = (Pictures::read(&list), Expected::new(&bytes));
    let large = pictures.get(&Value::from("large"));
    let square = View::of(large).part(0, 0, [40, 40]);
    let pixels: Vec<u8> = (0..40).flat_map(|row| square.row(row).to_vec()).collect();
    let image = Image::new(40, 40, Channels::Rgb, pixels).unwrap();
    let mut preprocess = plain([12, 12], Channels::Rgb);
    preprocess.rescale_factor = 1.0 / 255.0;
    (preprocess.mean, preprocess.std) = (vec![0.485, 0.456, 0.406], vec![0.229, 0.224, 0.225]);
    for case in cases(&list, "pipelines", 4) {
        let settings = AugmentSettings {
            crop: CropKind::Resized,
            scale: [1.0, 1.0],
            ratio: [1.0, 1.0],
            flip: case["hflip"].as_f64().unwrap(),
            vertical_flip: case["vflip"].as_f64().unwrap_or(0.0),
            grey: case["grayscale_prob"].as_f64().unwrap_or(0.0),
            policy: case["auto_augment"].as_str().unwrap_or("").to_string(),
            ..AugmentSettings::default()
        };
        let augment = Augment::new(&settings, &preprocess).unwrap();
        let mut out = vec![0.0; 3 * 12 * 12];
        augment.apply(&image, &mut Random::new(1, 2, 3), &mut Scratch::default(), &mut out).unwrap();
        let theirs = expected.numbers(out.len());
        let largest = out.iter().zip(&theirs).map(|(a, b)| (a - b).abs()).fold(0.0, f32::max);
        assert!(largest <= 1e-6, "{largest} in {case}");
    }
    assert!(expected.rest.is_empty());
}
