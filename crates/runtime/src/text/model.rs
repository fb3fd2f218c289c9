//! A model of texts with its tokenizer.

use std::path::Path;

use rayon::prelude::*;
use vitreous_data::text::{Encoding, TextTokenizer};
use vitreous_models::{Model, OpenOptions, TokenInput, Weights};

use super::sentence::SentenceSettings;
use crate::error::Error;
use crate::language::tokenizer_of;
use crate::locate::{model_directory, open_model, unsuitable};

/// A model of texts, ready to be given some.
#[derive(Debug)]
pub struct TextModel {
    /// The model.
    pub model: Model,
    /// Its tokenizer.
    pub tokenizer: TextTokenizer,
    /// What it takes.
    pub input: TokenInput,
    /// What sentence-transformers wrote beside it, if it is one of theirs.
    pub sentence: SentenceSettings,
    /// The most tokens of a text, with special tokens: longer ones are truncated.
    pub longest: usize,
}

/// A text, or a pair of texts that are read together.
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub struct TextInput {
    /// The text.
    pub text: String,
    /// The second text.
    pub pair: Option<String>,
}

impl TextModel {
    /// Opens a model directory or a run directory.
    pub fn open(path: &Path, options: &OpenOptions) -> Result<TextModel, Error> {
        let model = open_model(path, options)?;
        let signature = model.architecture.signature();
        let Some(input) = signature.tokens() else {
            return Err(unsuitable(&path.to_string_lossy(), &signature, "model for texts"));
        };
        let tokenizer = tokenizer_of(&model, path)?;
        let directory = model_directory(path);
        // A single file of a model has nothing beside it that says how vectors are pooled.
        let sentence = match directory.is_dir() {
            true => SentenceSettings::read(&directory)?,
            false => SentenceSettings::default(),
        };
        // sentence-transformers sets the tokenizer's limit to its own.
        let longest = sentence.longest.or(tokenizer.longest()).unwrap_or(input.longest).min(input.longest);
        Ok(TextModel { model, tokenizer, input, sentence, longest })
    }

    /// All parameters by name.
    pub fn weights(&self) -> Weights<'_> {
        Box::new(&self.model)
    }

    /// The tokens of a text.
    pub fn encode(&self, input: &TextInput) -> Result<Encoding, Error> {
        let encoding = self.tokenizer.encode(&input.text, input.pair.as_deref(), self.longest)?;
        self.check(&encoding)?;
        Ok(encoding)
    }

    /// The tokens of texts, by all threads.
    pub fn encode_all(&self, inputs: &[TextInput]) -> Result<Vec<Encoding>, Error> {
        inputs.par_iter().map(|input| self.encode(input)).collect()
    }

    /// Refuses tokens and token types that the model has no embedding for.
    pub fn check(&self, encoding: &Encoding) -> Result<(), Error> {
        let TokenInput { vocabulary, token_types, .. } = self.input;
        if let Some(&id) = encoding.ids.iter().find(|&&id| id as usize >= vocabulary) {
            return Err(Error::input(format!(
                "the tokenizer gives token {id} ({:?}), but the model's vocabulary has {vocabulary}: they do not belong to one model",
                self.tokenizer.token(id).unwrap_or_default()
            )));
        }
        // A model with one type, or none, does not look at them.
        match encoding.token_types.iter().find(|&&id| token_types > 1 && id as usize >= token_types) {
            Some(&id) => Err(Error::input(format!(
                "the tokenizer gives token type {id}, but the model has {token_types}: they do not belong to one model"
            ))),
            None => Ok(()),
        }
    }

    /// The token that stands for one to be predicted, and how it is written; `None` where the tokenizer has none that the model knows.
    pub fn mask(&self) -> Option<(u32, String)> {
        let mask = self.tokenizer.special().mask.filter(|mask| (*mask as usize) < self.input.vocabulary)?;
        Some((mask, self.tokenizer.token(mask).unwrap_or_default()))
    }

    /// A text with its masks as this model writes them: `[MASK]` and `<mask>` are both understood.
    pub fn with_own_mask(&self, text: &str) -> String {
        let Some((_, own)) = self.mask() else { return text.to_string() };
        ["[MASK]", "<mask>"].iter().fold(text.to_string(), |text, mask| text.replace(mask, &own))
    }

    /// The text that says nothing: padding in place of all tokens but those that the tokenizer added, and masks. `None` where the tokenizer
    /// has no padding that the model knows.
    pub fn baseline(&self, encoding: &Encoding, masked: &[usize]) -> Option<Vec<u32>> {
        let padding = self.tokenizer.special().padding.filter(|&id| (id as usize) < self.input.vocabulary)?;
        let stays = |at: usize| encoding.special[at] || masked.contains(&at);
        Some(encoding.ids.iter().enumerate().map(|(at, &id)| if stays(at) { id } else { padding }).collect())
    }

    /// The name of a class; its number where the model has no names.
    pub fn label(&self, class: usize) -> String {
        crate::scores::label(&self.model.assets.labels, class)
    }
}
