//! The contact sheet shows what the model is shown, with its labels.

use super::super::{Augment, AugmentSettings, CropKind, Mixer, contact_sheet};
use super::plain;
use crate::dataset::{Dataset, builtin};
use crate::image::decode::{Channels, Image};
use crate::image::error::ImageError;

/// Flat pictures: sample `n` has the value `40 n + 40` and the class `n`.
struct Flat;

impl Dataset for Flat {
    fn len(&self) -> usize {
        4
    }

    fn image(&self, index: usize, channels: Channels) -> Result<Image, ImageError> {
        let value = 40 * index as u8 + 40;
        Image::new(16, 16, channels, vec![value; 256 * channels.count()])
    }

    fn labels(&self, index: usize) -> &[u32] {
        &[0, 1, 2, 3][index..=index]
    }

    fn name(&self, index: usize) -> String {
        index.to_string()
    }
}

const TOP: usize = 10 + 12;
const SIDE: usize = 128;
const ROW: usize = SIDE + 4 + 2 * 12 + 10;

fn sheet(settings: &AugmentSettings, seed: u64, grid: [usize; 2]) -> Image {
    let augment = Augment::new(settings, &plain([16, 16], Channels::Rgb)).unwrap();
    let mixer = Mixer::new(settings).unwrap();
    let classes = ["one", "two", "three", "four"].map(str::to_string);
    contact_sheet(&Flat, &classes, &augment, mixer.as_ref(), seed, grid).unwrap()
}

fn pixel(image: &Image, row: usize, column: usize) -> [u8; 3] {
    image.pixels()[(row * image.width() + column) * 3..][..3].try_into().unwrap()
}

/// The middle of a picture.
fn middle(image: &Image, row: usize, column: usize) -> [u8; 3] {
    pixel(image, TOP + row * ROW + SIDE / 2, 10 + column * (SIDE + 10) + SIDE / 2)
}

/// The bytes of the label under a picture.
fn label(image: &Image, row: usize, column: usize) -> Vec<[u8; 3]> {
    let (top, left) = (TOP + row * ROW + SIDE + 4, 10 + column * (SIDE + 10));
    (top..top + 24).flat_map(|row| (left..left + SIDE).map(move |column| pixel(image, row, column))).collect()
}

#[test]
fn pictures_and_labels_are_where_they_belong() {
    let sheet = sheet(&AugmentSettings::default(), 1, [4, 2]);
    assert_eq!((sheet.width(), sheet.height()), (10 + 3 * (SIDE + 10), TOP + 4 * ROW));
    let mut values: Vec<u8> = (0..4).map(|row| middle(&sheet, row, 0)[0]).collect();
    for row in 0..4 {
        assert_eq!(middle(&sheet, row, 0), middle(&sheet, row, 2));
        assert_eq!(label(&sheet, row, 0), label(&sheet, row, 2));
        assert_ne!(label(&sheet, row, 0), label(&sheet, (row + 1) % 4, 0));
    }
    // All four samples, each once.
    values.sort_unstable();
    assert_eq!(values, [40, 80, 120, 160]);
}

#[test]
fn mixed_pictures_have_mixed_labels() {
    let plain = sheet(&AugmentSettings::default(), 1, [4, 1]);
    let mixed = sheet(&AugmentSettings { mixup: 5.0, ..AugmentSettings::default() }, 1, [4, 1]);
    for row in 0..4 {
        // The first column is never mixed.
        assert_eq!(label(&mixed, row, 0), label(&plain, row, 0));
        let (own, partner) = (middle(&plain, row, 0)[0], middle(&plain, 3 - row, 0)[0]);
        let value = middle(&mixed, row, 1)[0];
        assert!(value > own.min(partner) && value < own.max(partner), "{own} and {partner} give {value}");
        assert_ne!(label(&mixed, row, 1), label(&plain, row, 1));
    }
}

#[test]
fn a_seed_decides_all() {
    let settings = AugmentSettings { crop: CropKind::Padded, erase: 1.0, ..AugmentSettings::default() };
    assert_eq!(sheet(&settings, 1, [2, 3]), sheet(&settings, 1, [2, 3]));
    assert_ne!(sheet(&settings, 1, [2, 3]), sheet(&settings, 2, [2, 3]));
    // No more rows than samples.
    assert_eq!(sheet(&settings, 1, [9, 1]).height(), TOP + 4 * ROW);
}

#[test]
fn a_sheet_beyond_memory_is_refused() {
    let augment = Augment::new(&AugmentSettings::default(), &plain([16, 16], Channels::Rgb)).unwrap();
    for columns in [1 << 20, usize::MAX] {
        let error = contact_sheet(&Flat, &[], &augment, None, 0, [4, columns]).unwrap_err();
        assert!(matches!(error, ImageError::TooLarge { .. }), "{error}");
    }
}

#[test]
fn grey_data_is_drawn_too() {
    let data = builtin();
    let augment = Augment::new(&AugmentSettings::default(), &plain([28, 28], Channels::Grey)).unwrap();
    let sheet = contact_sheet(&*data.train, &data.classes, &augment, None, 0, [2, 1]).unwrap();
    let colours = sheet.pixels().chunks_exact(3).filter(|pixel| pixel[0] == pixel[1] && pixel[1] == pixel[2]).count();
    assert!(colours >= 2 * 2 * 140 * 140 && sheet.channels() == Channels::Rgb);
}
