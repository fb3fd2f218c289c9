//! The tokenizer of a model directory as the vocabulary of a GGUF file, with what llama.cpp's converter writes: tokens, their types,
//! scores or merges, special tokens, chat templates.

use std::collections::HashMap;
use std::path::Path;

use serde_json::Value as Json;
use vitreous_data::text::{VocabularyData, VocabularySpecial};
use vitreous_files::open::read_bounded;
use vitreous_models::archive::gguf::{MetaValue, Metadata};

use crate::error::Error;

/// Larger than any `tokenizer.json`.
const MOST_BYTES: u64 = 256 << 20;
/// The most tokens of a vocabulary.
const MOST_TOKENS: usize = 1 << 22;

/// Types of tokens, numbered as sentencepiece and GGUF do.
mod token_type {
    pub(super) const NORMAL: i32 = 1;
    pub(super) const UNKNOWN: i32 = 2;
    pub(super) const CONTROL: i32 = 3;
    pub(super) const USER_DEFINED: i32 = 4;
    pub(super) const UNUSED: i32 = 5;
    pub(super) const BYTE: i32 = 6;
}

/// Names of GGUF for how text is split, by the expression that a `tokenizer.json` splits it with. All of them leave the rest to the
/// bytes' own splitting where `ByteLevel` has one.
const SPLITS: [(&str, &str); 3] = [
    (
        "llama-bpe",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
    (
        "qwen2",
        r"(?i:'s|'t|'re|'ve|'m|'ll|'d)|[^\r\n\p{L}\p{N}]?\p{L}+|\p{N}| ?[^\s\p{L}\p{N}]+[\r\n]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
    (
        "gpt-4o",
        r"[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]*[\p{Ll}\p{Lm}\p{Lo}\p{M}]+(?i:'s|'t|'re|'ve|'m|'ll|'d)?|[^\r\n\p{L}\p{N}]?[\p{Lu}\p{Lt}\p{Lm}\p{Lo}\p{M}]+[\p{Ll}\p{Lm}\p{Lo}\p{M}]*(?i:'s|'t|'re|'ve|'m|'ll|'d)?|\p{N}{1,3}| ?[^\s\p{L}\p{N}]+[\r\n/]*|\s*[\r\n]+|\s+(?!\S)|\s+",
    ),
];

/// The vocabulary of a directory's `tokenizer.json`, filled up to as many tokens as the model has embeddings for; `None` if there is no
/// such file. An error says why GGUF cannot hold it.
pub fn vocabulary_of_directory(directory: &Path, size: usize) -> Result<Option<VocabularyData>, Error> {
    let file = directory.join("tokenizer.json");
    let Some(json) = read_json(&file)? else { return Ok(None) };
    let refused = |what: String| Error::input(format!("{}: {what}", file.display()));
    let mut data = vocabulary(&json, size).map_err(refused)?;
    let config = read_json(&directory.join("tokenizer_config.json"))?.unwrap_or_default();
    let model = read_json(&directory.join("config.json"))?.unwrap_or_default();
    data.special = special(&data.tokens, &config, &model);
    let template = template_ends(&json["post_processor"], &data);
    data.add_bos = config["add_bos_token"].as_bool().or(template.map(|(begin, _)| begin));
    data.add_eos = config["add_eos_token"].as_bool().or(template.map(|(_, end)| end));
    data.chat_templates = chat_templates(&config, directory)?;
    Ok(Some(data))
}

fn read_json(file: &Path) -> Result<Option<Json>, Error> {
    let bytes = match read_bounded(file, MOST_BYTES) {
        Ok(bytes) => bytes,
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
        Err(error) => return Err(Error::input(format!("{}: {error}", file.display()))),
    };
    let json = serde_json::from_slice(&bytes);
    json.map(Some).map_err(|error| Error::input(format!("{}: this is not JSON: {error}", file.display())))
}

/// The tokens with their types, and how they are merged.
fn vocabulary(json: &Json, size: usize) -> Result<VocabularyData, String> {
    let model = &json["model"];
    let (Some(vocab), Some(merges)) = (model["vocab"].as_object(), model["merges"].as_array()) else {
        let kind = model["type"].as_str().unwrap_or("of another kind");
        return Err(format!("its tokenizer is {kind}; GGUF files of language models hold byte pairs (BPE)"));
    };
    let merges: Vec<(String, String)> =
        merges.iter().map(pair).collect::<Option<_>>().ok_or("its merges are no pairs")?;
    let mut tokens: HashMap<usize, (String, i32)> = HashMap::new();
    let mut put = |id: &Json, token: &str, kind: i32| {
        let id = id.as_u64().and_then(|id| usize::try_from(id).ok()).filter(|id| *id < MOST_TOKENS);
        let id = id.ok_or_else(|| format!("the token {token:?} has no index below {MOST_TOKENS}"))?;
        tokens.insert(id, (token.to_string(), kind));
        Ok::<_, String>(())
    };
    let unknown = model["unk_token"].as_str();
    for (token, id) in vocab {
        let is_byte = token.len() == 6 && token.starts_with("<0x") && token.ends_with('>');
        let kind = match is_byte && model["byte_fallback"] == true {
            true => token_type::BYTE,
            false => token_type::NORMAL,
        };
        put(id, token, kind)?;
    }
    for added in json["added_tokens"].as_array().into_iter().flatten() {
        let Some(token) = added["content"].as_str() else { continue };
        let kind = match (Some(token) == unknown, added["special"] == true) {
            (true, _) => token_type::UNKNOWN,
            (false, true) => token_type::CONTROL,
            (false, false) => token_type::USER_DEFINED,
        };
        put(&added["id"], token, kind)?;
    }
    let count = tokens.keys().max().map_or(0, |last| last + 1).max(size.min(MOST_TOKENS));
    let mut data = VocabularyData::default();
    for id in 0..count {
        let (token, kind) = tokens.remove(&id).unwrap_or((format!("[PAD{id}]"), token_type::UNUSED));
        data.tokens.push(token);
        data.token_types.push(kind);
    }
    let pre_tokenizers = flattened(&json["pre_tokenizer"], "pretokenizers");
    if pre_tokenizers.iter().any(|part| part["type"] == "ByteLevel") {
        data.model = "gpt2".to_string();
        data.pre_tokenizer = pre_tokenizer(&pre_tokenizers).map(str::to_string);
        data.merges = merges.into_iter().map(|(left, right)| format!("{left} {right}")).collect();
        return Ok(data);
    }
    let normalizers = flattened(&json["normalizer"], "normalizers");
    let metaspace = pre_tokenizers.iter().find(|part| part["type"] == "Metaspace");
    if metaspace.is_none() && !normalizers.iter().any(|part| part["type"] == "Replace" && part["content"] == "▁") {
        return Err(
            "its byte pairs are neither of bytes (ByteLevel) nor sentencepiece's, which GGUF files hold".to_string()
        );
    }
    data.model = "llama".to_string();
    let prepends = normalizers.iter().any(|part| part["type"] == "Prepend");
    data.add_space_prefix = Some(prepends || metaspace.is_some_and(|part| part["prepend_scheme"] != "never"));
    data.scores = scores(&data, &merges);
    Ok(data)
}

/// A pair of tokens: a list of two, or a text with a space between them.
fn pair(merge: &Json) -> Option<(String, String)> {
    match merge {
        Json::String(text) => text.split_once(' ').map(|(left, right)| (left.to_string(), right.to_string())),
        _ => Some((merge.get(0)?.as_str()?.to_string(), merge.get(1)?.as_str()?.to_string())),
    }
}

/// sentencepiece merges by score what a `tokenizer.json` merges by rank: a token's score is the lower, the later the first merge that
/// gives it.
fn scores(data: &VocabularyData, merges: &[(String, String)]) -> Vec<f32> {
    let mut ranks: HashMap<String, usize> = HashMap::with_capacity(merges.len());
    for (rank, (left, right)) in merges.iter().enumerate() {
        ranks.entry(format!("{left}{right}")).or_insert(rank);
    }
    let score = |(token, &kind): (&String, &i32)| match kind {
        token_type::NORMAL => -(ranks.get(token).copied().unwrap_or(merges.len()) as f32),
        _ => 0.0,
    };
    data.tokens.iter().zip(&data.token_types).map(score).collect()
}

/// The parts of a sequence, or the one that there is.
fn flattened<'a>(part: &'a Json, key: &str) -> Vec<&'a Json> {
    match part[key].as_array() {
        Some(parts) => parts.iter().flat_map(|part| flattened(part, key)).collect(),
        None if part.is_null() => Vec::new(),
        None => vec![part],
    }
}

