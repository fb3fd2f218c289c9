//! Encoder-decoders and translators: texts from texts.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;

use serde::Deserialize;
use vitreous_data::text::TokeniserError;
use vitreous_models::Takes;
use vitreous_models::generate::{Hypothesis, SearchOptions};
use vitreous_runtime::sequences::{SequenceModel, SequenceOptions, SequenceWriter};
use vitreous_runtime::{Error, TextTranslator, TranslatorModel};

use super::watched::WatchedModel;
use super::{Surroundings, signature_of};
use crate::refusal::Refusal;
use crate::work::{BatchWork, Collector, WorkError};

/// The most texts of a batch.
const MOST_TEXTS: usize = 64;
/// How translators of our own search, as `vitreous translate` does.
const USUAL_SEARCH: SearchOptions = SearchOptions { beam: 1, length_penalty: 0.6 };

/// A model that writes texts from texts.
pub struct SequenceService {
    /// The model.
    pub(super) model: WatchedModel,
    collector: Collector<AskedSequence, WrittenSequence>,
}

/// A text that is to be written from.
pub struct AskedSequence {
    text: String,
    writing: SequenceFields,
}

/// How a text is written; those of one batch that are written alike are written together.
#[derive(Clone, Debug, Default, PartialEq, Eq, PartialOrd, Ord, Deserialize)]
pub struct SequenceFields {
    /// The most tokens of it; without, what the model's files say.
    pub max_tokens: Option<usize>,
    /// The language of the text that is given.
    pub from: Option<String>,
    /// The language of the text that is written.
    pub to: Option<String>,
}

/// A text that was written.
#[derive(Clone, Debug, PartialEq)]
pub struct WrittenSequence {
    /// The text.
    pub text: String,
    /// Tokens of the source.
    pub source_tokens: usize,
    /// Tokens that were written.
    pub written_tokens: usize,
    /// Whether it came to its end.
    pub ended: bool,
}

impl SequenceService {
    pub(super) fn open(name: &str, path: &Path, around: &Surroundings) -> Result<SequenceService, Error> {
        let most = around.settings.batch.unwrap_or(MOST_TEXTS);
        let collector = around.collector(name, "write", most);
        let (precision, device) = (around.settings.precision, around.settings.device.clone());
        let is_translator = matches!(signature_of(path)?.takes, Takes::Pairs { special: None, .. });
        let (model, collector) = match is_translator {
            true => {
                let model = Arc::new(TranslatorModel::open(path)?);
                let kept = WatchedModel::Translator(model.clone());
                let collector = Collector::start(collector, move |jobs| {
                    jobs.work(|| {
                        let translator = TextTranslator::new(&model, USUAL_SEARCH, precision, &device)?;
                        Ok(TranslatorWork { model: &model, translator })
                    });
                })?;
                (kept, collector)
            }
            false => {
                let model = Arc::new(SequenceModel::open(path)?);
                let kept = WatchedModel::Sequence(model.clone());
                let collector = Collector::start(collector, move |jobs| {
                    jobs.work(|| {
                        let options = SequenceOptions::default();
                        let writer = SequenceWriter::without_language(&model, &options, precision, &device)?;
                        Ok(SequenceWork { model: &model, writer })
                    });
                })?;
                (kept, collector)
            }
        };
        Ok(SequenceService { model, collector })
    }

    /// What the model writes for a text.
    pub async fn write(&self, text: String, writing: SequenceFields) -> Result<WrittenSequence, WorkError> {
        self.collector.ask(AskedSequence { text, writing }, self.collector.arrive()).await
    }

    /// Refuses languages that the model does not have, and texts without one where it has several.
    pub fn check_languages(&self, writing: &SequenceFields) -> Result<(), Refusal> {
        let (from, to) = (writing.from.as_deref(), writing.to.as_deref());
        let WatchedModel::Sequence(model) = &self.model else {
            let field = match (from, to) {
                (None, None) => return Ok(()),
                (Some(_), _) => "from",
                (None, Some(_)) => "to",
            };
            return Err(Refusal::field(
                field,
                format!("`{field}` is for models of several languages, which this is not"),
            ));
        };
        let checked = model.tokenizer.encode_source("", from, to).map(|_| "from");
        let checked = checked.and_then(|_| model.tokenizer.start(to)).and_then(|_| model.tokenizer.forced_first(to));
        checked.map(drop).map_err(|error| match error {
            TokeniserError::NoLanguage { option, known } => {
                let field = if option == "--from" { "from" } else { "to" };
                Refusal::field(
                    field,
                    format!("this model has several languages: name one in `{field}`; it has {known}"),
                )
            }
            error => Refusal::bad(error.to_string()),
        })
    }
}

struct SequenceWork<'m> {
    model: &'m SequenceModel,
    writer: SequenceWriter<'m>,
}

impl BatchWork for SequenceWork<'_> {
    type Job = AskedSequence;
    type Answer = WrittenSequence;

    fn cost(_: &AskedSequence) -> usize {
        1
    }

    fn run(&mut self, jobs: &[AskedSequence]) -> Result<Vec<WrittenSequence>, WorkError> {
        let mut written = vec![None; jobs.len()];
        let mut groups: BTreeMap<&SequenceFields, Vec<usize>> = BTreeMap::new();
        jobs.iter().enumerate().for_each(|(place, job)| groups.entry(&job.writing).or_default().push(place));
        for (SequenceFields { max_tokens, from, to }, places) in groups {
            self.writer.set_languages(from.as_deref(), to.as_deref())?;
            self.writer.set_max_tokens(*max_tokens);
            let texts: Vec<String> = places.iter().map(|&place| jobs[place].text.clone()).collect();
            let found = self.writer.write(&texts)?;
            for ((&place, text), hypotheses) in places.iter().zip(&texts).zip(found) {
                let source_tokens = self.writer.source(text)?.len();
                let best = hypotheses.into_iter().next();
                written[place] = Some(of(best, source_tokens, |tokens| self.model.text(tokens))?);
            }
        }
        Ok(written.into_iter().flatten().collect())
    }
}

struct TranslatorWork<'m> {
    model: &'m TranslatorModel,
    translator: TextTranslator<'m>,
}

impl BatchWork for TranslatorWork<'_> {
    type Job = AskedSequence;
    type Answer = WrittenSequence;

    fn cost(_: &AskedSequence) -> usize {
        1
    }

    fn run(&mut self, jobs: &[AskedSequence]) -> Result<Vec<WrittenSequence>, WorkError> {
        let texts: Vec<String> = jobs.iter().map(|job| job.text.clone()).collect();
        let found = self.translator.translate(&texts)?;
        let mut written = Vec::with_capacity(jobs.len());
        for (text, hypotheses) in texts.iter().zip(found) {
            let source_tokens = self.model.tokenizers.source.encode(text.trim()).map_err(Error::from)?.len();
            let best = hypotheses.into_iter().next();
            written.push(of(best, source_tokens, |tokens| self.model.text(tokens))?);
        }
        Ok(written)
    }
}

fn of(
    best: Option<Hypothesis>,
    source_tokens: usize,
    text: impl Fn(&[u32]) -> Result<String, Error>,
) -> Result<WrittenSequence, WorkError> {
    let best = best.ok_or_else(|| WorkError::Failed("the model wrote nothing".to_string()))?;
    let text = text(&best.tokens)?;
    Ok(WrittenSequence { text, source_tokens, written_tokens: best.tokens.len(), ended: best.ended })
}
