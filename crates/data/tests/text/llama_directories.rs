//! `tokenizer.model` of LLaMA's directories against `transformers`' LlamaTokenizer (`fixtures/tokenizers/make_llama.py`).

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use vitreous_data::text::TextTokenizer;

#[derive(Deserialize)]
struct Fixture {
    texts: Vec<String>,
    directories: BTreeMap<String, Expected>,
}

#[derive(Deserialize)]
struct Expected {
    ids: Vec<Vec<u32>>,
    pair: Vec<u32>,
    decoded: Vec<String>,
}

#[test]
fn tokenizer_model_equals_transformers() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tokenizers");
    let fixture: Fixture =
        serde_json::from_slice(&std::fs::read(folder.join("llama.json")).expect("a fixture")).expect("JSON");
    assert_eq!(fixture.directories.len(), 3);
    for (name, expected) in &fixture.directories {
        let tokenizer = TextTokenizer::open(&folder.join(name)).expect("a tokenizer");
        for ((text, ids), decoded) in fixture.texts.iter().zip(&expected.ids).zip(&expected.decoded) {
            let found = tokenizer.encode(text, None, usize::MAX).expect("tokens").ids;
            assert_eq!(found, *ids, "{name}: {text:?}");
            assert_eq!(tokenizer.decode(ids, true).expect("text"), *decoded, "{name}: {text:?}");
        }
        let pair = tokenizer.encode("a dog", Some("two dogs"), usize::MAX).expect("tokens").ids;
        assert_eq!(pair, expected.pair, "{name}");
        // What is saved is what was read, and is opened again.
        let saved = tempfile::tempdir().expect("a folder");
        tokenizer.save(saved.path()).expect("saved");
        let again = TextTokenizer::open(saved.path()).expect("a tokenizer");
        assert_eq!(again.encode_plain(&fixture.texts[3]).ok(), tokenizer.encode_plain(&fixture.texts[3]).ok());
    }
}
