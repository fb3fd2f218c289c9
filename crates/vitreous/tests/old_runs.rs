//! Run directories that version 0.1 made (`fixtures/old_runs`, with the script that made them): they are resumed to the same bytes, and
//! `report` and `eval` read them.

mod common;

use std::path::{Path, PathBuf};

use common::training::metrics;
use common::translation::{pairs, write_pairs};
use common::{fixtures, vitreous};
use serde_json::Value;
use vitreous_engine::machine::Machine;
use vitreous_models::archive::Archive;

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).expect("a folder");
    for entry in std::fs::read_dir(from).expect("a folder").flatten() {
        let target = to.join(entry.file_name());
        match entry.path().is_dir() {
            true => copy(&entry.path(), &target),
            false => _ = std::fs::copy(entry.path(), target).expect("copied"),
        }
    }
}

/// A copy of an old run, with its data beside it.
fn old_run(name: &str, folder: &Path) -> PathBuf {
    let run = folder.join(name);
    copy(&fixtures().join("old_runs").join(name), &run);
    if name == "translation" {
        let data = folder.join("pairs");
        std::fs::create_dir(&data).expect("a folder");
        write_pairs(&data.join("train.tsv"), &pairs(60, 1));
        write_pairs(&data.join("valid.tsv"), &pairs(12, 2));
        let recipe = std::fs::read_to_string(run.join("recipe.toml")).expect("a recipe");
        std::fs::write(run.join("recipe.toml"), recipe.replace("PAIRS", text(&data))).expect("written");
        std::fs::copy(run.join("tokenizer.json"), run.join("model/tokenizer.json")).expect("copied");
    }
    run
}

/// Resumes an old run, and panics unless it goes on as version 0.1 would have.
fn resumes_as_it_would_have(name: &str) {
    let folder = tempfile::tempdir().expect("a directory");
    let run = old_run(name, folder.path());
    vitreous(&["train", "--resume", text(&run)]).succeeded();
    let expected = std::fs::read(run.join("expected.json")).expect("what is expected");
    let expected: Value = serde_json::from_slice(&expected).expect("JSON");
    let losses = expected["losses"].as_object().expect("losses");
    let lines = metrics(&run);
    let lines: Vec<&Value> = lines.iter().filter(|line| line.get("loss").is_some()).collect();
    assert_eq!(lines.len(), losses.len());
    for line in lines {
        let (ours, theirs) = (&line["loss"], &losses[&line["step"].to_string()]);
        let apart = (ours.as_f64().expect("a loss") - theirs.as_f64().expect("a loss")).abs();
        assert!(apart < 1e-4, "step {}: {ours}, not {theirs}", line["step"]);
    }
    // Sums are in another order where registers are of another width.
    if expected["instruction_set"] == Machine::this().instruction_set {
        let file = run.join("checkpoints").join(expected["checkpoint"].as_str().expect("a name"));
        let archive = Archive::open(&file).expect("a checkpoint");
        let checksum = archive.metadata().get("vitreous.crc32c").map(String::as_str);
        assert_eq!(checksum, expected["crc32c"].as_str(), "other values than those of version 0.1");
    }
}

#[test]
fn a_classifier_resumes_to_the_same_bytes() {
    resumes_as_it_would_have("images");
}

#[test]
fn a_translator_resumes_to_the_same_bytes() {
    resumes_as_it_would_have("translation");
}

#[test]
fn reports_and_evaluations_read_old_runs() {
    let folder = tempfile::tempdir().expect("a directory");
    for (name, key) in [("images", "val_top1"), ("translation", "val_bleu")] {
        let run = old_run(name, folder.path());
        let written = vitreous(&["report", text(&run)]).succeeded();
        assert_eq!(written.stderr, "", "nothing is missing");
        let page = std::fs::read_to_string(run.join("report.html")).expect("a page");
        assert!(page.contains("<strong>Stopped</strong> at step "), "{name}");
        let numbers = vitreous(&["report", text(&run), "--json"]).succeeded().json_lines().remove(0);
        let lines = metrics(&run);
        let last = lines.iter().rfind(|line| line.get(key).is_some()).expect("an evaluation");
        assert_eq!((&numbers[key], &numbers["val_loss"]), (&last[key], &last["val_loss"]));

        // The model is the one of the last evaluation, and is evaluated on the run's own validation data.
        let kept: Value =
            serde_json::from_slice(&std::fs::read(run.join("evaluation.json")).expect("a file")).expect("JSON");
        let words = ["eval", text(&run), "--json", "--split", "validation"];
        let again = vitreous(&words).succeeded().json_lines().remove(0);
        let apart = (again["loss"].as_f64().expect("a loss") - kept["loss"].as_f64().expect("a loss")).abs();
        assert!(apart < 1e-4, "{name}: {} and {}", again["loss"], kept["loss"]);
    }
}
