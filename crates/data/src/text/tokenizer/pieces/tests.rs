//! Against `sentencepiece` itself, and files that are damaged.

use std::path::{Path, PathBuf};

use serde_json::Value as Json;

use super::SentencePieces;

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/text/sentencepiece").join(name)
}

#[test]
fn ids_and_texts_are_those_of_sentencepiece() {
    let expected: Json =
        serde_json::from_slice(&std::fs::read(fixture("expected.json")).expect("a file")).expect("JSON");
    let texts: Vec<String> = serde_json::from_value(expected["texts"].clone()).expect("texts");
    for name in ["plain", "mapped", "bytes", "spaced", "behind"] {
        let model = SentencePieces::open(&fixture(&format!("{name}.model"))).expect("opens");
        let ids: Vec<Vec<u32>> = serde_json::from_value(expected[name]["ids"].clone()).expect("ids");
        let pieces: Vec<Vec<String>> = serde_json::from_value(expected[name]["pieces"].clone()).expect("pieces");
        for (text, ids) in texts.iter().zip(&ids) {
            assert_eq!(&model.encode(text), ids, "{name}: {text:?}");
        }
        for (text, pieces) in texts[texts.len() - pieces.len()..].iter().zip(&pieces) {
            if name != "bytes" {
                assert_eq!(&model.encode_pieces(text), pieces, "{name}: {text:?}");
            }
        }
        if !["spaced", "behind"].contains(&name) {
            let decoded: Vec<String> = serde_json::from_value(expected[name]["decoded"].clone()).expect("texts");
            for (ids, decoded) in ids.iter().zip(&decoded) {
                assert_eq!(&model.decode(ids), decoded, "{name}: {ids:?}");
            }
        }
    }
}

#[test]
fn every_cut_file_is_refused_or_read_but_never_more() {
    let bytes = std::fs::read(fixture("mapped.model")).expect("a file");
    for end in (0..bytes.len()).step_by(7) {
        if let Ok(model) = SentencePieces::read(&bytes[..end]) {
            model.encode("the end <mask> ﬁ 東京");
        }
    }
    for place in (0..bytes.len()).step_by(3) {
        let mut changed = bytes.clone();
        changed[place] ^= 0x55;
        if let Ok(model) = SentencePieces::read(&changed) {
            let ids = model.encode("the end <mask> ﬁ 東京");
            model.decode(&ids);
        }
    }
}

/// A message of fields.
fn field(number: u64, bytes: &[u8]) -> Vec<u8> {
    let mut out = vec![(number << 3 | 2) as u8];
    let mut length = bytes.len();
    while length >= 0x80 {
        out.push(length as u8 | 0x80);
        length >>= 7;
    }
    out.push(length as u8);
    [out, bytes.to_vec()].concat()
}

fn piece(text: &str, score: f32, kind: u8) -> Vec<u8> {
    let mut body = field(1, text.as_bytes());
    body.push(2 << 3 | 5);
    body.extend(score.to_le_bytes());
    body.extend([3 << 3, kind]);
    field(1, &body)
}

#[test]
fn damaged_files_get_a_sentence() {
    let said = |bytes: &[u8]| SentencePieces::read(bytes).expect_err("damaged");
    assert!(said(b"").contains("no pieces"));
    assert!(said(b"not a model").contains("not a model of sentencepiece"));
    assert!(said(&piece("a", -1.0, 1)).contains("unknown"));
    let unknown = piece("<unk>", 0.0, 2);
    assert!(said(&[unknown.clone(), piece("a", f32::NAN, 1)].concat()).contains("no number"));
    let words = [unknown.clone(), field(2, &[3 << 3, 3])].concat();
    assert!(said(&words).contains("no unigram model"));
    let bytes = [unknown.clone(), field(2, &[(35u8 << 3) | 0x80, 2, 1])].concat();
    assert!(said(&bytes).contains("each byte"));
    // A length that is more than there is, and one of 64 bits.
    assert!(said(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0x0f]).contains("not a model"));
    assert!(said(&[0x0a, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0xff, 0x01]).contains("not a model"));
    // A map of characters that leads to itself, or outside.
    for trie in [[0u32; 4], [1 << 10; 4], [u32::MAX >> 1; 4], [1 << 8; 4]] {
        let nodes: Vec<u8> = trie.iter().flat_map(|node| node.to_le_bytes()).collect();
        let map = [&16u32.to_le_bytes()[..], &nodes, b"a\0"].concat();
        assert!(said(&[unknown.clone(), field(3, &field(2, &map))].concat()).contains("damaged"));
    }
    // A vocabulary of nothing but the unknown piece: a text is one of it.
    let model = SentencePieces::read(&unknown).expect("reads");
    assert_eq!((model.encode("any text"), model.encode("")), (vec![0], vec![]));
}
