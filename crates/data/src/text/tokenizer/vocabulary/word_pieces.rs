//! BERT's word pieces (`bert`). GGUF marks the tokens that begin a word, with `▁`, and not those that go on with one.

use serde_json::json;
use tokenizers::models::bpe::Vocab;

use super::super::build::Description;
use super::super::model::Model;
use super::super::settings::Class;
use super::super::slow::bert_template;
use super::{Parts, VocabularyData, token_type};

/// Where llama.cpp expects BERT's special tokens if a file does not say it.
const USUAL_UNKNOWN: u32 = 100;
const USUAL_CLS: u32 = 101;
const USUAL_SEPARATOR: u32 = 102;

pub(super) fn parts(data: &mut VocabularyData) -> Result<Parts, String> {
    let size = data.tokens.len();
    let usual = |id: Option<u32>, usual: u32| id.or(Some(usual)).filter(|&id| (id as usize) < size);
    let special = &mut data.special;
    special.unknown = usual(special.unknown, USUAL_UNKNOWN);
    special.cls = usual(special.cls.or(special.bos), USUAL_CLS);
    special.separator = usual(special.separator.or(special.eos), USUAL_SEPARATOR);
    for id in 0..size {
        let token = own_name(&data.tokens[id], data.token_type(id));
        data.tokens[id] = token;
    }
    let mut vocab = Vocab::default();
    for (token, id) in data.tokens.iter().zip(0..) {
        vocab.entry(token.clone()).or_insert(id);
    }
    let special = &data.special;
    let named = |id: Option<u32>, what: &str| {
        let named = id.and_then(|id| Some((data.name(Some(id))?, id)));
        named.ok_or_else(|| format!("it has no token {what}"))
    };
    let unknown = named(special.unknown, "for unknown words")?.0.to_string();
    let (first, separator) = (named(special.cls, "before a text")?, named(special.separator, "after a text")?);
    let lower_case = data.lower_case.unwrap_or(true);
    let description = Description {
        model: Model::WordPiece { vocab, unknown, prefix: "##".to_string(), longest_word: 100 },
        added: data.added()?,
        normalizer: json!({
            "type": "BertNormalizer",
            "clean_text": true,
            "handle_chinese_chars": true,
            "strip_accents": null,
            "lowercase": lower_case,
        }),
        pre_tokenizer: json!({"type": "BertPreTokenizer"}),
        post_processor: bert_template(first, separator),
        decoder: json!({"type": "WordPiece", "prefix": "##", "cleanup": true}),
    };
    let settings = data.settings(Some(Class::Bert), &[("do_lower_case", lower_case.into())]);
    Ok(Parts { description, settings, merges: None, notes: Vec::new() })
}

/// A token as BERT names it: `##` marks those that go on with a word.
fn own_name(token: &str, kind: i32) -> String {
    let is_special = kind == token_type::CONTROL || (token.starts_with('[') && token.ends_with(']') && token.len() > 2);
    match token.strip_prefix('▁') {
        _ if is_special => token.to_string(),
        Some(word) => word.to_string(),
        None => format!("##{token}"),
    }
}
