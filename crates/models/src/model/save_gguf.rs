//! Saves a model as a GGUF file.

use std::path::Path;

use serde_json::Value as Json;

use super::save::{SaveOptions, Values, Written};
use super::weight_type::{Mixture, WeightType, is_narrowed};
use super::{Model, ModelError};
use crate::archive::gguf::{MetaValue, Metadata, write_gguf};
use crate::archive::{ElementType, TensorToWrite};
use crate::checkpoint::gguf::{ARCHITECTURE, to_metadata};
use crate::checkpoint::{Dialect, Entry};
use crate::family::Format;

/// Keys of all architectures that say what is in a file: they are written anew.
const OF_THE_FILE: [&str; 4] = [ARCHITECTURE, "general.file_type", "general.quantization_version", "general.alignment"];
/// The version of ggml's block formats.
const BLOCKS_VERSION: u64 = 2;

impl Model {
    pub(super) fn save_gguf(
        &self,
        target: &Path,
        values: &Values,
        options: &SaveOptions,
    ) -> Result<Written, ModelError> {
        let dialect = self.architecture.dialect(Format::Gguf).map_err(|what| ModelError::unwritable(target, what))?;
        self.refuse_source(target, target)?;
        let entries = self.entries(&dialect, target)?;
        let elements: Vec<ElementType> = match options.weights {
            Some(weights) => {
                let mixture = mixture(weights, &dialect, &entries);
                entries.iter().map(|entry| mixture.element(&entry.name, &entry.shape)).collect()
            }
            None => entries.iter().map(|entry| values.kept_element(entry)).collect(),
        };
        let metadata = self.gguf_metadata(&dialect, &elements, options);
        let constants =
            dialect.constants.iter().map(|(name, values)| TensorToWrite::f32(name, &[values.len()], values));
        let tensors = entries.into_iter().zip(elements).map(|(entry, element)| values.tensor(entry, element));
        write_gguf(target, &metadata, constants.chain(tensors))?;
        Ok(Written::Gguf)
    }

    /// What a file says: of the model, of itself, and of the tokenizer.
    fn gguf_metadata(&self, dialect: &Dialect, elements: &[ElementType], options: &SaveOptions) -> Metadata {
        let config = dialect.config.iter().flatten().filter_map(|(key, value)| Some((key, to_metadata(value)?)));
        let (first, config): (Vec<_>, Vec<_>) = config.partition(|(key, _)| *key == ARCHITECTURE);
        let mut metadata = Metadata::default();
        first.into_iter().for_each(|(key, value)| metadata.insert(key, value));
        let opened = self.assets.metadata.as_deref();
        let general = opened.into_iter().flat_map(Metadata::iter).filter(|(key, _)| key.starts_with("general."));
        for (key, value) in general.filter(|(key, _)| !OF_THE_FILE.contains(key)) {
            metadata.insert(key, value.clone());
        }
        if let (None, Some(name)) = (metadata.get("general.name"), self.name()) {
            metadata.insert("general.name", MetaValue::Text(name));
        }
        config.into_iter().for_each(|(key, value)| metadata.insert(key, value));
        metadata.insert("general.file_type", MetaValue::U64(file_type(options.weights, elements)));
        if elements.iter().any(|element| matches!(element, ElementType::Blocks(_))) {
            metadata.insert("general.quantization_version", MetaValue::U64(BLOCKS_VERSION));
        }
        let tokenizer = options.metadata.or(opened).into_iter().flat_map(Metadata::iter);
        for (key, value) in tokenizer.filter(|(key, _)| key.starts_with("tokenizer.")) {
            metadata.insert(key, value.clone());
        }
        metadata
    }

    /// The name of the file or directory that it was opened from.
    fn name(&self) -> Option<String> {
        let path = self.path.as_deref()?;
        let name = if path.is_dir() { path.file_name() } else { path.file_stem() };
        name.map(|name| name.to_string_lossy().into_owned())
    }
}

fn mixture(weights: WeightType, dialect: &Dialect, entries: &[Entry]) -> Mixture {
    let config = dialect.config.iter().flatten();
    let size = |key: &str| {
        let end = format!(".{key}");
        config.clone().find(|(known, _)| known.ends_with(&end)).and_then(|(_, value)| Json::as_u64(value))
    };
    let layers = size("block_count").unwrap_or_default() as usize;
    let (heads, kv_heads) = (size("attention.head_count"), size("attention.head_count_kv"));
    Mixture {
        weights,
        layers,
        has_output: entries.iter().any(|entry| entry.name == "output.weight"),
        is_70b: layers == 80 && kv_heads.is_some() && kv_heads != heads,
    }
}

/// llama.cpp's number of what most of the file is; 0, floats, where it has none.
fn file_type(weights: Option<WeightType>, elements: &[ElementType]) -> u64 {
    let has = |weights: &WeightType| elements.contains(&weights.element());
    let found = || {
        [WeightType::Q4KM, WeightType::Q4_0, WeightType::Q8_0, WeightType::Bf16, WeightType::F16].into_iter().find(has)
    };
    weights.or_else(found).map_or(0, WeightType::file_type)
}

impl Values<'_> {
    /// The type in which a tensor of the opened file is written again: its own, if GGUF has it.
    fn kept_element(&self, entry: &Entry) -> ElementType {
        if !is_narrowed(&entry.name, &entry.shape) {
            return ElementType::F32;
        }
        match self.common_element(&entry.atoms) {
            Some(kept @ (ElementType::F16 | ElementType::Bf16)) => kept,
            Some(kept @ ElementType::Blocks(_)) if self.blocks(entry, kept).is_ok_and(|blocks| blocks.is_some()) => {
                kept
            }
            _ => ElementType::F32,
        }
    }
}
