//! Evaluation of a translator on the validation pairs.

use serde::{Deserialize, Serialize};
use serde_json::Value;
use vitreous_engine::{State, WeightView};
use vitreous_models::generate::SearchOptions;

use super::TranslateTask;
use super::measure::{self, TranslatorScores, TranslatorTest, longest_side};
use crate::error::TrainError;
use crate::ranks::Ranks;
use crate::scores::{Direction, Format, LOSS, Metric, PERPLEXITY, Report, Score, Scores, nan_if_null, read_report};

pub(crate) static BLEU: Metric = Metric {
    key: "bleu",
    label: "BLEU",
    format: Format::Decimals(2),
    direction: Direction::HigherIsBetter,
    decides: true,
};

pub(crate) static CHRF: Metric = Metric {
    key: "chrf",
    label: "chrF",
    format: Format::Decimals(2),
    direction: Direction::HigherIsBetter,
    decides: false,
};

pub(super) static METRICS: [&Metric; 4] = [&LOSS, &PERPLEXITY, &BLEU, &CHRF];

/// The report of an evaluation of a translator.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct TranslationReport {
    /// The number of pairs that were translated.
    pub pairs: u64,
    /// The number of tokens that the loss is the mean over.
    pub tokens: u64,
    /// The mean cross-entropy per token, in nats, without label smoothing.
    #[serde(deserialize_with = "nan_if_null")]
    pub loss: f64,
    /// `e^loss`.
    #[serde(deserialize_with = "nan_if_null")]
    pub perplexity: f64,
    /// BLEU, from 0 to 100.
    pub bleu: f64,
    /// How it was computed.
    pub bleu_signature: String,
    /// 1- to 4-gram precision, in percent.
    pub precisions: [f64; 4],
    /// BLEU's factor for translations that are too short.
    pub brevity_penalty: f64,
    /// chrF, from 0 to 100.
    pub chrf: f64,
    /// How it was computed.
    pub chrf_signature: String,
    /// Some translations.
    pub shown: Vec<ShownTranslation>,
}

/// A sentence, its reference and its translation.
#[derive(Clone, Debug, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShownTranslation {
    /// The sentence.
    pub source: String,
    /// The translation in the data.
    pub reference: String,
    /// The translation of the model.
    pub translation: String,
}

impl TranslationReport {
    /// The report with its numbers.
    pub fn into_scores(self) -> Scores {
        let all = [(&LOSS, self.loss), (&PERPLEXITY, self.perplexity), (&BLEU, self.bleu), (&CHRF, self.chrf)];
        Scores::new(all.into_iter().map(|(metric, value)| Score { metric, value }).collect(), self)
    }

    /// Reads a report; `None` if it is of another task.
    pub(super) fn read(value: &Value) -> Option<Result<TranslationReport, String>> {
        read_report(value, "bleu")
    }
}

impl Report for TranslationReport {
    fn to_json(&self) -> Value {
        serde_json::to_value(self).expect("plain data")
    }

    fn samples(&self) -> (u64, &'static str) {
        (self.pairs, "sentences")
    }

    fn excerpt(&self) -> Vec<String> {
        let lines = |shown: &ShownTranslation| [shown.source.clone(), format!("-> {}", shown.translation)];
        self.shown.iter().flat_map(lines).collect()
    }
}

/// Bytes of a GPU's memory that an evaluation takes, for sentences as long as the longest of the training pairs.
pub(super) fn gpu_bytes(task: &TranslateTask) -> Result<usize, TrainError> {
    let TranslateTask { recipe, settings, model, facts, device, .. } = task;
    let longest = facts.row_sizes.iter().copied().max().unwrap_or(1);
    let sizes = (settings.train.tokens, longest);
    measure::gpu_bytes(model.architecture.as_ref(), recipe.train.precision.into(), sizes, device)
}

/// Evaluates the state's parameters; `None` without validation pairs.
pub(super) fn evaluate(
    task: &TranslateTask,
    state: &State,
    ranks: &Ranks,
    progress: &mut dyn FnMut(usize, usize),
) -> Result<Option<Scores>, TrainError> {
    let TranslateTask { recipe, settings, model, data, device, .. } = task;
    if data.validation.is_empty() {
        return Ok(None);
    }
    let decoding = &settings.test;
    let test = TranslatorTest {
        model: model.architecture.as_ref(),
        tokenisers: &data.tokenisers,
        weights: &|name| state.parameter(name).map(WeightView::from),
        search: SearchOptions { beam: decoding.beam, length_penalty: decoding.length_penalty },
        tokens: settings.train.tokens,
        max_tokens: longest_side(model.architecture.as_ref()),
        device,
        precision: recipe.train.precision.into(),
        ranks,
    };
    let sentences = match decoding.sentences {
        0 => usize::MAX,
        most => most,
    };
    let scores = test.run(&data.validation, sentences, progress)?;
    let TranslatorScores { loss, tokens, translations, bleu, chrf, .. } = scores;
    let count = translations.len();
    // Spread over the data, the same ones after every epoch.
    let shown = decoding.shown.min(count);
    let shown = (0..shown).map(|index| index * count / shown).map(|index| ShownTranslation {
        source: data.validation[index].source.clone(),
        reference: data.validation[index].target.clone(),
        translation: translations[index].clone(),
    });
    let report = TranslationReport {
        pairs: count as u64,
        tokens,
        loss,
        perplexity: loss.exp(),
        bleu: bleu.score,
        bleu_signature: bleu.signature(),
        precisions: bleu.precisions,
        brevity_penalty: bleu.brevity_penalty,
        chrf: chrf.score,
        chrf_signature: chrf.signature(),
        shown: shown.collect(),
    };
    Ok(Some(report.into_scores()))
}
