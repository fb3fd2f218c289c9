//! Metrics for samples that have several labels, or none.

use serde::{Deserialize, Serialize};

use super::{ClassScores, mean};
use crate::measures::binary_cross_entropy;
use crate::scores::nan_if_null;

/// Accumulates predictions for samples of any number of labels. A class is predicted when its logit is above 0, its probability
/// above one half. Logits are kept until the report, because average precision needs their order.
#[derive(Clone, Debug)]
pub struct MultiLabel {
    classes: usize,
    loss: f64,
    /// `[samples, classes]`.
    logits: Vec<f32>,
    targets: Vec<bool>,
}

/// All metrics of predictions for samples of any number of labels.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct MultiLabelReport {
    /// The number of samples.
    pub samples: u64,
    /// The mean binary cross-entropy over samples and classes, in nats.
    #[serde(deserialize_with = "nan_if_null")]
    pub loss: f64,
    /// The mean of average precision over the classes that occur.
    #[serde(deserialize_with = "nan_if_null")]
    pub mean_average_precision: f64,
    /// F1 of all predictions together.
    #[serde(deserialize_with = "nan_if_null")]
    pub micro_f1: f64,
    /// The mean of F1 over the classes that have one.
    #[serde(deserialize_with = "nan_if_null")]
    pub macro_f1: f64,
    /// Per class.
    pub classes: Vec<MultiLabelClass>,
}

/// The metrics of a class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MultiLabelClass {
    /// `Σ (recall_n - recall_(n-1)) · precision_n` over the thresholds, from the highest down; `None` if the class never occurs.
    pub average_precision: Option<f64>,
    /// With a threshold of one half.
    #[serde(flatten)]
    pub at_half: ClassScores,
}

impl MultiLabel {
    /// For this many classes.
    pub fn new(classes: usize) -> MultiLabel {
        MultiLabel { classes, loss: 0.0, logits: Vec::new(), targets: Vec::new() }
    }

    /// Adds a sample.
    ///
    /// # Panics
    /// Panics unless there is one logit per class, and the labels are among the classes.
    pub fn add(&mut self, logits: &[f32], labels: &[u32]) {
        assert_eq!(logits.len(), self.classes, "one logit per class");
        let start = self.targets.len();
        self.logits.extend_from_slice(logits);
        self.targets.resize(start + self.classes, false);
        for &label in labels {
            self.targets[start..][label as usize] = true;
        }
        for (&logit, &target) in logits.iter().zip(&self.targets[start..]) {
            self.loss += binary_cross_entropy(logit, target);
        }
    }

    /// The number of samples.
    pub fn samples(&self) -> u64 {
        (self.targets.len() / self.classes.max(1)) as u64
    }

    /// The mean binary cross-entropy over samples and classes, in nats; NaN without samples.
    pub fn loss(&self) -> f64 {
        self.loss / self.targets.len() as f64
    }

    /// The mean of average precision over the classes that occur.
    pub fn mean_average_precision(&self) -> f64 {
        mean((0..self.classes).filter_map(|class| self.average_precision(class)))
    }

    /// All metrics.
    pub fn report(&self) -> MultiLabelReport {
        let mut totals = [0; 3];
        let mut class = |class: usize| {
            let counts = self.counts(class);
            for (total, count) in totals.iter_mut().zip(counts) {
                *total += count;
            }
            let at_half = ClassScores::of(counts[0], counts[1], counts[2]);
            MultiLabelClass { average_precision: self.average_precision(class), at_half }
        };
        let classes: Vec<MultiLabelClass> = (0..self.classes).map(&mut class).collect();
        MultiLabelReport {
            samples: self.samples(),
            loss: self.loss(),
            mean_average_precision: mean(classes.iter().filter_map(|class| class.average_precision)),
            micro_f1: ClassScores::of(totals[0], totals[1], totals[2]).f1.unwrap_or(f64::NAN),
            macro_f1: mean(classes.iter().filter_map(|class| class.at_half.f1)),
            classes,
        }
    }

    fn answers(&self, class: usize) -> impl Iterator<Item = (f32, bool)> {
        let logits = self.logits.iter().skip(class).step_by(self.classes).copied();
        logits.zip(self.targets.iter().skip(class).step_by(self.classes).copied())
    }

    /// Predicted and right; predicted; there.
    fn counts(&self, class: usize) -> [u64; 3] {
        self.answers(class).fold([0; 3], |[right, said, there], (logit, target)| {
            let is_said = logit > 0.0;
            [right + u64::from(is_said && target), said + u64::from(is_said), there + u64::from(target)]
        })
    }

    fn average_precision(&self, class: usize) -> Option<f64> {
        // NaN is the lowest of all.
        let believed = |(logit, target): (f32, bool)| (if logit.is_nan() { f32::NEG_INFINITY } else { logit }, target);
        let mut answers: Vec<(f32, bool)> = self.answers(class).map(believed).collect();
        answers.sort_by(|a, b| b.0.total_cmp(&a.0));
        let there = answers.iter().filter(|(_, target)| *target).count();
        if there == 0 {
            return None;
        }
        let (mut seen, mut found, mut sum) = (0, 0, 0.0);
        // Equal logits pass the threshold together.
        for equal in answers.chunk_by(|a, b| a.0 == b.0) {
            let new = equal.iter().filter(|(_, target)| *target).count();
            seen += equal.len();
            found += new;
            sum += new as f64 / there as f64 * (found as f64 / seen as f64);
        }
        Some(sum)
    }
}
