//! The scores of a text classifier.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use vitreous_data::text::LabelledText;

use crate::measures::{
    Average, ClassMeasures, binary_cross_entropy, cross_entropy, largest, pearson, softmax, spearman,
};
use crate::scores::{Direction, Format, LOSS, Metric, Report, Score, Scores, nan_if_null, read_report};
use crate::tasks::text::beginning;

static ACCURACY: Metric = Metric {
    key: "accuracy",
    label: "accuracy",
    format: Format::Percent,
    direction: Direction::HigherIsBetter,
    decides: true,
};

static MACRO_F1: Metric = Metric {
    key: "macro_f1",
    label: "macro F1",
    format: Format::Decimals(4),
    direction: Direction::HigherIsBetter,
    decides: false,
};

static MICRO_F1: Metric = Metric {
    key: "micro_f1",
    label: "micro F1",
    format: Format::Decimals(4),
    direction: Direction::HigherIsBetter,
    decides: true,
};

static MATTHEWS: Metric = Metric {
    key: "matthews",
    label: "Matthews correlation",
    format: Format::Decimals(4),
    direction: Direction::HigherIsBetter,
    decides: false,
};

static PEARSON: Metric = Metric {
    key: "pearson",
    label: "Pearson correlation",
    format: Format::Decimals(4),
    direction: Direction::HigherIsBetter,
    decides: true,
};

static SPEARMAN: Metric = Metric {
    key: "spearman",
    label: "Spearman correlation",
    format: Format::Decimals(4),
    direction: Direction::HigherIsBetter,
    decides: false,
};

pub(super) static METRICS: [&Metric; 7] = [&LOSS, &ACCURACY, &MACRO_F1, &MICRO_F1, &MATTHEWS, &PEARSON, &SPEARMAN];

/// What is predicted of a text.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum Predicted {
    /// One class.
    Class,
    /// Any number of labels.
    Labels,
    /// A number.
    Number,
}

/// The report of an evaluation of a text classifier.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TextClassReport {
    /// What is predicted.
    pub predicted: Predicted,
    /// The number of texts.
    pub texts: u64,
    /// The mean loss.
    #[serde(deserialize_with = "nan_if_null")]
    pub loss: f64,
    /// The other numbers by key.
    pub numbers: Vec<(String, Option<f64>)>,
    /// Precision, recall, F1 and number of texts of each label; empty for numbers.
    pub labels: Vec<LabelReport>,
    /// Rows are true classes, columns are predictions; empty unless one class is predicted and there are few.
    pub confusion: Vec<Vec<u64>>,
    /// The most confident mistakes.
    pub mistakes: Vec<TextMistake>,
}

/// The scores of one label.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LabelReport {
    /// Its name.
    pub name: String,
    /// How many texts have it.
    pub texts: u64,
    /// Precision.
    pub precision: f64,
    /// Recall.
    pub recall: f64,
    /// F1.
    pub f1: f64,
}

/// A text that got another class than it has.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TextMistake {
    /// Its beginning.
    pub text: String,
    /// Its class.
    pub label: String,
    /// The predicted class.
    pub predicted: String,
    /// Its probability.
    pub score: f64,
}

/// The most classes that a confusion matrix is kept for.
const MOST_CONFUSED: usize = 100;
/// Mistakes that are kept.
const MOST_MISTAKES: usize = 20;

/// Compares logits, one row per text, with what the texts have. `classes` are names, in the order of the logits.
pub fn measure(
    predicted: Predicted,
    classes: &[String],
    texts: &[LabelledText],
    logits: &[Vec<f32>],
) -> TextClassReport {
    let mut report = TextClassReport {
        predicted,
        texts: texts.len() as u64,
        loss: f64::NAN,
        numbers: Vec::new(),
        labels: Vec::new(),
        confusion: Vec::new(),
        mistakes: Vec::new(),
    };
    match predicted {
        Predicted::Class => measure_classes(&mut report, classes, texts, logits),
        Predicted::Labels => measure_labels(&mut report, classes, texts, logits),
        Predicted::Number => {
            let expected: Vec<f64> = texts.iter().map(|text| f64::from(text.number.unwrap_or(f32::NAN))).collect();
            let found: Vec<f64> = logits.iter().map(|row| f64::from(row[0])).collect();
            let squares = expected.iter().zip(&found).map(|(e, f)| (e - f).powi(2));
            report.loss = squares.sum::<f64>() / expected.len() as f64;
            report.push(&PEARSON, pearson(&expected, &found));
            report.push(&SPEARMAN, spearman(&expected, &found));
        }
    }
    report
}

fn measure_classes(report: &mut TextClassReport, classes: &[String], texts: &[LabelledText], logits: &[Vec<f32>]) {
    let expected: Vec<usize> = texts.iter().map(|text| text.labels.first().map_or(0, |&l| l as usize)).collect();
    let found: Vec<usize> = logits.iter().map(|row| largest(row)).collect();
    let losses = logits.iter().zip(&expected).map(|(row, &label)| cross_entropy(row, label));
    report.loss = losses.sum::<f64>() / expected.len() as f64;
    let mut mistakes = Vec::new();
    for (((row, &label), &best), text) in logits.iter().zip(&expected).zip(&found).zip(texts) {
        if best != label {
            mistakes.push((softmax(row)[best], text, label, best));
        }
    }
    let measures = ClassMeasures::of(&expected, &found);
    report.push(&ACCURACY, measures.accuracy());
    report.push(&MACRO_F1, measures.f1(Average::Macro));
    report.push(&MATTHEWS, measures.matthews());
    report.set_labels(&measures, classes);
    if classes.len() <= MOST_CONFUSED {
        report.confusion = vec![vec![0; classes.len()]; classes.len()];
        expected.iter().zip(&found).for_each(|(&label, &best)| report.confusion[label][best] += 1);
    }
    mistakes.sort_by(|a, b| b.0.total_cmp(&a.0));
    let name = |class: usize| classes.get(class).cloned().unwrap_or_else(|| format!("class {class}"));
    report.mistakes = mistakes
        .into_iter()
        .take(MOST_MISTAKES)
        .map(|(score, text, label, best)| TextMistake {
            text: beginning(&text.text, 200),
            label: name(label),
            predicted: name(best),
            score,
        })
        .collect();
}

