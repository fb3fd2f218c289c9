//! The scores of a language model, and what it writes.

use std::ops::Range;

use serde::{Deserialize, Serialize};
use serde_json::Value as Json;
use vitreous_data::text::{TextStream, TextTokenizer, TokenSequence, TokenSequences};
use vitreous_engine::{Device, Precision, State, WeightView};
use vitreous_models::Architecture;
use vitreous_models::generate::{GenerateOptions, Request, SamplingOptions, TokenGenerator};
use vitreous_models::score::{ScoredTokens, TokenScorer};

use super::settings::LanguageTestSettings;
use crate::error::TrainError;
use crate::measures::perplexity;
use crate::ranks::{Parcel, Ranks};
use crate::scores::{Direction, Format, LOSS, Metric, PERPLEXITY, Report, Score, Scores, nan_if_null, read_report};

static BITS_PER_BYTE: Metric = Metric {
    key: "bits_per_byte",
    label: "bits per byte",
    format: Format::Decimals(4),
    direction: Direction::LowerIsBetter,
    decides: true,
};

pub(super) static METRICS: [&Metric; 3] = [&LOSS, &PERPLEXITY, &BITS_PER_BYTE];

/// Sequences that are scored before progress is told.
const AT_ONCE: usize = 32;

/// The report of an evaluation of a language model.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct LanguageReport {
    /// The number of sequences.
    pub sequences: u64,
    /// The number of predicted tokens.
    pub predicted_tokens: u64,
    /// The bytes of text that they are.
    pub predicted_bytes: u64,
    /// The mean cross-entropy per token, in nats.
    #[serde(deserialize_with = "nan_if_null")]
    pub loss: f64,
    /// `e^loss`.
    #[serde(deserialize_with = "nan_if_null")]
    pub perplexity: f64,
    /// Cross-entropy in bits per byte of text, which does not depend on the vocabulary.
    #[serde(deserialize_with = "nan_if_null")]
    pub bits_per_byte: f64,
    /// What the model went on with.
    pub prompt: String,
    /// What it wrote.
    pub sample: String,
}

impl LanguageReport {
    /// The report with its numbers.
    pub fn into_scores(self) -> Scores {
        let all = [(&LOSS, self.loss), (&PERPLEXITY, self.perplexity), (&BITS_PER_BYTE, self.bits_per_byte)];
        Scores::new(all.into_iter().map(|(metric, value)| Score { metric, value }).collect(), self)
    }

    /// Reads a report; `None` if it is of another task.
    pub(super) fn read(value: &Json) -> Option<Result<LanguageReport, String>> {
        read_report(value, "predicted_bytes")
    }
}

impl Report for LanguageReport {
    fn to_json(&self) -> Json {
        serde_json::to_value(self).expect("plain data")
    }

    fn samples(&self) -> (u64, &'static str) {
        (self.predicted_tokens, "tokens")
    }

    fn excerpt(&self) -> Vec<String> {
        let text = format!("{}{}", self.prompt, self.sample);
        text.lines().filter(|line| !line.trim().is_empty()).take(8).map(|line| format!("| {line}")).collect()
    }
}

/// A language model that is evaluated while it is trained.
pub(super) struct LanguageTest<'t> {
    pub architecture: &'t dyn Architecture,
    pub tokenizer: &'t TextTokenizer,
    pub state: &'t State,
    pub precision: Precision,
    pub device: &'t Device,
    /// Whether documents in one sequence are kept apart.
    pub apart: bool,
    /// Bytes of each token.
    pub bytes: &'t [u32],
    /// The tokens that end a text.
    pub ends: &'t [u32],
    /// The processes that share the sequences out.
    pub ranks: &'t Ranks,
}

/// A text that is scored: a sequence, or one document of it.
struct Part<'s> {
    row: TokenSequence<'s>,
    /// Its tokens, and the one behind them that is predicted.
    range: Range<usize>,
}

