//! Tokenizers of model directories against `transformers`, and what must hold for any of them.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};

use serde::Deserialize;
use serde_json::Value;
use tempfile::TempDir;
use vitreous_data::text::{Encoding, TextTokenizer, TokeniserError, VocabularyKind};

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/tokenizers").join(name)
}

#[derive(Deserialize)]
struct Request {
    #[serde(default)]
    text: String,
    #[serde(default)]
    pair: Option<String>,
    #[serde(default)]
    longest: Option<usize>,
    #[serde(default)]
    stride: Option<usize>,
    #[serde(default)]
    words: Option<Vec<String>>,
}

fn requests() -> Vec<Request> {
    let text = std::fs::read_to_string(fixture("requests.jsonl")).expect("requests");
    text.lines().map(|line| serde_json::from_str(line).expect("a request")).collect()
}

/// What `transformers` gave for a directory.
#[derive(Deserialize)]
struct Expected {
    size: usize,
    ids: Vec<Vec<Vec<u32>>>,
    rest: Vec<String>,
    decoded: Vec<String>,
}

fn expected() -> BTreeMap<String, Expected> {
    serde_json::from_slice(&std::fs::read(fixture("ids.json")).expect("ids")).expect("ids")
}

fn answer(tokenizer: &TextTokenizer, request: &Request) -> Vec<Encoding> {
    let longest = request.longest.unwrap_or(usize::MAX);
    match (&request.words, &request.pair, request.stride) {
        (Some(words), _, _) => {
            let words: Vec<&str> = words.iter().map(String::as_str).collect();
            vec![tokenizer.encode_words(&words, longest).expect("encoded")]
        }
        (None, Some(pair), Some(stride)) => {
            tokenizer.encode_windows(&request.text, pair, longest, stride).expect("encoded")
        }
        (None, pair, _) => vec![tokenizer.encode(&request.text, pair.as_deref(), longest).expect("encoded")],
    }
}

/// FNV-1a of all that an encoding says besides its tokens, as `make.py` computes it.
fn checksum(windows: &[Encoding], with_types: bool) -> String {
    let mut numbers = Vec::new();
    for window in windows {
        for place in 0..window.len() {
            let (start, end) = window.offsets[place];
            numbers.extend([
                if with_types { i64::from(window.token_types[place]) } else { 0 },
                start as i64,
                end as i64,
                i64::from(window.special[place]),
                window.sequence[place].map_or(-1, i64::from),
                window.words[place].map_or(-1, i64::from),
            ]);
        }
    }
    let text = numbers.iter().map(i64::to_string).collect::<Vec<_>>().join(" ");
    let step = |value: u64, byte: u8| (value ^ u64::from(byte)).wrapping_mul(0x0100_0000_01b3);
    format!("{:016x}", text.bytes().fold(0xcbf2_9ce4_8422_2325, step))
}

fn check(tokenizer: &TextTokenizer, name: &str, expected: &Expected) {
    assert_eq!(tokenizer.vocabulary_size(), expected.size, "{name}");
    for (number, request) in requests().iter().enumerate() {
        let windows = answer(tokenizer, request);
        let ids: Vec<Vec<u32>> = windows.iter().map(|window| window.ids.clone()).collect();
        let about = format!("{name}, request {}: {:?} {:?}", number + 1, request.text, request.words);
        assert_eq!(ids, expected.ids[number], "{about}");
        assert_eq!(checksum(&windows, request.stride.is_none()), expected.rest[number], "{about}: {windows:?}");
        if let Some(decoded) = expected.decoded.get(number) {
            assert_eq!(&tokenizer.decode(&ids[0], true).expect("decoded"), decoded, "{about}");
            // Truncated or not, what is there is the beginning.
            let plain = tokenizer.encode_plain(&request.text).expect("encoded");
            let kept: Vec<u32> = windows[0]
                .ids
                .iter()
                .zip(&windows[0].special)
                .filter(|(_, special)| !**special)
                .map(|(id, _)| *id)
                .collect();
            assert_eq!(plain, kept, "{about}");
        }
    }
}

