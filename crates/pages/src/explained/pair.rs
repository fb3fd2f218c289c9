//! A text and what is written from it, as a translator or an encoder-decoder sees them.

mod json;

use std::path::PathBuf;

use vitreous_engine::{Device, Precision};
use vitreous_explain::live::LiveInput;
use vitreous_explain::text::{TextChoice, TextExplanation, TextStructure, explain_tokens};
use vitreous_models::generate::{SearchOptions, Weights};
use vitreous_models::{Architecture, Model};
use vitreous_runtime::sequences::{SequenceModel, SequenceOptions, SequenceWriter};
use vitreous_runtime::{TextTranslator, TranslatorModel};
use vitreous_train::tasks::translate::SPECIAL;

use super::ExplainedError;
use crate::explain_text::SentencePage;
use crate::explain_text::words::{PairPieces, Words};
pub use json::object;

/// The most tokens of a sentence: a page of more could not be read, and what attention takes grows with their square.
pub const MOST_TOKENS: usize = 256;

/// A model of pairs: one that we trained with tokenizers of its own, or one of the ecosystem.
#[derive(Clone, Copy)]
pub enum PairModel<'m> {
    /// A translator of our own.
    Own(&'m TranslatorModel),
    /// An encoder-decoder of the ecosystem.
    Sequence(&'m SequenceModel),
}

/// What writes with it.
enum PairWriter<'m> {
    Own(Box<TextTranslator<'m>>),
    Sequence(Box<SequenceWriter<'m>>),
}

/// Languages of the text and of what is written, of models that have several.
pub type Languages = [Option<String>; 2];

impl<'m> PairModel<'m> {
    /// The model itself.
    pub fn model(self) -> &'m Model {
        match self {
            PairModel::Own(model) => &model.model,
            PairModel::Sequence(model) => &model.model,
        }
    }

    /// Its architecture.
    pub fn architecture(self) -> &'m dyn Architecture {
        self.model().architecture.as_ref()
    }

    fn path(self) -> Option<&'m PathBuf> {
        self.model().path.as_ref()
    }

    fn weights(self) -> Weights<'m> {
        match self {
            PairModel::Own(model) => model.weights(),
            PairModel::Sequence(model) => model.weights(),
        }
    }

    fn pieces(self) -> &'m dyn PairPieces {
        match self {
            PairModel::Own(model) => &model.tokenizers,
            PairModel::Sequence(model) => &model.tokenizer,
        }
    }

    /// The most tokens of a side, with special ones.
    fn longest(self) -> usize {
        match self {
            PairModel::Own(model) => model.source.longest.min(model.target.longest),
            PairModel::Sequence(model) => model.source.longest.min(model.target.longest),
        }
    }

    /// What the decoder reads first.
    fn start(self, to: Option<&str>) -> Result<u32, ExplainedError> {
        match self {
            PairModel::Own(_) => Ok(SPECIAL.start),
            PairModel::Sequence(model) => Ok(model.tokenizer.start(to)?.unwrap_or(model.special.start)),
        }
    }

    fn end(self) -> u32 {
        match self {
            PairModel::Own(_) => SPECIAL.end,
            PairModel::Sequence(model) => model.special.end,
        }
    }

    /// The tokens of a text with its special ones.
    fn encode(self, text: &str, is_target: bool, [from, to]: &Languages) -> Result<Vec<u32>, ExplainedError> {
        Ok(match self {
            PairModel::Own(model) => {
                let tokenizers = &model.tokenizers;
                let tokenizer = if is_target { &tokenizers.target } else { &tokenizers.source };
                tokenizer.encode(text)?.into_iter().chain([SPECIAL.end]).collect()
            }
            PairModel::Sequence(model) if is_target => model.tokenizer.encode_target(text, to.as_deref())?,
            PairModel::Sequence(model) => model.tokenizer.encode_source(text, from.as_deref(), to.as_deref())?,
        })
    }

    fn text(self, tokens: &[u32]) -> Result<String, ExplainedError> {
        match self {
            PairModel::Own(model) => model.text(tokens).map_err(ExplainedError::work),
            PairModel::Sequence(model) => model.text(tokens).map_err(ExplainedError::work),
        }
    }

    fn writer(self, languages: &Languages, device: &Device) -> Result<PairWriter<'m>, ExplainedError> {
        Ok(match self {
            PairModel::Own(model) => {
                let search = SearchOptions { beam: 1, ..SearchOptions::default() };
                PairWriter::Own(Box::new(TextTranslator::new(model, search, Precision::F32, device)?))
            }
            PairModel::Sequence(model) => {
                let [from, to] = languages.clone();
                let max_tokens = Some(MOST_TOKENS.min(self.longest()));
                let options = SequenceOptions { from, to, max_tokens, ..SequenceOptions::default() };
                PairWriter::Sequence(Box::new(SequenceWriter::new(model, &options, Precision::F32, device)?))
            }
        })
    }
}

/// A sentence as tokens, with its translation if that was given: both with their special tokens.
pub struct Sentence {
    /// The sentence.
    pub text: String,
    source: Vec<u32>,
    target: Option<Vec<u32>>,
}

