//! A language model with its tokenizer and the tokens that end a text.

use std::path::Path;
use std::sync::Arc;

use serde_json::Value as Json;
use vitreous_data::text::TextTokenizer;
use vitreous_models::{Model, OpenOptions, Weights};

use super::tokenizer::tokenizer_of;
use crate::error::Error;
use crate::locate::{model_directory, open_model, unsuitable};

/// The most bytes of a `generation_config.json` that are read.
const MOST_SETTINGS_BYTES: u64 = 1 << 20;

/// A model that predicts the next token.
#[derive(Debug)]
pub struct LanguageModel {
    /// The model.
    pub model: Model,
    /// Its tokenizer.
    pub tokenizer: TextTokenizer,
    /// Tokens that it has embeddings for.
    pub vocabulary: usize,
    /// The most tokens that it reads.
    pub longest: usize,
    /// The tokens that end a text: those of `generation_config.json`, `config.json` and the tokenizer.
    pub ends: Arc<[u32]>,
}

impl LanguageModel {
    /// Opens a model directory or a run directory.
    pub fn open(path: &Path) -> Result<LanguageModel, Error> {
        let mut model = open_model(path, &OpenOptions::default())?;
        let signature = model.architecture.signature();
        let (Some(vocabulary), Some(input)) = (signature.next_token(), signature.tokens()) else {
            return Err(unsuitable(&path.to_string_lossy(), &signature, "language model"));
        };
        let directory = model_directory(path);
        let tokenizer = tokenizer_of(&model, path)?;
        let (mut ends, absent): (Vec<u32>, Vec<u32>) = ["generation_config.json", "config.json"]
            .iter()
            .flat_map(|name| ends_of(&directory.join(name)))
            .chain(tokenizer.special().end)
            .chain(tokenizer.end_tokens().iter().copied())
            .partition(|&end| (end as usize) < vocabulary);
        if let (Some(end), []) = (absent.first(), &ends[..]) {
            model.notes.push(format!(
                "texts of the model are to end with token {end}, but its vocabulary has {vocabulary} tokens: they end where --max-tokens or --stop ends them"
            ));
        }
        ends.sort_unstable();
        ends.dedup();
        Ok(LanguageModel { model, tokenizer, vocabulary, longest: input.longest, ends: ends.into() })
    }

    /// All parameters by name.
    pub fn weights(&self) -> Weights<'_> {
        Box::new(&self.model)
    }

    /// The tokens of a prompt, with the special tokens that a text begins with. An empty one is the token that a text begins with.
    pub fn encode(&self, prompt: &str) -> Result<Vec<u32>, Error> {
        self.check_bytes(prompt)?;
        let ids = self.tokenizer.encode(prompt, None, usize::MAX)?.ids;
        if ids.is_empty() {
            let special = self.tokenizer.special();
            let first = special.begin.or(special.end).filter(|&token| (token as usize) < self.vocabulary);
            return match first {
                Some(token) => Ok(vec![token]),
                None => {
                    Err(Error::input("the prompt is empty, and the model has no token that begins a text: give one"))
                }
            };
        }
        self.checked(ids)
    }

    /// Refuses a prompt that cannot fit, whatever its tokens are, before it is split into them: a hundred megabytes would take minutes.
    fn check_bytes(&self, prompt: &str) -> Result<(), Error> {
        const NEVER_TOO_LONG: usize = 1 << 20;
        if prompt.len() <= NEVER_TOO_LONG {
            return Ok(());
        }
        let bytes = |id: u32| self.tokenizer.token(id).map_or(0, |token| token.len());
        let of_token = (0..self.vocabulary as u32).map(bytes).max().unwrap_or(0);
        let most = self.longest.saturating_mul(of_token).max(NEVER_TOO_LONG);
        if prompt.len() <= most {
            return Ok(());
        }
        Err(Error::input(format!(
            "the prompt has {} bytes, which are more than the {} tokens that the model reads: give less of it",
            prompt.len(),
            self.longest
        )))
    }

    /// The tokens of a text that has all special tokens in it already, such as what a chat template gives.
    pub fn encode_formatted(&self, text: &str) -> Result<Vec<u32>, Error> {
        let ids = self.tokenizer.encode_plain(text)?;
        self.checked(ids)
    }

    pub(super) fn checked(&self, ids: Vec<u32>) -> Result<Vec<u32>, Error> {
        match ids.iter().find(|&&id| id as usize >= self.vocabulary) {
            Some(&id) => Err(Error::input(format!(
                "the tokenizer gives token {id} ({:?}), but the model's vocabulary has {}: they do not belong to one model",
                self.tokenizer.token(id).unwrap_or_default(),
                self.vocabulary
            ))),
            None => Ok(ids),
        }
    }
}

/// `eos_token_id` of a file, a number or a list of numbers; none where there is no such file.
fn ends_of(path: &Path) -> Vec<u32> {
    let is_small = std::fs::metadata(path).is_ok_and(|file| file.len() <= MOST_SETTINGS_BYTES);
    let text = if is_small { std::fs::read(path).unwrap_or_default() } else { Vec::new() };
    let settings: Json = serde_json::from_slice(&text).unwrap_or_default();
    let number = |value: &Json| value.as_u64().and_then(|id| u32::try_from(id).ok());
    match settings.get("eos_token_id") {
        Some(Json::Array(ids)) => ids.iter().filter_map(number).collect(),
        Some(id) => number(id).into_iter().collect(),
        None => Vec::new(),
    }
}
