//! Classification metrics: from logits and labels to loss, accuracy, precision and recall per class, confusions and calibration.
//!
//! [`SingleLabel`] is for one label per sample, [`MultiLabel`] for several. Both take one sample after the other and accumulate in f64,
//! so the batch size changes nothing.

mod calibration;
mod mistakes;
mod multilabel;

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

pub use calibration::{BINS, Bin, Calibration};
pub use mistakes::{MOST_MISTAKES, Mistake, Mistakes};
pub use multilabel::{MultiLabel, MultiLabelClass, MultiLabelReport};

use crate::scores::nan_if_null;

/// Accumulates predictions for samples of one label each.
///
/// A label is among the top k when fewer than k other classes have a greater logit, or an equal one and a smaller index: the
/// order of a stable sort, and of equal logits the class that `torch.argmax` takes. A sample with a NaN among its logits counts as
/// wrong, and makes the mean loss NaN.
#[derive(Clone, Debug)]
pub struct SingleLabel {
    classes: usize,
    samples: u64,
    loss: f64,
    top1: u64,
    top5: u64,
    undecided: u64,
    /// Samples per class.
    support: Vec<u64>,
    /// Samples by (label, prediction); only pairs that occur, since a thousand classes have a million pairs.
    confusion: BTreeMap<(u32, u32), u64>,
    calibration: Calibration,
}

/// The prediction for a sample.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Prediction {
    /// The class with the greatest logit.
    pub class: u32,
    /// Its probability.
    pub confidence: f64,
}

/// Precision and recall of a class; `None` where there is nothing to divide by.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct ClassScores {
    /// The fraction of the samples predicted as this class that are of it.
    pub precision: Option<f64>,
    /// The fraction of the samples of this class that are predicted as it.
    pub recall: Option<f64>,
    /// Their harmonic mean.
    pub f1: Option<f64>,
    /// Samples of this class.
    pub support: u64,
}

/// Samples of one class that were predicted as another.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confusion {
    /// Their class.
    pub label: u32,
    /// The predicted class.
    pub answer: u32,
    /// How many.
    pub samples: u64,
}

/// All metrics of predictions for samples of one label each.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct SingleLabelReport {
    /// How many samples there were.
    pub samples: u64,
    /// The mean cross-entropy, in nats.
    #[serde(deserialize_with = "nan_if_null")]
    pub loss: f64,
    /// Accuracy: the fraction of samples whose label has the greatest logit.
    #[serde(deserialize_with = "nan_if_null")]
    pub top1: f64,
    /// The fraction of samples whose label is among the five greatest logits; `None` with fewer than six classes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub top5: Option<f64>,
    /// The mean of F1 over the classes that have one.
    #[serde(deserialize_with = "nan_if_null")]
    pub macro_f1: f64,
    /// Samples with a NaN among their logits.
    pub undecided: u64,
    /// The mean distance of confidence and accuracy over the bins, weighted by their samples.
    #[serde(deserialize_with = "nan_if_null")]
    pub expected_calibration_error: f64,
    /// The largest distance in any bin.
    #[serde(deserialize_with = "nan_if_null")]
    pub max_calibration_error: f64,
    /// Per class.
    pub classes: Vec<ClassScores>,
    /// The confusion matrix: rows are true classes, columns are predictions. Left out with more than [`MOST_CLASSES_OF_MATRIX`] classes.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub confusion: Option<Vec<Vec<u64>>>,
    /// The most frequent confusions, the most frequent first, at most a hundred.
    pub most_confused: Vec<Confusion>,
    /// The reliability diagram: confidence and accuracy per bin.
    pub reliability: Vec<Bin>,
}

/// With fewer classes than this, top-5 accuracy says nothing.
pub const LEAST_CLASSES_OF_TOP5: usize = 6;
/// A report has a confusion matrix for up to this many classes.
pub const MOST_CLASSES_OF_MATRIX: usize = 256;

