//! Tokenizers of directories without a `tokenizer.json`: `vocab.txt`, or `vocab.json` with `merges.txt`, as `transformers` reads them.

use serde_json::{Value, json};
use tokenizers::models::bpe::Vocab;

use super::build::Description;
use super::json::split_merge;
use super::model::{Bpe, Model};
use super::settings::{Class, ROLES, Settings};

/// BERT's tokenizer with the tokens of a `vocab.txt`, one per line.
pub(super) fn word_pieces(bytes: &[u8], settings: &Settings) -> Result<Description, String> {
    let text = std::str::from_utf8(bytes).map_err(|_| "this is not UTF-8 text")?;
    let mut vocab = Vocab::default();
    let lines = text.split_inclusive('\n').map(|line| line.strip_suffix('\n').unwrap_or(line));
    for (line, token) in lines.map(|line| line.strip_suffix('\r').unwrap_or(line)).enumerate() {
        vocab.insert(token.to_string(), u32::try_from(line).map_err(|_| "it has too many lines")?);
    }
    let unknown = settings.special_name("unk_token").unwrap_or_else(|| "[UNK]".to_string());
    let name = |role: &str| settings.special_name(role).unwrap_or_default();
    let (first, separator) = (name("cls_token"), name("sep_token"));
    let id = |name: &str| new_id(&vocab, settings, name);
    let post_processor = match settings.class {
        Some(Class::Mpnet) => roberta_template((&first, id(&first)?), (&separator, id(&separator)?)),
        _ => bert_template((&first, id(&first)?), (&separator, id(&separator)?)),
    };
    Ok(Description {
        model: Model::WordPiece { vocab, unknown, prefix: "##".to_string(), longest_word: 100 },
        added: Vec::new(),
        normalizer: json!({
            "type": "BertNormalizer",
            "clean_text": true,
            "handle_chinese_chars": settings.flag("tokenize_chinese_chars").unwrap_or(true),
            "strip_accents": settings.flag("strip_accents"),
            "lowercase": settings.flag("do_lower_case").unwrap_or(true),
        }),
        pre_tokenizer: json!({"type": "BertPreTokenizer"}),
        post_processor,
        decoder: json!({"type": "WordPiece", "prefix": "##", "cleanup": true}),
    })
}

/// The index of a special token: of the vocabulary, or the one that it gets because it is missing there.
fn new_id(vocab: &Vocab, settings: &Settings, name: &str) -> Result<u32, String> {
    if let Some(id) = vocab.get(name) {
        return Ok(*id);
    }
    let added = settings.added.iter().map(|(_, token)| token.content.clone());
    let mut missing: Vec<String> = Vec::new();
    for token in added.chain(ROLES.iter().filter_map(|role| settings.special_name(role))) {
        if !vocab.contains_key(&token) && !missing.contains(&token) {
            missing.push(token);
        }
    }
    let place = missing.iter().position(|token| token == name);
    let place = place.ok_or_else(|| format!("there is no special token {name:?} for its template"))?;
    u32::try_from(vocab.len() + place).map_err(|_| "it has too many tokens".to_string())
}

/// The first token, the text and the separator; then the second text with type 1, and a separator.
pub(super) fn bert_template(first: (&str, u32), separator: (&str, u32)) -> Value {
    let special = |(name, _): (&str, u32), kind: u32| json!({"SpecialToken": {"id": name, "type_id": kind}});
    let text = |name: &str, kind: u32| json!({"Sequence": {"id": name, "type_id": kind}});
    let single = [special(first, 0), text("A", 0), special(separator, 0)];
    let pair = [&single[..], &[text("B", 1), special(separator, 1)]].concat();
    template(&single, &pair, first, separator)
}

/// The first token, the text and the separator; then a separator, the second text and a separator. All have type 0.
pub(super) fn roberta_template(first: (&str, u32), separator: (&str, u32)) -> Value {
    let special = |(name, _): (&str, u32)| json!({"SpecialToken": {"id": name, "type_id": 0}});
    let text = |name: &str| json!({"Sequence": {"id": name, "type_id": 0}});
    let single = [special(first), text("A"), special(separator)];
    let pair = [&single[..], &[special(separator), text("B"), special(separator)]].concat();
    template(&single, &pair, first, separator)
}

/// The text and its end; then the second text and its end.
pub(super) fn end_template(end: (&str, u32)) -> Value {
    let special = json!({"SpecialToken": {"id": end.0, "type_id": 0}});
    let text = |name: &str| json!({"Sequence": {"id": name, "type_id": 0}});
    let single = [text("A"), special.clone()];
    let pair = [&single[..], &[text("B"), special]].concat();
    template(&single, &pair, end, end)
}

fn template(single: &[Value], pair: &[Value], first: (&str, u32), separator: (&str, u32)) -> Value {
    let token = |(name, id): (&str, u32)| json!({"id": name, "ids": [id], "tokens": [name]});
    let mut tokens = serde_json::Map::new();
    tokens.insert(first.0.to_string(), token(first));
    tokens.insert(separator.0.to_string(), token(separator));
    json!({"type": "TemplateProcessing", "single": single, "pair": pair, "special_tokens": tokens})
}

