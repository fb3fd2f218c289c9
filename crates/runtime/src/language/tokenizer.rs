//! The tokenizer of a language model: that of its directory, or the one inside or beside its file.

use std::path::Path;

use vitreous_data::text::{TextTokenizer, VocabularyData, VocabularySpecial};
use vitreous_files::open::read_bounded;
use vitreous_models::Model;
use vitreous_models::archive::gguf::Metadata;

use super::write_vocabulary::vocabulary_of_directory;
use crate::error::Error;
use crate::locate::model_directory;

/// The largest `tokenizer.bin` that is read: a million tokens.
const MOST_TOKENIZER_BYTES: u64 = 64 << 20;

/// The tokenizer of a model that was opened from a path.
pub fn tokenizer_of(model: &Model, path: &Path) -> Result<TextTokenizer, Error> {
    let stored = match &model.assets.metadata {
        Some(metadata) if metadata.get("tokenizer.ggml.tokens").is_some() => vocabulary_of(metadata),
        _ if path.is_file() => match beside(path)? {
            Some(vocabulary) => vocabulary,
            None => return Ok(TextTokenizer::open(folder_of(path))?),
        },
        _ => return Ok(TextTokenizer::open(&model_directory(path))?),
    };
    Ok(TextTokenizer::from_vocabulary(stored)?)
}

/// The folder that a file is in.
fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The vocabulary of llama2.c's `tokenizer.bin` beside a model's file, if there is one.
fn beside(path: &Path) -> Result<Option<VocabularyData>, Error> {
    let file = path.with_file_name("tokenizer.bin");
    match read_bounded(&file, MOST_TOKENIZER_BYTES) {
        Ok(bytes) => Ok(Some(VocabularyData::read_llama2c(&bytes)?)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(Error::input(format!("{}: {error}", file.display()))),
    }
}

/// The vocabulary that a GGUF file of this model is to have, if it is not one already: that of its directory, or of llama2.c's
/// `tokenizer.bin` beside its file; `None` if there is neither.
pub fn vocabulary_to_write(model: &Model, path: &Path) -> Result<Option<VocabularyData>, Error> {
    let vocabulary = model.architecture.signature().next_token().unwrap_or_default();
    match path.is_file() && model.assets.metadata.is_some() {
        true => beside(path),
        false => vocabulary_of_directory(&model_directory(path), vocabulary),
    }
}

/// What a GGUF file says of its vocabulary.
pub fn vocabulary_of(metadata: &Metadata) -> VocabularyData {
    let key = |name: &str| format!("tokenizer.ggml.{name}");
    let text = |name: &str| metadata.text(&key(name)).map(str::to_string);
    let texts = |name: &str| metadata.texts(&key(name)).unwrap_or_default().to_vec();
    let id = |name: &str| metadata.unsigned(&key(name)).and_then(|id| u32::try_from(id).ok());
    let flag = |name: &str| metadata.flag(&key(name));
    const TEMPLATE: &str = "tokenizer.chat_template";
    let usual = metadata.text(TEMPLATE).map(|text| ("default".to_string(), text.to_string()));
    let named = metadata.iter().filter_map(|(name, _)| {
        let short = name.strip_prefix(TEMPLATE)?.strip_prefix('.')?;
        Some((short.to_string(), metadata.text(name)?.to_string()))
    });
    VocabularyData {
        model: text("model").unwrap_or_default(),
        pre_tokenizer: text("pre"),
        model_name: metadata.text("general.name").map(str::to_string),
        tokens: texts("tokens"),
        scores: metadata.floats(&key("scores")).unwrap_or_default().to_vec(),
        token_types: metadata
            .integers(&key("token_type"))
            .unwrap_or_default()
            .iter()
            .map(|&kind| kind as i32)
            .collect(),
        merges: texts("merges"),
        special: VocabularySpecial {
            bos: id("bos_token_id"),
            eos: id("eos_token_id"),
            eot: id("eot_token_id"),
            unknown: id("unknown_token_id"),
            separator: id("seperator_token_id"), // so spelled in the format
            padding: id("padding_token_id"),
            cls: id("cls_token_id"),
            mask: id("mask_token_id"),
        },
        add_bos: flag("add_bos_token"),
        add_eos: flag("add_eos_token"),
        add_space_prefix: flag("add_space_prefix"),
        lower_case: None,
        chat_templates: usual.into_iter().chain(named).collect(),
    }
}