/// What GGUF calls this way to split text; `None` if it has no name for it.
fn pre_tokenizer(parts: &[&Json]) -> Option<&'static str> {
    let splits = |part: &Json| part["type"] == "ByteLevel" && part["use_regex"] != false;
    match parts {
        [bytes] if splits(bytes) => Some("gpt-2"),
        [digits, bytes] if digits["type"] == "Digits" && digits["individual_digits"] == true && splits(bytes) => {
            Some("smollm")
        }
        [split, bytes] if split["type"] == "Split" && !splits(bytes) => {
            let expression = split["pattern"]["Regex"].as_str()?;
            SPLITS.iter().find(|(_, known)| *known == expression).map(|(name, _)| *name)
        }
        _ => None,
    }
}

fn special(tokens: &[String], config: &Json, model: &Json) -> VocabularySpecial {
    let index = |token: &str| tokens.iter().position(|known| known == token).and_then(|id| u32::try_from(id).ok());
    let named = |role: &str| {
        let token = &config[role];
        token.as_str().or(token["content"].as_str()).and_then(index)
    };
    // The model's configuration says it by numbers; of several ends, the first.
    let numbered = |role: &str| {
        let id = &model[role];
        id.as_u64().or(id[0].as_u64()).and_then(|id| u32::try_from(id).ok()).filter(|id| (*id as usize) < tokens.len())
    };
    VocabularySpecial {
        bos: named("bos_token").or(numbered("bos_token_id")),
        eos: named("eos_token").or(numbered("eos_token_id")),
        eot: None,
        unknown: named("unk_token"),
        separator: named("sep_token"),
        padding: named("pad_token").or(numbered("pad_token_id")),
        cls: named("cls_token"),
        mask: named("mask_token"),
    }
}

