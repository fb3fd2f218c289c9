//! A directory's tokenizer, written as the vocabulary of a GGUF file and read from it, gives the same tokens.

use std::path::{Path, PathBuf};

use vitreous_data::text::TextTokenizer;
use vitreous_runtime::language::{metadata_of, vocabulary_of, vocabulary_of_directory};

/// None begins with a space: there `Metaspace` puts no second one before the text, but llama.cpp does, and GGUF cannot say otherwise.
const TEXTS: [&str; 6] = [
    "the cat sat on the mat",
    "Once upon a time, there was a little girl who loved to play with her toys.",
    "two  spaces and 1234 digits!",
    "don't they've I'll\nnew\tlines",
    "a",
    "",
];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../vitreous/tests/fixtures/language").join(name)
}

#[test]
fn tokens_are_the_same_from_both_files() {
    for (name, model) in [("gpt2", "gpt2"), ("llama", "llama")] {
        let directory = fixture(name);
        let theirs = TextTokenizer::open(&directory).unwrap_or_else(|error| panic!("{name}: {error}"));
        let size = theirs.vocabulary_size() + 3;
        let data = vocabulary_of_directory(&directory, size).expect("reads").expect("a tokenizer");
        assert_eq!((data.model.as_str(), data.tokens.len()), (model, size));
        assert_eq!(data.token_types[size - 3..], [5; 3], "padding");
        let again = vocabulary_of(&metadata_of(&data));
        assert_eq!(again, data, "{name}");
        let ours = TextTokenizer::from_vocabulary(again).unwrap_or_else(|error| panic!("{name}: {error}"));
        for text in TEXTS {
            let ids = |tokenizer: &TextTokenizer| tokenizer.encode(text, None, 64).expect("encoded").ids;
            assert_eq!(ids(&ours), ids(&theirs), "{name}: {text:?}");
        }
        assert_eq!((ours.special().begin, ours.special().end), (theirs.special().begin, theirs.special().end));
    }
}

#[test]
fn what_gguf_cannot_hold_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let file = directory.path().join("tokenizer.json");
    assert!(vocabulary_of_directory(directory.path(), 10).expect("none").is_none());
    for (json, says) in [
        (r#"{"model": {"type": "Unigram", "vocab": [["a", 0.0]]}}"#, "Unigram"),
        (r#"{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": []}}"#, "neither of bytes"),
        (r#"{"model": {"type": "BPE", "vocab": {"a": 99999999999}, "merges": []}}"#, "no index"),
        (r#"{"model": {"type": "BPE", "vocab": {"a": 0}, "merges": [1]}}"#, "no pairs"),
        ("{", "not JSON"),
    ] {
        std::fs::write(&file, json).expect("written");
        let said = vocabulary_of_directory(directory.path(), 10).expect_err("refused").to_string();
        assert!(said.contains(says) && said.contains("tokenizer.json"), "{says}: {said}");
    }
}
