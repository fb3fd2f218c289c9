//! `vitreous predict` of texts against the pipelines of `transformers` (fixtures/texts), and in the ways a user calls it.

mod common;

use std::fs;

use common::texts::{assert_close, assert_same, expected, expected_answers, numbers, on};
use common::{fixtures, vitreous, vitreous_with_input};
use serde_json::{Value, json};

const LIMIT: f64 = 1e-5;

/// A file of JSON lines with the inputs of a model.
fn written(folder: &tempfile::TempDir, inputs: &[Value]) -> String {
    let path = folder.path().join("inputs.jsonl");
    let line = |input: &Value| if input.is_string() { json!({"text": input}) } else { input.clone() };
    fs::write(&path, inputs.iter().map(|input| format!("{}\n", line(input))).collect::<String>()).expect("written");
    path.to_str().expect("text").to_string()
}

fn entries(model: &str) -> (Vec<Value>, Vec<Value>) {
    let entries = expected(model).as_array().expect("a list").clone();
    (entries.iter().map(|entry| entry["input"].clone()).collect(), entries)
}

/// All inputs of a model in one run against each by itself in the pipeline, of which one is longer than the model reads.
fn compare(model: &str, score: impl Fn(&Value) -> Value) {
    let folder = tempfile::tempdir().expect("a folder");
    let (inputs, entries) = entries(model);
    let run = on("predict", model, &["--file", &written(&folder, &inputs), "--json"]).succeeded();
    let lines = run.json_lines();
    assert_eq!(lines.len(), entries.len());
    for (line, entry) in lines.iter().zip(&entries) {
        assert_close(&numbers(&line["logits"]), &numbers(&entry["logits"]), LIMIT);
        assert_same(&score(line), &entry["pipeline"], LIMIT);
        let input = &entry["input"];
        assert_eq!(&line["text"], if input.is_string() { input } else { &input["text"] });
        assert_eq!(line["text_pair"], input["text_pair"]);
    }
}

/// `top` as the pipeline has it.
fn top(line: &Value) -> Value {
    let class = |class: &Value| json!({"label": class["label"], "score": class["score"]});
    line["top"].as_array().expect("a list").iter().map(class).collect()
}

#[test]
fn classes_labels_and_numbers_are_those_of_the_pipeline() {
    compare("bert_classes", top);
    compare("bert_labels", top);
    compare("bert_number", |line| {
        let number = |number: &Value| json!({"label": number["label"], "score": number["value"]});
        line["numbers"].as_array().expect("a list").iter().map(number).collect()
    });
    // One output whose meaning the configuration does not say is a probability there.
    compare("bert_one", top);
    let said = on("predict", "bert_one", &["--text", "a"]).succeeded();
    assert!(said.stderr.contains("no problem_type"), "{}", said.stderr);
    let said = on("predict", "bert_number", &["--text", "a"]).succeeded();
    assert!(!said.stderr.contains("problem_type") && !said.stdout.contains('%'), "{}{}", said.stderr, said.stdout);
}

#[test]
fn texts_together_are_as_texts_alone() {
    let (inputs, _) = entries("bert_classes");
    let texts: Vec<&str> = inputs.iter().filter_map(Value::as_str).collect();
    let together =
        on("predict", "bert_classes", &[&["--json", "--text"], &texts[..]].concat()).succeeded().json_lines();
    for (text, line) in texts.iter().zip(together) {
        let alone = on("predict", "bert_classes", &["--json", "--text", text]).succeeded().json_lines();
        assert_same(&line, &alone[0], 1e-6);
    }
}

