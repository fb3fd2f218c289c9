//! Vocabularies that are stored inside of models' files, against llama.cpp (`fixtures/vocabularies/make.py`).

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use vitreous_data::text::{TextStream, TextTokenizer, VocabularyData, VocabularySpecial};

/// A vocabulary that was cut down to the tokens of some texts, and what llama.cpp gave for them.
#[derive(Deserialize)]
struct Stored {
    model: String,
    pre_tokenizer: Option<String>,
    model_name: Option<String>,
    tokens: Vec<String>,
    scores: Option<Vec<f32>>,
    /// Of tokens that are not normal.
    types: BTreeMap<usize, i32>,
    /// Indices of tokens.
    merges: Option<Vec<(usize, usize)>>,
    special: BTreeMap<String, u32>,
    add_bos: Option<bool>,
    add_eos: Option<bool>,
    add_space_prefix: Option<bool>,
    ids: Vec<Option<Vec<u32>>>,
    around: Vec<u32>,
    #[serde(default)]
    ends: Vec<u32>,
    /// Tokens, and their text with special tokens shown and skipped.
    #[serde(default)]
    decoded: Vec<(Vec<u32>, String, String)>,
    #[serde(default)]
    pre_tokenizers: BTreeMap<String, Split>,
}

/// What another pre-tokenizer gives.
#[derive(Deserialize)]
struct Split {
    ids: Vec<Option<Vec<u32>>>,
    around: Vec<u32>,
}

fn read<T: serde::de::DeserializeOwned>(name: &str) -> T {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/vocabularies").join(name);
    serde_json::from_slice(&std::fs::read(path).expect("a fixture")).expect("JSON")
}

impl Stored {
    fn data(&self) -> VocabularyData {
        let special = |name: &str| self.special.get(name).copied();
        let token_types = (0..self.tokens.len()).map(|id| self.types.get(&id).copied().unwrap_or(1)).collect();
        let merge = |&(left, right): &(usize, usize)| format!("{} {}", self.tokens[left], self.tokens[right]);
        VocabularyData {
            model: self.model.clone(),
            pre_tokenizer: self.pre_tokenizer.clone(),
            model_name: self.model_name.clone(),
            tokens: self.tokens.clone(),
            scores: self.scores.clone().unwrap_or_default(),
            token_types,
            merges: self.merges.iter().flatten().map(merge).collect(),
            special: VocabularySpecial {
                bos: special("bos"),
                eos: special("eos"),
                eot: special("eot"),
                unknown: special("unknown"),
                separator: special("separator"),
                padding: special("padding"),
                cls: special("cls"),
                mask: special("mask"),
            },
            add_bos: self.add_bos,
            add_eos: self.add_eos,
            add_space_prefix: self.add_space_prefix,
            ..VocabularyData::default()
        }
    }
}

/// Checks a vocabulary's tokens of all texts, and what is put around them.
fn check(name: &str, data: VocabularyData, ids: &[Option<Vec<u32>>], around: &[u32]) -> TextTokenizer {
    let texts: Vec<String> = read("texts.json");
    let size = data.tokens.len();
    let tokenizer = TextTokenizer::from_vocabulary(data).unwrap_or_else(|error| panic!("{name}: {error}"));
    assert_eq!(tokenizer.vocabulary_size(), size, "{name}");
    assert_eq!(tokenizer.notes(), <&[String]>::default(), "{name}");
    for (text, ids) in texts.iter().zip(ids) {
        if let Some(ids) = ids {
            assert_eq!(tokenizer.encode_plain(text).expect("tokens"), *ids, "{name}: {text:?}");
        }
        let encoding = tokenizer.encode(text, None, usize::MAX).expect("tokens");
        assert!(encoding.offsets.iter().all(|&(start, end)| text.get(start..end).is_some()), "{name}: {text:?}");
    }
    assert_eq!(tokenizer.encode("x", None, usize::MAX).expect("tokens").ids, around, "{name}");
    tokenizer
}

fn check_named(name: &str) -> TextTokenizer {
    let stored: Stored = read(&format!("{name}.json"));
    let tokenizer = check(name, stored.data(), &stored.ids, &stored.around);
    for end in &stored.ends {
        // llama.cpp takes the name "</s>" for an end even where it is an ordinary token.
        let is_ordinary = !stored.types.contains_key(&(*end as usize));
        assert!(is_ordinary || tokenizer.end_tokens().contains(end), "{name}: {end} ends a text");
    }
    for (ids, shown, skipped) in &stored.decoded {
        for (skip_special, text) in [(false, shown), (true, skipped)] {
            assert_eq!(tokenizer.decode(ids, skip_special).expect("text"), *text, "{name}: {ids:?}");
            assert_eq!(streamed(&tokenizer, ids, skip_special), *text, "{name}: {ids:?}");
        }
    }
    tokenizer
}

fn streamed(tokenizer: &TextTokenizer, ids: &[u32], skip_special: bool) -> String {
    let mut stream = TextStream::new(tokenizer, skip_special);
    let mut text: String = ids.iter().map(|&id| stream.push(tokenizer, id).expect("text")).collect();
    text.push_str(&stream.finish());
    text
}

#[test]
fn byte_pairs_equal_llama_cpp() {
    for name in ["gpt-2", "llama-bpe", "qwen2", "falcon", "smollm2"] {
        check_named(name);
    }
}

#[test]
fn merges_by_score_equal_llama_cpp() {
    for name in ["llama-spm", "phi-3"] {
        check_named(name);
    }
}

#[test]
fn word_pieces_equal_llama_cpp() {
    check_named("bert-bge");
}

#[test]
fn every_pre_tokenizer_equals_llama_cpp() {
    let stored: Stored = read("gpt-2.json");
    assert!(stored.pre_tokenizers.len() >= 18);
    for (name, split) in &stored.pre_tokenizers {
        let data = VocabularyData { pre_tokenizer: Some(name.clone()), ..stored.data() };
        check(name, data, &split.ids, &split.around);
    }
}
