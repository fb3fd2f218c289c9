//! Writes a tokenizer's files so that `transformers` opens them.

use std::path::Path;

use serde_json::{Map, Value, json};

use super::TextTokenizer;
use super::settings::ROLES;
use crate::text::TokeniserError;

pub(super) fn save(tokenizer: &TextTokenizer, directory: &Path) -> Result<(), TokeniserError> {
    std::fs::create_dir_all(directory).map_err(|error| TokeniserError::Io { path: directory.to_path_buf(), error })?;
    for (name, bytes) in files(tokenizer)? {
        let path = directory.join(name);
        std::fs::write(&path, bytes).map_err(|error| TokeniserError::Io { path, error })?;
    }
    Ok(())
}

/// The files by name: those that were there byte for byte, and what is missing of them. Where `transformers` would take the vocabulary
/// for one of another class, such as ALBERT's with a `vocab.txt`, tokenizer_config.json is written anew and names the right class.
pub(super) fn files(tokenizer: &TextTokenizer) -> Result<Vec<(String, Vec<u8>)>, TokeniserError> {
    let kept = tokenizer.files.iter().flat_map(|files| files.kept());
    let mut files: Vec<(String, Vec<u8>)> = kept.map(|(name, bytes)| (name.to_string(), bytes.to_vec())).collect();
    if tokenizer.settings.other_class {
        files.retain(|(name, _)| name != "tokenizer_config.json");
    }
    let is_there = |files: &[(String, Vec<u8>)], name: &str| files.iter().any(|(there, _)| there == name);
    let tokens = special_tokens(tokenizer);
    if !is_there(&files, "tokenizer.json") {
        let json = tokenizer.inner.to_string(true).map_err(TokeniserError::library)?;
        files.push(("tokenizer.json".to_string(), json.into_bytes()));
    }
    if !is_there(&files, "tokenizer_config.json") {
        files.push(("tokenizer_config.json".to_string(), pretty(config(tokenizer, &tokens))?));
    }
    if !is_there(&files, "special_tokens_map.json") {
        files.push(("special_tokens_map.json".to_string(), pretty(tokens)?));
    }
    Ok(files)
}

/// `generation_config.json`: with which tokens texts begin and end.
pub(super) fn generation_config(tokenizer: &TextTokenizer) -> Result<(String, Vec<u8>), TokeniserError> {
    let special = tokenizer.special();
    let mut ends: Vec<u32> = special.end.into_iter().collect();
    ends.extend(tokenizer.end_tokens().iter().filter(|&&end| special.end != Some(end)));
    let end = match ends[..] {
        [] => Value::Null,
        [end] => json!(end),
        _ => json!(ends),
    };
    let entries = [("bos_token_id", json!(special.begin.or(special.end))), ("eos_token_id", end)];
    let object = entries.into_iter().map(|(key, value)| (key.to_string(), value)).collect();
    Ok(("generation_config.json".to_string(), pretty(object)?))
}

fn pretty(object: Map<String, Value>) -> Result<Vec<u8>, TokeniserError> {
    let mut bytes = serde_json::to_vec_pretty(&object).map_err(TokeniserError::library)?;
    bytes.push(b'\n');
    Ok(bytes)
}

/// The special tokens that have a role, as far as the vocabulary has them.
fn special_tokens(tokenizer: &TextTokenizer) -> Map<String, Value> {
    let token = |role: &&str| {
        let name = tokenizer.settings.special_name(role).filter(|name| tokenizer.id(name).is_some())?;
        Some((role.to_string(), name.into()))
    };
    ROLES.iter().filter_map(token).collect()
}

fn config(tokenizer: &TextTokenizer, tokens: &Map<String, Value>) -> Map<String, Value> {
    let settings = &tokenizer.settings;
    let mut config = settings.options();
    // A class that is not known to rebuild the tokenizer gets a tokenizer.json as it is.
    let name = settings.class.map_or("PreTrainedTokenizerFast", |class| class.name());
    if settings.other_class {
        config.remove("tokenizer_class");
    }
    config.entry("tokenizer_class").or_insert_with(|| name.into());
    for (role, token) in tokens {
        config.entry(role).or_insert_with(|| token.clone());
    }
    config
}
