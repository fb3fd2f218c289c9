//! Tests that ranks share out: the scores of one process to the last digit, for every task.

#![cfg(target_os = "linux")]

mod common;

use std::fmt::Write as _;
use std::path::Path;

use common::ranks::{assert_same_as_one, launchers, run, text_of};
use common::translation::{TINY_TEXT, pairs, write_pairs};
use common::{fixtures, vitreous};

const SHORT: [&str; 4] = ["train.epochs=1", "data.validation_share=0.5", "--device", "cpu"];

fn written(directory: &Path, name: &str, text: &str) -> String {
    let path = directory.join(name);
    std::fs::write(&path, text).expect("written");
    text_of(&path).to_string()
}

/// The path of a tiny encoder with its tokenizer.
fn encoder() -> String {
    text_of(&fixtures().join("texts/bert_plain")).to_string()
}

/// Two ranks leave what one process does, scores included, and rank 1 has computed a part of them.
fn assert_shared(words: &[&str]) {
    let Some(&launcher) = launchers().last() else { return };
    assert_same_as_one(launcher, 2, words, 1);
}

#[test]
fn classes_of_texts() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut table = "text,label\n".to_string();
    for index in 0..400 {
        let (word, label) = if index % 2 == 0 { ("good", "positive") } else { ("bad", "negative") };
        writeln!(table, "{word} {} number {index},{label}", "film ".repeat(1 + index % 7)).expect("text");
    }
    let (data, init) = (written(directory.path(), "reviews.csv", &table), encoder());
    let words = ["train", "classify-text", "--init", &init, "--data", &data, "train.batch=50"];
    assert_shared(&[&words[..], &SHORT].concat());
}

#[test]
fn tags_of_words() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut text = String::new();
    for index in 0..400 {
        let place = ["London", "Paris"][index % 2];
        writeln!(text, "The O\nman O\n{index} O\nAda B-PER\nLovelace I-PER\nlives O\nin O\n{place} B-LOC\n")
            .expect("text");
    }
    let (data, init) = (written(directory.path(), "names.conll", &text), encoder());
    let words = ["train", "classify-tokens", "--init", &init, "--data", &data, "train.batch=50"];
    assert_shared(&[&words[..], &SHORT].concat());
}

#[test]
fn texts_that_belong_together() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut text = String::new();
    for index in 0..400 {
        let (a, b) = (index % 16, index / 16);
        writeln!(text, "what is number {a} of {b}\tit is the film {a} of {b}").expect("text");
    }
    let (data, init) = (written(directory.path(), "questions.tsv", &text), encoder());
    let words = ["train", "embeddings", "--init", &init, "--data", &data, "train.batch=50"];
    assert_shared(&[&words[..], &SHORT].concat());
}

fn prose(directory: &Path) -> String {
    let line = |index: usize| format!("the cat number {} sat on the mat and looked at dog {index}\n\n", index % 10);
    written(directory, "prose.txt", &(0..800).map(line).collect::<String>())
}

#[test]
fn masked_words() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = prose(directory.path());
    let sizes = ["text.vocabulary=120", "text.max_tokens=16", "model.dim=16", "model.depth=1", "model.heads=2"];
    let words = ["train", "bert", "--data", &data, "train.batch=50", "model.mlp_dim=32", "model.max_length=32"];
    assert_shared(&[&words[..], &sizes, &SHORT].concat());
}

#[test]
fn sequences_that_are_corrupted_and_written() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = prose(directory.path());
    let sizes =
        ["model.dim=16", "model.heads=2", "model.head_dim=8", "model.encoder_layers=1", "model.decoder_layers=1"];
    let more = ["model.mlp_dim=32", "text.vocabulary=300", "text.max_tokens=24", "train.batch=50"];
    let words = [&["train", "t5", "--data", &data], &sizes[..], &more, &SHORT].concat();
    assert_shared(&words);
    let init = directory.path().join("t5");
    vitreous(&[&words[..], &["--out", text_of(&init)]].concat()).succeeded();
    let numbers = |index: usize| format!("number {index}\t{}\n", index % 7);
    let pairs = written(directory.path(), "pairs.tsv", &(0..700).map(numbers).collect::<String>());
    let words =
        ["train", "seq2seq", "--init", text_of(&init), "--data", &pairs, "train.tokens=500", "test.sentences=0"];
    assert_shared(&[&words[..], &SHORT].concat());
}

/// Whose last test is that of the mean of checkpoints, too.
#[test]
fn translations() {
    let directory = tempfile::tempdir().expect("a directory");
    for (part, count, seed) in [("train", 200, 1), ("valid", 300, 2), ("test", 15, 3)] {
        write_pairs(&directory.path().join(format!("{part}.tsv")), &pairs(count, seed));
    }
    let data = text_of(directory.path());
    let words =
        [&["train", "translation", "--data", data, "--device", "cpu"], &TINY_TEXT[..], &["test.sentences=0"]].concat();
    assert_shared(&words);
}

#[test]
fn transcripts() {
    let directory = tempfile::tempdir().expect("a directory");
    let fixture = |name: &str| {
        let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../train/tests/fixtures/transcribe").join(name);
        path.to_string_lossy().into_owned()
    };
    let row = |name: &str, text: &str| format!("{},{text}\n", fixture(name));
    let both = [row("long.wav", "Bees hum."), row("short.wav", "A cat")].concat();
    for (part, times) in [("train", 8), ("validation", 7)] {
        written(directory.path(), &format!("{part}.csv"), &format!("path,text\n{}", both.repeat(times)));
    }
    let (data, model) = (text_of(directory.path()), fixture("model"));
    let words = ["train", "transcribe", "--init", &model, "--data", data, "train.epochs=1", "train.batch=4"];
    assert_shared(&[&words[..], &["data.language=de", "--device", "cpu"]].concat());
}

#[test]
fn one_process_evaluates_a_model() {
    let Some(&launcher) = launchers().last() else { return };
    let alone = vitreous(&["eval", "builtin:small", "--limit", "100", "--json", "--device", "cpu"]).succeeded().stdout;
    let both = run(launcher, 2, &["eval", "builtin:small", "--limit", "100", "--json", "--device", "cpu"]).succeeded();
    assert_eq!(both.stdout.lines().count(), alone.lines().count(), "{}", both.stdout);
}
