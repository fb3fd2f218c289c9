//! The most confident mistakes: where to look first for wrong labels and for classes that look alike.

use serde::{Deserialize, Serialize};

use super::Prediction;

/// How many are kept.
pub const MOST_MISTAKES: usize = 24;

/// A sample that was predicted as another class.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Mistake {
    /// Its index in the validation data.
    pub sample: usize,
    /// Its name in the data.
    pub name: String,
    /// Its class.
    pub label: u32,
    /// The predicted class.
    pub answer: u32,
    /// The probability of the prediction.
    pub confidence: f64,
}

/// The most confident mistakes so far, the most confident first; of equal ones, the sample that comes first in the data.
#[derive(Clone, Debug, Default)]
pub struct Mistakes {
    kept: Vec<Mistake>,
}

impl Mistakes {
    /// Adds a prediction if it is wrong and among the most confident. `name` is called only then.
    pub fn add(&mut self, sample: usize, label: u32, answer: Prediction, name: impl FnOnce() -> String) {
        if answer.class == label {
            return;
        }
        let is_before = |kept: &Mistake| {
            kept.confidence > answer.confidence || (kept.confidence == answer.confidence && kept.sample < sample)
        };
        let place = self.kept.partition_point(is_before);
        if place == MOST_MISTAKES {
            return;
        }
        let Prediction { class, confidence } = answer;
        self.kept.insert(place, Mistake { sample, name: name(), label, answer: class, confidence });
        self.kept.truncate(MOST_MISTAKES);
    }

    /// The mistakes, the most confident first.
    pub fn into_vec(self) -> Vec<Mistake> {
        self.kept
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn kept(answers: &[(usize, f64)]) -> Vec<usize> {
        let mut mistakes = Mistakes::default();
        for &(sample, confidence) in answers {
            mistakes.add(sample, 0, Prediction { class: 1, confidence }, || sample.to_string());
        }
        let kept = mistakes.into_vec();
        assert!(kept.iter().all(|mistake| mistake.name == mistake.sample.to_string()));
        kept.iter().map(|mistake| mistake.sample).collect()
    }

    #[test]
    fn the_most_confident_come_first_and_equal_ones_by_their_place() {
        assert_eq!(kept(&[(0, 0.5), (1, 0.9), (2, 0.7), (3, 0.9), (4, 0.5)]), [1, 3, 2, 0, 4]);
        assert_eq!(kept(&[(4, 0.5), (3, 0.9), (2, 0.7), (1, 0.9), (0, 0.5)]), [1, 3, 2, 0, 4]);
    }

    #[test]
    fn no_more_are_kept_than_are_shown() {
        let rising: Vec<(usize, f64)> = (0..1000).map(|sample| (sample, sample as f64 / 1000.0)).collect();
        let falling: Vec<(usize, f64)> = rising.iter().rev().copied().collect();
        let expected: Vec<usize> = (0..MOST_MISTAKES).map(|place| 999 - place).collect();
        assert_eq!(kept(&rising), expected);
        assert_eq!(kept(&falling), expected);
    }

    #[test]
    fn what_is_right_is_no_mistake() {
        let mut mistakes = Mistakes::default();
        mistakes.add(0, 3, Prediction { class: 3, confidence: 0.99 }, || unreachable!("not asked for"));
        assert_eq!(mistakes.into_vec(), []);
    }
}
