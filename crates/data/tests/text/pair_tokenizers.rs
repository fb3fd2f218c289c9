//! Tokenizers of encoder-decoders against `transformers` and `sentencepiece`: T5, ByT5, mBART's languages, Marian.

use std::path::{Path, PathBuf};

use serde_json::Value as Json;
use vitreous_data::text::{PairSide, PairTokenizer, TextTokenizer, VocabularyKind};

fn fixtures() -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/text/pair_tokenizers")
}

fn expected() -> Json {
    serde_json::from_slice(&std::fs::read(fixtures().join("expected.json")).expect("a file")).expect("JSON")
}

fn rows(value: &Json) -> Vec<Vec<u32>> {
    serde_json::from_value(value.clone()).expect("rows of tokens")
}

fn texts(value: &Json) -> Vec<String> {
    serde_json::from_value(value.clone()).expect("texts")
}

#[test]
fn sources_and_targets_have_the_tokens_that_transformers_gives() {
    let all = expected();
    let texts_of = texts(&all["texts"]);
    for (name, end, from, to) in [
        ("t5", 1, None, None),
        ("byt5", 1, None, None),
        ("mbart", 2, Some("en_XX"), Some("de_DE")),
        ("mbart50", 2, Some("en"), Some("de")),
        ("marian", 0, None, None),
        ("marian_separate", 0, None, None),
    ] {
        let tokenizer = PairTokenizer::open(&fixtures().join(name), end).expect(name);
        for (text, tokens) in texts_of.iter().zip(rows(&all[name]["source"])) {
            assert_eq!(tokenizer.encode_source(text, from, to).expect(name), tokens, "{name}: {text}");
        }
        if all[name]["target"].is_array() {
            for (text, tokens) in texts_of.iter().zip(rows(&all[name]["target"])) {
                assert_eq!(tokenizer.encode_target(text, to).expect(name), tokens, "{name}: {text}");
            }
        }
        if all[name]["decoded"].is_array() {
            let tokens = if name == "byt5" { "source" } else { "target" };
            for (tokens, text) in rows(&all[name][tokens]).iter().zip(texts(&all[name]["decoded"])) {
                assert_eq!(tokenizer.decode(tokens).expect(name), text, "{name}");
            }
        }
        // What is saved is opened as it was.
        let directory = tempfile::tempdir().expect("a directory");
        for (file, bytes) in tokenizer.files() {
            std::fs::write(directory.path().join(file), bytes).expect("written");
        }
        let again = PairTokenizer::open(directory.path(), end).expect(name);
        let encode = |tokenizer: &PairTokenizer| tokenizer.encode_source(&texts_of[0], from, to).expect(name);
        assert_eq!(encode(&again), encode(&tokenizer), "{name}");
    }
}

#[test]
fn sentinels_are_tokens() {
    let all = expected();
    let t5 = PairTokenizer::open(&fixtures().join("t5"), 1).expect("opens");
    for (text, tokens) in texts(&all["t5"]["sentinels"]).iter().zip(rows(&all["t5"]["of_sentinels"])) {
        assert_eq!(t5.encode_source(text, None, None).expect("tokens"), tokens, "{text}");
    }
    let bytes = PairTokenizer::open(&fixtures().join("byt5"), 1).expect("opens");
    let tokens: Vec<u32> = serde_json::from_value(all["byt5"]["sentinel"].clone()).expect("tokens");
    assert_eq!(bytes.encode_source("a<extra_id_0>b<extra_id_3>", None, None).expect("tokens"), tokens);
    assert_eq!((t5.sentinels().len(), bytes.sentinels().len()), (100, 125));
    assert_eq!(t5.piece(PairSide::Source, t5.sentinels()[7]), "<extra_id_7>");
    // A sentinel that there is not is text.
    let text = t5.encode_source("<extra_id_100> <extra_id_x", None, None).expect("tokens");
    assert!(text.iter().all(|token| !t5.sentinels().contains(token)));
}

#[test]
fn languages_are_listed_where_one_is_not_known() {
    let all = expected();
    for (name, other) in [("mbart", "sl_SI"), ("mbart50", "tlh")] {
        let tokenizer = PairTokenizer::open(&fixtures().join(name), 2).expect("opens");
        let languages = texts(&all[name]["languages"]);
        assert_eq!(tokenizer.languages().collect::<Vec<_>>(), languages);
        let said = tokenizer.encode_source("a", Some(other), Some("de_DE")).expect_err(other).to_string();
        assert!(said.contains(other) && said.contains("ar_AR") && said.contains("zh_CN"), "{said}");
        let said = tokenizer.encode_source("a", None, Some("de_DE")).expect_err("none").to_string();
        assert!(said.contains("--from"), "{said}");
        let de = all[name]["de"].as_u64().map(|id| id as u32);
        // mBART-50 is told the language by its first token, the first mBART by what it begins with.
        let (start, forced) =
            (tokenizer.start(Some("de")).expect("known"), tokenizer.forced_first(Some("de")).expect("known"));
        assert_eq!((start, forced), if name == "mbart" { (de, None) } else { (None, de) });
    }
    let t5 = PairTokenizer::open(&fixtures().join("t5"), 1).expect("opens");
    let said = t5.encode_source("a", None, Some("de")).expect_err("none").to_string();
    assert!(said.contains("no languages"), "{said}");
    let marian = PairTokenizer::open(&fixtures().join("marian"), 0).expect("opens");
    assert_eq!(marian.languages().collect::<Vec<_>>(), ["de", "fr"]);
    for (text, tokens) in texts(&all["texts"]).iter().zip(rows(&all["marian"]["to_fr"])) {
        assert_eq!(marian.encode_source(text, None, Some("fr")).expect("tokens"), tokens, "{text}");
    }
}