impl SingleLabel {
    /// For this many classes.
    pub fn new(classes: usize) -> SingleLabel {
        SingleLabel {
            classes,
            samples: 0,
            loss: 0.0,
            top1: 0,
            top5: 0,
            undecided: 0,
            support: vec![0; classes],
            confusion: BTreeMap::new(),
            calibration: Calibration::default(),
        }
    }

    /// Adds a sample, and returns the prediction; there is none where a logit is NaN.
    ///
    /// # Panics
    /// Panics unless there is one logit per class, and the label is one of the classes.
    pub fn add(&mut self, logits: &[f32], label: u32) -> Option<Prediction> {
        assert_eq!(logits.len(), self.classes, "one logit per class");
        let own = logits[label as usize];
        self.samples += 1;
        self.support[label as usize] += 1;
        let greatest = logits.iter().copied().fold(f32::NEG_INFINITY, f32::max);
        let sum: f64 = logits.iter().map(|&logit| (f64::from(logit) - f64::from(greatest)).exp()).sum();
        // The difference first: beside a huge logit the logarithm would vanish.
        self.loss += sum.ln() + (f64::from(greatest) - f64::from(own));
        if logits.iter().any(|logit| logit.is_nan()) {
            self.undecided += 1;
            return None;
        }
        let is_before = |&(class, &logit): &(usize, &f32)| logit > own || (logit == own && class < label as usize);
        let before = logits.iter().enumerate().filter(is_before).count();
        self.top1 += u64::from(before < 1);
        self.top5 += u64::from(before < 5);
        let answer = logits.iter().position(|&logit| logit == greatest).unwrap_or(0) as u32;
        *self.confusion.entry((label, answer)).or_default() += 1;
        // The greatest is e^0 over the sum.
        let confidence = 1.0 / sum;
        self.calibration.add(confidence, before < 1);
        Some(Prediction { class: answer, confidence })
    }

    /// The number of samples.
    pub fn samples(&self) -> u64 {
        self.samples
    }

    /// The mean cross-entropy, in nats; NaN without samples.
    pub fn loss(&self) -> f64 {
        self.loss / self.samples as f64
    }

    /// Accuracy: the fraction of samples whose label has the greatest logit.
    pub fn top1(&self) -> f64 {
        self.top1 as f64 / self.samples as f64
    }

    /// The fraction of samples whose label is among the five greatest logits: 1 with at most five classes.
    pub fn top5(&self) -> f64 {
        self.top5 as f64 / self.samples as f64
    }

    /// All metrics.
    pub fn report(&self) -> SingleLabelReport {
        let mut right = vec![0; self.classes];
        let mut said = vec![0; self.classes];
        for (&(label, answer), &samples) in &self.confusion {
            said[answer as usize] += samples;
            if label == answer {
                right[label as usize] = samples;
            }
        }
        let class = |class: usize| ClassScores::of(right[class], said[class], self.support[class]);
        let classes: Vec<ClassScores> = (0..self.classes).map(class).collect();
        let mut most_confused: Vec<Confusion> = self
            .confusion
            .iter()
            .filter(|((label, answer), _)| label != answer)
            .map(|(&(label, answer), &samples)| Confusion { label, answer, samples })
            .collect();
        most_confused.sort_by_key(|confusion| std::cmp::Reverse(confusion.samples));
        most_confused.truncate(100);
        SingleLabelReport {
            samples: self.samples,
            loss: self.loss(),
            top1: self.top1(),
            top5: (self.classes >= LEAST_CLASSES_OF_TOP5).then(|| self.top5()),
            macro_f1: mean(classes.iter().filter_map(|class| class.f1)),
            undecided: self.undecided,
            expected_calibration_error: self.calibration.expected_error(),
            max_calibration_error: self.calibration.max_error(),
            confusion: (self.classes <= MOST_CLASSES_OF_MATRIX).then(|| self.matrix()),
            classes,
            most_confused,
            reliability: self.calibration.bins(),
        }
    }

    fn matrix(&self) -> Vec<Vec<u64>> {
        let mut matrix = vec![vec![0; self.classes]; self.classes];
        for (&(label, answer), &samples) in &self.confusion {
            matrix[label as usize][answer as usize] = samples;
        }
        matrix
    }
}

