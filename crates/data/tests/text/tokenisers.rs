//! Tokenisers against Hugging Face's `tokenizers`, and what must hold for any text.

use std::path::{Path, PathBuf};
use std::sync::LazyLock;

use proptest::prelude::*;
use vitreous_data::text::{
    END, PADDING, Pair, SPECIAL_TOKENS, START, Tokeniser, TokeniserError, TokeniserKind, Tokenisers, read,
};

const KINDS: [TokeniserKind; 2] = [TokeniserKind::Bpe, TokeniserKind::Unigram];

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/text").join(name)
}

fn pairs() -> Vec<Pair> {
    read(&fixture("pairs.tsv"), None).unwrap().pairs
}

fn trained(kind: TokeniserKind) -> &'static Tokeniser {
    static TRAINED: LazyLock<[Tokeniser; 2]> = LazyLock::new(|| KINDS.map(|kind| train(kind, &pairs())));
    &TRAINED[kind as usize]
}

fn train(kind: TokeniserKind, pairs: &[Pair]) -> Tokeniser {
    let texts = pairs.iter().flat_map(|pair| [pair.source.as_str(), &pair.target]);
    Tokeniser::train(kind, texts, 400).unwrap()
}

#[derive(serde::Deserialize)]
struct Expected {
    texts: Vec<String>,
    bpe: Given,
    unigram: Given,
}

/// What Python's `tokenizers` gave.
#[derive(serde::Deserialize)]
struct Given {
    ids: Vec<Vec<u32>>,
    decoded: Vec<String>,
}

fn expected() -> Expected {
    serde_json::from_slice(&std::fs::read(fixture("ids.json")).unwrap()).unwrap()
}

#[test]
fn a_file_of_the_peer_gives_the_peers_numbers() {
    let expected = expected();
    for (name, given) in [("bpe.json", &expected.bpe), ("unigram.json", &expected.unigram)] {
        let tokeniser = Tokeniser::open(&fixture(name)).unwrap();
        for ((text, ids), decoded) in expected.texts.iter().zip(&given.ids).zip(&given.decoded) {
            assert_eq!(&tokeniser.encode(text).unwrap(), ids, "{name}: {text:?}");
            assert_eq!(&tokeniser.decode(ids).unwrap(), decoded, "{name}: {text:?}");
        }
    }
}

#[test]
fn bpe_learns_what_the_peer_learns_to_the_byte() {
    let ours = trained(TokeniserKind::Bpe).to_json().unwrap();
    assert_eq!(ours, std::fs::read_to_string(fixture("bpe.json")).unwrap());
}

#[test]
fn unigram_learns_nearly_what_the_peer_learns() {
    // The peer's own pieces change a little from run to run.
    let (ours, peers) = (trained(TokeniserKind::Unigram), Tokeniser::open(&fixture("unigram.json")).unwrap());
    assert_eq!(ours.vocabulary_size(), peers.vocabulary_size());
    let pieces =
        |tokeniser: &Tokeniser| (0..400).map(|token| tokeniser.piece(token)).collect::<std::collections::BTreeSet<_>>();
    let common = pieces(ours).intersection(&pieces(&peers)).count();
    assert!(common >= 390, "{common} of 400 pieces are the same");
}

#[test]
fn the_same_texts_give_the_same_bytes_for_any_threads_and_order() {
    let mut backwards = pairs();
    backwards.reverse();
    for kind in KINDS {
        let bytes = trained(kind).to_json().unwrap();
        for threads in [1, 2, 5] {
            let pool = rayon::ThreadPoolBuilder::new().num_threads(threads).build().unwrap();
            let again = pool.install(|| train(kind, &backwards)).to_json().unwrap();
            assert!(bytes == again, "{kind:?}, {threads} threads");
        }
    }
}

#[test]
fn scores_are_short_enough_for_every_reader_of_json() {
    let file: serde_json::Value = serde_json::from_str(&trained(TokeniserKind::Unigram).to_json().unwrap()).unwrap();
    let pieces = file["model"]["vocab"].as_array().unwrap();
    assert_eq!(pieces.len(), trained(TokeniserKind::Unigram).vocabulary_size());
    for piece in pieces {
        let score = piece[1].to_string();
        assert!(score.split_once('.').is_some_and(|(_, decimals)| decimals.len() <= 6), "{piece}");
    }
}

