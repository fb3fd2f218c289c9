//! Vocabularies of language models, learnt from text: byte pairs as GPT-2 has them, characters, or bytes. Each has one special token,
//! `<|endoftext|>`, which is before, between and behind documents; that of characters has one for unknown characters, too.

use std::collections::BTreeSet;

use serde_json::{Value, json};
use tokenizers::models::bpe::Vocab;
use tokenizers::pre_tokenizers::byte_level::ByteLevel;

use super::build::{self, Description};
use super::model::{Bpe, Model};
use super::settings::{Class, Settings};
use super::train::{count, special_tokens, train_byte_pairs};
use super::{TextTokenizer, open};
use crate::text::TokeniserError;
use crate::text::training::MOST_VOCABULARY;

const END_OF_TEXT: &str = "<|endoftext|>";
const UNKNOWN: &str = "<unk>";

/// The vocabulary of a language model.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum LanguageVocabulary {
    /// GPT-2's: pairs of tokens are merged, down to bytes, so that nothing is unknown.
    Bpe,
    /// Every character of the text.
    Characters,
    /// Every byte.
    Bytes,
}

pub(super) fn train(
    kind: LanguageVocabulary,
    texts: &mut dyn Iterator<Item = String>,
    size: usize,
) -> Result<TextTokenizer, TokeniserError> {
    let description = match kind {
        LanguageVocabulary::Bpe => byte_pairs(texts, size)?,
        LanguageVocabulary::Bytes => byte_level(bytes()),
        LanguageVocabulary::Characters => characters(texts)?,
    };
    let settings = match kind {
        LanguageVocabulary::Bpe | LanguageVocabulary::Bytes => Settings::of_class(Class::Gpt2, &[]),
        LanguageVocabulary::Characters => {
            let roles = [("bos_token", END_OF_TEXT), ("eos_token", END_OF_TEXT), ("unk_token", UNKNOWN)];
            // `transformers` would tidy up spaces before punctuation.
            let mut options = vec![("clean_up_tokenization_spaces", false.into())];
            options.extend(roles.map(|(role, name)| (role, name.into())));
            Settings::of_options(None, &options)
        }
    };
    open::finish(description, settings, None).map_err(TokeniserError::library)
}

fn byte_pairs(texts: &mut dyn Iterator<Item = String>, size: usize) -> Result<Description, TokeniserError> {
    let smallest = 256 + 2;
    if !(smallest..=MOST_VOCABULARY).contains(&size) {
        return Err(TokeniserError::Vocabulary { size, smallest, most: MOST_VOCABULARY });
    }
    let normalizer = build::part(&json!({"type": "Sequence", "normalizers": []}), "normalizer");
    let pre_tokenizer = build::part(&pre_tokenizer(), "pre_tokenizer");
    let (Ok(Some(normalizer)), Ok(Some(pre_tokenizer))) = (normalizer, pre_tokenizer) else {
        return Err(TokeniserError::library("a part is missing"));
    };
    let words = count(texts, &normalizer, &pre_tokenizer)?;
    Ok(byte_level(train_byte_pairs(&words, &[END_OF_TEXT], size)?))
}

/// All bytes, as letters, and no merges.
fn bytes() -> Model {
    let mut letters: Vec<char> = ByteLevel::alphabet().into_iter().collect();
    letters.sort_unstable();
    Model::Bpe(Bpe { vocab: numbered(&[END_OF_TEXT], letters), ..Bpe::default() })
}

fn pre_tokenizer() -> Value {
    json!({"type": "ByteLevel", "add_prefix_space": false, "trim_offsets": true, "use_regex": true})
}

/// GPT-2's tokenizer with other tokens.
fn byte_level(model: Model) -> Description {
    Description {
        model,
        added: special_tokens(&[END_OF_TEXT]),
        normalizer: Value::Null,
        pre_tokenizer: pre_tokenizer(),
        post_processor: json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": false, "use_regex": true}),
        decoder: json!({"type": "ByteLevel", "add_prefix_space": true, "trim_offsets": true, "use_regex": true}),
    }
}

