//! Helpers for the tests of the row kernels.

use crate::random::Stream;

/// Row lengths around the boundaries of vectors and unrolled loops, and those of real models.
pub const LENGTHS: [usize; 15] = [1, 2, 3, 7, 15, 16, 17, 33, 63, 65, 127, 128, 197, 768, 1000];

/// Values that no kernel may hang or trap on.
pub const EXTREMES: [f32; 8] = [1e30, -1e30, f32::INFINITY, f32::NEG_INFINITY, f32::NAN, 0.0, 1e-40, -1e-40];

/// Values spread evenly over `-size..size`, deterministic for a seed.
pub fn spread(seed: u64, length: usize, size: f32) -> Vec<f32> {
    let stream = Stream::new(seed, 0, 0);
    (0..length).map(|i| (stream.four(i as u64)[0] as f32 / 2f32.powi(31) - 1.0) * size).collect()
}

/// The values in f64, for the naive formulas.
pub fn wide(values: &[f32]) -> Vec<f64> {
    values.iter().map(|&value| f64::from(value)).collect()
}

/// Asserts `|value - expected| <= absolute + relative |expected|` for all.
pub fn assert_close(values: &[f32], expected: &[f64], absolute: f64, relative: f64) {
    assert_eq!(values.len(), expected.len());
    for (i, (&value, &expected)) in values.iter().zip(expected).enumerate() {
        let error = (f64::from(value) - expected).abs();
        assert!(error <= absolute + relative * expected.abs(), "{i} of {}: {value} not {expected}", values.len());
    }
}

/// The gradient of `loss` at `point` by central differences.
pub fn numeric_gradient(point: &[f64], loss: impl Fn(&[f64]) -> f64) -> Vec<f64> {
    let mut moved = point.to_vec();
    (0..point.len())
        .map(|i| {
            let step = 1e-5;
            moved[i] = point[i] + step;
            let above = loss(&moved);
            moved[i] = point[i] - step;
            let below = loss(&moved);
            moved[i] = point[i];
            (above - below) / (2.0 * step)
        })
        .collect()
}