#[test]
fn what_is_composed_comes_back_to_the_letter() {
    for kind in KINDS {
        let tokeniser = trained(kind);
        for (text, composed) in expected().texts.iter().zip(expected().bpe.decoded) {
            let tokens = tokeniser.encode(text).unwrap();
            assert_eq!(tokeniser.decode(&tokens).unwrap(), composed, "{kind:?}");
            assert!(tokens.iter().all(|&token| token > END && (token as usize) < tokeniser.vocabulary_size()));
        }
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(400))]

    #[test]
    fn any_text_comes_back(text in any::<String>(), spaced in "[ \t\n]{0,3}([a-zäß]{1,4}[ \u{a0}]{0,3}){0,5}") {
        for kind in KINDS {
            let tokeniser = trained(kind);
            for text in [&text, &spaced] {
                // Untrimmed: a pair's sides are, a tokeniser's texts need not be.
                let composed = tokenizers::NormalizedString::from(text.as_str()).nfc().get().to_string();
                let tokens = tokeniser.encode(text).unwrap();
                prop_assert_eq!(tokeniser.decode(&tokens).unwrap(), composed);
                prop_assert!(tokens.iter().all(|&token| token > END));
            }
        }
    }

    #[test]
    fn any_numbers_are_decoded(tokens in prop::collection::vec(0u32..500, 0..40)) {
        for kind in KINDS {
            let text = trained(kind).decode(&tokens).unwrap();
            let words: Vec<u32> = tokens.iter().copied().filter(|&token| token > END && token < 400).collect();
            prop_assert_eq!(text, trained(kind).decode(&words).unwrap());
            tokens.iter().for_each(|&token| assert!(!trained(kind).piece(token).is_empty()));
        }
    }
}

#[test]
fn nobody_writes_a_special_token() {
    assert_eq!([PADDING, START, END].map(|token| trained(TokeniserKind::Bpe).piece(token)), SPECIAL_TOKENS);
    for kind in KINDS {
        // Learnt from text that is full of them, too.
        let texts = ["<pad> <s> </s>"; 9];
        for tokeniser in [trained(kind), &Tokeniser::train(kind, texts, 300).unwrap()] {
            for text in ["</s>", " a</s>b ", "<pad><s></s><pad>"] {
                let tokens = tokeniser.encode(text).unwrap();
                assert!(tokens.iter().all(|&token| token > END), "{kind:?}: {text} is {tokens:?}");
                assert_eq!(tokeniser.decode(&tokens).unwrap(), text);
            }
        }
    }
}

#[test]
fn pieces_can_be_shown() {
    let tokeniser = trained(TokeniserKind::Bpe);
    let pieces = |text: &str| -> Vec<String> {
        tokeniser.encode(text).unwrap().into_iter().map(|token| tokeniser.piece(token)).collect()
    };
    assert_eq!(pieces("The house Straß"), ["▁The", "▁house", "▁Straß"]);
    assert_eq!(pieces("\u{1}"), ["▁", "\\u{1}"]);
    assert_eq!(pieces("你"), ["▁", "<E4>", "<BD>", "<A0>"]);
    assert_eq!(tokeniser.piece(400), "<400>");
}

#[test]
fn what_was_saved_is_opened() {
    for (shared, files) in
        [(true, &["tokenizer.json"][..]), (false, &["source_tokenizer.json", "target_tokenizer.json"][..])]
    {
        let folder = tempfile::tempdir().unwrap();
        let tokenisers = Tokenisers::train(TokeniserKind::Bpe, &pairs(), 300, shared).unwrap();
        tokenisers.save(folder.path()).unwrap();
        let mut names: Vec<_> =
            std::fs::read_dir(folder.path()).unwrap().map(|entry| entry.unwrap().file_name()).collect();
        names.sort();
        assert_eq!(names, files);
        let opened = Tokenisers::open(folder.path()).unwrap();
        assert_eq!((tokenisers.is_shared(), opened.is_shared()), (shared, shared));
        for (before, after) in [(&tokenisers.source, &opened.source), (&tokenisers.target, &opened.target)] {
            assert_eq!(before.to_json().unwrap(), after.to_json().unwrap());
        }
        assert_eq!(opened.source.to_json().unwrap() == opened.target.to_json().unwrap(), shared);
        std::fs::remove_file(folder.path().join(files[files.len() - 1])).unwrap();
        let refused = Tokenisers::open(folder.path()).unwrap_err().to_string();
        assert!(refused.contains("target_tokenizer.json"), "{refused}");
        assert_eq!(refused.contains("source_tokenizer.json"), shared, "{refused}");
    }
}

#[test]
fn impossible_sizes_and_no_text_are_refused() {
    for kind in KINDS {
        for size in [0, 259, (1 << 20) + 1, usize::MAX] {
            let refused = Tokeniser::train(kind, ["some text"], size).unwrap_err();
            assert!(matches!(refused, TokeniserError::Size(_)), "{refused}");
        }
        assert!(matches!(Tokeniser::train(kind, [""], 300), Err(TokeniserError::NoText)));
        // Little text makes a small vocabulary, but all bytes are in it.
        let small = Tokeniser::train(kind, ["a"], 100_000).unwrap();
        assert!((259..262).contains(&small.vocabulary_size()), "{kind:?}: {small:?}");
        assert_eq!(small.decode(&small.encode("b ü").unwrap()).unwrap(), "b ü");
        let smallest = Tokeniser::train(kind, ["the tree the tree"], 260).unwrap();
        assert_eq!(smallest.vocabulary_size(), 260, "{kind:?}");
    }
}

