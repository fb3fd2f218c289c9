//! Resizing beside Pillow's: not one byte may differ.

mod common;

use common::{bytes, cases, fixture, integer, text};
use vitreous_data::image::{Channels, Image, ImageError, Interpolation, open, resize};

fn filter(name: &str) -> Interpolation {
    match name {
        "nearest" => Interpolation::Nearest,
        "lanczos" => Interpolation::Lanczos,
        "bilinear" => Interpolation::Bilinear,
        "bicubic" => Interpolation::Bicubic,
        "box" => Interpolation::Box,
        "hamming" => Interpolation::Hamming,
        other => panic!("{other}"),
    }
}

#[test]
fn every_filter_equals_pillow() {
    for case in cases("resample.json", 30) {
        let (input, name) = (text(&case, "input"), text(&case, "filter"));
        let channels = if input.starts_with("grey") { Channels::Grey } else { Channels::Rgb };
        let image = open(&fixture(&format!("resample/{input}.png")), channels).unwrap();
        let expected = bytes(&format!("resample/{input}-{name}.bytes"));
        let mut expected = expected.as_slice();
        for size in case["sizes"].as_array().unwrap() {
            let (height, width) = (integer(&size[0]), integer(&size[1]));
            let ours = resize(&image, height, width, filter(name)).unwrap();
            let (theirs, rest) = expected.split_at(height * width * channels.count());
            let largest = common::largest_difference(ours.pixels(), theirs);
            assert_eq!(largest, 0, "{input} by {name} to {height} x {width}");
            expected = rest;
        }
        assert!(expected.is_empty(), "{input} by {name}");
    }
}

#[test]
fn a_size_of_zero_is_refused() {
    let image = Image::new(2, 2, Channels::Grey, vec![0; 4]).unwrap();
    for interpolation in [Interpolation::Nearest, Interpolation::Bicubic] {
        for (height, width) in [(0, 5), (5, 0)] {
            let error = resize(&image, height, width, interpolation).unwrap_err();
            assert!(matches!(error, ImageError::Shape { .. }), "{height} x {width}: {error}");
        }
    }
}

#[test]
fn a_size_beyond_memory_is_refused_before_memory_is_taken() {
    let image = Image::new(2, 2, Channels::Grey, vec![0; 4]).unwrap();
    for interpolation in [Interpolation::Nearest, Interpolation::Bicubic] {
        for (height, width) in [(1 << 40, 1 << 40), (1 << 16, 1 << 16), (usize::MAX, 1), (1 << 21, 1)] {
            let error = resize(&image, height, width, interpolation).unwrap_err();
            assert!(error.to_string().contains("a step of its resizing"), "{height} x {width}: {error}");
        }
    }
}
