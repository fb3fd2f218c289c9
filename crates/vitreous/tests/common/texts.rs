//! What `transformers` and sentence-transformers said of the models in `fixtures/texts`, and comparing with it.

use std::fs;
use std::path::Path;

use serde_json::Value;

use super::{Outcome, fixtures, vitreous};

/// What the pipelines said, by model (make_text_models.py).
pub fn expected(model: &str) -> Value {
    read("expected.json")[model].clone()
}

/// What the question-answering pipeline said (make_answers.py).
pub fn expected_answers() -> Vec<Value> {
    read("answers.json").as_array().expect("a list").clone()
}

fn read(file: &str) -> Value {
    serde_json::from_slice(&fs::read(fixtures().join("texts").join(file)).expect("a fixture")).expect("JSON")
}

/// Runs a command on a model of `fixtures/texts`, on the CPU.
pub fn on(command: &str, model: &str, arguments: &[&str]) -> Outcome {
    let model = format!("texts/{model}");
    vitreous(&[&[command, &model, "--device", "cpu"], arguments].concat())
}

/// The numbers of a JSON list.
pub fn numbers(value: &Value) -> Vec<f64> {
    value.as_array().expect("a list").iter().map(|number| number.as_f64().expect("a number")).collect()
}

/// Panics unless all numbers are equal up to `limit`.
pub fn assert_close(ours: &[f64], theirs: &[f64], limit: f64) {
    assert_eq!(ours.len(), theirs.len());
    let largest = ours.iter().zip(theirs).map(|(a, b)| (a - b).abs()).fold(0.0, f64::max);
    assert!(largest <= limit, "{largest:e}: {ours:?} and {theirs:?}");
}

/// Panics unless two JSON values are equal, their fractions up to `limit`.
pub fn assert_same(ours: &Value, theirs: &Value, limit: f64) {
    let is_same = match (ours, theirs) {
        (Value::Number(a), Value::Number(b)) if a.is_f64() || b.is_f64() => {
            (a.as_f64().expect("a number") - b.as_f64().expect("a number")).abs() <= limit
        }
        (Value::Array(a), Value::Array(b)) if a.len() == b.len() => {
            return a.iter().zip(b).for_each(|(a, b)| assert_same(a, b, limit));
        }
        (Value::Object(a), Value::Object(b)) if a.len() == b.len() => {
            return a.iter().for_each(|(key, a)| assert_same(a, b.get(key).unwrap_or(&Value::Null), limit));
        }
        (a, b) => a == b,
    };
    assert!(is_same, "{ours} is not {theirs}");
}

/// Strings of a JSON list.
pub fn strings(value: &Value) -> Vec<&str> {
    value.as_array().expect("a list").iter().map(|text| text.as_str().expect("a string")).collect()
}

/// A copy of a model directory, with its folders.
pub fn copied(model: &str, to: &Path) -> String {
    copy_folder(&fixtures().join("texts").join(model), to);
    to.to_str().expect("text").to_string()
}

fn copy_folder(from: &Path, to: &Path) {
    fs::create_dir_all(to).expect("a folder");
    for entry in fs::read_dir(from).expect("a fixture") {
        let entry = entry.expect("a file");
        let there = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy_folder(&entry.path(), &there),
            false => drop(fs::copy(entry.path(), there).expect("copied")),
        }
    }
}

/// Changes a JSON file of a model directory.
pub fn change(model: &str, file: &str, change: impl FnOnce(&mut Value)) {
    let path = Path::new(model).join(file);
    let mut value = serde_json::from_slice(&fs::read(&path).expect("a file")).expect("JSON");
    change(&mut value);
    fs::write(path, value.to_string()).expect("written");
}
