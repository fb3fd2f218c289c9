//! Classification metrics against PyTorch, torchmetrics and scikit-learn (`fixtures/make_evaluation.py`).

use serde_json::Value;
use vitreous_train::tasks::classify::metrics::{MultiLabel, SingleLabel};

fn fixture(part: &str) -> Value {
    let all: Value = serde_json::from_str(include_str!("fixtures/evaluation.json")).expect("JSON");
    all[part].clone()
}

fn rows(value: &Value) -> Vec<Vec<f64>> {
    serde_json::from_value(value.clone()).expect("rows of numbers")
}

/// Panics unless what we say is what the peer says: the same numbers, and nothing where there is nothing.
fn compare(what: &str, ours: &Value, theirs: &Value) {
    match (ours, theirs) {
        (Value::Array(a), Value::Array(b)) => {
            assert_eq!(a.len(), b.len(), "{what}");
            a.iter().zip(b).for_each(|(a, b)| compare(what, a, b));
        }
        (Value::Number(a), Value::Number(b)) => {
            let (a, b) = (a.as_f64().expect("a number"), b.as_f64().expect("a number"));
            // torchmetrics computes its ratios in f32.
            assert!((a - b).abs() <= 1e-7, "{what}: {a} is not {b}");
        }
        _ => assert_eq!(ours, theirs, "{what}"),
    }
}

fn column(report: &Value, key: &str) -> Value {
    report["classes"].as_array().expect("classes").iter().map(|class| class[key].clone()).collect()
}

#[test]
fn one_label_a_sample() {
    let fixture = fixture("single");
    let classes = fixture["classes"].as_u64().expect("a number") as usize;
    let labels: Vec<u32> = serde_json::from_value(fixture["labels"].clone()).expect("labels");
    let mut scores = SingleLabel::new(classes);
    for (logits, label) in rows(&fixture["logits"]).into_iter().zip(labels) {
        scores.add(&logits.into_iter().map(|x| x as f32).collect::<Vec<_>>(), label);
    }
    let report = serde_json::to_value(scores.report()).expect("JSON");
    let whole = ["loss", "top1", "top5", "macro_f1", "confusion"];
    for key in whole.into_iter().chain(["expected_calibration_error", "max_calibration_error"]) {
        compare(key, &report[key], &fixture[key]);
    }
    for key in ["precision", "recall", "f1", "support"] {
        compare(key, &column(&report, key), &fixture[key]);
    }
    assert_eq!((scores.loss(), scores.top1(), scores.top5()), {
        let number = |key: &str| report[key].as_f64().expect("a number");
        (number("loss"), number("top1"), number("top5"))
    });
}

#[test]
fn several_labels_a_sample() {
    let fixture = fixture("several");
    let classes = fixture["classes"].as_u64().expect("a number") as usize;
    let labels: Vec<Vec<u32>> = serde_json::from_value(fixture["labels"].clone()).expect("labels");
    let mut scores = MultiLabel::new(classes);
    for (logits, labels) in rows(&fixture["logits"]).into_iter().zip(labels) {
        scores.add(&logits.into_iter().map(|x| x as f32).collect::<Vec<_>>(), &labels);
    }
    let report = serde_json::to_value(scores.report()).expect("JSON");
    for key in ["loss", "mean_average_precision", "micro_f1", "macro_f1"] {
        compare(key, &report[key], &fixture[key]);
    }
    compare("average_precision", &column(&report, "average_precision"), &fixture["average_precision"]);
    assert_eq!(report["mean_average_precision"], scores.mean_average_precision());
}
