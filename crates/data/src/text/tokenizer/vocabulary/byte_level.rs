//! Byte pairs (`gpt2`): text is split by regular expressions, its bytes are written as letters, and pairs are merged in a fixed order.

use serde_json::{Value, json};
use tokenizers::models::bpe::Vocab;

use super::super::build::Description;
use super::super::model::{Bpe, Model};
use super::pre_tokenizers::{self, PreTokenizer};
use super::{Parts, VocabularyData};

pub(super) fn parts(data: &VocabularyData) -> Result<Parts, String> {
    let mut notes = Vec::new();
    let pre_tokenizer = match &data.pre_tokenizer {
        Some(name) => pre_tokenizers::of_name(name).unwrap_or_else(|| {
            notes.push(format!(
                "the vocabulary's pre-tokenizer {name:?} is not known; text is split as by \"default\", so that tokens may differ \
                 from those that the model was trained with"
            ));
            PreTokenizer::DEFAULT
        }),
        None => {
            notes.push(
                "the vocabulary does not say how text is split; it is split as by \"default\", so that tokens may differ from \
                 those that the model was trained with"
                    .to_string(),
            );
            PreTokenizer::DEFAULT
        }
    };
    // Of equal tokens, the first is the one that text gives.
    let mut vocab = Vocab::default();
    for (token, id) in data.tokens.iter().zip(0..) {
        vocab.entry(token.clone()).or_insert(id);
    }
    let (merges, unusable) = merges(data, &vocab);
    if unusable > 0 {
        notes.push(format!("{unusable} merges are left out: a part or the result of each is not in the vocabulary"));
    }
    let add_bos = data.add_bos.unwrap_or(pre_tokenizer.add_bos);
    let byte_level = json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": false});
    let split = pre_tokenizer.patterns.iter().map(
        |pattern| json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false}),
    );
    let steps: Vec<Value> = split.chain([byte_level.clone()]).collect();
    let description = Description {
        model: Model::Bpe(Bpe { vocab, merges, ignore_merges: pre_tokenizer.ignore_merges, ..Bpe::default() }),
        added: data.added()?,
        normalizer: Value::Null,
        pre_tokenizer: json!({"type": "Sequence", "pretokenizers": steps}),
        post_processor: data.template(add_bos, data.add_eos.unwrap_or(false)),
        decoder: byte_level,
    };
    Ok(Parts { description, settings: data.settings(None, &[]), merges: None, notes })
}

/// The merges whose parts and result are tokens, in order, and the number of others.
fn merges(data: &VocabularyData, vocab: &Vocab) -> (Vec<(String, String)>, usize) {
    let mut merged = String::new();
    let mut usable = Vec::with_capacity(data.merges.len());
    for merge in &data.merges {
        // A token may be a space, so that the first character separates nothing.
        let after_first = merge.chars().next().map_or(0, char::len_utf8);
        let Some(space) = merge[after_first..].find(' ').map(|place| place + after_first) else { continue };
        let (left, right) = (&merge[..space], &merge[space + 1..]);
        merged.clear();
        merged.push_str(left);
        merged.push_str(right);
        if [left, right, &merged].into_iter().all(|token| vocab.contains_key(token)) {
            usable.push((left.to_string(), right.to_string()));
        }
    }
    let unusable = data.merges.len() - usable.len();
    (usable, unusable)
}