/// Every character of the texts, in Unicode's order.
fn characters(texts: &mut dyn Iterator<Item = String>) -> Result<Description, TokeniserError> {
    let mut letters = BTreeSet::new();
    texts.for_each(|text| letters.extend(text.chars()));
    if letters.is_empty() {
        return Err(TokeniserError::NoText);
    }
    let special = [END_OF_TEXT, UNKNOWN];
    let unknown = Some(UNKNOWN.to_string());
    Ok(Description {
        model: Model::Bpe(Bpe { vocab: numbered(&special, letters), unknown, ..Bpe::default() }),
        added: special_tokens(&special),
        normalizer: Value::Null,
        pre_tokenizer: Value::Null,
        post_processor: Value::Null,
        decoder: json!({"type": "Fuse"}),
    })
}

/// Special tokens and letters, numbered in order.
fn numbered(special: &[&str], letters: impl IntoIterator<Item = char>) -> Vocab {
    let names = special.iter().map(|name| name.to_string()).chain(letters.into_iter().map(String::from));
    names.enumerate().map(|(id, name)| (name, id as u32)).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    const TEXT: &str =
        "First Citizen:\nBefore we proceed any further, hear me speak.\n\nAll:\nSpeak, speak — naïve 中文!";

    #[test]
    fn texts_survive_each_vocabulary_and_its_files() {
        for kind in [LanguageVocabulary::Bpe, LanguageVocabulary::Characters, LanguageVocabulary::Bytes] {
            let tokenizer = TextTokenizer::train_language(kind, &mut [TEXT.to_string()].into_iter(), 280).expect("one");
            let ids = tokenizer.encode_plain(TEXT).expect("tokens");
            assert_eq!(tokenizer.decode(&ids, true).expect("text"), TEXT, "{kind:?}");
            let expected = match kind {
                LanguageVocabulary::Bpe => 0..TEXT.len(),
                LanguageVocabulary::Characters => TEXT.chars().count()..TEXT.chars().count() + 1,
                LanguageVocabulary::Bytes => TEXT.len()..TEXT.len() + 1,
            };
            assert!(expected.contains(&ids.len()), "{kind:?}: {}", ids.len());
            let bytes: usize = ids.iter().map(|&id| tokenizer.token_bytes(id).expect("bytes").len()).sum();
            assert_eq!(bytes, TEXT.len(), "{kind:?}");
            assert_eq!(tokenizer.special().end, tokenizer.id(END_OF_TEXT));
            assert_eq!(tokenizer.special().end, Some(0));
            // What is written between documents is one token.
            assert_eq!(tokenizer.encode_plain("n<|endoftext|>n").expect("tokens").len(), 3);
            let folder = tempfile::tempdir().expect("a folder");
            tokenizer.save(folder.path()).expect("saved");
            let again = TextTokenizer::open(folder.path()).expect("opened");
            assert_eq!(again.encode_plain(TEXT).expect("tokens"), ids, "{kind:?}");
            assert_eq!((again.vocabulary_size(), again.special()), (tokenizer.vocabulary_size(), tokenizer.special()));
            assert_eq!(again.before_text().expect("tokens"), [] as [u32; 0]);
        }
    }

    #[test]
    fn a_character_that_was_not_in_the_text_is_unknown() {
        let kind = LanguageVocabulary::Characters;
        let tokenizer = TextTokenizer::train_language(kind, &mut ["abc".to_string()].into_iter(), 0).expect("one");
        assert_eq!(tokenizer.encode_plain("axc").expect("tokens"), [2, 1, 4]);
        assert!(TextTokenizer::train_language(kind, &mut std::iter::empty(), 0).is_err());
        let few = TextTokenizer::train_language(LanguageVocabulary::Bpe, &mut ["abc".to_string()].into_iter(), 200);
        assert!(few.expect_err("too few").to_string().contains("258"));
    }
}
