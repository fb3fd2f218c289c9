//! What the tests of all families use: fixtures, and comparison with what the peers computed.

use std::path::{Path, PathBuf};

use crate::archive::Archive;

/// A fixture of a family.
pub fn fixture(family: &str, name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/families").join(family).join("tests/fixtures").join(name)
}

/// A tensor's shape and numbers.
pub fn tensor(archive: &Archive, name: &str) -> (Vec<usize>, Vec<f32>) {
    let view = archive.tensor(name).unwrap_or_else(|error| panic!("{error}"));
    (view.shape.to_vec(), view.to_f32().expect("numbers").into_owned())
}

/// The largest difference between two lists of numbers; NaN if one is NaN.
pub fn largest_difference(got: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(got.len(), expected.len());
    let differences = got.iter().zip(expected).map(|(g, e)| (g - e).abs());
    // NaN must not pass.
    differences.fold(0.0, |most, d| if d > most || d.is_nan() { d } else { most })
}
