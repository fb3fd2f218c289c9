//! Builds a tokenizer of its parts, after the checks that the `tokenizers` library leaves out.

use serde::de::DeserializeOwned;
use serde_json::Value;
use tokenizers::{AddedToken, DecoderWrapper, NormalizerWrapper, PostProcessorWrapper, PreTokenizerWrapper, Tokenizer};

use super::limits;
use super::model::Model;
use super::template::Template;

/// The parts of a tokenizer, those that are not the model as a `tokenizer.json` has them.
pub(super) struct Description {
    pub(super) model: Model,
    pub(super) added: Vec<AddedToken>,
    pub(super) normalizer: Value,
    pub(super) pre_tokenizer: Value,
    pub(super) post_processor: Value,
    pub(super) decoder: Value,
}

/// The library's tokenizer, and what is put around texts.
pub(super) struct Built {
    pub(super) inner: Tokenizer,
    pub(super) template: Template,
    pub(super) vocabulary_size: usize,
}

impl Description {
    /// The tokenizer, or what is wrong with its parts.
    pub(super) fn build(self) -> Result<Built, String> {
        limits::check_normalizer(&self.normalizer)?;
        limits::check_pre_tokenizer(&self.pre_tokenizer)?;
        let template = Template::read(&self.post_processor)?;
        let (model, largest) = self.model.build()?;
        let mut inner = Tokenizer::new(model);
        let normalizer: Option<NormalizerWrapper> = part(&self.normalizer, "normalizer")?;
        inner.with_normalizer(normalizer).map_err(|error| format!("its normalizer: {error}"))?;
        inner.with_pre_tokenizer(part::<PreTokenizerWrapper>(&self.pre_tokenizer, "pre_tokenizer")?);
        inner.with_post_processor(part::<PostProcessorWrapper>(&self.post_processor, "post_processor")?);
        inner.with_decoder(part::<DecoderWrapper>(&self.decoder, "decoder")?);
        inner.add_tokens(self.added).map_err(|error| format!("its added tokens: {error}"))?;
        Ok(Built { vocabulary_size: vocabulary_size(&inner, &template, largest)?, inner, template })
    }
}

/// The largest index, plus one.
fn vocabulary_size(inner: &Tokenizer, template: &Template, largest: u32) -> Result<usize, String> {
    let added = inner.get_added_vocabulary().get_vocab().values().copied().max();
    let size = largest.max(added.unwrap_or(0)) as usize + 1;
    match template.largest_id().filter(|&id| id as usize >= size) {
        Some(id) => Err(format!("its post_processor adds the token {id}, but the vocabulary size is {size}")),
        None => Ok(size),
    }
}

/// A part as the library has it. It is read from text, because some parts cannot be read from a [`Value`].
pub(super) fn part<T: DeserializeOwned>(value: &Value, name: &str) -> Result<Option<T>, String> {
    if value.is_null() {
        return Ok(None);
    }
    serde_json::from_str(&value.to_string()).map(Some).map_err(|error| format!("its {name}: {error}"))
}