impl Sentence {
    /// The tokens of the text and of its translation; 0 of one that was not given.
    pub fn lengths(&self) -> [usize; 2] {
        [self.source.len(), self.target.as_ref().map_or(0, Vec::len)]
    }

    /// What encoder and decoder read of it: of the translation, all but its last token, behind the start.
    pub fn as_read(&self, model: PairModel, languages: &Languages) -> Result<LiveInput, ExplainedError> {
        let target = self.target.as_deref().unwrap_or_default();
        let before_last = target.split_last().map_or(target, |(_, before)| before);
        let start = model.start(languages[1].as_deref())?;
        let read = [start].into_iter().chain(before_last.iter().copied()).collect();
        Ok(LiveInput::Pair { source: self.source.clone(), read })
    }
}

/// Reads a sentence, and what it is to be translated to, if that is given. `names` say in a refusal which of them it is about.
pub fn read_sentence(
    model: PairModel,
    names: [&str; 2],
    text: &str,
    target: Option<&str>,
    languages: &Languages,
) -> Result<Sentence, ExplainedError> {
    let tokens = |text: &str, is_target: bool| {
        let refused = |what: String| Err(ExplainedError::input(format!("{} {what}", names[usize::from(is_target)])));
        if text.trim().is_empty() {
            return refused("is empty; give a sentence".to_string());
        }
        let tokens = model.encode(text.trim(), is_target, languages)?;
        // The special tokens of a text are not counted.
        let most = MOST_TOKENS.min(model.longest().saturating_sub(1));
        match tokens.len().saturating_sub(1) {
            count if count > most => {
                refused(format!("has {count} tokens, and at most {most} can be explained: give a sentence at a time"))
            }
            _ => Ok(tokens),
        }
    };
    let target = target.map(|target| tokens(target, true)).transpose()?;
    Ok(Sentence { text: text.trim().to_string(), source: tokens(text, false)?, target })
}

/// Explains sentences one after the other.
pub struct Sentences<'m> {
    model: PairModel<'m>,
    structure: TextStructure,
    choice: TextChoice,
    writer: PairWriter<'m>,
    start: u32,
    device: Device,
    path: String,
}

/// A sentence that was explained: what its page is made of.
pub struct ExplainedSentence {
    text: String,
    translation: String,
    is_given: bool,
    /// What was seen.
    pub explanation: TextExplanation,
    words: Words,
}

impl<'m> Sentences<'m> {
    /// Gets ready to explain sentences with a model.
    pub fn new(
        model: PairModel<'m>,
        choice: TextChoice,
        languages: &Languages,
        device: &Device,
    ) -> Result<Sentences<'m>, ExplainedError> {
        let structure = TextStructure::of(model.architecture())?;
        let writer = model.writer(languages, device)?;
        let start = model.start(languages[1].as_deref())?;
        let path = model.path().map(|path| path.display().to_string()).unwrap_or_default();
        Ok(Sentences { model, structure, choice, writer, start, device: device.clone(), path })
    }

    /// Explains one sentence, with what the model itself writes where no target was given.
    pub fn explain(&mut self, sentence: &Sentence) -> Result<ExplainedSentence, ExplainedError> {
        let model = self.model;
        let target = match &sentence.target {
            Some(target) => target.clone(),
            None => self.own_translation(&sentence.text)?,
        };
        let pair = [sentence.source.clone(), target.clone()];
        let (start, choice) = (self.start, &self.choice);
        let explanation = explain_tokens(model.architecture(), &model.weights(), start, pair, choice, &self.device)?;
        let words = Words::of(model.pieces(), &explanation).map_err(ExplainedError::work)?;
        let translation = model.text(&target)?;
        let (text, is_given) = (sentence.text.clone(), sentence.target.is_some());
        Ok(ExplainedSentence { text, translation, is_given, explanation, words })
    }

    /// What the model writes by itself.
    fn own_translation(&mut self, text: &str) -> Result<Vec<u32>, ExplainedError> {
        let texts = [text.to_string()];
        let found = match &mut self.writer {
            PairWriter::Own(translator) => translator.translate(&texts)?,
            PairWriter::Sequence(writer) => writer.write(&texts)?,
        };
        let best = found.into_iter().flatten().next();
        let mut tokens = best.map(|hypothesis| hypothesis.tokens).unwrap_or_default();
        // One that did not end is as long as may be, and the decoder also reads the start.
        tokens.truncate(self.model.longest().saturating_sub(1));
        tokens.push(self.model.end());
        Ok(tokens)
    }

    /// What a page is made of. `model` is the model's name there, if not its path.
    pub fn page<'s>(&'s self, explained: &'s ExplainedSentence, model: Option<&'s str>) -> SentencePage<'s> {
        SentencePage {
            text: &explained.text,
            translation: &explained.translation,
            is_given: explained.is_given,
            model: model.unwrap_or(&self.path),
            layers: [self.structure.encoder_layers, self.structure.decoder_layers],
            heads: self.structure.heads,
            pieces: self.model.pieces(),
            explanation: &explained.explanation,
            words: &explained.words,
        }
    }
}