/// As [`roberta_template`], with ranges that leave out spaces.
pub(super) fn roberta_processing(first: (&str, u32), separator: (&str, u32), trim: bool, prefix_space: bool) -> Value {
    json!({
        "type": "RobertaProcessing",
        "sep": [separator.0, separator.1],
        "cls": [first.0, first.1],
        "trim_offsets": trim,
        "add_prefix_space": prefix_space,
    })
}

/// The tokens of a `vocab.json` and the merges of a `merges.txt`.
fn read_byte_pairs(vocab: &[u8], merges: &[u8]) -> Result<(Vocab, Vec<(String, String)>), String> {
    let vocab: std::collections::HashMap<String, u32> =
        serde_json::from_slice(vocab).map_err(|error| format!("this is not a vocab.json: {error}"))?;
    let vocab: Vocab = vocab.into_iter().collect();
    let text = std::str::from_utf8(merges).map_err(|_| "its merges.txt is not UTF-8 text")?;
    let mut pairs = Vec::new();
    for (number, line) in text.lines().enumerate() {
        if line.starts_with("#version") || line.is_empty() {
            continue;
        }
        let pair = split_merge(line);
        pairs.push(pair.ok_or_else(|| format!("line {} of its merges.txt is not two tokens: {line:?}", number + 1))?);
    }
    Ok((vocab, pairs))
}

/// CLIP's tokenizer: letters are made small, words end in `</w>`, and a text stands between its start and its end.
pub(super) fn clip(vocab: &[u8], merges: &[u8], settings: &Settings) -> Result<Description, String> {
    let (vocab, merges) = read_byte_pairs(vocab, merges)?;
    let name = |role: &str| settings.special_name(role).unwrap_or_default();
    let (first, end) = (name("bos_token"), name("eos_token"));
    let id = |name: &str| new_id(&vocab, settings, name);
    let parts = clip_parts((&first, id(&first)?), (&end, id(&end)?));
    let unknown = Some(name("unk_token")).filter(|unknown| vocab.contains_key(unknown.as_str()));
    let (prefix, suffix) = (Some(String::new()), Some("</w>".to_string()));
    Ok(Description { model: Model::Bpe(Bpe { vocab, merges, unknown, prefix, suffix, ..Bpe::default() }), ..parts })
}

/// All of CLIP's tokenizer but its vocabulary.
pub(super) fn clip_parts(first: (&str, u32), end: (&str, u32)) -> Description {
    const WORDS: &str = r"<\|startoftext\|>|<\|endoftext\|>|'s|'t|'re|'ve|'m|'ll|'d|[\p{L}]+|[\p{N}]|[^\s\p{L}\p{N}]+";
    Description {
        model: Model::Bpe(Bpe::default()),
        added: Vec::new(),
        normalizer: json!({"type": "Sequence", "normalizers": [
            {"type": "NFC"},
            {"type": "Replace", "pattern": {"Regex": r"\s+"}, "content": " "},
            {"type": "Lowercase"},
        ]}),
        pre_tokenizer: json!({"type": "Sequence", "pretokenizers": [
            {"type": "Split", "pattern": {"Regex": WORDS}, "behavior": "Removed", "invert": true},
            {"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true},
        ]}),
        post_processor: roberta_processing(first, end, false, false),
        decoder: json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}),
    }
}

/// RoBERTa's or GPT-2's tokenizer: byte pairs, with the tokens of a `vocab.json` and the merges of a `merges.txt`.
pub(super) fn byte_pairs(
    vocab: &[u8],
    merges: &[u8],
    settings: &Settings,
    class: Class,
) -> Result<Description, String> {
    let (vocab, pairs) = read_byte_pairs(vocab, merges)?;
    let prefix_space = settings.flag("add_prefix_space").unwrap_or(false);
    let name = |role: &str| settings.special_name(role).unwrap_or_default();
    let (first, separator) = (name("cls_token"), name("sep_token"));
    let post_processor = match class {
        Class::Gpt2 => json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true}),
        _ => {
            let id = |name: &str| new_id(&vocab, settings, name);
            let trim = settings.flag("trim_offsets").unwrap_or(true);
            roberta_processing((&first, id(&first)?), (&separator, id(&separator)?), trim, prefix_space)
        }
    };
    Ok(Description {
        model: Model::Bpe(Bpe {
            vocab,
            merges: pairs,
            prefix: Some(String::new()),
            suffix: Some(String::new()),
            ..Bpe::default()
        }),
        added: Vec::new(),
        normalizer: Value::Null,
        pre_tokenizer: json!({
            "type": "ByteLevel", "add_prefix_space": prefix_space, "trim_offsets": true, "use_regex": true
        }),
        post_processor,
        decoder: json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}),
    })
}