impl ClassScores {
    /// Of counts: predicted as it and right; predicted as it; of it.
    fn of(right: u64, said: u64, support: u64) -> ClassScores {
        ClassScores {
            precision: ratio(right, said),
            recall: ratio(right, support),
            f1: ratio(2 * right, said + support),
            support,
        }
    }
}

/// A report as JSON, with the names of its classes.
///
/// # Panics
/// Panics if the report is not plain data.
pub fn named(report: &impl Serialize, names: &[String]) -> Value {
    let mut report = serde_json::to_value(report).expect("a report is plain data");
    if let Some(classes) = report["classes"].as_array_mut() {
        for (class, name) in classes.iter_mut().zip(names) {
            class["name"] = json!(name);
        }
    }
    report
}

fn ratio(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| part as f64 / whole as f64)
}

/// The mean; NaN of nothing.
fn mean(values: impl Iterator<Item = f64>) -> f64 {
    let (mut sum, mut count) = (0.0, 0);
    for value in values {
        sum += value;
        count += 1;
    }
    sum / f64::from(count)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn scores(rows: &[(&[f32], u32)]) -> SingleLabel {
        let mut scores = SingleLabel::new(rows[0].0.len());
        for (logits, label) in rows {
            scores.add(logits, *label);
        }
        scores
    }

    #[test]
    fn of_equal_logits_the_smaller_class_comes_first() {
        let equal = [1.0; 7];
        let of = |label| scores(&[(&equal, label)]);
        let [first, fifth, sixth] = [of(0), of(4), of(5)];
        assert_eq!((first.top1(), first.top5()), (1.0, 1.0));
        assert_eq!((fifth.top1(), fifth.top5()), (0.0, 1.0));
        assert_eq!((sixth.top1(), sixth.top5()), (0.0, 0.0));
        assert_eq!(sixth.report().most_confused, [Confusion { label: 5, answer: 0, samples: 1 }]);
    }

    #[test]
    fn few_classes_are_all_among_the_top_five() {
        let scores = scores(&[(&[3.0, 2.0, 1.0], 2), (&[3.0, 2.0, 1.0], 0)]);
        assert_eq!((scores.top1(), scores.top5()), (0.5, 1.0));
    }

    #[test]
    fn top_5_is_reported_from_six_classes_on() {
        let of = |logits: &[f32]| scores(&[(logits, 0)]).report();
        assert_eq!((of(&[1.0; 5]).top5, of(&[1.0; 6]).top5), (None, Some(1.0)));
        let json = serde_json::to_value(of(&[1.0; 5])).expect("JSON");
        assert_eq!(json.get("top5"), None);
    }

    #[test]
    fn what_is_not_a_number_is_never_right() {
        for logits in [[f32::NAN, 0.0, 1.0], [0.0, 9.0, f32::NAN], [f32::NAN; 3]] {
            for label in 0..3 {
                let scores = scores(&[(&logits, label)]);
                assert_eq!((scores.top1(), scores.top5()), (0.0, 0.0), "{logits:?} {label}");
                assert!(scores.loss().is_nan());
                let report = scores.report();
                assert_eq!((report.undecided, report.classes[label as usize].recall), (1, Some(0.0)));
                assert!(report.expected_calibration_error.is_nan());
            }
        }
    }

    #[test]
    fn huge_logits_have_a_loss() {
        let scores = scores(&[(&[1e30, -1e30], 0), (&[-f32::MAX, -f32::MAX], 1)]);
        assert_eq!(scores.loss(), std::f64::consts::LN_2 / 2.0);
        assert_eq!(scores.report().reliability[14].samples, 1);
    }

    #[test]
    fn a_report_of_nothing_has_no_numbers_but_is_one() {
        let json = serde_json::to_value(SingleLabel::new(2).report()).expect("JSON");
        assert_eq!((&json["samples"], &json["loss"], &json["top1"]), (&0.into(), &().into(), &().into()));
        assert_eq!(json["classes"][0]["precision"], Value::Null);
    }
}
