//! Answers to samples that are of several classes, or of none.

use serde::{Deserialize, Serialize};

use super::{ClassScores, mean, number};

/// Answers to samples of any number of labels. A class is said to be there when its logit is above 0, its probability above a
/// half. Logits are kept until the report, since average precision needs their order.
#[derive(Clone, Debug)]
pub struct LabelScores {
    classes: usize,
    loss: f64,
    /// By sample, then class.
    logits: Vec<f32>,
    targets: Vec<bool>,
}

/// Everything that is known of the answers.
#[derive(Clone, Debug, Serialize, Deserialize)]
pub struct LabelReport {
    /// How many samples there were.
    pub samples: u64,
    /// Binary cross-entropy, in nats, the mean over samples and classes.
    #[serde(deserialize_with = "number")]
    pub loss: f64,
    /// Mean of the classes' average precision, over the classes that occur.
    #[serde(deserialize_with = "number")]
    pub mean_average_precision: f64,
    /// F1 of all answers together.
    #[serde(deserialize_with = "number")]
    pub micro_f1: f64,
    /// Mean F1 over the classes that have one.
    #[serde(deserialize_with = "number")]
    pub macro_f1: f64,
    /// By class.
    pub classes: Vec<LabelClassScores>,
}

/// How a class fares.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LabelClassScores {
    /// `Σ (recall_n - recall_(n-1)) · precision_n` over the thresholds, from the highest down; none if the class never occurs.
    pub average_precision: Option<f64>,
    /// With a threshold of one half.
    #[serde(flatten)]
    pub at_half: ClassScores,
}

impl LabelScores {
    /// No answers yet, to questions of so many classes.
    pub fn new(classes: usize) -> LabelScores {
        LabelScores { classes, loss: 0.0, logits: Vec::new(), targets: Vec::new() }
    }

    /// Adds the answer to one sample.
    ///
    /// # Panics
    /// Panics unless there is a logit a class, and the labels are of the classes.
    pub fn add(&mut self, logits: &[f32], labels: &[u32]) {
        assert_eq!(logits.len(), self.classes, "a logit a class");
        let start = self.targets.len();
        self.logits.extend_from_slice(logits);
        self.targets.resize(start + self.classes, false);
        for &label in labels {
            self.targets[start..][label as usize] = true;
        }
        for (&logit, &target) in logits.iter().zip(&self.targets[start..]) {
            let logit = f64::from(logit);
            let of_truth = if target { logit } else { -logit };
            // -ln σ(x), which must not overflow.
            self.loss += (-of_truth.abs()).exp().ln_1p() - of_truth.min(0.0);
        }
    }

    /// How many samples were added.
    pub fn samples(&self) -> u64 {
        (self.targets.len() / self.classes.max(1)) as u64
    }

    /// Binary cross-entropy, in nats, the mean over samples and classes; not a number before the first sample.
    pub fn loss(&self) -> f64 {
        self.loss / self.targets.len() as f64
    }

    /// Mean of the classes' average precision, over the classes that occur.
    pub fn mean_average_precision(&self) -> f64 {
        mean((0..self.classes).filter_map(|class| self.average_precision(class)))
    }

    /// Everything that is known.
    pub fn report(&self) -> LabelReport {
        let mut totals = [0; 3];
        let mut class = |class: usize| {
            let counts = self.counts(class);
            for (total, count) in totals.iter_mut().zip(counts) {
                *total += count;
            }
            let at_half = ClassScores::of(counts[0], counts[1], counts[2]);
            LabelClassScores { average_precision: self.average_precision(class), at_half }
        };
        let classes: Vec<LabelClassScores> = (0..self.classes).map(&mut class).collect();
        LabelReport {
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

    /// Said to be there and right; said to be there; there.
    fn counts(&self, class: usize) -> [u64; 3] {
        self.answers(class).fold([0; 3], |[right, said, there], (logit, target)| {
            let is_said = logit > 0.0;
            [right + u64::from(is_said && target), said + u64::from(is_said), there + u64::from(target)]
        })
    }

    fn average_precision(&self, class: usize) -> Option<f64> {
        // What is not a number is the last to be believed.
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