#[test]
fn every_kind_of_directory_gives_transformers_tokens() {
    let expected = expected();
    let names: Vec<&str> = expected.keys().map(String::as_str).collect();
    let known =
        ["albert", "bert", "bert_cased", "camembert", "gpt2", "json", "roberta", "roberta_space", "xlm-roberta"];
    assert_eq!(names, known);
    for (name, expected) in &expected {
        let tokenizer = TextTokenizer::open(&fixture(name)).unwrap_or_else(|error| panic!("{error}"));
        check(&tokenizer, name, expected);
    }
}

#[test]
fn a_saved_tokenizer_is_the_same_and_its_files_are_kept() {
    for (name, expected) in &expected() {
        let folder = TempDir::new().expect("a folder");
        TextTokenizer::open(&fixture(name)).expect("opened").save(folder.path()).expect("saved");
        for file in ["vocab.txt", "merges.txt", "tokenizer_config.json", "tokenizer.json", "spiece.model"] {
            if let Ok(bytes) = std::fs::read(fixture(name).join(file)) {
                assert!(std::fs::read(folder.path().join(file)).expect("copied") == bytes, "{name}/{file}");
            }
        }
        // tokenizer.json is read first.
        check(&TextTokenizer::open(folder.path()).expect("opened again"), name, expected);
    }
}

