//! Opens a model directory's tokenizer.

use std::path::Path;

use serde_json::{Value, json};
use tokenizers::AddedToken;

use super::build::Description;
use super::files::Files;
use super::settings::{Class, ROLES, Settings, says_class};
use super::stream::Decoding;
use super::vocabulary::end_tokens;
use super::word_pieces::WordPieces;
use super::{SpecialIds, TextTokenizer, json, llama, sentencepiece, slow};
use crate::text::TokeniserError;

pub(super) fn open(directory: &Path) -> Result<TextTokenizer, TokeniserError> {
    let mut files = Files::of(directory);
    let settings = Settings::read(&mut files)?;
    let (name, described) = describe(&mut files, &settings)?;
    let damaged = |reason: String| TokeniserError::Damaged { path: files.path(name), reason };
    let (settings, description) = described.map_err(damaged)?;
    finish(description, settings, Some(files.clone())).map_err(damaged)
}

/// A vocabulary file's name, and what it describes, with the settings of the class that it means.
type Described = (&'static str, Result<(Settings, Description), String>);

/// What the first of the vocabulary files that is there describes.
fn describe(files: &mut Files, settings: &Settings) -> Result<Described, TokeniserError> {
    if let Some(bytes) = files.read("tokenizer.json")? {
        let description = json::read(&bytes).map(|mut description| {
            if says_class(files.directory()) {
                follow_settings(&mut description, settings);
            }
            (settings.clone(), description)
        });
        return Ok(("tokenizer.json", description));
    }
    if let Some(bytes) = files.read("vocab.txt")? {
        let class = settings.class.filter(|class| *class == Class::Mpnet).unwrap_or(Class::Bert);
        let settings = settings.with(class);
        return Ok(("vocab.txt", slow::word_pieces(&bytes, &settings).map(|description| (settings, description))));
    }
    if files.has("vocab.json")
        && files.has("merges.txt")
        && let (Some(vocab), Some(merges)) = (files.read("vocab.json")?, files.read("merges.txt")?)
    {
        let named = [Class::Gpt2, Class::Clip];
        let class = settings.class.filter(|class| named.contains(class)).unwrap_or(Class::Roberta);
        let settings = settings.with(class);
        let description = match class {
            Class::Clip => slow::clip(&vocab, &merges, &settings),
            _ => slow::byte_pairs(&vocab, &merges, &settings, class),
        };
        return Ok(("vocab.json", description.map(|description| (settings, description))));
    }
    for name in ["spiece.model", "sentencepiece.bpe.model"] {
        if let Some(bytes) = files.read(name)? {
            let usual = if name == "spiece.model" { Class::Albert } else { Class::XlmRoberta };
            let named = [Class::Albert, Class::XlmRoberta, Class::Camembert, Class::Siglip];
            let class = settings.class.filter(|class| named.contains(class)).unwrap_or(usual);
            let settings = settings.with(class);
            let description = sentencepiece::describe(&bytes, &settings, class);
            return Ok((name, description.map(|description| (settings, description))));
        }
    }
    if let Some(bytes) = files.read("tokenizer.model")? {
        let settings = settings.with(Class::Llama);
        let description = llama::describe(&bytes, &settings);
        return Ok(("tokenizer.model", description.map(|description| (settings, description))));
    }
    let missing =
        "vocab.txt, vocab.json with merges.txt, spiece.model, sentencepiece.bpe.model and tokenizer.model".to_string();
    Err(TokeniserError::Missing { path: files.directory().to_path_buf(), missing })
}

/// Adds the special tokens that the files name, and looks up their indices.
pub(super) fn finish(
    mut description: Description,
    settings: Settings,
    files: Option<Files>,
) -> Result<TextTokenizer, String> {
    let mut further: Vec<AddedToken> = settings.added.iter().map(|(_, token)| token.clone()).collect();
    further.extend(ROLES.iter().filter_map(|role| settings.special(role)));
    further.extend(settings.further_special());
    // What tokenizer.json says of a token is what counts.
    for token in further {
        match description.added.iter_mut().find(|added| added.content == token.content) {
            Some(added) => added.special |= token.special,
            None if token.content.is_empty() => {}
            None => description.added.push(token),
        }
    }
    let built = description.build()?;
    let id = |role: &str, others: &[&str]| {
        let named = settings.special_name(role).and_then(|name| built.inner.token_to_id(&name));
        named.or_else(|| others.iter().find_map(|name| built.inner.token_to_id(name)))
    };
    let special = SpecialIds {
        padding: id("pad_token", &["[PAD]", "<pad>"]),
        mask: id("mask_token", &["[MASK]", "<mask>"]),
        first: id("cls_token", &["[CLS]", "<s>"]),
        separator: id("sep_token", &["[SEP]", "</s>"]),
        unknown: id("unk_token", &["[UNK]", "<unk>"]),
        begin: id("bos_token", &[]),
        end: id("eos_token", &[]),
        end_of_turn: None,
    };
    let mut tokenizer = TextTokenizer {
        fast: WordPieces::of(&built.inner),
        decoding: Decoding::of(&built.inner),
        inner: built.inner,
        template: built.template,
        special,
        vocabulary_size: built.vocabulary_size,
        settings,
        files,
        score_merges: None,
        ends: Vec::new(),
        notes: Vec::new(),
    };
    tokenizer.ends = end_tokens(&tokenizer);
    Ok(tokenizer)
}

/// Where `tokenizer_config.json` and `tokenizer.json` disagree, `transformers` follows the first, and its class's default where
/// neither the option nor the file is there.
fn follow_settings(description: &mut Description, settings: &Settings) {
    let kind = |part: &Value| part.get("type").and_then(Value::as_str).unwrap_or_default().to_string();
    match settings.class {
        Some(Class::Bert | Class::Mpnet) if kind(&description.normalizer) == "BertNormalizer" => {
            let normalizer = &mut description.normalizer;
            normalizer["lowercase"] = settings.flag("do_lower_case").unwrap_or(true).into();
            normalizer["strip_accents"] = json!(settings.flag("strip_accents"));
            normalizer["handle_chinese_chars"] = settings.flag("tokenize_chinese_chars").unwrap_or(true).into();
        }
        Some(Class::Roberta) if kind(&description.pre_tokenizer) == "ByteLevel" => {
            let prefix_space = settings.flag("add_prefix_space").unwrap_or(false);
            description.pre_tokenizer["add_prefix_space"] = prefix_space.into();
            if kind(&description.post_processor) == "RobertaProcessing" {
                description.post_processor["add_prefix_space"] = prefix_space.into();
            }
        }
        _ => {}
    }
}
