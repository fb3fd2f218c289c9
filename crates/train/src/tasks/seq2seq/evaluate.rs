//! The reports of evaluations: texts that were written, and the loss of texts that were made worse.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::rouge::Rouge;
use crate::scores::{Direction, Format, LOSS, Metric, PERPLEXITY, Report, Score, Scores, nan_if_null, read_report};
use crate::tasks::translate::scores::{Bleu, Chrf};
use crate::tasks::translate::{BLEU, CHRF, ShownTranslation};

macro_rules! rouge_metric {
    ($name:ident, $key:literal, $label:literal) => {
        static $name: Metric = Metric {
            key: $key,
            label: $label,
            format: Format::Decimals(2),
            direction: Direction::HigherIsBetter,
            decides: false,
        };
    };
}

rouge_metric!(ROUGE1, "rouge1", "ROUGE-1");
rouge_metric!(ROUGE2, "rouge2", "ROUGE-2");
rouge_metric!(ROUGE_L, "rouge_l", "ROUGE-L");

pub(super) static METRICS: [&Metric; 7] = [&LOSS, &PERPLEXITY, &BLEU, &CHRF, &ROUGE1, &ROUGE2, &ROUGE_L];
pub(super) static LOSSES: [&Metric; 2] = [&LOSS, &PERPLEXITY];

/// The report of an evaluation on pairs.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Seq2SeqReport {
    /// The number of texts that were written.
    pub written: u64,
    /// The number of tokens that the loss is the mean over.
    pub tokens: u64,
    /// The mean cross-entropy per token, in nats, without label smoothing.
    #[serde(deserialize_with = "nan_if_null")]
    pub loss: f64,
    /// `e^loss`.
    #[serde(deserialize_with = "nan_if_null")]
    pub perplexity: f64,
    /// BLEU, from 0 to 100.
    pub sacrebleu: f64,
    /// How it was computed.
    pub bleu_signature: String,
    /// chrF, from 0 to 100.
    pub chrf: f64,
    /// How it was computed.
    pub chrf_signature: String,
    /// ROUGE-1, from 0 to 100.
    pub rouge1: f64,
    /// ROUGE-2.
    pub rouge2: f64,
    /// ROUGE-L.
    pub rouge_l: f64,
    /// Some texts.
    pub shown: Vec<ShownTranslation>,
}

impl Seq2SeqReport {
    /// A report of the loss and of texts that were written.
    pub(super) fn new(
        (loss, tokens): (f64, u64),
        written: usize,
        (bleu, chrf, rouge): (Bleu, Chrf, Rouge),
        shown: Vec<ShownTranslation>,
    ) -> Seq2SeqReport {
        Seq2SeqReport {
            written: written as u64,
            tokens,
            loss,
            perplexity: loss.exp(),
            sacrebleu: bleu.score,
            bleu_signature: bleu.signature(),
            chrf: chrf.score,
            chrf_signature: chrf.signature(),
            rouge1: rouge.rouge1,
            rouge2: rouge.rouge2,
            rouge_l: rouge.rouge_l,
            shown,
        }
    }

    /// The report with its numbers.
    pub fn into_scores(self) -> Scores {
        let all = [
            (&LOSS, self.loss),
            (&PERPLEXITY, self.perplexity),
            (&BLEU, self.sacrebleu),
            (&CHRF, self.chrf),
            (&ROUGE1, self.rouge1),
            (&ROUGE2, self.rouge2),
            (&ROUGE_L, self.rouge_l),
        ];
        Scores::new(all.into_iter().map(|(metric, value)| Score { metric, value }).collect(), self)
    }

    /// Reads a report; `None` if it is of another task.
    pub(super) fn read(value: &Value) -> Option<Result<Seq2SeqReport, String>> {
        read_report(value, "sacrebleu")
    }
}

impl Report for Seq2SeqReport {
    fn to_json(&self) -> Value {
        serde_json::to_value(self).expect("plain data")
    }

    fn samples(&self) -> (u64, &'static str) {
        (self.written, "texts")
    }

    fn excerpt(&self) -> Vec<String> {
        let short = |text: &str| text.chars().take(200).collect::<String>();
        let lines = |shown: &ShownTranslation| [short(&shown.source), format!("-> {}", short(&shown.translation))];
        self.shown.iter().flat_map(lines).collect()
    }
}

/// The report of an evaluation of pre-training.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct CorruptedReport {
    /// The number of sequences.
    pub corrupted_sequences: u64,
    /// The number of tokens that the loss is the mean over.
    pub tokens: u64,
    /// The mean cross-entropy per token, in nats.
    #[serde(deserialize_with = "nan_if_null")]
    pub loss: f64,
    /// `e^loss`.
    #[serde(deserialize_with = "nan_if_null")]
    pub perplexity: f64,
}

impl CorruptedReport {
    /// The report with its numbers.
    pub fn into_scores(self) -> Scores {
        let all = [(&LOSS, self.loss), (&PERPLEXITY, self.perplexity)];
        Scores::new(all.into_iter().map(|(metric, value)| Score { metric, value }).collect(), self)
    }

    /// Reads a report; `None` if it is of another task.
    pub(super) fn read(value: &Value) -> Option<Result<CorruptedReport, String>> {
        read_report(value, "corrupted_sequences")
    }
}

impl Report for CorruptedReport {
    fn to_json(&self) -> Value {
        serde_json::to_value(self).expect("plain data")
    }

    fn samples(&self) -> (u64, &'static str) {
        (self.corrupted_sequences, "sequences")
    }

    fn excerpt(&self) -> Vec<String> {
        Vec::new()
    }
}
