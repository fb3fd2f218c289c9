//! The metadata of a GGUF file as a configuration, both ways: what a family sees of it, and what it writes.

use serde_json::{Value, json};

use super::json::{Fault, Object};
use crate::archive::Archive;
use crate::archive::gguf::{MetaValue, Metadata};
use crate::settings::Settings;

/// The key that tells which keys there are.
pub const ARCHITECTURE: &str = "general.architecture";

/// Settings are numbers, words and short lists; longer ones are vocabularies.
const LONGEST_LIST: usize = 4096;
/// Tensors of settings are as long as half a head is wide.
const LONGEST_VECTOR: usize = 1 << 16;

/// What a GGUF file says of its model.
#[derive(Clone, Copy)]
pub struct GgufModel<'a> {
    /// `general.architecture`.
    pub architecture: &'a str,
    /// The architecture's own keys, without its name before them: `embedding_length`.
    pub settings: Object<'a>,
    archive: &'a Archive,
}

impl<'a> GgufModel<'a> {
    /// From the settings that [`settings_of`] gives.
    pub fn new(architecture: &'a str, settings: &'a Settings, archive: &'a Archive) -> GgufModel<'a> {
        GgufModel { architecture, settings: Object::at(settings, architecture), archive }
    }

    /// The values of a tensor that belongs to the settings, if there is one: factors of frequencies.
    pub fn vector(&self, name: &str) -> Result<Option<Vec<f32>>, Fault> {
        if !self.has(name) {
            return Ok(None);
        }
        let view = self.archive.tensor(name).map_err(|error| Fault::of(name, error.to_string()))?;
        if view.elements() > LONGEST_VECTOR {
            return Err(Fault::of(name, format!("has {} values, more than {LONGEST_VECTOR}", view.elements())));
        }
        let values = view.to_f32().map_err(|error| Fault::of(name, error.to_string()))?;
        Ok(Some(values.into_owned()))
    }

    /// Width and number of words of the table of word embeddings.
    pub fn vocabulary(&self) -> Result<usize, Fault> {
        const TABLE: &str = "token_embd.weight";
        match self.archive.get(TABLE).map(|view| view.shape) {
            Some(&[words, _]) => Ok(words),
            Some(shape) => Err(Fault::of(TABLE, format!("has the shape {shape:?}; it should have two axes"))),
            None if self.archive.is_empty() => {
                Err(Fault::whole("this file has no tensors: it is a tokenizer alone, without a model's weights"))
            }
            None => {
                // Whoever asks for it gets to know why it cannot be read, or that it is not there.
                let why = self.archive.tensor(TABLE).err().map_or_else(String::new, |error| error.to_string());
                Err(Fault::whole(format!("the table of words cannot be read: {why}")))
            }
        }
    }

    /// Whether there is a tensor with this name, also one that cannot be read: what asks for that says why.
    pub fn has(&self, tensor: &str) -> bool {
        self.archive.get(tensor).is_some() || self.archive.is_refused(tensor)
    }

    /// A size that must be there.
    pub fn size(&self, key: &str) -> Result<usize, Fault> {
        self.settings.size(key)?.ok_or_else(|| self.settings.fault(key, "is missing".to_string()))
    }

    /// A number at f32, if it is there.
    pub fn number(&self, key: &str) -> Result<Option<f32>, Fault> {
        Ok(self.settings.number(key)?.map(|number| number as f32))
    }
}

/// The architecture that metadata names, and its keys without that name.
pub fn settings_of(metadata: &Metadata) -> Result<(String, Settings), Fault> {
    let architecture = metadata.text(ARCHITECTURE).ok_or_else(|| Fault::of(ARCHITECTURE, "is no text, or missing"))?;
    let prefix = format!("{architecture}.");
    let own = metadata.iter().filter_map(|(key, value)| Some((key.strip_prefix(&prefix)?, value)));
    let settings = own.filter_map(|(key, value)| Some((key.to_string(), to_json(value)?))).collect();
    Ok((architecture.to_string(), settings))
}

fn to_json(value: &MetaValue) -> Option<Value> {
    let short = |length: usize| length <= LONGEST_LIST;
    Some(match value {
        MetaValue::U64(number) => json!(number),
        MetaValue::I64(number) => json!(number),
        MetaValue::F64(number) => json!(number),
        MetaValue::Bool(flag) => json!(flag),
        MetaValue::Text(text) => json!(text),
        MetaValue::Texts(texts) if short(texts.len()) => json!(texts),
        MetaValue::Integers(numbers) if short(numbers.len()) => json!(numbers),
        MetaValue::Floats(numbers) if short(numbers.len()) => json!(numbers),
        MetaValue::Flags(flags) if short(flags.len()) => json!(flags),
        MetaValue::Texts(_)
        | MetaValue::Integers(_)
        | MetaValue::Floats(_)
        | MetaValue::Flags(_)
        | MetaValue::Bytes(_)
        | MetaValue::Lists(_) => return None,
    })
}

/// The settings of a model to be written, under the name of their architecture.
pub fn described(architecture: &str, settings: Vec<(&str, Value)>) -> Settings {
    let own = settings.into_iter().map(|(key, value)| (format!("{architecture}.{key}"), value));
    std::iter::once((ARCHITECTURE.to_string(), json!(architecture))).chain(own).collect()
}

/// A setting as it is written. Lists are of whole numbers.
pub fn to_metadata(value: &Value) -> Option<MetaValue> {
    Some(match value {
        Value::Bool(flag) => MetaValue::Bool(*flag),
        Value::String(text) => MetaValue::Text(text.clone()),
        Value::Number(number) => match (number.as_u64(), number.as_i64()) {
            (Some(number), _) => MetaValue::U64(number),
            (None, Some(number)) => MetaValue::I64(number),
            (None, None) => MetaValue::F64(number.as_f64()?),
        },
        Value::Array(numbers) => MetaValue::Integers(numbers.iter().map(Value::as_i64).collect::<Option<_>>()?),
        Value::Null | Value::Object(_) => return None,
    })
}
