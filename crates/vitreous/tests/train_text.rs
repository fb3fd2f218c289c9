//! Training on texts: classes, tags of words and masked tokens.

mod common;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use common::texts::{change, copied};
use common::training::killed_and_whole_are_the_same;
use common::{fixtures, vitreous};
use serde_json::Value;

/// The path of a tiny encoder with its tokenizer.
fn encoder() -> String {
    fixtures().join("texts/bert_plain").to_str().expect("UTF-8").to_string()
}

fn written(directory: &Path, name: &str, text: &str) -> String {
    let path = directory.join(name);
    std::fs::write(&path, text).expect("written");
    path.to_str().expect("UTF-8").to_string()
}

/// Reviews whose first word tells their class, of several lengths.
fn reviews(directory: &Path) -> String {
    let mut table = "text,label\n".to_string();
    for index in 0..120 {
        let (word, label) = if index % 2 == 0 { ("good", "positive") } else { ("bad", "negative") };
        writeln!(table, "{word} {} number {index},{label}", "film ".repeat(1 + index % 7)).expect("text");
    }
    written(directory, "reviews.csv", &table)
}

fn names(directory: &Path) -> String {
    let mut text = String::new();
    for index in 0..80 {
        let place = ["London", "Paris"][index % 2];
        let words = format!("The O\nman O\n{index} O\nAda B-PER\nLovelace I-PER\nlives O\nin O\n{place} B-LOC\n");
        writeln!(text, "{words}").expect("text");
    }
    written(directory, "names.conll", &text)
}

fn prose(directory: &Path) -> String {
    let mut text = String::new();
    for index in 0..400 {
        writeln!(text, "the cat number {} sat on the mat and looked at the dog\n", index % 10).expect("text");
    }
    written(directory, "prose.txt", &text)
}

const SHORT: [&str; 5] = ["train.batch=8", "output.log_steps=1", "output.checkpoint_steps=1", "--device", "cpu"];

fn evaluation(run: &Path) -> Value {
    serde_json::from_slice(&std::fs::read(run.join("evaluation.json")).expect("an evaluation")).expect("JSON")
}

fn trained(directory: &Path, words: &[&str]) -> PathBuf {
    let run = directory.join("run");
    let out = ["--out", run.to_str().expect("UTF-8"), "--device", "cpu"];
    vitreous(&[&["train"], words, &out].concat()).succeeded();
    run
}

#[test]
fn a_classifier_learns_and_is_evaluated_as_in_training() {
    let directory = tempfile::tempdir().expect("a directory");
    let (data, init) = (reviews(directory.path()), encoder());
    let words =
        ["classify-text", "--init", &init, "--data", &data, "train.batch=8", "train.epochs=12", "optimizer.lr=0.003"];
    let run = trained(directory.path(), &words);
    let found = evaluation(&run);
    let accuracy = found["accuracy"].as_f64().or_else(|| found["numbers"][0][1].as_f64()).expect("a number");
    assert!(accuracy >= 0.9, "{found}");
    let model = run.to_str().expect("UTF-8");
    let again: Value = vitreous(&["eval", model, "--json", "--device", "cpu"]).succeeded().json_lines().remove(0);
    assert_eq!(again["accuracy"].as_f64(), Some(accuracy), "{again}");
    let answer = vitreous(&["predict", model, "--text", "bad film film number 3", "--json", "--device", "cpu"]);
    assert_eq!(answer.succeeded().json_lines().remove(0)["top"][0]["label"], "negative");
    // A file that is named is evaluated whole.
    let whole: Value =
        vitreous(&["eval", model, "--data", &data, "--json", "--device", "cpu"]).succeeded().json_lines().remove(0);
    assert_eq!(whole["texts"], 120, "{whole}");
}

