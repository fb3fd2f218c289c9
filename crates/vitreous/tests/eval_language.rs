//! `vitreous eval` of language models against PyTorch and `transformers` (fixtures/language/make_language.py).

mod common;

use std::fs;

use common::texts::assert_same;
use common::{Outcome, fixtures, vitreous};
use serde_json::{Value, json};

const MODELS: [&str; 2] = ["gpt2", "llama"];

fn expected(model: &str) -> Value {
    let text = fs::read(fixtures().join("language/expected.json")).expect("a fixture");
    serde_json::from_slice::<Value>(&text).expect("JSON")[model].clone()
}

fn eval(model: &str, data: &str, arguments: &[&str]) -> Outcome {
    let model = format!("language/{model}");
    vitreous(&[&["eval", &model, "--device", "cpu", "--data", data], arguments].concat())
}

#[test]
fn perplexity_in_windows_is_that_of_transformers() {
    for model in MODELS {
        for entry in expected(model)["perplexity"].as_array().expect("a list") {
            let stride = entry["stride"].to_string();
            let found =
                eval(model, "language/story.txt", &["--stride", &stride, "--json"]).succeeded().json_lines().remove(0);
            assert_eq!(found.as_object().expect("an object").len(), 3, "{found}");
            assert_eq!(found["tokens"], entry["tokens"], "{model}, stride {stride}");
            for key in ["perplexity", "bits_per_byte"] {
                let (ours, theirs) = (found[key].as_f64().expect("a number"), entry[key].as_f64().expect("a number"));
                assert!((ours / theirs - 1.0).abs() < 1e-5, "{model}, stride {stride}, {key}: {ours} is not {theirs}");
            }
        }
    }
    let people = eval("gpt2", "language/story.txt", &[]).succeeded();
    assert!(people.stdout.contains("perplexity") && people.stdout.contains("bits per byte"), "{}", people.stdout);
    assert!(people.stderr.contains("tokens of"), "{}", people.stderr);
}

#[test]
fn answers_are_chosen_as_transformers_chooses_them() {
    for model in MODELS {
        for (kind, theirs) in expected(model)["choices"].as_object().expect("an object") {
            let run = eval(model, &format!("language/{kind}.jsonl"), &["--json"]).succeeded();
            let ours = run.json_lines().remove(0);
            for key in ["choices", "choices_norm", "acc", "acc_norm"] {
                assert_eq!(ours[key], theirs[key], "{model}, {kind}, {key}");
            }
            assert_same(&ours["log_likelihoods"], &theirs["log_likelihoods"], 1e-3);
            assert_eq!(ours["questions"].as_u64(), Some(theirs["choices"].as_array().expect("a list").len() as u64));
            // HellaSwag's test questions come without answers.
            assert_eq!(run.stderr.contains("no right answer"), kind == "hellaswag", "{}", run.stderr);
        }
    }
    let people = eval("gpt2", "language/piqa.jsonl", &["--limit", "2"]).succeeded();
    assert!(
        people.stdout.contains("accuracy by length") && people.stderr.contains("2 questions (PIQA)"),
        "{}{}",
        people.stdout,
        people.stderr
    );
}

#[test]
fn documents_of_json_lines_are_scored_each_by_itself() {
    let folder = tempfile::tempdir().expect("a folder");
    let story = fs::read_to_string(fixtures().join("language/story.txt")).expect("a fixture");
    let half = story.len() / 2;
    let half = (half..).find(|&place| story.is_char_boundary(place)).expect("a boundary");
    let score = |lines: &[&str]| {
        let path = folder.path().join("texts.jsonl");
        let text: String = lines.iter().map(|text| format!("{}\n", json!({"text": text}))).collect();
        fs::write(&path, text).expect("written");
        let found = eval("llama", path.to_str().expect("text"), &["--json"]).succeeded().json_lines().remove(0);
        [&found["perplexity"], &found["tokens"]].map(|number| number.as_f64().expect("a number"))
    };
    let [[first, of_first], [second, of_second]] = [score(&[&story[..half]]), score(&[&story[half..]])];
    let [both, all] = score(&[&story[..half], &story[half..]]);
    assert_eq!(all, of_first + of_second);
    let mean = (first.ln() * of_first + second.ln() * of_second) / all;
    assert!((both.ln() - mean).abs() < 1e-6, "{both} of {first} and {second}");
}

#[test]
fn what_cannot_be_evaluated_is_refused_with_a_sentence() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = |name: &str, text: &str| {
        fs::write(folder.path().join(name), text).expect("written");
        folder.path().join(name).to_str().expect("text").to_string()
    };
    let story = "language/story.txt".to_string();
    let cases: [(String, &[&str], &str); 8] = [
        (file("empty.txt", ""), &[], "two tokens"),
        (story.clone(), &["--stride", "25"], "24 tokens"),
        (story.clone(), &["--split", "test"], "--split"),
        (story.clone(), &["--beam", "2"], "--beam"),
        (folder.path().to_str().expect("text").to_string(), &[], "a folder"),
        ("language/piqa.jsonl".to_string(), &["--stride", "3"], "--stride"),
        (file("odd.jsonl", "{\"goal\": \"q\", \"sol1\": \"x\", \"sol2\": 1}"), &[], "`sol2` must be a string"),
        (file("other.jsonl", "{\"title\": \"x\"}"), &[], "`text`"),
    ];
    for (data, arguments, says) in cases {
        eval("gpt2", &data, arguments).failed(2, &[says]);
    }
}