#[test]
fn texts_come_from_arguments_files_and_standard_input() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = folder.path().join("lines.txt");
    // Blank lines are texts, too, so that the answers are in step with the lines.
    let lines = "\u{feff}a film\r\n\nthe engine\n";
    fs::write(&path, lines).expect("written");
    let path = path.to_str().expect("text");
    let model = ["predict", "texts/bert_classes", "--device", "cpu", "--json"];
    let named = vitreous(&[&model[..], &["--text", "a film", "", "the engine"]].concat()).succeeded();
    assert_eq!(named.json_lines().len(), 3);
    for (arguments, input) in [
        (&["--file", path][..], ""),
        (&["--file", "-"], lines),
        (&["--text", "-"], lines),
        (&["-"], lines),
        (&[], lines),
    ] {
        let run = vitreous_with_input(&[&model[..], arguments].concat(), input).succeeded();
        // Lines that come in are computed together or not, which rounds differently.
        assert_same(&json!(run.json_lines()), &json!(named.json_lines()), 1e-6);
    }
    let pair = vitreous(&[&model[..], &["--text", "a film", "--pair", "the engine"]].concat()).succeeded();
    let line = "{\"text\": \"a film\", \"text_pair\": \"the engine\"}\n{\"text\": \"a\"}\n";
    let piped = vitreous_with_input(&model, line).succeeded();
    assert_same(&piped.json_lines()[0], &pair.json_lines()[0], 1e-6);
    assert_ne!(pair.json_lines()[0]["logits"], named.json_lines()[0]["logits"]);
}

#[test]
fn a_long_text_is_truncated_and_that_is_said() {
    let long = "the weather is lovely today ".repeat(40);
    let run = on("predict", "bert_classes", &["--text", &long, "a"]).succeeded();
    assert!(run.stderr.contains("1 text was longer than the model reads, 64 tokens, and truncated"), "{}", run.stderr);
    let quiet = on("predict", "bert_classes", &["--text", &long, "-q"]).succeeded();
    assert_eq!(quiet.stderr, "");
    assert_eq!(quiet.stdout.lines().count(), 4);
    let one = on("predict", "bert_classes", &["--text", "a", "--top", "1"]).succeeded();
    assert_eq!(one.stdout.lines().count(), 2, "{}", one.stdout);
}

/// The pipeline joins byte-level tokens to words, and then words as if they were such tokens: of "Zürich" it makes "Z\u{fffd}rich".
/// Ours are whole where the tokens are.
fn without_broken_words(ours: &Value, theirs: &Value) -> Value {
    let mut theirs = theirs.clone();
    let text: Vec<char> = theirs["text"].as_str().expect("text").chars().collect();
    for (entity, ours) in (theirs["entities"].as_array_mut().expect("a list").iter_mut())
        .zip(ours["entities"].as_array().expect("a list"))
    {
        let word = |entity: &Value| entity["word"].as_str().expect("a word").to_string();
        if word(entity).contains('\u{fffd}') {
            let at = |key: &str| entity[key].as_u64().expect("a place") as usize;
            let written: String = text[at("start")..at("end")].iter().collect();
            let is_whole = word(ours).trim() == written.trim();
            assert!(is_whole || (word(ours).contains('\u{fffd}') && !written.is_ascii()), "{ours} {entity}");
            assert!(is_whole || !written.contains('ü'), "{ours} {entity}");
            entity["word"] = ours["word"].clone();
        }
    }
    theirs
}

#[test]
fn entities_are_those_of_the_pipeline_in_every_aggregation() {
    for model in ["bert_tokens", "roberta_tokens"] {
        let strategies = expected(model);
        for (strategy, entries) in strategies.as_object().expect("strategies") {
            let folder = tempfile::tempdir().expect("a folder");
            let entries = entries.as_array().expect("a list");
            let texts: Vec<Value> = entries.iter().map(|entry| entry["text"].clone()).collect();
            let arguments = ["--file", &written(&folder, &texts), "--json", "--aggregate", strategy];
            let lines = on("predict", model, &arguments).succeeded().json_lines();
            assert_eq!(lines.len(), entries.len());
            for (line, entry) in lines.iter().zip(entries) {
                assert_same(line, &without_broken_words(line, entry), LIMIT);
            }
        }
    }
    let shown = on("predict", "bert_tokens", &["--text", "Ada Lovelace lived in London."]).succeeded();
    assert!(shown.stdout.lines().nth(1).is_some_and(|line| line.contains('%')), "{}", shown.stdout);
}

