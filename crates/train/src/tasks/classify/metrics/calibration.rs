//! Calibration: whether confidence equals accuracy (Guo et al., "On Calibration of Modern Neural Networks", section 2).

use serde::{Deserialize, Serialize};

/// Bins of confidence, equally wide.
pub const BINS: usize = 15;

/// Samples by confidence. Bin i, from 0, has the confidences above `i / 15` and up to `(i + 1) / 15`.
#[derive(Clone, Debug, Default)]
pub struct Calibration {
    samples: [u64; BINS],
    right: [u64; BINS],
    confidence: [f64; BINS],
}

/// A row of the reliability table.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Bin {
    /// Confidences are above this.
    pub above: f64,
    /// Confidences are at most this.
    pub up_to: f64,
    /// Samples whose prediction has such a confidence.
    pub samples: u64,
    /// Their mean confidence.
    pub confidence: Option<f64>,
    /// The fraction of them that is right.
    pub accuracy: Option<f64>,
}

impl Calibration {
    /// Adds a prediction: its probability, and whether it is right. NaN is left out.
    pub fn add(&mut self, confidence: f64, right: bool) {
        if confidence.is_nan() {
            return;
        }
        let bin = ((confidence * BINS as f64).ceil() as usize).clamp(1, BINS) - 1;
        self.samples[bin] += 1;
        self.right[bin] += u64::from(right);
        self.confidence[bin] += confidence;
    }

    /// `Σ samples / all · |accuracy - confidence|` over the bins.
    pub fn expected_error(&self) -> f64 {
        let all: u64 = self.samples.iter().sum();
        let distances = (0..BINS).map(|bin| (self.right[bin] as f64 - self.confidence[bin]).abs());
        distances.sum::<f64>() / all as f64
    }

    /// The largest `|accuracy - confidence|` of any bin that has samples; NaN if none has.
    pub fn max_error(&self) -> f64 {
        let distance = |bin: usize| (self.right[bin] as f64 - self.confidence[bin]).abs() / self.samples[bin] as f64;
        (0..BINS).filter(|&bin| self.samples[bin] > 0).map(distance).fold(f64::NAN, f64::max)
    }

    /// The reliability table.
    pub fn bins(&self) -> Vec<Bin> {
        let bin = |bin: usize| {
            let samples = self.samples[bin];
            let share = |sum: f64| (samples > 0).then(|| sum / samples as f64);
            Bin {
                above: bin as f64 / BINS as f64,
                up_to: (bin + 1) as f64 / BINS as f64,
                samples,
                confidence: share(self.confidence[bin]),
                accuracy: share(self.right[bin] as f64),
            }
        };
        (0..BINS).map(bin).collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn edges_belong_to_the_bin_below() {
        let mut calibration = Calibration::default();
        for confidence in [0.0, 1.0 / 15.0, 0.2, 1.0, f64::NAN] {
            calibration.add(confidence, true);
        }
        let samples: Vec<u64> = calibration.bins().iter().map(|bin| bin.samples).collect();
        assert_eq!(samples, [2, 0, 1, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 0, 1]);
    }
}
