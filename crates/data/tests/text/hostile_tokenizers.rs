//! Tokenizer files that contradict themselves or ask for too much: one sentence, no panic, little memory.

use std::fs::File;

use serde_json::{Value, json};
use tempfile::TempDir;
use vitreous_data::text::{TextTokenizer, TokeniserError};

fn folder(files: &[(&str, &[u8])]) -> TempDir {
    let folder = TempDir::new().expect("a folder");
    for (name, bytes) in files {
        std::fs::write(folder.path().join(name), bytes).expect("written");
    }
    folder
}

fn open(json: &Value) -> Result<TextTokenizer, TokeniserError> {
    TextTokenizer::open(folder(&[("tokenizer.json", json.to_string().as_bytes())]).path())
}

#[track_caller]
fn refused(json: &Value, part: &str) {
    let error = open(json).expect_err("refused").to_string();
    assert!(error.contains(part) && error.contains("tokenizer.json"), "{error}");
    assert!(error.len() < 500 && !error.contains('\n'), "{error}");
}

/// A small tokenizer that is fine.
fn sound() -> Value {
    json!({
        "version": "1.0",
        "truncation": null,
        "padding": null,
        "added_tokens": [],
        "normalizer": {"type": "BertNormalizer", "clean_text": true, "handle_chinese_chars": true, "strip_accents": null, "lowercase": true},
        "pre_tokenizer": {"type": "BertPreTokenizer"},
        "post_processor": {
            "type": "TemplateProcessing",
            "single": [{"SpecialToken": {"id": "[CLS]", "type_id": 0}}, {"Sequence": {"id": "A", "type_id": 0}}],
            "pair": [{"Sequence": {"id": "A", "type_id": 0}}, {"Sequence": {"id": "B", "type_id": 1}}],
            "special_tokens": {"[CLS]": {"id": "[CLS]", "ids": [1], "tokens": ["[CLS]"]}}
        },
        "decoder": {"type": "WordPiece", "prefix": "##", "cleanup": true},
        "model": {
            "type": "WordPiece", "unk_token": "[UNK]", "continuing_subword_prefix": "##", "max_input_chars_per_word": 100,
            "vocab": {"[UNK]": 0, "[CLS]": 1, "a": 2, "##b": 7}
        }
    })
}

fn with(change: impl FnOnce(&mut Value)) -> Value {
    let mut json = sound();
    change(&mut json);
    json
}

#[test]
fn a_vocabulary_may_have_holes() {
    let tokenizer = open(&sound()).expect("opened");
    assert_eq!(tokenizer.vocabulary_size(), 8);
    assert_eq!(tokenizer.encode("AB c", None, 9).expect("encoded").ids, [1, 2, 7, 0]);
    assert_eq!((tokenizer.token(5), tokenizer.token(7).as_deref()), (None, Some("##b")));
    assert_eq!(tokenizer.decode(&[2, 7, 5, u32::MAX], false).expect("decoded"), "ab");
}

#[test]
fn padding_and_truncation_of_the_file_are_ignored() {
    let json = with(|json| {
        json["truncation"] = json!({"direction": "Right", "max_length": 0, "strategy": "LongestFirst", "stride": 9});
        json["padding"] = json!({"strategy": {"Fixed": 1_u64 << 60}, "direction": "Right", "pad_id": 0, "pad_type_id": 0, "pad_token": "x"});
    });
    assert_eq!(open(&json).expect("opened").encode("a a a", None, 9).expect("encoded").ids, [1, 2, 2, 2]);
}

