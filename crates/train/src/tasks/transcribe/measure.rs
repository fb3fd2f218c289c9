//! The report of an evaluation on recordings: the loss, and the errors of transcripts.

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;

use crate::measures::{Edits, character_edits, spoken, word_edits};
use crate::scores::{Direction, Format, LOSS, Metric, PERPLEXITY, Report, Score, Scores, nan_if_null, read_report};

const fn error_rate(key: &'static str, label: &'static str, decides: bool) -> Metric {
    Metric { key, label, format: Format::Percent, direction: Direction::LowerIsBetter, decides }
}

static WER: Metric = error_rate("wer", "word error rate", true);
static CER: Metric = error_rate("cer", "character error rate", false);
static PLAIN_WER: Metric =
    error_rate("wer_without_case_and_punctuation", "word error rate without case and punctuation", false);

pub(super) static METRICS: [&Metric; 5] = [&LOSS, &PERPLEXITY, &WER, &CER, &PLAIN_WER];

/// The report of an evaluation on recordings.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TranscribeReport {
    /// The number of recordings that were transcribed.
    pub transcribed: u64,
    /// The number of tokens that the loss is the mean over.
    pub tokens: u64,
    /// The mean cross-entropy per token, in nats.
    #[serde(deserialize_with = "nan_if_null")]
    pub loss: f64,
    /// `e^loss`.
    #[serde(deserialize_with = "nan_if_null")]
    pub perplexity: f64,
    /// Words that have to be changed, per word of the references.
    #[serde(deserialize_with = "nan_if_null")]
    pub wer: f64,
    /// Characters that have to be changed, per character of the references.
    #[serde(deserialize_with = "nan_if_null")]
    pub cer: f64,
    /// Words that have to be changed where case and punctuation do not count.
    #[serde(deserialize_with = "nan_if_null")]
    pub wer_without_case_and_punctuation: f64,
    /// Some transcripts.
    pub shown: Vec<ShownTranscript>,
}

/// A transcript beside what was said.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownTranscript {
    /// The recording.
    pub path: String,
    /// What was said.
    pub reference: String,
    /// What was written.
    pub transcript: String,
}

impl TranscribeReport {
    /// A report of the loss and of transcripts with their references.
    pub(super) fn new(
        (loss, tokens): (f64, u64),
        transcripts: &[(&str, String)],
        shown: Vec<ShownTranscript>,
    ) -> TranscribeReport {
        let all = |edits: &dyn Fn(&str, &str) -> Edits| {
            let sum = transcripts.iter().map(|(reference, written)| edits(reference, written));
            sum.fold(Edits::default(), |sum, edits| sum + edits).rate()
        };
        TranscribeReport {
            transcribed: transcripts.len() as u64,
            tokens,
            loss,
            perplexity: loss.exp(),
            wer: all(&word_edits),
            cer: all(&character_edits),
            wer_without_case_and_punctuation: all(&|reference, written| {
                word_edits(&spoken(reference), &spoken(written))
            }),
            shown,
        }
    }

    /// The report with its numbers.
    pub fn into_scores(self) -> Scores {
        let all = [
            (&LOSS, self.loss),
            (&PERPLEXITY, self.perplexity),
            (&WER, self.wer),
            (&CER, self.cer),
            (&PLAIN_WER, self.wer_without_case_and_punctuation),
        ];
        Scores::new(all.into_iter().map(|(metric, value)| Score { metric, value }).collect(), self)
    }

    /// Reads a report; `None` if it is of another task.
    pub(super) fn read(value: &Json) -> Option<Result<TranscribeReport, String>> {
        read_report(value, "transcribed")
    }
}

impl Report for TranscribeReport {
    fn to_json(&self) -> Json {
        serde_json::to_value(self).expect("plain data")
    }

    fn samples(&self) -> (u64, &'static str) {
        (self.transcribed, "recordings")
    }

    fn excerpt(&self) -> Vec<String> {
        let short = |text: &str| text.chars().take(200).collect::<String>();
        let lines = |shown: &ShownTranscript| [short(&shown.transcript), format!(" = {}", short(&shown.reference))];
        self.shown.iter().flat_map(lines).collect()
    }
}
