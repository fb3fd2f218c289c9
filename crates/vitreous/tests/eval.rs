//! `vitreous eval` against PyTorch, scikit-learn and torchmetrics (fixtures by make_evaluation.py), and with what a user can get
//! wrong.

mod common;

use common::{changed_copy, fixtures, vitreous};
use serde_json::{Value, json};

fn expected() -> Value {
    let bytes = std::fs::read(fixtures().join("evaluation.json")).expect("a fixture");
    serde_json::from_slice(&bytes).expect("JSON")
}

fn number(value: &Value) -> f64 {
    value.as_f64().unwrap_or_else(|| panic!("{value} is no number"))
}

fn column(report: &Value, key: &str) -> Value {
    report["classes"].as_array().expect("classes").iter().map(|class| class[key].clone()).collect()
}

/// The model's classes stand in the reverse order of the data's.
#[test]
fn numbers_are_those_of_the_peers() {
    let expected = expected();
    for arguments in [&["--batch", "7"][..], &["--threads", "1"], &[]] {
        let mut all = vec!["eval", "tiny_fashion", "--json"];
        all.extend(arguments);
        let outcome = vitreous(&all).succeeded();
        assert_eq!(outcome.stderr, "");
        let report = &outcome.json_lines()[0];
        for (key, limit) in [("loss", 1e-5), ("top1", 1e-9), ("top5", 1e-9), ("expected_calibration_error", 1e-5)] {
            let (ours, theirs) = (number(&report[key]), number(&expected[key]));
            assert!((ours - theirs).abs() < limit, "{key}: {ours} is not {theirs}");
        }
        for (ours, theirs) in [("name", "names"), ("support", "support"), ("recall", "recall")] {
            assert_eq!(column(report, ours), expected[theirs], "{ours}");
        }
        assert_eq!(report["confusion"], expected["confusion"]);
        assert_eq!((&report["samples"], &report["broken"]), (&json!(2000), &json!([])));
        assert_eq!(report["split"], "validation");
    }
}

#[test]
fn bf16_is_near_and_a_part_is_a_part() {
    let of = |arguments: &[&str]| {
        let mut all = vec!["eval", "tiny_fashion", "--json"];
        all.extend(arguments);
        vitreous(&all).succeeded().json_lines().remove(0)
    };
    let near = of(&["--precision", "bf16"]);
    assert!((number(&near["loss"]) - number(&expected()["loss"])).abs() < 0.02, "{}", near["loss"]);
    assert_eq!(of(&["--limit", "10"])["samples"], 10);
    // The classes follow one another, so the first ten would not do.
    let spread = of(&["--limit", "100"]);
    let support = column(&spread, "support");
    assert!(support.as_array().expect("a list").iter().all(|count| number(count) > 0.0), "{support}");
    let train = of(&["--split", "train", "--limit", "50"]);
    assert_eq!((&train["split"], &train["samples"]), (&json!("train"), &json!(50)));
}

#[test]
fn the_table_is_readable() {
    let text = vitreous(&["eval", "tiny_fashion"]).succeeded().stdout;
    let expected = expected();
    let top1 = format!("top-1 {:.2} %", 100.0 * number(&expected["top1"]));
    let confused = "Sneaker taken for Ankle boot: 63 (31.50 % of its images)";
    for part in ["Fashion-MNIST", "2,000 images", &top1, "precision", "confusion matrix", confused] {
        assert!(text.contains(part), "`{part}` is not in:\n{text}");
    }
    let trousers = text.lines().find(|line| line.starts_with("Trouser")).expect("a class");
    let words: Vec<&str> = trousers.split_whitespace().collect();
    assert_eq!(words[1..5], ["100.00", "%", "69.50", "%"]);
}

#[test]
fn classes_without_names_are_matched_by_number_and_said_so() {
    let folder = tempfile::tempdir().expect("a folder");
    let model = folder.path().join("model");
    changed_copy("tiny_fashion", &model, "config.json", |config| {
        for class in 0..10 {
            config["id2label"][class.to_string()] = json!(format!("LABEL_{class}"));
        }
        config["label2id"] = json!({});
    });
    let outcome = vitreous(&["eval", model.to_str().expect("text"), "--json"]).succeeded();
    assert!(outcome.stderr.contains("matched by number"), "{}", outcome.stderr);
    // Its classes were the other way round, so this is much worse.
    assert!(number(&outcome.json_lines()[0]["top1"]) < 0.2);
}

#[test]
fn what_cannot_be_is_refused() {
    vitreous(&["eval", "tiny_vit"]).failed(2, &["the data has 10 classes", "the model has 7", "cat, dog"]);
    vitreous(&["eval", "no/model"]).failed(2, &["no/model", "no such file"]);
    vitreous(&["eval", "tiny_fashion", "--batch", "0"]).failed(2, &["at least 1"]);
    vitreous(&["eval", "tiny_fashion", "--split", "test"]).failed(2, &["validation", "train"]);
    vitreous(&["eval", "tiny_fashion", "--data", "no/data"]).failed(2, &["no/data"]);
    let folder = tempfile::tempdir().expect("a folder");
    let model = folder.path().join("headless");
    let model = model.to_str().expect("text");
    vitreous(&["convert", "--no-head", "tiny_fashion", model]).succeeded();
    vitreous(&["eval", model]).failed(2, &["no head"]);
}