#[test]
fn tags_of_words_are_learnt() {
    let directory = tempfile::tempdir().expect("a directory");
    let (data, init) = (names(directory.path()), encoder());
    let words =
        ["classify-tokens", "--init", &init, "--data", &data, "train.batch=8", "train.epochs=15", "optimizer.lr=0.003"];
    let run = trained(directory.path(), &words);
    let found = evaluation(&run);
    assert!(found["entity_f1"].as_f64().expect("a number") > 0.9, "{found}");
    let again = vitreous(&["eval", run.to_str().expect("UTF-8"), "--data", &data, "--json", "--device", "cpu"]);
    let again = again.succeeded().json_lines().remove(0);
    assert!(again["entity_f1"].as_f64().expect("a number") > 0.9 && again["sentences"] == 80, "{again}");
}

const TINY_BERT: [&str; 7] = [
    "text.vocabulary=120",
    "text.max_tokens=16",
    "model.dim=16",
    "model.depth=1",
    "model.heads=2",
    "model.mlp_dim=32",
    "model.max_length=32",
];

#[test]
fn masked_words_are_learnt_from_plain_text() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = prose(directory.path());
    let words =
        ["bert", "--data", &data, "train.batch=8", "train.epochs=20", "optimizer.lr=0.01", "data.validation_share=0.1"];
    let run = trained(directory.path(), &[&words[..], &TINY_BERT].concat());
    let found = evaluation(&run);
    // A guess by frequency alone is right about one time in five.
    assert!(found["masked_accuracy"].as_f64().expect("a number") > 0.5, "{found}");
    let model = run.to_str().expect("UTF-8");
    let filled = vitreous(&["fill", model, "the cat number 3 [MASK] on the mat", "--json", "--device", "cpu"]);
    assert_eq!(filled.succeeded().json_lines().remove(0)["masks"][0]["top"][0]["token"], "sat");
    // What was learnt goes on, with its vocabulary.
    let more = directory.path().join("more");
    let more = more.to_str().expect("UTF-8");
    let init = run.join("model");
    let words = [
        "train",
        "bert",
        "--init",
        init.to_str().expect("UTF-8"),
        "--data",
        &data,
        "--out",
        more,
        "text.max_tokens=16",
    ];
    let outcome = vitreous(&[&words[..], &["train.batch=8", "--device", "cpu"]].concat()).succeeded();
    assert!(outcome.stderr.contains("accuracy of masked tokens"), "{}", outcome.stderr);
}

/// Questions and their answers, by a number in both.
fn questions(directory: &Path) -> String {
    let mut text = String::new();
    for index in 0..160 {
        let (a, b) = (index % 16, index / 16);
        writeln!(text, "what is number {a} of {b}\tit is the film {a} of {b}").expect("text");
    }
    written(directory, "questions.tsv", &text)
}

#[test]
fn texts_learn_to_find_those_that_belong_to_them() {
    let directory = tempfile::tempdir().expect("a directory");
    let (data, init) = (questions(directory.path()), encoder());
    let words = ["embeddings", "--init", &init, "--data", &data, "train.batch=16", "optimizer.lr=0.003"];
    let before =
        evaluation(&trained(directory.path(), &[&words[..], &["train.epochs=1", "optimizer.lr=1e-9"]].concat()));
    let directory = tempfile::tempdir().expect("a directory");
    let run = trained(directory.path(), &[&words[..], &["train.epochs=30"]].concat());
    let after = evaluation(&run);
    let loss = |evaluation: &Value| evaluation["loss"].as_f64().expect("a number");
    assert!(loss(&after) < 0.7 * loss(&before), "{before} {after}");
    // The directory says how its vectors are made.
    for file in ["modules.json", "1_Pooling/config.json", "sentence_bert_config.json"] {
        assert!(run.join("model").join(file).is_file(), "{file}");
    }
    let vector =
        vitreous(&["embed", run.to_str().expect("UTF-8"), "what is number 3 of 4", "--json", "--device", "cpu"]);
    let vector = vector.succeeded().json_lines().remove(0);
    let squares =
        vector["embedding"].as_array().expect("numbers").iter().map(|n| n.as_f64().expect("a number").powi(2));
    assert!((squares.sum::<f64>() - 1.0).abs() < 1e-5);
}

