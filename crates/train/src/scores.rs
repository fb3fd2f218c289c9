//! The numbers of an evaluation: what they are called, how they are written, which way is better, and which one decides which
//! checkpoint is the best.

use std::any::Any;
use std::fmt;
use std::sync::Arc;

use serde::de::DeserializeOwned;
use serde::{Deserialize, Deserializer};
use serde_json::Value;

use crate::tasks::TASKS;

/// How a number is written.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Format {
    /// A fraction between 0 and 1, written in percent: `86.65 %`.
    Percent,
    /// With this many decimals.
    Decimals(usize),
}

/// Whether a larger value of a metric is better, or a smaller one.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Direction {
    /// As for accuracy.
    HigherIsBetter,
    /// As for the loss.
    LowerIsBetter,
}

/// What a number of an evaluation means.
#[derive(Debug, PartialEq, Eq)]
pub struct Metric {
    /// Its key in files and JSON; `metrics.jsonl` has `val_` in front of it.
    pub key: &'static str,
    /// Its name in sentences, tables and charts.
    pub label: &'static str,
    /// How its values are written.
    pub format: Format,
    /// Which way is better.
    pub direction: Direction,
    /// Whether it decides which checkpoint of a run is the best. An evaluation has at most one such number.
    pub decides: bool,
}

/// The mean loss, which every task has.
pub static LOSS: Metric = Metric {
    key: "loss",
    label: "loss",
    format: Format::Decimals(3),
    direction: Direction::LowerIsBetter,
    decides: false,
};

/// `e^loss`, for losses per token.
pub static PERPLEXITY: Metric = Metric {
    key: "perplexity",
    label: "perplexity",
    format: Format::Decimals(2),
    direction: Direction::LowerIsBetter,
    decides: false,
};

impl Metric {
    /// The metric with this key, of any task.
    pub fn find(key: &str) -> Option<&'static Metric> {
        TASKS.iter().flat_map(|task| task.metrics()).copied().find(|metric| metric.key == key)
    }

    /// A value as it is shown.
    pub fn text(&self, value: f64) -> String {
        match self.format {
            Format::Percent => format!("{:.2} %", 100.0 * value),
            Format::Decimals(count) => format!("{value:.count$}"),
        }
    }

    /// Whether a value is better than another one. NaN is better than nothing else.
    pub fn is_better(&self, value: f64, other: f64) -> bool {
        match self.direction {
            Direction::HigherIsBetter => value > other,
            Direction::LowerIsBetter => value < other,
        }
    }
}

/// A number of an evaluation.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Score {
    /// What it is.
    pub metric: &'static Metric,
    /// Its value.
    pub value: f64,
}

impl fmt::Display for Score {
    /// As in `BLEU 14.70` or `accuracy 86.65 %`.
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{} {}", self.metric.label, self.metric.text(self.value))
    }
}

/// A task's own report of an evaluation: everything beyond the few numbers that all parts of the program understand, such as a
/// confusion matrix or some translations. Pages that know a task's report get it with [`Scores::report`].
pub trait Report: Any + fmt::Debug + Send + Sync {
    /// The report with its numbers as a JSON object: what `evaluation.json` and `vitreous eval --json` have of it.
    fn to_json(&self) -> Value;

    /// How many samples were evaluated, and what they are, as in (2000, "images").
    fn samples(&self) -> (u64, &'static str);

    /// A few lines for the log of a training run.
    fn excerpt(&self) -> Vec<String> {
        Vec::new()
    }
}

/// The result of an evaluation.
#[derive(Clone, Debug)]
pub struct Scores {
    numbers: Vec<Score>,
    report: Arc<dyn Report>,
}

impl Scores {
    /// Numbers in the order in which they are shown, the loss first, and the report that they are part of.
    pub fn new(numbers: Vec<Score>, report: impl Report) -> Scores {
        Scores { numbers, report: Arc::new(report) }
    }

    /// The numbers, in the order in which they are shown.
    pub fn numbers(&self) -> &[Score] {
        &self.numbers
    }

    /// The value with this key.
    pub fn get(&self, key: &str) -> Option<f64> {
        self.numbers.iter().find(|score| score.metric.key == key).map(|score| score.value)
    }

    /// The number that decides which checkpoint is the best, unless it is NaN.
    pub fn deciding(&self) -> Option<Score> {
        self.numbers.iter().copied().find(|score| score.metric.decides && !score.value.is_nan())
    }

    /// The task's own report, if it is of this type.
    pub fn report<R: Report>(&self) -> Option<&R> {
        (self.report.as_ref() as &dyn Any).downcast_ref()
    }

    /// The task's own report, whatever its type.
    pub fn any_report(&self) -> &dyn Report {
        self.report.as_ref()
    }
}

/// Reads a task's own report from `evaluation.json`; `None` if it is of another task, which has no such key.
pub(crate) fn read_report<R: DeserializeOwned>(evaluation: &Value, key: &str) -> Option<Result<R, String>> {
    evaluation.get(key).map(|_| R::deserialize(evaluation).map_err(|error| error.to_string()))
}

/// Reads a number that JSON had to write as null because it is NaN.
pub(crate) fn nan_if_null<'de, D: Deserializer<'de>>(from: D) -> Result<f64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(f64::NAN))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn keys_are_those_of_one_metric_and_each_task_has_a_loss() {
        for task in TASKS {
            assert!(task.metrics().contains(&&LOSS), "{}", task.name());
            for metric in task.metrics() {
                assert_eq!(Metric::find(metric.key), Some(*metric), "two metrics have the key {}", metric.key);
            }
        }
        assert_eq!(Metric::find("top6"), None);
    }

    #[test]
    fn the_better_of_two_values_follows_from_the_direction() {
        let accuracy = Metric::find("top1").expect("a metric");
        assert!(accuracy.is_better(0.5, 0.4) && !accuracy.is_better(0.4, 0.4));
        assert!(LOSS.is_better(0.4, 0.5) && !LOSS.is_better(f64::NAN, 0.5));
        assert_eq!((accuracy.text(0.86651), LOSS.text(0.25)), ("86.65 %".to_string(), "0.250".to_string()));
    }
}
