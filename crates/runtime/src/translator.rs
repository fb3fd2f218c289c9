//! A translator with its tokenizers: texts in, translations out.

use std::path::Path;

use vitreous_data::text::Tokenisers;
use vitreous_engine::{Device, Precision, WeightView};
use vitreous_models::generate::{Hypothesis, SearchOptions, Translator, Weights};
use vitreous_models::{Model, OpenOptions, Signature, Takes, TokenInput};
use vitreous_train::tasks::translate::{SPECIAL, translate_options};

use crate::error::Error;
use crate::locate::{model_directory, open_model, unsuitable};

/// A model of sentence pairs with its tokenizers.
#[derive(Debug)]
pub struct TranslatorModel {
    /// The model.
    pub model: Model,
    /// By which texts become tokens.
    pub tokenizers: Tokenisers,
    /// What its source side takes.
    pub source: TokenInput,
    /// What its target side takes.
    pub target: TokenInput,
}

impl TranslatorModel {
    /// Opens a model directory or a run directory.
    pub fn open(path: &Path) -> Result<TranslatorModel, Error> {
        check_config(path)?;
        let model = open_model(path, &OpenOptions::default())?;
        let signature = model.architecture.signature();
        let name = path.to_string_lossy();
        let Signature { takes: Takes::Pairs { source, target, shared, .. }, .. } = signature else {
            return Err(unsuitable(&name, &signature, "translator"));
        };
        let tokenizers = Tokenisers::open(&model_directory(path))?;
        let sizes = [
            ("source", source.vocabulary, tokenizers.source.vocabulary_size()),
            ("target", target.vocabulary, tokenizers.target.vocabulary_size()),
        ];
        for (side, model, tokenizer) in sizes {
            if model != tokenizer {
                return Err(Error::input(format!(
                    "{name}: the model's {side} vocabulary has {model} tokens, but its tokenizer has {tokenizer}: they do not \
                     belong to one model"
                )));
            }
        }
        if shared != tokenizers.is_shared() {
            let has = if tokenizers.is_shared() { "one tokenizer for both sides" } else { "one tokenizer per side" };
            return Err(Error::input(format!("{name}: there is {has}, but the model expects the other")));
        }
        Ok(TranslatorModel { model, tokenizers, source, target })
    }

    /// The values of a parameter, in the format of their file, as whatever runs the model asks for them.
    pub fn weight(&self, name: &str) -> vitreous_engine::Result<WeightView<'_>> {
        self.model.weight(name).map_err(|error| vitreous_engine::Error::Machine(error.to_string()))
    }

    /// All parameters by name.
    pub fn weights(&self) -> Weights<'_> {
        Box::new(|name: &str| self.weight(name))
    }

    /// Its special tokens.
    pub fn special(&self) -> vitreous_models::SpecialTokens {
        SPECIAL
    }

    /// Tokens of the target as text.
    pub fn text(&self, tokens: &[u32]) -> Result<String, Error> {
        Ok(self.tokenizers.target.decode(tokens)?)
    }
}

/// Refuses a directory whose configuration is missing or says nothing, with what would be right.
fn check_config(path: &Path) -> Result<(), Error> {
    let directory = model_directory(path);
    if !directory.is_dir() {
        return Ok(());
    }
    let config = directory.join("config.json");
    let hint = "give a directory that `vitreous train translation` wrote";
    let bytes =
        std::fs::read(&config).map_err(|error| Error::input(format!("{}: {error}; {hint}", config.display())))?;
    match serde_json::from_slice::<serde_json::Value>(&bytes) {
        Err(error) => Err(Error::input(format!("{}: this is not JSON: {error}", config.display()))),
        Ok(value) if value.get("model_type").is_none() && value.get("architecture").is_none() => {
            Err(Error::input(format!("{}: this is no translator; {hint}", path.display())))
        }
        Ok(_) => Ok(()),
    }
}

/// Translates texts with a model on a device.
pub struct TextTranslator<'m> {
    model: &'m TranslatorModel,
    translator: Translator<'m>,
    truncated: usize,
}

impl<'m> TextTranslator<'m> {
    /// Makes a model ready.
    pub fn new(
        model: &'m TranslatorModel,
        search: SearchOptions,
        precision: Precision,
        device: &Device,
    ) -> Result<TextTranslator<'m>, Error> {
        let options = translate_options(search, precision);
        let architecture = model.model.architecture.as_ref();
        let translator = Translator::new(architecture, SPECIAL, options, device, model.weights())?;
        Ok(TextTranslator { model, translator, truncated: 0 })
    }

    /// How many texts had more tokens than the model can read, and were truncated.
    pub fn truncated(&self) -> usize {
        self.truncated
    }

    /// The translations of some texts, of each the best first. A text without tokens has one translation, which has none either.
    pub fn translate(&mut self, texts: &[String]) -> Result<Vec<Vec<Hypothesis>>, Error> {
        let mut sources = Vec::new();
        for text in texts {
            sources.push(self.model.tokenizers.source.encode(text.trim())?);
        }
        self.truncated += sources.iter().filter(|source| source.len() >= self.model.source.longest).count();
        let full: Vec<Vec<u32>> = sources.iter().filter(|source| !source.is_empty()).cloned().collect();
        let mut found = self.translator.translate(&full)?.into_iter();
        let nothing = || vec![Hypothesis { tokens: Vec::new(), log_probability: 0.0, score: 0.0, ended: true }];
        Ok(sources
            .iter()
            .map(|source| if source.is_empty() { nothing() } else { found.next().unwrap_or_default() })
            .collect())
    }
}
