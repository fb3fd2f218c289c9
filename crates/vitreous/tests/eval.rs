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
    vitreous(&["eval", "tiny_fashion", "--data", "no/data"]).failed(2, &["no/data"]);
    let folder = tempfile::tempdir().expect("a folder");
    let model = folder.path().join("headless");
    let model = model.to_str().expect("text");
    vitreous(&["convert", "--no-head", "tiny_fashion", model]).succeeded();
    vitreous(&["eval", model]).failed(2, &["no head"]);
}

/// Pictures of a class each, sorted into folders; one is broken, one is of a class that the model has and nobody is of.
#[test]
fn broken_images_are_skipped_and_named_and_some_classes_will_do() {
    let folder = tempfile::tempdir().expect("a folder");
    let pictures = fixtures().join("pictures");
    for (class, picture) in [("cat", "smooth.png"), ("cat", "noise.png"), ("sixth", "noise.png")] {
        let inside = folder.path().join("val").join(class);
        std::fs::create_dir_all(&inside).expect("a folder");
        std::fs::copy(pictures.join(picture), inside.join(picture)).expect("copied");
    }
    std::fs::write(folder.path().join("val/cat/broken.png"), b"\x89PNG\r\n\x1a\n").expect("written");
    let data = folder.path().to_str().expect("text");
    let outcome = vitreous(&["eval", "tiny_vit", "--data", data, "--json"]).succeeded();
    for part in ["2 of the model's 7 classes", "1 image could not be used", "broken.png"] {
        assert!(outcome.stderr.contains(part), "{}", outcome.stderr);
    }
    let report = &outcome.json_lines()[0];
    assert_eq!(report["samples"], 3);
    assert_eq!(column(report, "support"), json!([2, 0, 0, 0, 0, 1, 0]));
    assert!(report["broken"][0]["name"].as_str().expect("a name").ends_with("broken.png"));
    // What `predict` says of the same pictures is what is counted.
    let said = |picture: &str| {
        let picture = format!("pictures/{picture}");
        let line =
            vitreous(&["predict", "tiny_vit", &picture, "--json", "--top", "1"]).succeeded().json_lines().remove(0);
        line["top"][0]["index"].as_u64().expect("a class") as usize
    };
    for (label, picture) in [(0, "smooth.png"), (0, "noise.png"), (5, "noise.png")] {
        assert!(number(&report["confusion"][label][said(picture)]) > 0.0, "{picture}: {report}");
    }
    for split in ["train", "test"] {
        vitreous(&["eval", "tiny_vit", "--data", data, "--split", split])
            .failed(2, &[&format!("{split} part"), "--split validation"]);
    }
    std::fs::remove_dir_all(folder.path().join("val/sixth")).expect("removed");
    for picture in ["smooth.png", "noise.png"] {
        std::fs::remove_file(folder.path().join("val/cat").join(picture)).expect("removed");
    }
    vitreous(&["eval", "tiny_vit", "--data", data]).failed(1, &["no image could be read", "broken.png"]);
}

/// A folder with all three parts, and one whose test part serves for validation, too.
#[test]
fn the_test_split_is_one_of_its_own() {
    let folder = tempfile::tempdir().expect("a folder");
    for (part, picture) in [("train", "smooth.png"), ("val", "smooth.png"), ("test", "noise.png")] {
        for class in ["cat", "sixth"] {
            let inside = folder.path().join(part).join(class);
            std::fs::create_dir_all(&inside).expect("a folder");
            for copy in 0..if part == "test" { 2 } else { 1 } {
                std::fs::copy(fixtures().join("pictures").join(picture), inside.join(format!("{copy}.png")))
                    .expect("copied");
            }
        }
    }
    let data = folder.path().to_str().expect("text");
    let of = |more: &[&str]| {
        let words = ["eval", "tiny_vit", "--data", data, "--json"];
        let report = vitreous(&[&words[..], more].concat()).succeeded().json_lines().remove(0);
        (report["split"].clone(), report["samples"].clone())
    };
    assert_eq!(of(&[]), (json!("validation"), json!(2)));
    assert_eq!(of(&["--split", "test"]), (json!("test"), json!(4)));
    let built_in = |split: &str| {
        let report = vitreous(&["eval", "tiny_fashion", "--json", "--split", split]).succeeded().json_lines().remove(0);
        (report["loss"].clone(), report["samples"].clone())
    };
    assert_eq!(built_in("test"), built_in("validation"));
}

