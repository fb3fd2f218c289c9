//! `vitreous fill` against the fill-mask pipeline of `transformers` (fixtures/texts).

mod common;

use std::fs;

use common::texts::{assert_same, expected, on};
use common::vitreous_with_input;
use serde_json::{Value, json};

#[test]
fn fillings_are_those_of_the_pipeline() {
    for model in ["bert_masked", "roberta_masked"] {
        let entries = expected(model).as_array().expect("a list").clone();
        let texts: Vec<&str> = entries.iter().map(|entry| entry["text"].as_str().expect("text")).collect();
        let lines = on("fill", model, &[&["--json", "--top", "4"], &texts[..]].concat()).succeeded().json_lines();
        assert_eq!(lines.len(), entries.len());
        for (line, entry) in lines.iter().zip(&entries) {
            assert_eq!(line["text"], entry["text"]);
            let masks: Value =
                line["masks"].as_array().expect("masks").iter().map(|mask| mask["top"].clone()).collect();
            assert_same(&masks, &entry["masks"], 1e-5);
            let alone = on("fill", model, &["--json", "--top", "4", line["text"].as_str().expect("text")]);
            assert_same(&alone.succeeded().json_lines()[0], line, 1e-6);
        }
    }
}

#[test]
fn both_ways_of_writing_a_mask_are_understood() {
    for model in ["bert_masked", "roberta_masked"] {
        let masks = |text: &str| {
            let line = on("fill", model, &["--json", text]).succeeded().json_lines().remove(0);
            assert_eq!(line["text"], text);
            line["masks"].clone()
        };
        assert_eq!(masks("The [MASK] was lovely."), masks("The <mask> was lovely."));
    }
}

#[test]
fn the_best_token_stands_in_the_text_for_people() {
    let run = on("fill", "bert_masked", &["--top", "2", "[MASK] is lovely [MASK]"]).succeeded();
    let line = &on("fill", "bert_masked", &["--json", "[MASK] is lovely [MASK]"]).succeeded().json_lines()[0];
    let best = |mask: usize| line["masks"][mask]["top"][0]["token"].as_str().expect("a token");
    let lines: Vec<&str> = run.stdout.lines().collect();
    assert_eq!(lines[0], format!("{} is lovely {}", best(0), best(1)));
    assert_eq!(lines.len(), 5, "{}", run.stdout);
    assert!(lines[1].starts_with("  1  ") && lines[3].starts_with("  2  "), "{}", run.stdout);
    assert!(run.stderr.contains("1 text in "), "{}", run.stderr);
}

#[test]
fn texts_come_from_files_and_standard_input() {
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("texts.jsonl");
    fs::write(&file, format!("{}\n{}\n", json!({"text": "a [MASK]"}), json!({"text": "[MASK] b"}))).expect("written");
    let named = on("fill", "bert_masked", &["--json", "a [MASK]", "[MASK] b"]).succeeded().json_lines();
    let read = on("fill", "bert_masked", &["--json", "--file", file.to_str().expect("text")]).succeeded().json_lines();
    let model = ["fill", "texts/bert_masked", "--device", "cpu", "--json"];
    assert_eq!(read, named);
    for (more, input) in [(&[][..], "a [MASK]\n[MASK] b"), (&["-"], "a [MASK]\n[MASK] b\n")] {
        // Lines that come in are computed together or not, which rounds differently.
        let piped = vitreous_with_input(&[&model[..], more].concat(), input).succeeded().json_lines();
        assert_same(&json!(piped), &json!(named), 1e-6);
    }
}

#[test]
fn what_has_no_mask_is_said() {
    on("fill", "bert_masked", &["[MASK] a", "a meal"]).failed(2, &["text 2", "\"a meal\"", "has no [MASK]"]);
    on("fill", "roberta_masked", &["a meal"]).failed(2, &["has no <mask>"]);
    let late = format!("{} [MASK]", "the weather ".repeat(90));
    on("fill", "bert_masked", &[&late]).failed(2, &["has no [MASK] in the part that the model reads"]);
    on("fill", "bert_classes", &["[MASK]"]).failed(2, &["no masked-token head"]);
    on("fill", "bert_masked", &["[MASK]", "--top", "0"]).failed(2, &["at least 1"]);
    let long = format!("[MASK] {}", "the weather ".repeat(90));
    let run = on("fill", "bert_masked", &[&long]).succeeded();
    assert!(run.stderr.contains("1 text was longer than the model reads"), "{}", run.stderr);
}