#[test]
fn vocabularies_that_contradict_themselves_are_refused() {
    refused(&with(|json| json["model"]["vocab"] = json!({})), "empty");
    refused(&with(|json| json["model"]["vocab"] = json!({"a": 0})), "no token \"[UNK]\"");
    refused(&with(|json| json["model"]["vocab"]["a"] = json!(u64::from(u32::MAX) + 1)), "u32");
    refused(&with(|json| json["model"]["vocab"]["a"] = json!(u32::MAX)), "4294967295");
    refused(&with(|json| json["model"]["vocab"] = json!([["a", 0.5]])), "form");
    refused(&with(|json| json["model"]["type"] = json!("Magic")), "Magic");
    refused(&with(|json| json["model"]["max_input_chars_per_word"] = json!(1_u64 << 40)), "max_input_chars_per_word");
    refused(&with(|json| json["version"] = json!("2.0")), "version");
    refused(&json!([1, 2]), "not a tokenizer.json");
    let unigram = |vocab: Value, unknown: Value| {
        with(|json| json["model"] = json!({"type": "Unigram", "vocab": vocab, "unk_id": unknown}))
    };
    refused(&unigram(json!([]), json!(null)), "0 tokens");
    refused(&unigram(json!([["a", 0.0]]), json!(1)), "unknown token");
    refused(&unigram(json!([["", 0.0]]), json!(0)), "empty");
    let bpe = |merges: Value, prefix: &str| {
        with(
            |json| json["model"] = json!({"type": "BPE", "vocab": {"a": 0, "é": 1, "[CLS]": 2}, "merges": merges, "continuing_subword_prefix": prefix}),
        )
    };
    refused(&bpe(json!(["a a"]), ""), "merges");
    refused(&bpe(json!([["a", "b"]]), ""), "merges");
    refused(&bpe(json!([["é", "a"]]), "long prefix"), "merges");
    // A prefix that cuts a letter in two.
    refused(&bpe(json!([["a", "é"]]), "x"), "merges");
    refused(&bpe(json!(["a b c"]), ""), "two tokens");
}

#[test]
fn absurd_templates_are_refused() {
    let special = json!({"SpecialToken": {"id": "[CLS]", "type_id": 0}});
    let many = vec![special.clone(); 1_000_000];
    refused(&with(|json| json["post_processor"]["single"] = json!(many)), "more than 64");
    let ids = vec![1; 1_000_000];
    refused(&with(|json| json["post_processor"]["special_tokens"]["[CLS]"]["ids"] = json!(ids)), "more than 64");
    refused(
        &with(|json| json["post_processor"]["special_tokens"]["[CLS]"]["ids"] = json!([1_u64 << 32])),
        "post_processor",
    );
    refused(&with(|json| json["post_processor"]["special_tokens"]["[CLS]"]["ids"] = json!([8])), "adds the token 8");
    refused(&with(|json| json["post_processor"]["special_tokens"] = json!({})), "does not say which token");
    refused(&with(|json| json["post_processor"]["single"] = json!([special])), "first text once");
    let twice = json!({"type": "Sequence", "processors": [sound()["post_processor"], sound()["post_processor"]]});
    refused(&with(|json| json["post_processor"] = twice), "two templates");
    let mut deep = sound()["post_processor"].clone();
    for _ in 0..200 {
        deep = json!({"type": "Sequence", "processors": [deep]});
    }
    refused(&with(|json| json["post_processor"] = deep), "recursion");
}

#[test]
fn normalizers_that_blow_up_a_text_are_refused() {
    let replace = |content: &str| json!({"type": "Replace", "pattern": {"String": "a"}, "content": content});
    let ten = vec![replace("aaaaaaaaaa"); 10];
    refused(&with(|json| json["normalizer"] = json!({"type": "Sequence", "normalizers": ten})), "times longer");
    let many = vec![json!({"type": "NFC"}); 100];
    refused(&with(|json| json["normalizer"] = json!({"type": "Sequence", "normalizers": many})), "more than 64");
    let pattern = "a".repeat(10_000);
    let split = json!({"type": "Split", "pattern": {"Regex": pattern}, "behavior": "Isolated", "invert": false});
    refused(&with(|json| json["pre_tokenizer"] = split), "regular expression");
    let split =
        json!({"type": "Split", "pattern": {"Regex": "(a{900}){900}{900}"}, "behavior": "Isolated", "invert": false});
    refused(&with(|json| json["pre_tokenizer"] = split), "pre_tokenizer");
    refused(&with(|json| json["normalizer"] = json!({"type": "Magic"})), "normalizer");
}

