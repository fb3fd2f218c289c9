//! The scores of a token classifier.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::measures::{Average, EntityMeasures, Scheme};
use crate::scores::{Direction, Format, LOSS, Metric, Report, Score, Scores, nan_if_null, read_report};

static ENTITY_F1: Metric = Metric {
    key: "entity_f1",
    label: "entity F1",
    format: Format::Decimals(4),
    direction: Direction::HigherIsBetter,
    decides: true,
};

static TOKEN_ACCURACY: Metric = Metric {
    key: "token_accuracy",
    label: "accuracy of words",
    format: Format::Percent,
    direction: Direction::HigherIsBetter,
    decides: false,
};

pub(super) static METRICS: [&Metric; 3] = [&LOSS, &ENTITY_F1, &TOKEN_ACCURACY];

/// The report of an evaluation of a token classifier.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TagReport {
    /// The number of sentences.
    pub sentences: u64,
    /// The number of words.
    pub words: u64,
    /// The mean cross-entropy per word.
    #[serde(deserialize_with = "nan_if_null")]
    pub loss: f64,
    /// F1 of entities, as seqeval counts them.
    pub entity_f1: f64,
    /// Their precision.
    pub entity_precision: f64,
    /// Their recall.
    pub entity_recall: f64,
    /// The share of words with the right tag.
    #[serde(deserialize_with = "nan_if_null")]
    pub token_accuracy: f64,
    /// Precision, recall, F1 and number of each type of entity.
    pub types: Vec<EntityTypeReport>,
}

/// The scores of one type of entity.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EntityTypeReport {
    /// Its name.
    pub name: String,
    /// How many there are.
    pub entities: u64,
    /// Precision.
    pub precision: f64,
    /// Recall.
    pub recall: f64,
    /// F1.
    pub f1: f64,
}

/// The words of a sentence: expected and predicted tags, and the loss of each word.
#[derive(Clone, Debug, Default)]
pub struct TaggedWords {
    /// Expected tags.
    pub expected: Vec<u32>,
    /// Predicted tags.
    pub predicted: Vec<u32>,
    /// The sum of the words' losses.
    pub loss: f64,
}

/// Measures sentences.
pub fn measure(sentences: &[TaggedWords], tags: &[String]) -> Result<TagReport, String> {
    let name = |&tag: &u32| tags.get(tag as usize).map_or("O", String::as_str);
    let mut measures = EntityMeasures::default();
    let (mut words, mut right, mut loss) = (0, 0, 0.0);
    for sentence in sentences {
        let expected: Vec<&str> = sentence.expected.iter().map(name).collect();
        let predicted: Vec<&str> = sentence.predicted.iter().map(name).collect();
        measures.add(&expected, &predicted, Scheme::Lenient)?;
        words += expected.len() as u64;
        right += sentence.expected.iter().zip(&sentence.predicted).filter(|(e, p)| e == p).count() as u64;
        loss += sentence.loss;
    }
    let types = measures.types().iter().map(|(name, counts)| EntityTypeReport {
        name: name.clone(),
        entities: counts.expected,
        precision: counts.precision(),
        recall: counts.recall(),
        f1: counts.f1(),
    });
    Ok(TagReport {
        sentences: sentences.len() as u64,
        words,
        loss: loss / words as f64,
        entity_f1: measures.f1(Average::Micro),
        entity_precision: measures.precision(Average::Micro),
        entity_recall: measures.recall(Average::Micro),
        token_accuracy: right as f64 / words as f64,
        types: types.collect(),
    })
}

impl TagReport {
    /// The report with its numbers.
    pub fn into_scores(self) -> Scores {
        let all = [(&LOSS, self.loss), (&ENTITY_F1, self.entity_f1), (&TOKEN_ACCURACY, self.token_accuracy)];
        Scores::new(all.into_iter().map(|(metric, value)| Score { metric, value }).collect(), self)
    }

    /// Reads a report; `None` if it is of another task.
    pub(super) fn read(value: &Json) -> Option<Result<TagReport, String>> {
        read_report(value, "entity_f1")
    }
}

impl Report for TagReport {
    fn to_json(&self) -> Json {
        serde_json::to_value(self).expect("plain data")
    }

    fn samples(&self) -> (u64, &'static str) {
        (self.sentences, "sentences")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn entities_count_whole() {
        let tags: Vec<String> = ["O", "B-PER", "I-PER", "B-LOC"].map(str::to_string).to_vec();
        let sentence = |expected: &[u32], predicted: &[u32]| TaggedWords {
            expected: expected.to_vec(),
            predicted: predicted.to_vec(),
            loss: 0.5 * expected.len() as f64,
        };
        // Right: PER of the first sentence; too short: PER of the second; right: LOC.
        let report = measure(&[sentence(&[1, 2, 0], &[1, 2, 0]), sentence(&[1, 2, 3], &[1, 0, 3])], &tags);
        let report = report.expect("tags");
        assert!((report.entity_f1 - 2.0 / 3.0).abs() < 1e-12, "{report:?}");
        assert!((report.token_accuracy - 5.0 / 6.0).abs() < 1e-12 && (report.loss - 0.5).abs() < 1e-12);
        assert_eq!(
            report.types.iter().map(|t| (t.name.as_str(), t.entities)).collect::<Vec<_>>(),
            [("LOC", 1), ("PER", 2)]
        );
        assert_eq!(TagReport::read(&report.to_json()), Some(Ok(report)));
    }
}