impl LanguageTest<'_> {
    /// Scores sequences and writes a sample.
    pub fn run(
        &self,
        sequences: &TokenSequences,
        settings: &LanguageTestSettings,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<LanguageReport, TrainError> {
        let most = if settings.tokens == 0 { usize::MAX } else { settings.tokens };
        let count = sequences.len().min((most / sequences.length().max(1)).max(1));
        let weights = Box::new(|name: &str| self.state.parameter(name).map(WeightView::from));
        let mut scorer = TokenScorer::new(self.architecture, self.precision, self.device, weights)?;
        let (mut loss, mut tokens, mut bytes) = (0.0, 0, 0);
        let rows: Vec<usize> = (0..count).collect();
        let chunks: Vec<&[usize]> = rows.chunks(AT_ONCE).collect();
        let work = |index: usize| self.score(&mut scorer, sequences, chunks[index]);
        let take = |index: usize, parcel: &Parcel| {
            parcel.doubles.iter().for_each(|score| loss -= score);
            tokens += parcel.doubles.len() as u64;
            bytes += parcel.counts.iter().sum::<u64>();
            progress(chunks[index][0] + chunks[index].len(), count);
            Ok(())
        };
        self.ranks.share_out(chunks.len(), work, take)?;
        drop(scorer);
        // Rank 0 tells what was written.
        let is_silent = settings.sample_tokens == 0 || !self.ranks.is_first();
        let sample = if is_silent { String::new() } else { self.sample(settings)? };
        Ok(LanguageReport {
            sequences: count as u64,
            predicted_tokens: tokens,
            predicted_bytes: bytes,
            loss: loss / tokens as f64,
            perplexity: perplexity(loss, tokens),
            bits_per_byte: loss / std::f64::consts::LN_2 / bytes as f64,
            prompt: settings.prompt.clone(),
            sample,
        })
    }

    /// The scores of the predicted tokens of some sequences, and their bytes.
    fn score(
        &self,
        scorer: &mut TokenScorer,
        sequences: &TokenSequences,
        rows: &[usize],
    ) -> Result<Parcel, TrainError> {
        let parts: Vec<Part> = rows.iter().flat_map(|&row| self.parts(sequences.row(row))).collect();
        let scored: Vec<ScoredTokens> =
            parts.iter().map(|part| ScoredTokens { ids: &part.row.tokens[part.range.clone()], from: 1 }).collect();
        let mut parcel = Parcel::default();
        scorer.run::<TrainError>(&scored, |index, scores| {
            let Part { row, range } = &parts[index];
            let targets = range.clone().skip(1).zip(scores).filter(|(place, _)| row.counts(*place));
            for (place, score) in targets {
                parcel.doubles.push(score.logprob);
                parcel.counts.push(u64::from(self.bytes.get(row.tokens[place] as usize).copied().unwrap_or(0)));
            }
            Ok(())
        })?;
        Ok(parcel)
    }

    /// What is scored of a sequence: all of it, or its documents one by one.
    fn parts<'s>(&self, row: TokenSequence<'s>) -> Vec<Part<'s>> {
        let last = row.tokens.len();
        let ranges: Vec<Range<usize>> = match self.apart {
            false => std::iter::once(0..last).collect(),
            // What comes behind a document is predicted from it, if it is predicted at all.
            true => row.documents().map(|range| range.start..(range.end + 1).min(last)).collect(),
        };
        let is_scored = |range: &Range<usize>| range.clone().skip(1).any(|place| row.counts(place));
        ranges.into_iter().filter(is_scored).map(|range| Part { row, range }).collect()
    }

    /// What the model writes. The random numbers are always the same, so that samples of one run can be compared.
    fn sample(&self, settings: &LanguageTestSettings) -> Result<String, TrainError> {
        let mut prompt = self.tokenizer.encode(&settings.prompt, None, usize::MAX)?.ids;
        if prompt.is_empty() {
            prompt.extend(self.tokenizer.special().begin.or(self.ends.first().copied()));
        }
        let longest = self.architecture.signature().tokens().map_or(0, |input| input.longest);
        prompt.truncate(longest / 2);
        if prompt.is_empty() {
            return Ok(String::new());
        }
        let context = longest.min(prompt.len() + settings.sample_tokens);
        let options = GenerateOptions { context, precision: self.precision, ..GenerateOptions::default() };
        let weights = Box::new(|name: &str| self.state.parameter(name).map(WeightView::from));
        let mut generator = TokenGenerator::new(self.architecture, options, self.device, weights)?;
        let sampling = SamplingOptions { temperature: settings.temperature as f32, ..SamplingOptions::default() };
        let mut pieces = TextStream::after(self.tokenizer, &prompt, true)?;
        let ends = self.ends.into();
        generator.add(Request { sampling, ends, ..Request::greedy(prompt, settings.sample_tokens) })?;
        let mut text = String::new();
        while !generator.is_idle() {
            for update in generator.advance()? {
                if let Some(written) = update.token {
                    text.push_str(&pieces.push(self.tokenizer, written.token)?);
                }
                if update.ended.is_some() {
                    generator.end(update.id);
                }
            }
        }
        text.push_str(&pieces.finish());
        Ok(text)
    }
}