#[test]
fn a_file_that_is_no_tokeniser_of_ours_is_refused() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    let refused = |content: &str| {
        std::fs::write(&path, content).unwrap();
        Tokeniser::open(&path).unwrap_err().to_string()
    };
    let good = std::fs::read_to_string(fixture("bpe.json")).unwrap();
    let wordpiece = good.replace("\"type\": \"BPE\"", "\"type\": \"WordPiece\"");
    for content in ["", "{}", "[1, 2]", &good[..good.len() / 2], &wordpiece] {
        let refused = refused(content);
        assert!(refused.contains("tokenizer.json: this is not a tokenizer.json"), "{refused}");
    }
    let other = refused(&good.replace("\"<s>\"", "\"[CLS]\""));
    assert!(other.contains("its token 1 is \"[CLS]\", but must be \"<s>\""), "{other}");
    for (change, to, says) in [
        ("\"NFC\"", "\"NFKC\"", "settings"),
        ("\"truncation\": null", "\"truncation\": 3", "settings"),
        ("\"dropout\": null", "\"dropout\": 0.5", "settings"),
        ("\"z\": 92", "\"zz\": 92", "the byte 'z' is not"),
        ("\"z\": 92", "\"z\": 91", "the same index"),
        ("\"z\": 92", "\"z\": 400", "vocabulary size is 400"),
        ("\"e\",\n        \"r\"", "\"e\",\n        \"z\"", "it merges \"e\" and \"z\""),
    ] {
        assert!(good.contains(change), "{change}");
        let refused = refused(&good.replacen(change, to, 1));
        assert!(refused.contains(says), "{change} to {to}: {refused}");
    }
    assert!(Tokeniser::open(&folder.path().join("none.json")).unwrap_err().to_string().contains("none.json"));
}

#[test]
fn a_damaged_file_never_ends_in_a_panic() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("tokenizer.json");
    for name in ["bpe.json", "unigram.json"] {
        let good = std::fs::read(fixture(name)).unwrap();
        for step in 0..300 {
            let mut bytes = good.clone();
            let place = step * bytes.len() / 300;
            bytes[place] = b"0}\"x"[step % 4];
            std::fs::write(&path, &bytes).unwrap();
            if let Ok(tokeniser) = Tokeniser::open(&path) {
                _ = tokeniser.encode("The house 你好 </s>").map(|tokens| tokeniser.decode(&tokens));
            }
        }
    }
}

#[test]
fn tokens_are_shown_as_the_words_they_are_pieces_of() {
    for kind in KINDS {
        let tokeniser = trained(kind);
        let texts = [
            "Donaudampfschiff 2017, \u{1f600}x!",
            "\u{fc}ber </s> a  b",
            "\u{5e9}\u{5dc}\u{5d5}\u{5dd} \u{928}\u{92e}\u{938}\u{94d}\u{924}\u{947}",
            "\u{65e5}\u{672c}",
        ];
        let expected: [&[&str]; 4] = [
            &["Donaudampfschiff", "2017", ",", "\u{1f600}", "x", "!"],
            &["\u{fc}ber", "</", "s", ">", "a", "\u{2423}", "b"],
            &["\u{5e9}\u{5dc}\u{5d5}\u{5dd}", "\u{928}\u{92e}\u{938}\u{94d}\u{924}\u{947}"],
            &["\u{65e5}\u{672c}"],
        ];
        for (text, expected) in texts.iter().zip(expected) {
            let tokens = tokeniser.encode(text).unwrap();
            let words = tokeniser.words(&tokens).unwrap();
            assert_eq!(words.iter().map(|word| word.text.as_str()).collect::<Vec<_>>(), expected, "{kind:?}");
            let pieces: Vec<usize> = words.iter().flat_map(|word| word.tokens.clone()).collect();
            assert_eq!(pieces, (0..tokens.len()).collect::<Vec<_>>());
        }
        let words = tokeniser.words(&[START, END]).unwrap();
        assert!(words.iter().all(|word| word.is_special) && words[1].text == "</s>" && words[1].tokens == (1..2));
        assert!(tokeniser.words(&[]).unwrap().is_empty());
    }
}

proptest! {
    #[test]
    fn any_tokens_belong_to_one_word_each(tokens in prop::collection::vec(0u32..420, 0..40)) {
        for kind in KINDS {
            let words = trained(kind).words(&tokens).unwrap();
            prop_assert!(words.iter().all(|word| !word.tokens.is_empty() && !word.text.is_empty()));
            let pieces: Vec<usize> = words.into_iter().flat_map(|word| word.tokens).collect();
            prop_assert_eq!(pieces, (0..tokens.len()).collect::<Vec<_>>());
        }
    }
}
