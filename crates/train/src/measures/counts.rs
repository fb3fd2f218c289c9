//! What precision, recall and F1 are computed from.

/// How often a class was right, predicted and expected.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct Counts {
    /// Predicted and expected.
    pub correct: u64,
    /// Predicted.
    pub predicted: u64,
    /// Expected.
    pub expected: u64,
}

/// How several classes become one number.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Average {
    /// The counts of all classes are added up.
    Micro,
    /// The mean of the classes' numbers.
    Macro,
    /// The number of this class.
    Binary(usize),
}

fn ratio(part: u64, whole: u64) -> f64 {
    if whole == 0 { 0.0 } else { part as f64 / whole as f64 }
}

impl Counts {
    /// The share of predictions that are right; 0 if nothing was predicted.
    pub fn precision(self) -> f64 {
        ratio(self.correct, self.predicted)
    }

    /// The share of what was expected that was found; 0 if nothing was expected.
    pub fn recall(self) -> f64 {
        ratio(self.correct, self.expected)
    }

    /// The harmonic mean of precision and recall, `2 correct / (predicted + expected)`; 0 if there is neither.
    pub fn f1(self) -> f64 {
        ratio(2 * self.correct, self.predicted + self.expected)
    }

    pub(super) fn plus(self, other: Counts) -> Counts {
        Counts {
            correct: self.correct + other.correct,
            predicted: self.predicted + other.predicted,
            expected: self.expected + other.expected,
        }
    }
}

/// One number of several classes. `counted` says which of them a mean is over.
pub(super) fn average(
    counts: &[Counts],
    average: Average,
    counted: impl Fn(&Counts) -> bool,
    number: impl Fn(Counts) -> f64,
) -> f64 {
    match average {
        Average::Micro => number(counts.iter().copied().fold(Counts::default(), Counts::plus)),
        Average::Binary(class) => counts.get(class).copied().map_or(0.0, number),
        Average::Macro => {
            let (sum, count) = counts
                .iter()
                .filter(|counts| counted(counts))
                .fold((0.0, 0_u32), |(sum, count), counts| (sum + number(*counts), count + 1));
            if count == 0 { 0.0 } else { sum / f64::from(count) }
        }
    }
}
