//! The scores of a masked language model.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::measures::{cross_entropy, largest, perplexity};
use crate::ranks::Parcel;
use crate::scores::{Direction, Format, LOSS, Metric, PERPLEXITY, Report, Score, Scores, nan_if_null, read_report};

static MASKED_ACCURACY: Metric = Metric {
    key: "masked_accuracy",
    label: "accuracy of masked tokens",
    format: Format::Percent,
    direction: Direction::HigherIsBetter,
    decides: true,
};

pub(super) static METRICS: [&Metric; 3] = [&LOSS, &PERPLEXITY, &MASKED_ACCURACY];

/// The report of an evaluation of a masked language model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct MaskedTokensReport {
    /// The number of sequences.
    pub sequences: u64,
    /// The number of masked tokens.
    pub masked_tokens: u64,
    /// The mean cross-entropy per masked token, in nats.
    #[serde(deserialize_with = "nan_if_null")]
    pub loss: f64,
    /// `e^loss`.
    #[serde(deserialize_with = "nan_if_null")]
    pub perplexity: f64,
    /// The share of masked tokens that the most probable token is.
    #[serde(deserialize_with = "nan_if_null")]
    pub masked_accuracy: f64,
}

/// Sums over masked tokens.
#[derive(Debug, Default)]
pub(super) struct Sums {
    loss: f64,
    right: u64,
    tokens: u64,
}

impl Sums {
    /// Adds the logits of masked tokens, one row each, and what was there.
    pub fn add(&mut self, logits: &[f32], wanted: &[u32]) {
        let width = logits.len() / wanted.len().max(1);
        for (row, &token) in logits.chunks_exact(width.max(1)).zip(wanted) {
            self.loss += cross_entropy(row, token as usize);
            self.right += u64::from(row[token as usize] == row[largest(row)]);
            self.tokens += 1;
        }
    }

    /// For another rank.
    pub fn to_parcel(&self) -> Parcel {
        Parcel { counts: vec![self.right, self.tokens], doubles: vec![self.loss], ..Parcel::default() }
    }

    /// Adds the sums of a rank.
    pub fn take(&mut self, parcel: &Parcel) {
        let count = |index: usize| parcel.counts.get(index).copied().unwrap_or(0);
        self.loss += parcel.doubles.first().copied().unwrap_or(0.0);
        self.right += count(0);
        self.tokens += count(1);
    }

    pub fn report(&self, sequences: u64) -> MaskedTokensReport {
        MaskedTokensReport {
            sequences,
            masked_tokens: self.tokens,
            loss: self.loss / self.tokens as f64,
            perplexity: perplexity(self.loss, self.tokens),
            masked_accuracy: self.right as f64 / self.tokens as f64,
        }
    }
}

impl MaskedTokensReport {
    /// The report with its numbers.
    pub fn into_scores(self) -> Scores {
        let all = [(&LOSS, self.loss), (&PERPLEXITY, self.perplexity), (&MASKED_ACCURACY, self.masked_accuracy)];
        Scores::new(all.into_iter().map(|(metric, value)| Score { metric, value }).collect(), self)
    }

    /// Reads a report; `None` if it is of another task.
    pub(super) fn read(value: &Json) -> Option<Result<MaskedTokensReport, String>> {
        read_report(value, "masked_tokens")
    }
}

impl Report for MaskedTokensReport {
    fn to_json(&self) -> Json {
        serde_json::to_value(self).expect("plain data")
    }

    fn samples(&self) -> (u64, &'static str) {
        (self.masked_tokens, "masked tokens")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_loss_is_the_mean_over_masked_tokens() {
        let mut sums = Sums::default();
        sums.add(&[0.0, 0.0, 0.0, 0.0, 5.0, 5.0, 9.0, 5.0], &[1, 2]);
        let report = sums.report(1);
        let second = 1.0 + 3.0 * (-4.0f64).exp();
        assert!((report.loss - (4.0f64.ln() + second.ln()) / 2.0).abs() < 1e-9, "{report:?}");
        assert_eq!((report.masked_accuracy, report.masked_tokens), (1.0, 2));
        assert_eq!(MaskedTokensReport::read(&report.to_json()), Some(Ok(report)));
    }
}
