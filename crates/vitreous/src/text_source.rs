//! What a MODEL argument names where text is translated: a directory with a Transformer and its tokenisers.

use std::borrow::Cow;
use std::path::{Path, PathBuf};

use anyhow::anyhow;
use vitreous_data::text::Tokenisers;
use vitreous_engine::Device;
use vitreous_models::generate::{Hypothesis, TranslateOptions, Translator, Weights};
use vitreous_models::{TextModel, transformer};
use vitreous_train::translation::SPECIAL;
pub use vitreous_train::translation::translate_options;

use crate::failure::Failure;
use crate::source;

/// A Transformer with its tokenisers.
pub struct TextSource {
    pub model: TextModel,
    pub tokenisers: Tokenisers,
}

impl TextSource {
    /// Whether a path names one.
    pub fn is_at(path: &Path) -> bool {
        TextModel::is_at(&TextSource::directory(path))
    }

    /// The model directory that is meant: by a run directory its model, by a file of weights what lies around it.
    pub fn directory(path: &Path) -> PathBuf {
        source::of_run(source::directory_of(path).unwrap_or(path))
    }

    /// Opens one.
    pub fn open(path: &Path) -> Result<TextSource, Failure> {
        let name = path.display();
        if !path.exists() {
            return Err(Failure::input(match transformer::preset(&path.to_string_lossy()) {
                Some(_) => anyhow!(
                    "`{name}` is a preset, which has no weights; give a directory that `vitreous train translation` wrote"
                ),
                None => anyhow!("{name}: no such file or directory"),
            }));
        }
        let directory = TextSource::directory(path);
        if !TextModel::is_at(&directory) {
            if let Some(reason) = unreadable(&directory.join("config.json")) {
                return Err(Failure::input(anyhow!("{reason}")));
            }
            return Err(Failure::input(anyhow!(
                "{name}: this is no translator; give a directory that `vitreous train translation` wrote, or, if it is a \
                 model for images, run it with `vitreous predict {name} IMAGE`"
            )));
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
        if model.config.shared_vocabulary != tokenisers.is_shared() {
            let has = if tokenisers.is_shared() { "one tokeniser for both sides" } else { "a tokeniser for each side" };
            let what = format!("{}: there is {has}, which the model does not have", path.display());
            return Err(Failure::input(anyhow!(what)));
        }
        Ok(TextSource { model, tokenisers })
    }

    /// A parameter's values, as what runs the model asks for them.
    pub fn parameter(&self, name: &str) -> vitreous_engine::Result<Cow<'_, [f32]>> {
        self.model.parameter(name).map_err(|error| vitreous_engine::Error::Machine(error.to_string()))
    }

    /// Tokens as text.
    pub fn text(&self, tokens: &[u32]) -> anyhow::Result<String> {
        Ok(self.tokenisers.target.decode(tokens)?)
    }
}

/// Why a config cannot be read, where that is not because it is another model's.
fn unreadable(config: &Path) -> Option<String> {
    let name = config.display();
    match std::fs::read(config) {
        // A file of weights, or an image: something else altogether.
        Err(error) if error.kind() == std::io::ErrorKind::NotADirectory => None,
        Err(error) => Some(format!("{name}: {error}; give a directory that `vitreous train translation` wrote")),
        Ok(bytes) => match serde_json::from_slice::<serde_json::Value>(&bytes) {
            Err(error) => Some(format!("{name}: this is no JSON: {error}")),
            Ok(_) => None,
        },
    }
}

/// A model's parameters by name.
pub fn weights_of(source: &TextSource) -> Weights<'_> {
    Box::new(|name: &str| source.parameter(name))
}

/// A translator of texts.
pub struct Sentences<'w> {
    source: &'w TextSource,
    translator: Translator<'w>,
    cut: usize,
}

impl<'w> Sentences<'w> {
    pub fn new(source: &'w TextSource, options: TranslateOptions, device: &Device) -> Sentences<'w> {
        let translator = Translator::new(&source.model.config, SPECIAL, options, device, weights_of(source));
        Sentences { source, translator, cut: 0 }
    }

    /// How many texts had more tokens than the model can read.
    pub fn cut(&self) -> usize {
        self.cut
    }

    /// The translations of some texts, of each the best first. What has no words has one translation, which has none either.
    pub fn translate(&mut self, texts: &[String]) -> anyhow::Result<Vec<Vec<Hypothesis>>> {
        let mut sources = Vec::new();
        for text in texts {
            sources.push(self.source.tokenisers.source.encode(text.trim())?);
        }
        self.cut += sources.iter().filter(|source| source.len() >= self.source.model.config.max_length).count();
        let full: Vec<Vec<u32>> = sources.iter().filter(|source| !source.is_empty()).cloned().collect();
        let mut found = self.translator.translate(&full)?.into_iter();
        let nothing = || vec![Hypothesis { tokens: Vec::new(), log_probability: 0.0, score: 0.0, ended: true }];
        Ok(sources
            .iter()
            .map(|source| if source.is_empty() { nothing() } else { found.next().unwrap_or_default() })
            .collect())
    }
}
