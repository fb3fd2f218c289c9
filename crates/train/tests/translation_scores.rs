//! BLEU and chrF against what sacrebleu says (`fixtures/make_translation_scores.py`).

use std::collections::BTreeMap;

use serde::Deserialize;
use vitreous_train::tasks::translate::scores::{Chrf, NgramCounts, ScoreError, bleu, chrf, chrf_plus_plus, tokens_13a};

#[derive(Deserialize)]
struct Fixture {
    /// Lines with their tokens.
    tokens: Vec<(String, Vec<String>)>,
    /// All characters that are space.
    spaces: Vec<u32>,
    corpora: BTreeMap<String, Corpus>,
}

#[derive(Deserialize)]
struct Corpus {
    hypotheses: Vec<String>,
    references: Vec<String>,
    bleu: ExpectedBleu,
    chrf: ExpectedChrf,
    chrf_plus_plus: ExpectedChrf,
}

#[derive(Deserialize)]
struct ExpectedBleu {
    score: f64,
    precisions: [f64; 4],
    brevity_penalty: f64,
    hypothesis_length: u64,
    reference_length: u64,
    shared: [u64; 4],
    totals: [u64; 4],
    text: String,
    signature: String,
}

#[derive(Deserialize)]
struct ExpectedChrf {
    score: f64,
    /// Three an order: of the translations, of the references, shared.
    counts: Vec<u64>,
    text: String,
    signature: String,
}

fn fixture() -> Fixture {
    serde_json::from_str(include_str!("fixtures/translation_scores.json")).expect("JSON")
}

fn close(what: &str, ours: f64, theirs: f64) {
    assert!((ours - theirs).abs() <= 1e-9, "{what}: {ours} is not {theirs}");
}

/// All but the version must be as the peer has it; that is ours.
fn same_signature(ours: &str, theirs: &str) {
    let (ours, version) = ours.rsplit_once('|').expect("parts");
    assert_eq!(ours, theirs.rsplit_once('|').expect("parts").0);
    assert_eq!(version, concat!("version:vitreous-", env!("CARGO_PKG_VERSION")));
}

#[test]
fn bleu_and_its_parts_are_those_of_sacrebleu() {
    for (name, Corpus { hypotheses, references, bleu: expected, .. }) in fixture().corpora {
        let ours = bleu(&hypotheses, &references).expect("pairs");
        close(&name, ours.score, expected.score);
        close(&name, ours.brevity_penalty, expected.brevity_penalty);
        ours.precisions.iter().zip(expected.precisions).for_each(|(ours, theirs)| close(&name, *ours, theirs));
        assert_eq!(ours.hypothesis_length, expected.hypothesis_length, "{name}");
        assert_eq!(ours.reference_length, expected.reference_length, "{name}");
        assert_eq!(ours.counts.map(|order| order.shared), expected.shared, "{name}");
        assert_eq!(ours.counts.map(|order| order.hypothesis), expected.totals, "{name}");
        assert_eq!(ours.to_string(), expected.text, "{name}");
        same_signature(&ours.signature(), &expected.signature);
    }
}

fn check_chrf(name: &str, ours: Chrf, expected: ExpectedChrf) {
    close(name, ours.score, expected.score);
    let counts =
        ours.counts.iter().flat_map(|&NgramCounts { hypothesis, reference, shared }| [hypothesis, reference, shared]);
    assert_eq!(counts.collect::<Vec<_>>(), expected.counts, "{name}");
    assert_eq!(ours.to_string(), expected.text, "{name}");
    same_signature(&ours.signature(), &expected.signature);
}

#[test]
fn chrf_and_its_counts_are_those_of_sacrebleu() {
    for (name, corpus) in fixture().corpora {
        let Corpus { hypotheses, references, .. } = corpus;
        check_chrf(&name, chrf(&hypotheses, &references).expect("pairs"), corpus.chrf);
        check_chrf(&name, chrf_plus_plus(&hypotheses, &references).expect("pairs"), corpus.chrf_plus_plus);
    }
}

#[test]
fn tokens_are_those_of_sacrebleu() {
    for (line, expected) in fixture().tokens {
        assert_eq!(tokens_13a(&line), expected, "{line:?}");
    }
}

#[test]
fn words_end_where_python_sees_space() {
    let spaces = fixture().spaces;
    for character in '\0'..=char::MAX {
        let parts = tokens_13a(&format!("a{character}b")).concat();
        assert_eq!(parts == "ab", spaces.contains(&u32::from(character)), "{character:?}");
    }
}

#[test]
fn what_does_not_pair_up_is_refused() {
    let none: [&str; 0] = [];
    let unequal = ScoreError::Unequal { hypotheses: 2, references: 1 };
    assert_eq!(bleu(&["a", "b"], &["a"]), Err(unequal.clone()));
    assert_eq!(chrf(&["a", "b"], &["a"]), Err(unequal.clone()));
    assert_eq!(chrf_plus_plus(&["a", "b"], &["a"]), Err(unequal.clone()));
    assert!(unequal.to_string().contains("2 translations, but 1 references"));
    assert_eq!(bleu(&none, &none), Err(ScoreError::Nothing));
    assert_eq!(chrf(&none, &none), Err(ScoreError::Nothing));
}
