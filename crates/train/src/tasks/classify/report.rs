//! The report of an evaluation of a classifier: metrics per class, confusions, calibration, mistakes.

use serde::Deserialize;
use serde_json::Value;

use super::metrics::{LEAST_CLASSES_OF_TOP5, Mistake, MultiLabelReport, SingleLabelReport, named};
use crate::scores::{Direction, Format, LOSS, Metric, Report, Score, Scores};

static ACCURACY: Metric = Metric {
    key: "top1",
    label: "accuracy",
    format: Format::Percent,
    direction: Direction::HigherIsBetter,
    decides: true,
};

static TOP5: Metric = Metric {
    key: "top5",
    label: "top-5 accuracy",
    format: Format::Percent,
    direction: Direction::HigherIsBetter,
    decides: false,
};

static MEAN_AVERAGE_PRECISION: Metric = Metric {
    key: "map",
    label: "mean average precision",
    format: Format::Decimals(4),
    direction: Direction::HigherIsBetter,
    decides: true,
};

pub(super) static METRICS: [&Metric; 4] = [&LOSS, &ACCURACY, &TOP5, &MEAN_AVERAGE_PRECISION];

/// The report of an evaluation of a classifier.
#[derive(Clone, Debug)]
pub struct ClassifyReport {
    /// The names of the classes.
    pub names: Vec<String>,
    /// The metrics.
    pub metrics: LabelMetrics,
    /// The most confident mistakes; none where images have several labels.
    pub mistakes: Vec<Mistake>,
}

/// Metrics, by how many labels an image can have.
#[derive(Clone, Debug)]
pub enum LabelMetrics {
    /// One.
    Single(Box<SingleLabelReport>),
    /// Several, or none.
    Multi(MultiLabelReport),
}

impl ClassifyReport {
    /// The report with its numbers.
    pub fn into_scores(self) -> Scores {
        let numbers = match &self.metrics {
            LabelMetrics::Single(report) => {
                let top5 = report.top5.filter(|_| self.names.len() >= LEAST_CLASSES_OF_TOP5);
                let all = [(&LOSS, Some(report.loss)), (&ACCURACY, Some(report.top1)), (&TOP5, top5)];
                all.into_iter().filter_map(|(metric, value)| Some(Score { metric, value: value? })).collect()
            }
            LabelMetrics::Multi(report) => vec![
                Score { metric: &LOSS, value: report.loss },
                Score { metric: &MEAN_AVERAGE_PRECISION, value: report.mean_average_precision },
            ],
        };
        Scores::new(numbers, self)
    }

    /// Reads a report; `None` if it is of another task. Parts that are not of the same classes are refused.
    pub(super) fn read(value: &Value) -> Option<Result<ClassifyReport, String>> {
        value.get("classes").map(|_| ClassifyReport::of_json(value))
    }

    fn of_json(value: &Value) -> Result<ClassifyReport, String> {
        fn part<T: for<'de> Deserialize<'de>>(value: &Value) -> Result<T, String> {
            T::deserialize(value).map_err(|error| error.to_string())
        }
        let mistakes: Vec<Mistake> = part(&value["mistakes"])?;
        let classes = value["classes"].as_array().ok_or("it has no classes")?;
        let name = |(number, class): (usize, &Value)| match class["name"].as_str() {
            Some(name) => name.to_string(),
            None => format!("class {number}"),
        };
        let names: Vec<String> = classes.iter().enumerate().map(name).collect();
        let metrics = match value.get("mean_average_precision") {
            Some(_) => LabelMetrics::Multi(part(value)?),
            None => LabelMetrics::Single(Box::new(part(value)?)),
        };
        let is_class = |class: u32| (class as usize) < names.len();
        let mut sound = mistakes.iter().all(|mistake| is_class(mistake.label) && is_class(mistake.answer));
        if let LabelMetrics::Single(report) = &metrics {
            let square =
                |rows: &Vec<Vec<u64>>| rows.len() == names.len() && rows.iter().all(|r| r.len() == names.len());
            sound &= report.confusion.as_ref().is_none_or(square);
            sound &= report.most_confused.iter().all(|pair| is_class(pair.label) && is_class(pair.answer));
        }
        match sound {
            true => Ok(ClassifyReport { names, metrics, mistakes }),
            false => Err("its parts are not of the same classes".to_string()),
        }
    }
}

impl Report for ClassifyReport {
    fn to_json(&self) -> Value {
        let mut report = match &self.metrics {
            LabelMetrics::Single(report) => named(report, &self.names),
            LabelMetrics::Multi(report) => named(report, &self.names),
        };
        report["mistakes"] = serde_json::to_value(&self.mistakes).expect("plain data");
        report
    }

