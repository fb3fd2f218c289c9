//! The scores of sentence embeddings: whether texts find those that belong to them.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::scores::{Direction, Format, LOSS, Metric, Report, Score, Scores, nan_if_null, read_report};

static RETRIEVAL: Metric = Metric {
    key: "retrieval",
    label: "retrieval accuracy",
    format: Format::Percent,
    direction: Direction::HigherIsBetter,
    decides: true,
};

static RECIPROCAL_RANK: Metric = Metric {
    key: "mrr",
    label: "mean reciprocal rank",
    format: Format::Decimals(4),
    direction: Direction::HigherIsBetter,
    decides: false,
};

pub(super) static METRICS: [&Metric; 3] = [&LOSS, &RETRIEVAL, &RECIPROCAL_RANK];

/// The report of an evaluation of sentence embeddings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EmbeddingReport {
    /// The number of pairs.
    pub pairs: u64,
    /// The mean loss, with batches as in training.
    #[serde(deserialize_with = "nan_if_null")]
    pub loss: f64,
    /// How often a first text's nearest of all second ones is its own.
    pub retrieval: f64,
    /// The mean of 1 / rank of the own one.
    pub mrr: f64,
    /// The mean cosine of texts that belong together.
    pub cosine_of_pairs: f64,
}

/// Compares the vectors of first and second texts, with the loss of batches of so many.
pub fn measure(first: &[Vec<f32>], second: &[Vec<f32>], scale: f64, batch: usize) -> EmbeddingReport {
    let unit = |vector: &Vec<f32>| -> Vec<f64> {
        let length = vector.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt().max(1e-12);
        vector.iter().map(|&x| f64::from(x) / length).collect()
    };
    let (first, second): (Vec<_>, Vec<_>) = (first.iter().map(unit).collect(), second.iter().map(unit).collect());
    let dot = |a: &[f64], b: &[f64]| a.iter().zip(b).map(|(a, b)| a * b).sum::<f64>();
    let (mut loss, mut found, mut ranks, mut own_cosines) = (0.0, 0u64, 0.0, 0.0);
    for (index, vector) in first.iter().enumerate() {
        let cosines: Vec<f64> = second.iter().map(|other| dot(vector, other)).collect();
        let own = cosines[index];
        let better = cosines.iter().filter(|&&cosine| cosine > own).count();
        found += u64::from(better == 0);
        ranks += 1.0 / (1 + better) as f64;
        own_cosines += own;
        let start = index / batch * batch;
        let others = &cosines[start..(start + batch).min(cosines.len())];
        let largest = others.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let sum: f64 = others.iter().map(|cosine| (scale * (cosine - largest)).exp()).sum();
        loss += sum.ln() - scale * (own - largest);
    }
    let count = first.len() as f64;
    EmbeddingReport {
        pairs: first.len() as u64,
        loss: loss / count,
        retrieval: found as f64 / count,
        mrr: ranks / count,
        cosine_of_pairs: own_cosines / count,
    }
}

impl EmbeddingReport {
    /// The report with its numbers.
    pub fn into_scores(self) -> Scores {
        let all = [(&LOSS, self.loss), (&RETRIEVAL, self.retrieval), (&RECIPROCAL_RANK, self.mrr)];
        Scores::new(all.into_iter().map(|(metric, value)| Score { metric, value }).collect(), self)
    }

    /// Reads a report; `None` if it is of another task.
    pub(super) fn read(value: &Json) -> Option<Result<EmbeddingReport, String>> {
        read_report(value, "retrieval")
    }
}

impl Report for EmbeddingReport {
    fn to_json(&self) -> Json {
        serde_json::to_value(self).expect("plain data")
    }

    fn samples(&self) -> (u64, &'static str) {
        (self.pairs, "pairs")
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn texts_find_their_own() {
        let first = vec![vec![1.0, 0.0], vec![0.0, 2.0], vec![1.0, 1.0]];
        // The last one is nearer to the first than to its own.
        let second = vec![vec![3.0, 0.0], vec![0.0, 1.0], vec![-1.0, 1.0]];
        let report = measure(&first, &second, 1.0, 2);
        assert!((report.retrieval - 2.0 / 3.0).abs() < 1e-12 && (report.mrr - (2.0 + 1.0 / 3.0) / 3.0).abs() < 1e-12);
        // Batches of two: the third is alone, and cannot be wrong.
        let by_hand = 2.0 * (1.0 + (-1.0f64).exp()).ln() / 3.0;
        assert!((report.loss - by_hand).abs() < 1e-9, "{} {by_hand}", report.loss);
    }
}
