//! What a MODEL argument names where text is translated: a directory with a Transformer and its tokenisers.

use std::path::Path;

use anyhow::anyhow;
use vitreous_data::text::Tokenisers;
use vitreous_engine::Precision;
use vitreous_models::TextModel;
use vitreous_models::translate::{Hypothesis, SearchOptions, TranslateOptions, Translator, Weights};
use vitreous_train::translation::SPECIAL;

use crate::failure::Failure;
use crate::source;

/// Hypotheses that are computed at once.
const SLOTS: usize = 64;
/// The most words of a translation beyond those of its source.
const EXTRA_TOKENS: usize = 50;

/// A Transformer with its tokenisers.
pub struct TextSource {
    pub model: TextModel,
    pub tokenisers: Tokenisers,
}

impl TextSource {
    /// Whether a path names one: a run directory counts as its model.
    pub fn is_at(path: &Path) -> bool {
        TextModel::is_at(&source::of_run(path))
    }

    /// Opens one.
    pub fn open(path: &Path) -> Result<TextSource, Failure> {
        if !path.exists() {
            return Err(Failure::input(anyhow!("{}: no such file or directory", path.display())));
        }
        let directory = source::of_run(path);
        if !TextModel::is_at(&directory) {
            let what = format!(
                "{}: this is no translator; give a directory that `vitreous train translation` wrote",
                path.display()
            );
            return Err(Failure::input(anyhow!(what)));
        }
        let model = TextModel::open(&directory).map_err(Failure::input)?;
        let tokenisers = Tokenisers::open(&directory).map_err(Failure::input)?;
        let sizes = [
            ("source", model.config.source_vocabulary, tokenisers.source.vocabulary_size()),
            ("target", model.config.target_vocabulary, tokenisers.target.vocabulary_size()),
        ];
        for (side, model, tokeniser) in sizes {
            if model != tokeniser {
                let what = format!(
                    "{}: the model has {model} words of the {side}, its tokeniser {tokeniser}: they are not of one model",
                    path.display()
                );
                return Err(Failure::input(anyhow!(what)));
            }
        }
        Ok(TextSource { model, tokenisers })
    }

    /// Tokens as text.
    pub fn text(&self, tokens: &[u32]) -> anyhow::Result<String> {
        Ok(self.tokenisers.target.decode(tokens)?)
    }
}

/// How sentences are translated.
pub fn translate_options(search: SearchOptions, threads: usize, precision: Precision) -> TranslateOptions {
    let slots = SLOTS.max(search.beam);
    TranslateOptions { search, slots, extra_tokens: EXTRA_TOKENS, threads, precision }
}

/// A model's parameters by name.
pub fn weights_of(source: &TextSource) -> Weights<'_> {
    let refused = |error: vitreous_models::ModelError| vitreous_engine::Error::Machine(error.to_string());
    Box::new(move |name: &str| source.model.parameter(name).map_err(refused))
}

/// A translator of texts.
pub struct Sentences<'w> {
    source: &'w TextSource,
    translator: Translator<'w>,
}

impl<'w> Sentences<'w> {
    pub fn new(source: &'w TextSource, options: TranslateOptions) -> Sentences<'w> {
        let translator = Translator::new(&source.model.config, SPECIAL, options, weights_of(source));
        Sentences { source, translator }
    }

    /// The translations of some texts, of each the best first. What has no words has one translation, which has none either.
    pub fn translate(&mut self, texts: &[String]) -> anyhow::Result<Vec<Vec<Hypothesis>>> {
        let mut sources = Vec::new();
        for text in texts {
            sources.push(self.source.tokenisers.source.encode(text.trim())?);
        }
        let full: Vec<Vec<u32>> = sources.iter().filter(|source| !source.is_empty()).cloned().collect();
        let mut found = self.translator.translate(&full)?.into_iter();
        let nothing = || vec![Hypothesis { tokens: Vec::new(), log_probability: 0.0, score: 0.0, ended: true }];
        Ok(sources
            .iter()
            .map(|source| if source.is_empty() { nothing() } else { found.next().unwrap_or_default() })
            .collect())
    }
}
