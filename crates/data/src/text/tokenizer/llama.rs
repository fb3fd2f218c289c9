//! LLaMA's and Mistral's tokenizer of a `tokenizer.model`, sentencepiece's byte pairs, as `transformers` converts it.

use std::collections::HashSet;

use serde_json::{Value, json};
use tokenizers::AddedToken;
use tokenizers::models::bpe::Vocab;

use super::build::Description;
use super::model::{Bpe, Model};
use super::sentencepiece::{CONTROL, USER_DEFINED, read};
use super::settings::Settings;

pub(super) fn describe(bytes: &[u8], settings: &Settings) -> Result<Description, String> {
    let file = read(bytes)?;
    if file.model_type != 2 {
        return Err("it is not a model of byte pairs, as those of LLaMA and Mistral are".to_string());
    }
    let tokens: Vec<&str> = file.pieces.iter().map(|piece| piece.text).collect();
    // Of equal tokens, the last counts, as in a dictionary of Python.
    let vocab: Vocab = tokens.iter().zip(0..).map(|(token, id)| (token.to_string(), id)).collect();
    let mut names = HashSet::new();
    let matched = file.pieces.iter().filter(|piece| matches!(piece.kind, CONTROL | USER_DEFINED));
    let added = matched.filter(|piece| !piece.text.is_empty() && names.insert(piece.text));
    let added = added.map(|piece| AddedToken::from(piece.text, piece.kind == CONTROL).normalized(false)).collect();
    let prefix_space = settings.flag("add_prefix_space").unwrap_or(true);
    let scheme = match (prefix_space, settings.flag("legacy").unwrap_or(false)) {
        (false, _) => "never",
        (true, true) => "always",
        (true, false) => "first",
    };
    let mut decoders = vec![
        json!({"type": "Replace", "pattern": {"String": "▁"}, "content": " "}),
        json!({"type": "ByteFallback"}),
        json!({"type": "Fuse"}),
    ];
    if prefix_space {
        decoders.push(json!({"type": "Strip", "content": " ", "start": 1, "stop": 0}));
    }
    Ok(Description {
        post_processor: template(&vocab, settings)?,
        model: Model::Bpe(Bpe {
            merges: merges(&tokens, &vocab),
            vocab,
            fuse_unknown: true,
            byte_fallback: true,
            ..Bpe::default()
        }),
        added,
        normalizer: Value::Null,
        pre_tokenizer: json!({"type": "Metaspace", "replacement": "▁", "prepend_scheme": scheme, "split": false}),
        decoder: json!({"type": "Sequence", "decoders": decoders}),
    })
}

/// Every pair of tokens whose union is a token, in the order of the unions' indices, and of the pairs' lengths.
fn merges(tokens: &[&str], vocab: &Vocab) -> Vec<(String, String)> {
    let mut merges = Vec::new();
    for (token, id) in tokens.iter().zip(0_u32..).filter(|(token, id)| vocab.get(**token) == Some(id)) {
        // The shorter the left part, the longer the right one: lengths are in order already.
        for (place, _) in token.char_indices().skip(1) {
            let (left, right) = token.split_at(place);
            if vocab.contains_key(left) && vocab.contains_key(right) {
                merges.push((id, left.to_string(), right.to_string()));
            }
        }
    }
    merges.sort_by_key(|(id, _, _)| *id);
    merges.into_iter().map(|(_, left, right)| (left, right)).collect()
}

/// The beginning and the end of a text, where `tokenizer_config.json` wants them.
fn template(vocab: &Vocab, settings: &Settings) -> Result<Value, String> {
    let wanted = |option: &str, role: &str| match settings.flag(option) {
        Some(true) => {
            let name = settings.special_name(role).unwrap_or_default();
            let id = vocab.get(&name).copied();
            id.map(|id| Some((name.clone(), id)))
                .ok_or_else(|| format!("its vocabulary has no token {name:?}, which {option} needs"))
        }
        _ => Ok(None),
    };
    let (begin, end) = (wanted("add_bos_token", "bos_token")?, wanted("add_eos_token", "eos_token")?);
    if begin.is_none() && end.is_none() {
        return Ok(Value::Null);
    }
    let mut tokens = serde_json::Map::new();
    for (name, id) in [&begin, &end].into_iter().flatten() {
        tokens.insert(name.clone(), json!({"id": name, "ids": [id], "tokens": [name]}));
    }
    let around = |text: &str, kind: u32| {
        let special = |token: &Option<(String, u32)>| {
            token.as_ref().map(|(name, _)| json!({"SpecialToken": {"id": name, "type_id": kind}}))
        };
        let text = json!({"Sequence": {"id": text, "type_id": kind}});
        [special(&begin), Some(text), special(&end)].into_iter().flatten().collect::<Vec<_>>()
    };
    let pair = [around("A", 0), around("B", 1)].concat();
    Ok(json!({"type": "TemplateProcessing", "single": around("A", 0), "pair": pair, "special_tokens": tokens}))
}