/// Several labels a sample: their own measures.
#[test]
fn several_labels_have_their_own_report() {
    let folder = tempfile::tempdir().expect("a folder");
    for picture in ["smooth.png", "noise.png"] {
        std::fs::copy(fixtures().join("pictures").join(picture), folder.path().join(picture)).expect("copied");
    }
    let row = |picture: &str, labels: Value| json!({"path": picture, "labels": labels, "split": "val"}).to_string();
    let rows = [row("smooth.png", json!(["cat", "fifth"])), row("noise.png", json!(["fifth"]))];
    let data = folder.path().join("manifest.jsonl");
    std::fs::write(&data, rows.join("\n")).expect("written");
    let data = data.to_str().expect("text");
    let report = vitreous(&["eval", "tiny_vit", "--data", data, "--json"]).succeeded().json_lines().remove(0);
    assert_eq!((&report["samples"], &column(&report, "support")), (&json!(2), &json!([1, 0, 0, 0, 2, 0, 0])));
    // Both are of the fifth class, so any order of them is right.
    assert_eq!(report["classes"][4]["average_precision"], 1.0);
    assert!(number(&report["loss"]) > 0.0, "{report}");
    assert!(report["top1"].is_null() && report["mean_average_precision"].is_number(), "{report}");
    let text = vitreous(&["eval", "tiny_vit", "--data", data]).succeeded().stdout;
    assert!(text.contains("mean average precision") && text.contains("micro F1"), "{text}");
}

/// Exact match and F1 as SQuAD's scripts compute them of the pipeline's answers (texts/make_questions.py), of both versions of SQuAD.
#[test]
fn answers_to_questions_are_measured_as_squad_does() {
    let bytes = std::fs::read(fixtures().join("texts/evaluation.json")).expect("a fixture");
    let expected: Value = serde_json::from_slice(&bytes).expect("JSON");
    let evaluated = |data: &str, more: &[&str]| {
        let arguments = [&["eval", "texts/bert_answers", "--data", data, "--device", "cpu"], more].concat();
        vitreous(&arguments).succeeded()
    };
    for (name, without) in [("questions", 0), ("questions2", 4)] {
        let report = &evaluated(&format!("texts/{name}.json"), &["--json"]).json_lines()[0];
        assert_eq!((&report["questions"], &report["without_answer"]), (&expected[name]["questions"], &json!(without)));
        for key in ["exact_match", "f1"] {
            let (ours, theirs) = (number(&report[key]), number(&expected[name][key]));
            assert!((ours - theirs).abs() < 1e-9, "{name}, {key}: {ours} is not {theirs}");
        }
    }
    let shown = evaluated("texts/questions.json", &[]);
    let percent = |key: &str| format!("{:.2} %", 100.0 * number(&expected["questions"][key]));
    assert!(
        shown.stdout.contains(&percent("exact_match")) && shown.stdout.contains(&percent("f1")),
        "{}",
        shown.stdout
    );
    assert!(shown.stderr.contains("24 questions of "), "{}", shown.stderr);

    // JSON lines with the same questions.
    let squad: Value =
        serde_json::from_slice(&std::fs::read(fixtures().join("texts/questions.json")).expect("a fixture"))
            .expect("JSON");
    let mut lines = String::new();
    for paragraph in squad["data"][0]["paragraphs"].as_array().expect("paragraphs") {
        for asked in paragraph["qas"].as_array().expect("questions") {
            let answers: Value =
                asked["answers"].as_array().expect("answers").iter().map(|answer| answer["text"].clone()).collect();
            let line =
                json!({"question": asked["question"], "context": paragraph["context"], "answers": {"text": answers}});
            lines.push_str(&format!("{line}\n"));
        }
    }
    let folder = tempfile::tempdir().expect("a folder");
    let file = folder.path().join("validation.jsonl");
    std::fs::write(&file, lines).expect("written");
    for data in [&file, &folder.path().to_path_buf()] {
        let report = &evaluated(data.to_str().expect("UTF-8"), &["--json"]).json_lines()[0];
        assert!((number(&report["f1"]) - number(&expected["questions"]["f1"])).abs() < 1e-9, "{report}");
    }
    let some = &evaluated("texts/questions.json", &["--json", "--limit", "5"]).json_lines()[0];
    assert_eq!(some["questions"], 5);
    let refused = |data: &str, says: &str| vitreous(&["eval", "texts/bert_answers", "--data", data]).failed(2, &[says]);
    refused("texts/answers.json", "not the JSON of SQuAD");
    refused("texts/missing.json", "missing.json");
    vitreous(&["eval", "texts/bert_answers"]).failed(2, &["--data PATH"]);
}