#[test]
fn a_damaged_map_of_characters_is_refused() {
    let map = |bytes: &[u8]| {
        const LETTERS: &[u8; 64] = b"ABCDEFGHIJKLMNOPQRSTUVWXYZabcdefghijklmnopqrstuvwxyz0123456789+/";
        let mut text = String::new();
        for group in bytes.chunks(3) {
            let bits =
                group.iter().chain([0, 0, 0].iter()).take(3).fold(0_u32, |bits, byte| bits << 8 | u32::from(*byte));
            (0..4).for_each(|n| {
                text.push(if n <= group.len() {
                    char::from(LETTERS[(bits >> (18 - 6 * n) & 63) as usize])
                } else {
                    '='
                })
            });
        }
        with(|json| json["normalizer"] = json!({"type": "Precompiled", "precompiled_charsmap": text}))
    };
    let trie = |nodes: &[u32], text: &[u8]| {
        let mut bytes = (nodes.len() as u32 * 4).to_le_bytes().to_vec();
        nodes.iter().for_each(|node| bytes.extend(node.to_le_bytes()));
        bytes.extend(text);
        bytes
    };
    let mut nodes = vec![0_u32; 512];
    open(&map(&trie(&nodes, b"x\0"))).expect("a map of nothing").encode("abc", None, 9).expect("encoded");
    refused(&map(&[]), "charsmap");
    refused(&map(&[255, 255, 255, 255]), "charsmap");
    refused(&map(&trie(&[], b"x")), "charsmap");
    // Children beyond the end.
    nodes[0] = 1 << 20;
    refused(&map(&trie(&nodes, b"x\0")), "charsmap");
    // A value beyond the text, and one inside of a letter.
    nodes[0] = 1 << 10 | 1 << 8;
    nodes[1] = 1 << 31 | 100;
    refused(&map(&trie(&nodes, b"x\0")), "charsmap");
    nodes[1] = 1 << 31 | 1;
    refused(&map(&trie(&nodes, "é\0".as_bytes())), "charsmap");
    nodes[1] = 1 << 31;
    refused(&map(&trie(&nodes, &[b'x'; 1000])), "more than 64 bytes");
}

#[test]
fn a_file_of_two_gigabytes_is_refused_before_it_is_read() {
    for name in ["tokenizer.json", "vocab.txt", "spiece.model", "tokenizer_config.json"] {
        let folder = folder(&[]);
        let file = File::create(folder.path().join(name)).expect("created");
        file.set_len(2 << 30).expect("a sparse file");
        let error = TextTokenizer::open(folder.path()).expect_err("refused").to_string();
        assert!(error.contains("2048 MiB") && error.contains(name), "{error}");
    }
}

#[test]
fn files_that_are_none_are_refused_with_their_names() {
    let refused = |files: &[(&str, &[u8])], parts: &[&str]| {
        let error = TextTokenizer::open(folder(files).path()).expect_err("refused").to_string();
        assert!(parts.iter().all(|part| error.contains(part)), "{error}");
    };
    refused(&[], &["no tokenizer", "vocab.txt", "merges.txt", "spiece.model"]);
    refused(&[("vocab.json", b"{}")], &["no tokenizer"]);
    refused(&[("vocab.json", b"{}"), ("merges.txt", b"")], &["vocab.json"]);
    refused(&[("vocab.json", b"{\"a\": -1}"), ("merges.txt", b"")], &["vocab.json"]);
    refused(
        &[("vocab.json", b"{\"<s>\": 0, \"</s>\": 1, \"a\": 2}"), ("merges.txt", b"#version: 0.2\na b c\n")],
        &["line 2"],
    );
    refused(&[("vocab.txt", b"\xff\xfe")], &["vocab.txt", "UTF-8"]);
    refused(&[("vocab.txt", b"")], &["vocab.txt", "empty"]);
    refused(&[("vocab.txt", b"a\nb\n")], &["vocab.txt", "[UNK]"]);
    refused(&[("spiece.model", b"")], &["spiece.model", "no pieces"]);
    refused(&[("spiece.model", b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\xff\x01")], &["spiece.model"]);
    refused(&[("spiece.model", b"\x0a\x03\x0a\x01a")], &["spiece.model", "[CLS]"]);
    let piece = b"\x0a\x08\x0a\x01a\x15\x00\x00\x80\x7f";
    refused(&[("sentencepiece.bpe.model", &piece.repeat(4))], &["finite"]);
    refused(&[("tokenizer_config.json", b"[]"), ("vocab.txt", b"[UNK]\n")], &["tokenizer_config.json", "object"]);
    let folder = folder(&[]);
    std::fs::create_dir(folder.path().join("tokenizer.json")).expect("a folder");
    let error = TextTokenizer::open(folder.path()).expect_err("refused").to_string();
    assert!(error.contains("directory"), "{error}");
}

#[test]
fn missing_special_tokens_get_the_next_indices() {
    let folder = folder(&[
        ("vocab.txt", b"[UNK]\na\n[CLS]\n[SEP]\n"),
        ("special_tokens_map.json", b"{\"mask_token\": \"<m>\", \"pad_token\": 5}"),
    ]);
    let tokenizer = TextTokenizer::open(folder.path()).expect("opened");
    assert_eq!(
        (tokenizer.special().mask, tokenizer.special().padding, tokenizer.vocabulary_size()),
        (Some(4), None, 5)
    );
    assert_eq!(tokenizer.encode("a <m>", None, 9).expect("encoded").ids, [2, 1, 4, 3]);
}