/// As `transformers` truncates: what is behind the text stays.
#[test]
fn truncated_texts_keep_their_end_and_their_language() {
    for (name, end, behind) in [("mbart", 2, 2), ("mbart50", 2, 1), ("t5", 1, 1)] {
        let tokenizer = PairTokenizer::open(&fixtures().join(name), end).expect("opens");
        let (from, to) = if name == "t5" { (None, None) } else { (Some("en_XX"), Some("de_DE")) };
        let whole = tokenizer.encode_source("the end of the line", from, to).expect("tokens");
        let mut kept = whole.clone();
        tokenizer.truncate(&mut kept, 5);
        assert_eq!(kept, [&whole[..5 - behind], &whole[whole.len() - behind..]].concat(), "{name}");
        tokenizer.truncate(&mut kept, 5);
        assert_eq!(kept.len(), 5);
    }
}

#[test]
fn a_language_that_a_text_of_marian_begins_with_is_a_token() {
    let marian = PairTokenizer::open(&fixtures().join("marian"), 0).expect("opens");
    let typed: Vec<(String, Vec<u32>)> =
        serde_json::from_value(expected()["marian"]["typed"].clone()).expect("texts with tokens");
    for (text, tokens) in typed {
        assert_eq!(marian.encode_source(&text, None, None).expect("tokens"), tokens, "{text}");
    }
}

#[test]
fn a_side_of_marian_may_have_a_vocabulary_of_its_own() {
    let path = fixtures().join("marian_separate");
    let marian = PairTokenizer::open(&path, 0).expect("opens");
    let sizes: [usize; 2] = serde_json::from_value(expected()["marian_separate"]["sizes"].clone()).expect("sizes");
    assert_eq!([PairSide::Source, PairSide::Target].map(|side| marian.vocabulary_size(side)), sizes);
    // Token 2 is a language of sources, and a word of targets.
    assert_eq!(marian.piece(PairSide::Source, 2), "de");
    let word = marian.piece(PairSide::Target, 2);
    assert!(word != "de" && !marian.decode(&[2]).expect("text").is_empty(), "{word}");
    // Without the file that tokenizer_config.json promises.
    let directory = tempfile::tempdir().expect("a directory");
    for name in ["source.spm", "target.spm", "vocab.json", "tokenizer_config.json", "config.json"] {
        std::fs::copy(path.join(name), directory.path().join(name)).expect("copied");
    }
    let said = PairTokenizer::open(directory.path(), 0).expect_err("no file").to_string();
    assert!(said.contains("target_vocab.json") && said.contains("separate_vocabs"), "{said}");
}

#[test]
fn damaged_vocabularies_of_marian_are_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    for name in ["source.spm", "target.spm"] {
        std::fs::copy(fixtures().join("marian").join(name), directory.path().join(name)).expect("copied");
    }
    for (text, says) in [
        ("[]", "not a JSON object"),
        ("{", "not JSON"),
        (r#"{"</s>": 0}"#, "<unk>"),
        (r#"{"</s>": 0, "<unk>": 0}"#, "each once"),
        (r#"{"</s>": 0, "<unk>": 18446744073709551615}"#, "each once"),
        (r#"{"</s>": -1}"#, "each once"),
    ] {
        std::fs::write(directory.path().join("vocab.json"), text).expect("written");
        let said = PairTokenizer::open(directory.path(), 0).expect_err(text).to_string();
        assert!(said.contains(says) && said.contains("vocab.json"), "{text}: {said}");
    }
    std::fs::write(directory.path().join("vocab.json"), r#"{"</s>": 0, "<unk>": 1}"#).expect("written");
    std::fs::write(directory.path().join("source.spm"), b"\x0a\xff\xff\xff\xff\x0f").expect("written");
    let said = PairTokenizer::open(directory.path(), 0).expect_err("cut").to_string();
    assert!(said.contains("source.spm") && said.contains("not a model of sentencepiece"), "{said}");
}

/// A vocabulary of T5's kind that was learnt has its special tokens where T5 has them.
#[test]
fn a_learnt_vocabulary_has_sentinels_and_an_end() {
    let texts: Vec<String> =
        (0..200).map(|n| format!("the cat number {n} sat on the mat and looked at dog {}", n * 7)).collect();
    let tokenizer =
        TextTokenizer::train(VocabularyKind::T5, &mut texts.iter().cloned(), 260, false).expect("a vocabulary");
    let pairs = PairTokenizer::of_text(tokenizer, 1).expect("files");
    let tokens = pairs.encode_source("the cat <extra_id_0> the mat", None, None).expect("tokens");
    assert_eq!(tokens.last(), Some(&1));
    let sentinels = pairs.sentinels();
    assert_eq!((sentinels.len(), sentinels[0] as usize), (100, pairs.vocabulary_size(PairSide::Source) - 1));
    assert!(tokens.contains(&sentinels[0]));
    let plain = pairs.encode_source("the cat sat", None, None).expect("tokens");
    assert_eq!(pairs.decode(&plain).expect("text"), "the cat sat");
    let directory = tempfile::tempdir().expect("a directory");
    for (file, bytes) in pairs.files() {
        std::fs::write(directory.path().join(file), bytes).expect("written");
    }
    let again = PairTokenizer::open(directory.path(), 1).expect("opens");
    assert_eq!(again.encode_source("the cat <extra_id_0> the mat", None, None).expect("tokens"), tokens);
    let words: Vec<String> = again.words(PairSide::Source, &tokens).into_iter().map(|word| word.text).collect();
    assert_eq!(words, ["the", "cat", "<extra_id_0>", "the", "mat", "</s>"]);
}