/// `transformers` asks the model's type for the class of its tokenizer, and reads an ALBERT's tokenizer.json as a Unigram vocabulary.
#[test]
fn a_saved_vocabulary_of_another_class_than_the_models_names_its_class() {
    let (from, to) = (TempDir::new().expect("a folder"), TempDir::new().expect("a folder"));
    std::fs::copy(fixture("bert").join("vocab.txt"), from.path().join("vocab.txt")).expect("copied");
    std::fs::write(from.path().join("config.json"), r#"{"model_type": "albert"}"#).expect("written");
    for config in [r#"{"model_max_length": 77}"#, r#"{"model_max_length": 77, "tokenizer_class": "AlbertTokenizer"}"#] {
        std::fs::write(from.path().join("tokenizer_config.json"), config).expect("written");
        TextTokenizer::open(from.path()).expect("opened").save(to.path()).expect("saved");
        let saved = std::fs::read(to.path().join("tokenizer_config.json")).expect("saved");
        let saved: Value = serde_json::from_slice(&saved).expect("JSON");
        assert_eq!(
            (saved["tokenizer_class"].as_str(), saved["model_max_length"].as_u64()),
            (Some("BertTokenizer"), Some(77))
        );
        let opened = TextTokenizer::open(to.path()).expect("opened again");
        let ids = |tokenizer: &TextTokenizer| tokenizer.encode("the of and to", None, 100).expect("encoded").ids;
        assert_eq!(ids(&opened), ids(&TextTokenizer::open(from.path()).expect("opened")));
    }
}

#[test]
fn special_tokens_and_lengths_are_those_of_the_files() {
    let bert = TextTokenizer::open(&fixture("bert")).expect("opened");
    let special = bert.special();
    let found = [special.padding, special.unknown, special.first, special.separator, special.mask];
    assert_eq!(found, [0, 1, 2, 3, 4].map(Some));
    assert_eq!((bert.longest(), bert.token(4).as_deref(), bert.id("[MASK]")), (Some(128), Some("[MASK]"), Some(4)));
    assert_eq!((bert.token(1 << 20), bert.id("no such token")), (None, None));
    let roberta = TextTokenizer::open(&fixture("roberta")).expect("opened");
    let special = roberta.special();
    let found = [special.first, special.padding, special.separator, special.unknown, special.mask];
    assert_eq!((found, roberta.longest()), ([0, 1, 2, 3, 4].map(Some), None));
}

#[test]
fn what_is_cut_off_is_said() {
    let bert = TextTokenizer::open(&fixture("bert")).expect("opened");
    let all = bert.encode("the of and to in is", None, usize::MAX).expect("encoded");
    assert_eq!((all.len(), all.truncated), (8, false));
    let is_truncated = |longest| bert.encode("the of and to in is", None, longest).expect("encoded").truncated;
    assert_eq!((is_truncated(8), is_truncated(7)), (false, true));
    assert_eq!(bert.encode("the", None, 2).expect("encoded").ids, [2, 3]);
    assert!(matches!(bert.encode("the", None, 1), Err(TokeniserError::Longest { longest: 1, special: 2 })));
    let error = bert.encode_windows("the of and to", &"in ".repeat(50), 12, 5).expect_err("no room").to_string();
    assert!(error.contains("leaves 5 of 12"), "{error}");
    let windows = bert.encode_windows("the of and to", &"in ".repeat(50), 12, 4).expect("encoded");
    assert_eq!((windows.len(), windows.iter().all(|window| window.truncated)), (46, true));
}

#[test]
fn odd_texts_are_encoded() {
    for (name, _) in expected() {
        let tokenizer = TextTokenizer::open(&fixture(&name)).expect("opened");
        let long = "ab, \u{e9}\u{1f600} ".repeat(20_000);
        let unbroken = "a".repeat(1 << 17);
        for text in ["", " ", "\0\u{1}\u{200b}", "\u{301}", long.as_str(), unbroken.as_str()] {
            let about: String = text.chars().take(8).collect();
            let encoding = tokenizer.encode(text, Some(text), 32).expect(&about);
            assert!(encoding.len() <= 32, "{name}: {about:?}");
            assert!(encoding.ids.iter().all(|&id| (id as usize) < tokenizer.vocabulary_size()));
        }
        let encoding = tokenizer.encode(&long, None, usize::MAX).expect("encoded");
        assert!(encoding.offsets.iter().all(|&(start, end)| long.get(start..end).is_some()), "{name}");
    }
}

fn texts() -> Vec<String> {
    let requests = requests();
    let often = std::iter::repeat_n("the and people".to_string(), 100);
    requests.into_iter().map(|request| request.text).chain(often).collect()
}

const KINDS: [VocabularyKind; 3] = [VocabularyKind::WordPiece, VocabularyKind::Bpe, VocabularyKind::Unigram];

#[test]
fn a_vocabulary_that_is_learnt_twice_is_the_same_and_opens_again() {
    for (kind, lower_case) in KINDS.into_iter().flat_map(|kind| [(kind, true), (kind, false)]) {
        let train = || TextTokenizer::train(kind, &mut texts().into_iter(), 400, lower_case).expect("learnt");
        let (tokenizer, again) = (train(), train());
        let folders = [TempDir::new().expect("a folder"), TempDir::new().expect("a folder")];
        tokenizer.save(folders[0].path()).expect("saved");
        again.save(folders[1].path()).expect("saved");
        for file in ["tokenizer.json", "tokenizer_config.json", "special_tokens_map.json"] {
            let read = |folder: &TempDir| std::fs::read_to_string(folder.path().join(file)).expect("written");
            assert!(read(&folders[0]) == read(&folders[1]), "{kind:?}: {file}");
        }
        let opened = TextTokenizer::open(folders[0].path()).expect("opened");
        assert_eq!(opened.special(), tokenizer.special());
        assert!((300..=400).contains(&opened.vocabulary_size()), "{kind:?}: {}", opened.vocabulary_size());
        assert!(opened.special().mask.is_some() && opened.special().padding.is_some());
        let upper = opened.encode("THE People", None, 64).expect("encoded");
        let lower = opened.encode("the people", None, 64).expect("encoded");
        assert_eq!(upper.ids == lower.ids, lower_case, "{kind:?}");
        assert_eq!((upper.special.first(), upper.special.last()), (Some(&true), Some(&true)));
        for text in texts() {
            let (one, other) = (tokenizer.encode(&text, None, 64), opened.encode(&text, None, 64));
            assert_eq!(one.expect("encoded"), other.expect("encoded"), "{kind:?}: {text:?}");
        }
        // Letters that often follow each other became tokens.
        assert!(opened.encode_plain(" the and people").expect("encoded").len() <= 7, "{kind:?}");
    }
}

#[test]
fn a_vocabulary_needs_text_and_a_sensible_size() {
    for kind in KINDS {
        let train = |texts: &[&str], size| {
            TextTokenizer::train(kind, &mut texts.iter().map(|text| text.to_string()), size, true)
        };
        assert!(matches!(train(&[], 500), Err(TokeniserError::NoText)));
        assert!(matches!(train(&["", ""], 500), Err(TokeniserError::NoText)));
        assert!(matches!(train(&["text"], 10), Err(TokeniserError::Vocabulary { size: 10, .. })));
        assert!(matches!(train(&["text"], usize::MAX), Err(TokeniserError::Vocabulary { .. })));
        train(&["a"], 500).expect("one letter is enough");
    }
}

/// Words, each with how often it occurs, one text after the other with those that occur so often (make_trained.py).
fn texts_of_words(words: &Value) -> Vec<String> {
    let words: Vec<(&String, u64)> = words
        .as_object()
        .expect("words")
        .iter()
        .map(|(word, count)| (word, count.as_u64().expect("a count")))
        .collect();
    let most = words.iter().map(|(_, count)| *count).max().expect("words");
    let text = |number: u64| {
        let there = words.iter().filter(|(_, count)| number < *count).map(|(word, _)| word.as_str());
        there.collect::<Vec<_>>().join(" ") + "."
    };
    (0..most).map(text).collect()
}

#[test]
fn what_is_learnt_is_what_the_tokenizers_package_learns() {
    let path = fixture("trained.json");
    let expected: Value = serde_json::from_slice(&std::fs::read(path).expect("a fixture")).expect("JSON");
    let texts = texts_of_words(&expected["words"]);
    let learnt = |kind: VocabularyKind, name: &str| -> Value {
        let size = expected[name]["size"].as_u64().expect("a size") as usize;
        let tokenizer = TextTokenizer::train(kind, &mut texts.iter().cloned(), size, true).expect("learnt");
        let folder = TempDir::new().expect("a folder");
        tokenizer.save(folder.path()).expect("saved");
        let file = std::fs::read(folder.path().join("tokenizer.json")).expect("written");
        serde_json::from_slice::<Value>(&file).expect("JSON")["model"].take()
    };
    let list = |name: &str| expected[name]["learnt"].as_array().expect("a list").clone();

    let pieces = learnt(VocabularyKind::WordPiece, "wordpiece");
    let mut tokens: Vec<&String> = pieces["vocab"].as_object().expect("a vocabulary").keys().collect();
    tokens.sort();
    assert_eq!(tokens, list("wordpiece").iter().map(|token| token.as_str().expect("a token")).collect::<Vec<_>>());

    let pairs = learnt(VocabularyKind::Bpe, "bpe");
    assert_eq!(pairs["merges"].as_array(), Some(&list("bpe")));

    let unigram = learnt(VocabularyKind::Unigram, "unigram");
    let mut found: Vec<(String, f64)> = serde_json::from_value(unigram["vocab"].clone()).expect("pieces");
    found.drain(..5);
    let lowest = found.iter().map(|piece| piece.1).fold(f64::INFINITY, f64::min);
    found.sort_by(|a, b| a.0.cmp(&b.0));
    let theirs = list("unigram");
    assert_eq!(found.len(), theirs.len());
    for ((piece, score), theirs) in found.iter().zip(&theirs) {
        assert_eq!(piece, theirs[0].as_str().expect("a piece"));
        match theirs[1].as_f64() {
            Some(theirs) => assert!((score - theirs).abs() < 1e-3, "{piece:?}: {score} and {theirs}"),
            // Letters that nothing was learnt for have the lowest score.
            None => assert_eq!(*score, lowest, "{piece:?}"),
        }
    }
}
