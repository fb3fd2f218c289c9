//! Measures of predicted classes.

use super::counts::{Average, Counts, average};

/// What is measured of predicted classes, of one class per example or of several.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct ClassMeasures {
    classes: Vec<Counts>,
    examples: u64,
    /// Examples all of whose classes are right.
    right: u64,
    /// With one class per example, those that never occur have no part in a mean.
    is_single: bool,
}

impl ClassMeasures {
    /// Of one class per example. Both slices have the same length.
    pub fn of(expected: &[usize], predicted: &[usize]) -> ClassMeasures {
        assert_eq!(expected.len(), predicted.len(), "as many predictions as examples");
        let classes = expected.iter().chain(predicted).max().map_or(0, |largest| largest + 1);
        let mut counts = vec![Counts::default(); classes];
        let mut right = 0;
        for (&expected, &predicted) in expected.iter().zip(predicted) {
            counts[expected].expected += 1;
            counts[predicted].predicted += 1;
            if expected == predicted {
                counts[expected].correct += 1;
                right += 1;
            }
        }
        ClassMeasures { classes: counts, examples: expected.len() as u64, right, is_single: true }
    }

    /// Of several classes per example: `classes` flags for each example.
    pub fn of_several(expected: &[bool], predicted: &[bool], classes: usize) -> ClassMeasures {
        assert_eq!(expected.len(), predicted.len(), "as many predictions as examples");
        let mut counts = vec![Counts::default(); classes];
        let (mut right, mut examples) = (0, 0);
        for (expected, predicted) in expected.chunks_exact(classes).zip(predicted.chunks_exact(classes)) {
            examples += 1;
            right += u64::from(expected == predicted);
            for ((counts, &expected), &predicted) in counts.iter_mut().zip(expected).zip(predicted) {
                counts.expected += u64::from(expected);
                counts.predicted += u64::from(predicted);
                counts.correct += u64::from(expected && predicted);
            }
        }
        ClassMeasures { classes: counts, examples, right, is_single: false }
    }

    /// The counts of each class.
    pub fn counts(&self) -> &[Counts] {
        &self.classes
    }

    /// The share of examples that are right: with several classes, all of them must be.
    pub fn accuracy(&self) -> f64 {
        self.right as f64 / self.examples as f64
    }

    /// The share of predictions that are right.
    pub fn precision(&self, how: Average) -> f64 {
        self.average(how, Counts::precision)
    }

    /// The share of what was expected that was found.
    pub fn recall(&self, how: Average) -> f64 {
        self.average(how, Counts::recall)
    }

    /// The harmonic mean of precision and recall.
    pub fn f1(&self, how: Average) -> f64 {
        self.average(how, Counts::f1)
    }

    /// Matthews' correlation of one class per example, of any number of classes (Gorodkin 2004); 0 if all predictions or all
    /// expectations are the same class.
    ///
    /// `(c s - Σ p t) / sqrt((s² - Σ p²) (s² - Σ t²))` of s examples, c right ones, and p predictions and t expectations of each class.
    pub fn matthews(&self) -> f64 {
        let sum = |number: fn(&Counts) -> (u64, u64)| {
            let product = |counts: &Counts| {
                let (left, right) = number(counts);
                u128::from(left) * u128::from(right)
            };
            self.classes.iter().map(product).sum::<u128>()
        };
        let all = u128::from(self.examples) * u128::from(self.examples);
        let both = sum(|counts| (counts.predicted, counts.expected));
        let predicted = all - sum(|counts| (counts.predicted, counts.predicted));
        let expected = all - sum(|counts| (counts.expected, counts.expected));
        if predicted == 0 || expected == 0 {
            return 0.0;
        }
        let right = u128::from(self.right) * u128::from(self.examples);
        (right as f64 - both as f64) / ((predicted as f64).sqrt() * (expected as f64).sqrt())
    }

    fn average(&self, how: Average, number: impl Fn(Counts) -> f64) -> f64 {
        let occurs = |counts: &Counts| !self.is_single || counts.predicted + counts.expected > 0;
        average(&self.classes, how, occurs, number)
    }
}
