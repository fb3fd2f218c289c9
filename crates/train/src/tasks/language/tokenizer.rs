//! The tokenizer of a language model: that of its directory, or the one inside or beside its file; or one that is learnt.

use std::path::Path;

use vitreous_data::text::{DocumentBreak, PlainTexts, TextTokenizer, VocabularyData, VocabularySpecial};
use vitreous_files::open::read_bounded;
use vitreous_models::Model;
use vitreous_models::archive::gguf::Metadata;

use super::settings::LanguageTextSettings;
use crate::error::TrainError;

/// The largest `tokenizer.bin` that is read: a million tokens.
const MOST_TOKENIZER_BYTES: u64 = 64 << 20;
/// The most text that a vocabulary is learnt from, in bytes: more of it changes few tokens, and takes longer.
const MOST_LEARNT_FROM: usize = 256 << 20;
/// The longest chat template that is read.
const MOST_TEMPLATE_BYTES: u64 = 1 << 18;

/// The tokenizer of a model that was opened from a directory or a file.
pub fn tokenizer_of(model: &Model, path: &Path) -> Result<TextTokenizer, TrainError> {
    let stored = match &model.assets.metadata {
        Some(metadata) if metadata.get("tokenizer.ggml.tokens").is_some() => vocabulary_of(metadata),
        _ if path.is_file() => match vocabulary_beside(path)? {
            Some(vocabulary) => vocabulary,
            None => return Ok(TextTokenizer::open(folder_of(path))?),
        },
        _ => return Ok(TextTokenizer::open(path)?),
    };
    Ok(TextTokenizer::from_vocabulary(stored)?)
}

/// The folder that a file is in.
fn folder_of(file: &Path) -> &Path {
    file.parent().filter(|folder| !folder.as_os_str().is_empty()).unwrap_or(Path::new("."))
}

/// The vocabulary of llama2.c's `tokenizer.bin` beside a model's file, if there is one.
pub fn vocabulary_beside(path: &Path) -> Result<Option<VocabularyData>, TrainError> {
    let file = path.with_file_name("tokenizer.bin");
    match read_bounded(&file, MOST_TOKENIZER_BYTES) {
        Ok(bytes) => Ok(Some(VocabularyData::read_llama2c(&bytes)?)),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(TrainError::Data(format!("{}: {error}", file.display()))),
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

/// The tokenizer that a recipe names, or one that is learnt from the text.
pub(super) fn chosen(
    settings: &LanguageTextSettings,
    texts: &PlainTexts,
    documents: DocumentBreak,
) -> Result<TextTokenizer, TrainError> {
    if settings.tokenizer_from.is_empty() {
        return learn(settings, texts, documents);
    }
    let path = Path::new(&settings.tokenizer_from);
    let folder = if path.is_file() { folder_of(path) } else { path };
    Ok(TextTokenizer::open(folder)?)
}

/// A vocabulary learnt from the text.
fn learn(
    settings: &LanguageTextSettings,
    texts: &PlainTexts,
    documents: DocumentBreak,
) -> Result<TextTokenizer, TrainError> {
    let (mut failure, mut seen) = (None, 0);
    let mut parts = texts.parts(documents).map_while(|part| match part {
        Ok(part) if seen < MOST_LEARNT_FROM => {
            seen += part.text.len();
            Some(part.text)
        }
        Ok(_) => None,
        Err(error) => {
            failure = Some(error);
            None
        }
    });
    let tokenizer = TextTokenizer::train_language(settings.tokenizer.into(), &mut parts, settings.vocabulary);
    drop(parts);
    match failure {
        Some(error) => Err(TrainError::Data(error.to_string())),
        None => Ok(tokenizer?),
    }
}

/// The tokenizer with the chat template of a file, if one is named.
pub(super) fn with_template(tokenizer: TextTokenizer, file: &str) -> Result<TextTokenizer, TrainError> {
    if file.is_empty() {
        return Ok(tokenizer);
    }
    let failed = |what: String| TrainError::Data(format!("{file}: {what}"));
    let bytes = read_bounded(Path::new(file), MOST_TEMPLATE_BYTES).map_err(|error| failed(error.to_string()))?;
    let text = String::from_utf8(bytes).map_err(|_| failed("a chat template is UTF-8 text".to_string()))?;
    Ok(tokenizer.with_chat_template(&text))
}
