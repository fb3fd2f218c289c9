//! The models inside the program, by every command that takes a model.

mod common;

use common::training::pictures;
use common::{fixtures, vitreous};
use serde_json::Value;

const MODEL: &str = "builtin:small";

fn picture() -> String {
    fixtures().join("pictures/noise.png").display().to_string()
}

fn accuracy(model: &str) -> f64 {
    let outcome = vitreous(&["eval", model, "--json"]).succeeded();
    outcome.json_lines()[0]["top1"].as_f64().expect("a number")
}

/// What `crates/train/recipes/small.toml` promises of the built-in validation images, and what `assets/small/README.md` says.
#[test]
fn it_is_as_good_as_its_recipe_says() {
    let readme = include_str!("../../models/assets/small/README.md");
    let accuracy = accuracy(MODEL);
    assert!((0.865..=0.875).contains(&accuracy), "{accuracy}");
    assert!(readme.contains(&format!("{:.2} %", 100.0 * accuracy)), "{accuracy} is not what the file says:\n{readme}");
}

/// Ten classes, and nothing learned.
#[test]
fn before_training_it_guesses() {
    let accuracy = accuracy("builtin:small-untrained");
    assert!((0.02..=0.25).contains(&accuracy), "{accuracy}");
}

#[test]
fn every_command_takes_its_name() {
    let out = tempfile::tempdir().expect("a directory");
    let path = |name: &str| out.path().join(name).display().to_string();
    let answers = vitreous(&["predict", MODEL, &picture(), "--json"]).succeeded().json_lines();
    let first = &answers[0].to_string();
    assert!(first.contains("noise.png"), "{first}");
    let described = vitreous(&["summary", MODEL]).succeeded().stdout;
    assert!(described.contains("1.2 M") || described.contains("1,2"), "{described}");
    vitreous(&["embed", MODEL, &picture(), "--out", &path("v.npy")]).succeeded();
    vitreous(&["explain", MODEL, &picture(), "--out", &path("explained")]).succeeded();
    assert!(out.path().join("explained/noise/explain.html").is_file());
    vitreous(&["predict", MODEL, &picture(), "--without", "blocks.3.attention.heads.1"]).succeeded();
    pictures(&out.path().join("photos"));
    let (photos, run) = (path("photos"), path("run"));
    let tuning = ["train", "finetune", "--init", MODEL, "--data", &photos, "--out", &run, "model.image=32"];
    vitreous(&[&tuning[..], &["train.epochs=1", "train.batch=4", "finetune.freeze=true"]].concat()).succeeded();
    assert!(out.path().join("run/model/config.json").is_file());
}

/// Written to disk, it is the same model, under its own labels.
#[test]
fn it_can_be_saved() {
    let out = tempfile::tempdir().expect("a directory");
    let saved = out.path().join("saved").display().to_string();
    vitreous(&["convert", MODEL, &saved]).succeeded();
    let answer = |model: &str| -> Value {
        let mut line =
            vitreous(&["predict", model, &picture(), "--json", "--top", "10"]).succeeded().json_lines().remove(0);
        line.as_object_mut().expect("an object").remove("model");
        line
    };
    assert_eq!(answer(MODEL), answer(&saved));
    assert!(answer(MODEL).to_string().contains("Ankle boot"));
}

#[test]
fn other_names_are_refused_with_those_that_there_are() {
    for command in ["predict", "eval", "summary", "explain"] {
        let arguments = ["builtin:smal", &picture()];
        let arguments = if command == "predict" || command == "explain" { &arguments[..] } else { &arguments[..1] };
        vitreous(&[&[command], arguments].concat()).failed(2, &["builtin:smal", "builtin:small-untrained"]);
    }
}

/// A directory that is called so is meant before.
#[test]
fn what_is_on_disk_comes_first() {
    let here = tempfile::tempdir().expect("a directory");
    std::fs::create_dir(here.path().join(MODEL)).expect("created");
    let outcome = std::process::Command::new(env!("CARGO_BIN_EXE_vitreous"))
        .args(["summary", MODEL])
        .current_dir(here.path())
        .output()
        .expect("runs");
    assert_eq!(outcome.status.code(), Some(2), "{outcome:?}");
}
