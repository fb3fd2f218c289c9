//! One JSON object per line: `{"source": "..", "target": ".."}`, an article with its summary (`{"document": "..", "summary": ".."}`), or `{"translation": {"en": "..", "de": ".."}}` as on Hugging Face.

use std::path::Path;

use serde_json::{Map, Value};

use super::PairsError;
use super::lines::Lines;
use super::pairs::{Languages, ReadPairs};

/// The keys of source and target: of translations, of articles with their summaries (XSum, CNN/DailyMail, others), and of texts that belong
/// together, as sentence-transformers has them.
const KEYS: [[&str; 2]; 5] = [
    ["source", "target"],
    ["document", "summary"],
    ["article", "highlights"],
    ["text", "summary"],
    ["anchor", "positive"],
];

/// Reads the pairs. If no languages are given, they are those of the first line's translation, which must have exactly two: the first
/// is the source.
pub(super) fn read(path: &Path, languages: Option<&Languages>) -> Result<ReadPairs, PairsError> {
    let mut languages = languages.cloned();
    let mut lines = Lines::open_regular(path)?;
    let mut read = ReadPairs::default();
    while let Some(line) = lines.next_line()? {
        if line.trim().is_empty() {
            continue;
        }
        let found = sides(line, &mut languages);
        let (source, target) = found.map_err(|reason| PairsError::line(path, lines.number(), reason))?;
        read.push(&source, &target);
    }
    Ok(read)
}

fn sides(line: &str, languages: &mut Option<Languages>) -> Result<(String, String), String> {
    let value: Value = serde_json::from_str(line).map_err(|error| format!("this is not JSON: {error}"))?;
    let Value::Object(mut object) = value else {
        return Err("this is not a JSON object".to_string());
    };
    match object.remove("translation") {
        Some(Value::Object(mut translation)) => {
            let languages = named(&translation, languages)?;
            Ok((text(&mut translation, &languages.source)?, text(&mut translation, &languages.target)?))
        }
        Some(_) => Err("`translation` must be an object of languages".to_string()),
        None => {
            let [source, target] =
                KEYS.into_iter().find(|keys| keys.iter().all(|key| object.contains_key(*key))).unwrap_or(KEYS[0]);
            Ok((text(&mut object, source)?, text(&mut object, target)?))
        }
    }
}

/// The given languages, or else those of the first translation.
fn named(translation: &Map<String, Value>, languages: &mut Option<Languages>) -> Result<Languages, String> {
    if let Some(languages) = languages {
        return Ok(languages.clone());
    }
    let keys: Vec<&str> = translation.keys().map(String::as_str).collect();
    let [source, target] = keys[..] else {
        return Err(format!(
            "`translation` has {} languages ({}): choose two: --languages {},{}",
            keys.len(),
            some(&keys),
            keys.first().unwrap_or(&"en"),
            keys.get(1).unwrap_or(&"de"),
        ));
    };
    let found = Languages { source: source.to_string(), target: target.to_string() };
    *languages = Some(found.clone());
    Ok(found)
}

fn text(object: &mut Map<String, Value>, key: &str) -> Result<String, String> {
    match object.remove(key) {
        Some(Value::String(text)) => Ok(text),
        Some(_) => Err(format!("`{key}` must be a string")),
        None => {
            let keys: Vec<&str> = object.keys().map(String::as_str).collect();
            Err(format!("`{key}` is missing; found: {}", some(&keys)))
        }
    }
}

/// Keys for a message, of bounded length.
fn some(keys: &[&str]) -> String {
    let short = |key: &&str| key.chars().take(40).collect::<String>();
    let mut names: Vec<String> = keys.iter().take(6).map(short).collect();
    if keys.len() > names.len() {
        names.push("...".to_string());
    }
    if names.is_empty() { "nothing".to_string() } else { names.join(", ") }
}
