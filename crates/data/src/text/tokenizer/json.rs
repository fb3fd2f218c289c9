//! Reads a `tokenizer.json`.

use std::fmt;

use serde::Deserialize;
use serde::de::{Deserializer, MapAccess, SeqAccess, Visitor};
use serde_json::Value;
use tokenizers::AddedToken;
use tokenizers::models::bpe::Vocab;

use super::build::Description;
use super::model::{Bpe, Model};

/// Padding and truncation of the file are not read: how long an input is, and whether it is padded, is up to the caller.
#[derive(Deserialize)]
struct File {
    #[serde(default)]
    version: Option<String>,
    #[serde(default)]
    added_tokens: Vec<Added>,
    #[serde(default)]
    normalizer: Value,
    #[serde(default)]
    pre_tokenizer: Value,
    #[serde(default)]
    post_processor: Value,
    #[serde(default)]
    decoder: Value,
    model: JsonModel,
}

#[derive(Deserialize)]
struct Added {
    #[serde(flatten)]
    token: AddedToken,
}

#[derive(Deserialize)]
struct JsonModel {
    #[serde(default)]
    r#type: Option<String>,
    vocab: JsonVocab,
    #[serde(default)]
    merges: Option<Vec<Merge>>,
    #[serde(default)]
    unk_token: Option<String>,
    #[serde(default)]
    unk_id: Option<usize>,
    #[serde(default)]
    continuing_subword_prefix: Option<String>,
    #[serde(default)]
    end_of_word_suffix: Option<String>,
    #[serde(default)]
    max_input_chars_per_word: Option<usize>,
    #[serde(default)]
    fuse_unk: bool,
    #[serde(default)]
    byte_fallback: bool,
    #[serde(default)]
    ignore_merges: bool,
}

/// Tokens with their indices, or tokens with their scores.
enum JsonVocab {
    Indices(Vocab),
    Scores(Vec<(String, f64)>),
}

impl<'de> Deserialize<'de> for JsonVocab {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<JsonVocab, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = JsonVocab;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("tokens with indices, or a list of tokens with scores")
            }

            fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<JsonVocab, A::Error> {
                let mut vocab = Vocab::default();
                while let Some((token, id)) = map.next_entry()? {
                    vocab.insert(token, id);
                }
                Ok(JsonVocab::Indices(vocab))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<JsonVocab, A::Error> {
                let mut pieces = Vec::new();
                while let Some(piece) = list.next_element()? {
                    pieces.push(piece);
                }
                Ok(JsonVocab::Scores(pieces))
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// A merge is a pair of tokens, or, in older files, both with a space between them.
struct Merge(String, String);

impl<'de> Deserialize<'de> for Merge {
    fn deserialize<D: Deserializer<'de>>(deserializer: D) -> Result<Merge, D::Error> {
        struct Either;
        impl<'de> Visitor<'de> for Either {
            type Value = Merge;

            fn expecting(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
                formatter.write_str("two tokens")
            }

            fn visit_str<E: serde::de::Error>(self, text: &str) -> Result<Merge, E> {
                let two =
                    split_merge(text).ok_or_else(|| E::custom(format!("the merge {text:?} is not two tokens")))?;
                Ok(Merge(two.0, two.1))
            }

            fn visit_seq<A: SeqAccess<'de>>(self, mut list: A) -> Result<Merge, A::Error> {
                match (list.next_element()?, list.next_element()?, list.next_element::<String>()?) {
                    (Some(left), Some(right), None) => Ok(Merge(left, right)),
                    _ => Err(serde::de::Error::custom("a merge is not two tokens")),
                }
            }
        }
        deserializer.deserialize_any(Either)
    }
}

/// Two tokens with a space between them.
pub(super) fn split_merge(text: &str) -> Option<(String, String)> {
    let (left, right) = text.split_once(' ')?;
    (!right.contains(' ')).then(|| (left.to_string(), right.to_string()))
}

/// What a `tokenizer.json` describes, or what is wrong with it.
pub(super) fn read(bytes: &[u8]) -> Result<Description, String> {
    let file: File = serde_json::from_slice(bytes).map_err(|error| format!("this is not a tokenizer.json: {error}"))?;
    if let Some(version) = file.version.filter(|version| version != "1.0") {
        return Err(format!("its version is {version:?}, but only \"1.0\" is supported"));
    }
    Ok(Description {
        model: model(file.model)?,
        added: file.added_tokens.into_iter().map(|added| added.token).collect(),
        normalizer: file.normalizer,
        pre_tokenizer: file.pre_tokenizer,
        post_processor: file.post_processor,
        decoder: file.decoder,
    })
}

fn model(model: JsonModel) -> Result<Model, String> {
    // Older files do not say the type.
    let name = match (&model.r#type, &model.vocab) {
        (Some(name), _) => name.as_str(),
        (None, JsonVocab::Scores(_)) => "Unigram",
        (None, _) if model.merges.is_some() => "BPE",
        (None, _) if model.max_input_chars_per_word.is_some() => "WordPiece",
        (None, _) => "WordLevel",
    };
    match (name, model.vocab) {
        ("WordPiece", JsonVocab::Indices(vocab)) => Ok(Model::WordPiece {
            vocab,
            unknown: model.unk_token.unwrap_or_else(|| "[UNK]".to_string()),
            prefix: model.continuing_subword_prefix.unwrap_or_else(|| "##".to_string()),
            longest_word: model.max_input_chars_per_word.unwrap_or(100),
        }),
        ("BPE", JsonVocab::Indices(vocab)) => Ok(Model::Bpe(Bpe {
            vocab,
            merges: model.merges.unwrap_or_default().into_iter().map(|Merge(left, right)| (left, right)).collect(),
            unknown: model.unk_token,
            prefix: model.continuing_subword_prefix,
            suffix: model.end_of_word_suffix,
            fuse_unknown: model.fuse_unk,
            byte_fallback: model.byte_fallback,
            ignore_merges: model.ignore_merges,
        })),
        ("Unigram", JsonVocab::Scores(pieces)) => {
            Ok(Model::Unigram { pieces, unknown: model.unk_id, byte_fallback: model.byte_fallback })
        }
        ("WordLevel", JsonVocab::Indices(vocab)) => {
            Ok(Model::WordLevel { vocab, unknown: model.unk_token.unwrap_or_else(|| "<unk>".to_string()) })
        }
        (name @ ("WordPiece" | "BPE" | "Unigram" | "WordLevel"), _) => {
            Err(format!("its vocabulary is not in the form that the model {name} has"))
        }
        (name, _) => Err(format!("its model is {name:?}, but must be WordPiece, BPE, Unigram or WordLevel")),
    }
}
