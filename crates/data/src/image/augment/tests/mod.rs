//! Augmentation beside its peers, and the laws of its draws.

mod draws;
mod peers;
mod settings;
mod sheet;

use serde_json::Value;

use super::Picture;
use crate::image::decode::{Channels, Image};
use crate::image::geometry::Resize;
use crate::image::preprocess::Preprocess;
use crate::image::resample::Interpolation;
use crate::image::view::View;

fn fixture(name: &str) -> Vec<u8> {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures").join(name);
    std::fs::read(path).unwrap_or_else(|error| panic!("{name}: {error}"))
}

/// The pictures that the fixtures begin from.
struct Pictures(Vec<(String, Image)>);

impl Pictures {
    fn read(list: &Value) -> Pictures {
        let bytes = fixture("augment/pictures.bytes");
        let mut rest = Expected::new(&bytes);
        let read = |picture: &Value| {
            let number = |key: &str| picture[key].as_u64().unwrap() as usize;
            let channels = Channels::from_count(number("channels")).unwrap();
            let pixels = rest.bytes(number("height") * number("width") * channels.count());
            let image = Image::new(number("width"), number("height"), channels, pixels.to_vec()).unwrap();
            (picture["name"].as_str().unwrap().to_string(), image)
        };
        Pictures(list["pictures"].as_array().unwrap().iter().map(read).collect())
    }

    fn get(&self, name: &Value) -> &Image {
        &self.0.iter().find(|(other, _)| name == other).unwrap().1
    }
}

/// Expectations that follow each other in a file.
struct Expected<'a> {
    rest: &'a [u8],
}

impl<'a> Expected<'a> {
    fn new(rest: &'a [u8]) -> Expected<'a> {
        Expected { rest }
    }

    fn bytes(&mut self, count: usize) -> &'a [u8] {
        let (bytes, rest) = self.rest.split_at(count);
        self.rest = rest;
        bytes
    }

    fn numbers(&mut self, count: usize) -> Vec<f32> {
        let number = |bytes: &[u8]| f32::from_le_bytes(bytes.try_into().unwrap());
        self.bytes(4 * count).chunks_exact(4).map(number).collect()
    }
}

fn picture_of(image: &Image) -> Picture {
    let mut picture = Picture::default();
    picture.fill([image.height(), image.width()], image.channels(), &[0; 3][..image.channels().count()]);
    picture.paste(View::of(image), 0, 0);
    picture
}

/// Images are taken as they are, and a byte stays the number that it is.
fn plain(size: [usize; 2], channels: Channels) -> Preprocess {
    Preprocess {
        resize: Resize::Exact(size),
        interpolation: Interpolation::Bicubic,
        crop: None,
        rescale_factor: 1.0,
        rescale_offset: 0.0,
        mean: vec![0.0; channels.count()],
        std: vec![1.0; channels.count()],
        channels,
    }
}

/// All bytes are different from their neighbours and spread over the whole range.
fn some_image(height: usize, width: usize, channels: Channels) -> Image {
    let count = height * width * channels.count();
    let pixels = (0..count).map(|place| ((place * 97 + place / 7 * 31) % 256) as u8).collect();
    Image::new(width, height, channels, pixels).unwrap()
}
