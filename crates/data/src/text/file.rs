//! Reads a `tokenizer.json`, strictly, because the library's own reader panics on malformed files.
//!
//! Only the model is read from the file. All other settings must be those that Vitreous writes, so that none is ignored.

use std::collections::HashSet;

use serde::Deserialize;
use tokenizers::ModelWrapper;
use tokenizers::models::bpe::{BPE, Vocab};
use tokenizers::models::unigram::Unigram;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;

use super::SPECIAL_TOKENS;

#[derive(Deserialize)]
struct File {
    model: Model,
}

#[derive(Deserialize)]
#[serde(tag = "type")]
enum Model {
    #[serde(rename = "BPE")]
    Bpe {
        vocab: Vocab,
        merges: Vec<(String, String)>,
    },
    Unigram {
        vocab: Vec<(String, f64)>,
    },
}

/// The model of a `tokenizer.json`, or what is wrong with it.
pub(super) fn model(bytes: &[u8]) -> Result<ModelWrapper, String> {
    let file: File = serde_json::from_slice(bytes).map_err(|error| format!("this is not a tokenizer.json: {error}"))?;
    match file.model {
        Model::Bpe { vocab, merges } => {
            let mut names = vec![None; vocab.len()];
            for (name, &number) in &vocab {
                let place = names.get_mut(number as usize);
                *place.ok_or_else(|| {
                    format!("its token {name:?} has the index {number}, but the vocabulary size is {}", vocab.len())
                })? = Some(name.as_str());
            }
            let names =
                names.into_iter().collect::<Option<Vec<&str>>>().ok_or("two of its tokens have the same index")?;
            check(&names)?;
            if let Some((left, right)) = merges.iter().find(|(left, right)| {
                ![left, right, &format!("{left}{right}")].into_iter().all(|name| vocab.contains_key(name))
            }) {
                return Err(format!(
                    "it merges {left:?} and {right:?}, but one of them or the result is not in the vocabulary"
                ));
            }
            BPE::builder().vocab_and_merges(vocab, merges).build().map(Into::into).map_err(|error| error.to_string())
        }
        Model::Unigram { vocab } => {
            check(&vocab.iter().map(|piece| piece.0.as_str()).collect::<Vec<_>>())?;
            Unigram::from(vocab, None, false).map(Into::into).map_err(|error| error.to_string())
        }
    }
}

/// Checks that the special tokens come first, all bytes are in the vocabulary, and no token occurs twice.
fn check(names: &[&str]) -> Result<(), String> {
    for (number, special) in SPECIAL_TOKENS.iter().enumerate() {
        let found = names.get(number).copied().unwrap_or_default();
        if found != *special {
            return Err(format!(
                "its token {number} is {found:?}, but must be {special:?}: only tokenisers trained by Vitreous are supported"
            ));
        }
    }
    let distinct: HashSet<&str> = names.iter().copied().collect();
    if distinct.len() < names.len() || distinct.contains("") {
        return Err("a token occurs twice, or is empty".to_string());
    }
    match ByteLevel::alphabet().into_iter().find(|byte| !distinct.contains(byte.to_string().as_str())) {
        Some(missing) => Err(format!("the byte {missing:?} is not in its vocabulary")),
        None => Ok(()),
    }
}