/// Whether a template puts the beginning before a text, and the end after it.
fn template_ends(post_processor: &Json, data: &VocabularyData) -> Option<(bool, bool)> {
    let parts = flattened(post_processor, "processors");
    let template = parts.iter().find(|part| part["type"] == "TemplateProcessing")?;
    let single = template["single"].as_array()?;
    let is = |part: Option<&Json>, id: Option<u32>| {
        let token = part.and_then(|part| part["SpecialToken"]["id"].as_str());
        token.is_some() && token == id.and_then(|id| data.tokens.get(id as usize)).map(String::as_str)
    };
    Some((is(single.first(), data.special.bos), is(single.last(), data.special.eos)))
}

fn chat_templates(config: &Json, directory: &Path) -> Result<Vec<(String, String)>, Error> {
    let usual = |template: String| vec![("default".to_string(), template)];
    let file = directory.join("chat_template.jinja");
    match read_bounded(&file, MOST_BYTES) {
        Ok(bytes) => return Ok(usual(String::from_utf8_lossy(&bytes).into_owned())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
        Err(error) => return Err(Error::input(format!("{}: {error}", file.display()))),
    }
    Ok(match &config["chat_template"] {
        Json::String(template) => usual(template.clone()),
        Json::Array(named) => named
            .iter()
            .filter_map(|one| Some((one["name"].as_str()?.to_string(), one["template"].as_str()?.to_string())))
            .collect(),
        _ => Vec::new(),
    })
}

/// A vocabulary as the keys of a GGUF file.
pub fn metadata_of(data: &VocabularyData) -> Metadata {
    let mut metadata = Metadata::default();
    let mut put = |key: &str, value: Option<MetaValue>| {
        if let Some(value) = value {
            metadata.insert(key, value);
        }
    };
    let text = |text: &str| Some(MetaValue::Text(text.to_string()));
    let list = |list: &[String]| (!list.is_empty()).then(|| MetaValue::Texts(list.to_vec()));
    put("tokenizer.ggml.model", text(&data.model));
    put("tokenizer.ggml.pre", data.pre_tokenizer.as_deref().and_then(text));
    put("tokenizer.ggml.tokens", list(&data.tokens));
    put("tokenizer.ggml.scores", (!data.scores.is_empty()).then(|| MetaValue::Floats(data.scores.clone())));
    let types: Vec<i64> = data.token_types.iter().map(|&kind| kind.into()).collect();
    put("tokenizer.ggml.token_type", (!types.is_empty()).then_some(MetaValue::Integers(types)));
    put("tokenizer.ggml.merges", list(&data.merges));
    let special = &data.special;
    for (key, id) in [
        ("bos_token_id", special.bos),
        ("eos_token_id", special.eos),
        ("eot_token_id", special.eot),
        ("unknown_token_id", special.unknown),
        ("seperator_token_id", special.separator), // so spelled in the format
        ("padding_token_id", special.padding),
        ("cls_token_id", special.cls),
        ("mask_token_id", special.mask),
    ] {
        put(&format!("tokenizer.ggml.{key}"), id.map(|id| MetaValue::U64(id.into())));
    }
    put("tokenizer.ggml.add_bos_token", data.add_bos.map(MetaValue::Bool));
    put("tokenizer.ggml.add_eos_token", data.add_eos.map(MetaValue::Bool));
    put("tokenizer.ggml.add_space_prefix", data.add_space_prefix.map(MetaValue::Bool));
    for (name, template) in &data.chat_templates {
        let key = match name.as_str() {
            "default" => "tokenizer.chat_template".to_string(),
            name => format!("tokenizer.chat_template.{name}"),
        };
        put(&key, text(template));
    }
    metadata
}