#[test]
fn answers_are_those_of_the_pipeline() {
    for case in expected_answers() {
        let text = |key: &str| case[key].as_str().expect("text");
        let count = case["top"].to_string();
        let arguments = ["--question", text("question"), "--context", text("context"), "--top", &count, "--json"];
        let line = &on("predict", "bert_answers", &arguments).succeeded().json_lines()[0];
        assert_eq!(line["question"], case["question"]);
        assert_same(&line["answers"], &case["answers"], 1e-6);
        for answer in line["answers"].as_array().expect("a list") {
            // In characters, not bytes.
            let at = |key: &str| answer[key].as_u64().expect("a place") as usize;
            let found: String = text("context").chars().take(at("end")).skip(at("start")).collect();
            assert_eq!(answer["answer"], found);
        }
    }
}

#[test]
fn questions_come_from_files_too() {
    let cases: Vec<Value> = expected_answers().into_iter().filter(|case| case["top"] == 5).collect();
    assert!(cases.len() > 1);
    let folder = tempfile::tempdir().expect("a folder");
    let file = written(&folder, &cases);
    let lines = on("predict", "bert_answers", &["--file", &file, "--json"]).succeeded().json_lines();
    assert_eq!(lines.len(), cases.len());
    for (line, case) in lines.iter().zip(&cases) {
        assert_same(&line["answers"], &case["answers"], 1e-6);
    }
    let model = ["predict", "texts/bert_answers"];
    vitreous_with_input(&model, "{\"question\": \"Who?\"}\n").failed(2, &["standard input, line 1", "\"context\""]);
    vitreous_with_input(&model, "Who?\n").failed(2, &["line 1", "\"question\""]);
    on("predict", "bert_answers", &["--text", "Who?"]).failed(2, &["--question Q --context C"]);
    on("predict", "bert_answers", &["--question", "Who?"]).failed(2, &["--context"]);
    on("predict", "bert_answers", &["--question", " ", "--context", "a"]).failed(2, &["must not be empty"]);
}

/// Where the question leaves less room than windows usually overlap, the pipeline fails.
#[test]
fn a_long_question_leaves_room_for_small_windows() {
    let (question, context) = ("the engine of Ada ".repeat(10), "Charles Babbage designed it in London. ".repeat(9));
    let arguments = ["--question", &question, "--context", &context, "--json", "--top", "3"];
    let line = &on("predict", "bert_answers", &arguments).succeeded().json_lines()[0];
    assert_eq!(line["answers"].as_array().map(Vec::len), Some(3), "{line}");
    let question = "the engine of Ada ".repeat(40);
    let arguments = ["--question", &question, "--context", &context];
    on("predict", "bert_answers", &arguments).failed(2, &["the question has"]);
}

#[test]
fn heads_that_are_missing_are_said() {
    on("predict", "bert_plain", &["--text", "a"]).failed(2, &["no classification head", "vitreous embed"]);
    on("predict", "bert_masked", &["--text", "a"]).failed(2, &["no classification head", "vitreous fill"]);
    on("predict", "bert_classes", &["--question", "a", "--context", "b"]).failed(2, &["head for questions"]);
    on("predict", "bert_classes", &["--features", "--text", "a"]).failed(2, &["vitreous embed"]);
    on("predict", "bert_classes", &["pictures"]).failed(2, &["classif", "--text"]);
    vitreous(&["predict", "tiny_vit", "--text", "a"]).failed(2, &["no model for texts", "vitreous predict tiny_vit"]);
    assert!(fixtures().join("tiny_vit").is_dir());
}

#[test]
fn bf16_is_near() {
    let arguments = ["--text", "Ada Lovelace lived in London.", "--json"];
    let logits = |more: &[&str]| {
        let run = on("predict", "bert_classes", &[&arguments, more].concat()).succeeded();
        numbers(&run.json_lines()[0]["logits"])
    };
    let (exact, near) = (logits(&[]), logits(&["--precision", "bf16"]));
    assert_close(&near, &exact, 0.1);
    assert_ne!(near, exact);
}