    fn samples(&self) -> (u64, &'static str) {
        let samples = match &self.metrics {
            LabelMetrics::Single(report) => report.samples,
            LabelMetrics::Multi(report) => report.samples,
        };
        (samples, "images")
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::evaluation::{Evaluation, EvaluationAbout};
    use crate::tasks::classify::metrics::{Mistakes, MultiLabel, Prediction, SingleLabel};

    fn evaluation(report: ClassifyReport) -> Evaluation {
        let about = EvaluationAbout { step: 7, epoch: 0.5, data: "numbers".to_string() };
        Evaluation { about, scores: report.into_scores() }
    }

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|class| format!("<{class}>")).collect()
    }

    fn single(classes: usize) -> ClassifyReport {
        let mut metrics = SingleLabel::new(classes);
        let logits: Vec<f32> = (0..classes).map(|class| class as f32 / 3.0).collect();
        metrics.add(&logits, 0);
        metrics.add(&vec![f32::NAN; classes], 1);
        let mut mistakes = Mistakes::default();
        mistakes.add(5, 0, Prediction { class: 1, confidence: 0.1 + 0.2 }, || "no. 5".to_string());
        let metrics = LabelMetrics::Single(Box::new(metrics.report()));
        ClassifyReport { names: names(classes), metrics, mistakes: mistakes.into_vec() }
    }

    #[test]
    fn a_report_is_read_as_it_was_written() {
        let mut several = MultiLabel::new(2);
        several.add(&[0.3, -0.1], &[0]);
        let metrics = LabelMetrics::Multi(several.report());
        let several = ClassifyReport { names: names(2), metrics, mistakes: Vec::new() };
        for report in [single(2), single(7), several] {
            let evaluation = evaluation(report);
            let json = evaluation.to_json();
            let text: Value = serde_json::from_str(&json.to_string()).expect("JSON");
            let read = Evaluation::of_json(&text).expect("reads");
            assert_eq!(read.to_json(), json);
            assert_eq!(read.about, evaluation.about);
            let own = read.scores.report::<ClassifyReport>().expect("its own report");
            assert_eq!(own.names, evaluation.scores.report::<ClassifyReport>().expect("the same").names);
            let values = |evaluation: &Evaluation| {
                let of = |score: &Score| format!("{} {:?}", score.metric.key, score.value);
                evaluation.scores.numbers().iter().map(of).collect::<Vec<_>>()
            };
            assert_eq!(values(&read), values(&evaluation));
        }
        // A loss that is NaN is null.
        assert_eq!(evaluation(single(2)).to_json()["loss"], Value::Null);
    }

    #[test]
    fn the_number_that_decides_is_accuracy_or_mean_average_precision() {
        let keys = |scores: &Scores| scores.numbers().iter().map(|score| score.metric.key).collect::<Vec<_>>();
        let few = single(5).into_scores();
        assert_eq!(keys(&few), ["loss", "top1"]);
        assert_eq!(few.deciding().map(|score| score.metric.key), Some("top1"));
        assert_eq!(keys(&single(6).into_scores()), ["loss", "top1", "top5"]);
        // Images without any label: no class has a precision.
        let mut metrics = MultiLabel::new(2);
        metrics.add(&[0.3, -0.1], &[]);
        let metrics = LabelMetrics::Multi(metrics.report());
        let scores = ClassifyReport { names: names(2), metrics, mistakes: Vec::new() }.into_scores();
        assert_eq!((keys(&scores), scores.deciding()), (vec!["loss", "map"], None));
    }

    #[test]
    fn parts_that_do_not_fit_together_are_refused() {
        let sound = evaluation(single(2)).to_json();
        assert!(Evaluation::of_json(&sound).is_ok());
        for (key, value) in [
            ("/mistakes/0/label", Value::from(2)),
            ("/mistakes/0/answer", Value::from(7)),
            ("/confusion/0", serde_json::json!([1])),
            ("/most_confused/0/label", Value::from(9)),
            ("/classes", Value::from("text")),
            ("/mistakes", Value::from("text")),
            ("/top1", Value::from("text")),
            ("/step", Value::Null),
        ] {
            let mut damaged = sound.clone();
            *damaged.pointer_mut(key).unwrap_or_else(|| panic!("no {key}")) = value;
            assert!(Evaluation::of_json(&damaged).is_err(), "{key}");
        }
        assert!(Evaluation::of_json(&serde_json::json!({"step": 1, "epoch": 1.0, "data": "x"})).is_err());
    }
}