#[test]
fn runs_that_are_killed_end_with_the_same_bytes() {
    for (name, data) in [("classify-text", reviews as fn(&Path) -> String), ("classify-tokens", names)] {
        let directory = tempfile::tempdir().expect("a directory");
        let (data, init) = (data(directory.path()), encoder());
        let words = [&["train", name, "--init", &init, "--data", &data, "train.epochs=2"], &SHORT[..]].concat();
        killed_and_whole_are_the_same(directory.path(), &words, &[1, 7, 12]);
    }
    let directory = tempfile::tempdir().expect("a directory");
    let (data, init) = (questions(directory.path()), encoder());
    let words = [&["train", "embeddings", "--init", &init, "--data", &data], &SHORT[..]].concat();
    killed_and_whole_are_the_same(directory.path(), &words, &[1, 12]);
    let directory = tempfile::tempdir().expect("a directory");
    let data = prose(directory.path());
    let words = [&["train", "bert", "--data", &data], &SHORT[..], &TINY_BERT].concat();
    killed_and_whole_are_the_same(directory.path(), &words, &[1, 10]);
}

#[test]
fn other_texts_are_noticed_when_a_run_is_resumed() {
    let directory = tempfile::tempdir().expect("a directory");
    let (data, init) = (reviews(directory.path()), encoder());
    let words = ["classify-text", "--init", &init, "--data", &data, "train.batch=8", "train.epochs=2"];
    let run = trained(directory.path(), &words);
    let table = std::fs::read_to_string(&data).expect("a table").replacen("good film", "fine film", 1);
    std::fs::write(&data, table).expect("written");
    let out = run.to_str().expect("UTF-8");
    vitreous(&["train", "--resume", out]).failed(2, &["texts changed"]);
}

#[test]
fn what_is_missing_is_said() {
    let directory = tempfile::tempdir().expect("a directory");
    let (data, init) = (reviews(directory.path()), encoder());
    vitreous(&["train", "classify-text", "--data", &data]).failed(2, &["--init MODEL"]);
    vitreous(&["train", "classify-text", "--init", &init]).failed(2, &["there is no data", "--data"]);
    vitreous(&["train", "bert"]).failed(2, &["there is no data"]);
    let suggestion = format!("vitreous train classify-text --init {init} --data {data}");
    vitreous(&["train", "--init", &init, "--data", &data]).failed(2, &["--init needs a recipe", &suggestion]);
    vitreous(&["train", "translation", "--init", &init, "--data", &data]).failed(2, &["random weights", &suggestion]);
    let images = fixtures().join("tiny_vit");
    let images = images.to_str().expect("UTF-8");
    vitreous(&["train", "classify-text", "--init", images, "--data", &data]).failed(2, &["an image classifier"]);
    let one = written(directory.path(), "one.csv", "text,label\na,x\nb,x\n");
    vitreous(&["train", "classify-text", "--init", &init, "--data", &one]).failed(2, &["class"]);
    let few = written(directory.path(), "few.csv", "text,label\na,x\nb,y\nc,x\nd,y\n");
    vitreous(&["train", "classify-text", "--init", &init, "--data", &few]).failed(2, &["lower train.batch"]);
}

#[test]
fn a_template_with_more_token_types_than_the_model_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = reviews(directory.path());
    let model = copied("bert_plain", &directory.path().join("model"));
    change(&model, "tokenizer.json", |tokenizer| {
        tokenizer["post_processor"]["single"] =
            serde_json::json!([{"Sequence": {"id": "A", "type_id": 4_000_000_000_u32}}]);
    });
    let run = directory.path().join("run");
    let run = run.to_str().expect("UTF-8");
    vitreous(&["train", "classify-text", "--init", &model, "--data", &data, "--out", run, "--device", "cpu"])
        .failed(2, &["token type 4000000000", "the model has 2"]);
    assert!(!Path::new(run).exists());
}
