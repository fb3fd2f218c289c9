//! Helpers for the tests of all families: fixtures, and comparison with the peer's results.

use std::path::{Path, PathBuf};

use crate::archive::Archive;

/// A fixture of a family.
pub fn fixture(family: &str, name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("src/families").join(family).join("tests/fixtures").join(name)
}

/// A tensor's shape and values.
pub fn tensor(archive: &Archive, name: &str) -> (Vec<usize>, Vec<f32>) {
    let view = archive.tensor(name).unwrap_or_else(|error| panic!("{error}"));
    (view.shape.to_vec(), view.to_f32().expect("numbers").into_owned())
}

/// The largest absolute difference between two slices; NaN if there is a NaN.
pub fn largest_difference(got: &[f32], expected: &[f32]) -> f32 {
    assert_eq!(got.len(), expected.len());
    let differences = got.iter().zip(expected).map(|(g, e)| (g - e).abs());
    // NaN must not pass.
    differences.fold(0.0, |most, d| if d > most || d.is_nan() { d } else { most })
}