fn measure_labels(report: &mut TextClassReport, classes: &[String], texts: &[LabelledText], logits: &[Vec<f32>]) {
    let count = classes.len();
    let mut expected = vec![false; texts.len() * count];
    for (row, text) in expected.chunks_exact_mut(count.max(1)).zip(texts) {
        text.labels.iter().for_each(|&label| row[label as usize] = true);
    }
    let all: Vec<f32> = logits.iter().flatten().copied().collect();
    let found: Vec<bool> = all.iter().map(|&logit| logit > 0.0).collect();
    let losses = all.iter().zip(&expected).map(|(&logit, &is_there)| binary_cross_entropy(logit, is_there));
    report.loss = losses.sum::<f64>() / all.len() as f64;
    let measures = ClassMeasures::of_several(&expected, &found, count);
    report.push(&MICRO_F1, measures.f1(Average::Micro));
    report.push(&MACRO_F1, measures.f1(Average::Macro));
    report.set_labels(&measures, classes);
}

impl TextClassReport {
    fn push(&mut self, metric: &Metric, value: f64) {
        self.numbers.push((metric.key.to_string(), value.is_finite().then_some(value)));
    }

    fn set_labels(&mut self, measures: &ClassMeasures, classes: &[String]) {
        let of = measures.counts().iter().zip(classes);
        self.labels = of
            .map(|(counts, name)| LabelReport {
                name: name.clone(),
                texts: counts.expected,
                precision: counts.precision(),
                recall: counts.recall(),
                f1: counts.f1(),
            })
            .collect();
    }

    /// The report with its numbers.
    pub fn into_scores(self) -> Scores {
        let mut numbers = vec![Score { metric: &LOSS, value: self.loss }];
        for (key, value) in &self.numbers {
            if let Some(metric) = METRICS.iter().find(|metric| metric.key == key) {
                numbers.push(Score { metric, value: value.unwrap_or(f64::NAN) });
            }
        }
        Scores::new(numbers, self)
    }

    /// Reads a report; `None` if it is of another task.
    pub(super) fn read(value: &Json) -> Option<Result<TextClassReport, String>> {
        read_report(value, "predicted")
    }
}

impl Report for TextClassReport {
    fn to_json(&self) -> Json {
        serde_json::to_value(self).expect("plain data")
    }

    fn samples(&self) -> (u64, &'static str) {
        (self.texts, "texts")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn text(labels: &[u32], number: Option<f32>) -> LabelledText {
        LabelledText { text: "words".to_string(), pair: None, labels: labels.to_vec(), number }
    }

    fn names(count: usize) -> Vec<String> {
        (0..count).map(|class| format!("c{class}")).collect()
    }

    #[test]
    fn classes_are_measured_by_their_largest_logit() {
        let texts: Vec<LabelledText> = [0, 1, 2, 1].map(|label| text(&[label], None)).to_vec();
        let logits = vec![vec![2.0, 0.0, 0.0], vec![0.0, 3.0, 0.0], vec![1.0, 0.0, 0.0], vec![0.0, 1.0, 0.0]];
        let report = measure(Predicted::Class, &names(3), &texts, &logits);
        let scores = report.clone().into_scores();
        assert_eq!(scores.get("accuracy"), Some(0.75));
        assert_eq!(report.confusion, [[1, 0, 0], [0, 2, 0], [1, 0, 0]]);
        assert_eq!(report.mistakes.len(), 1);
        assert_eq!((report.mistakes[0].label.as_str(), report.mistakes[0].predicted.as_str()), ("c2", "c0"));
        // -log softmax: computed by hand.
        let sum = |row: &[f64]| row.iter().map(|x| x.exp()).sum::<f64>().ln();
        let by_hand = (sum(&[2.0, 0.0, 0.0]) - 2.0 + sum(&[3.0, 0.0, 0.0]) - 3.0 + sum(&[1.0, 0.0, 0.0]) - 0.0
            + sum(&[1.0, 0.0, 0.0])
            - 1.0)
            / 4.0;
        assert!((report.loss - by_hand).abs() < 1e-7, "{} {by_hand}", report.loss);
        let json = report.to_json();
        assert_eq!(TextClassReport::read(&json), Some(Ok(report)));
    }

    #[test]
    fn several_labels_and_numbers_have_their_own_measures() {
        let texts = vec![text(&[0, 2], None), text(&[], None)];
        let logits = vec![vec![1.0, -1.0, 1.0], vec![-1.0, 2.0, -1.0]];
        let scores = measure(Predicted::Labels, &names(3), &texts, &logits).into_scores();
        assert_eq!(scores.get("micro_f1"), Some(0.8));
        let texts: Vec<LabelledText> = [1.0, 2.0, 3.0].map(|number| text(&[], Some(number))).to_vec();
        let logits = vec![vec![1.0], vec![2.5], vec![3.5]];
        let scores = measure(Predicted::Number, &names(1), &texts, &logits).into_scores();
        assert!((scores.get("spearman").expect("a score") - 1.0).abs() < 1e-12);
        assert!((scores.get("loss").expect("a score") - 0.5 / 3.0).abs() < 1e-6);
    }
}
