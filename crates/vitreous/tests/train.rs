//! `vitreous train` as a user runs it: a tiny model on the built-in data.

mod common;

use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use common::{Outcome, vitreous};
use serde_json::Value;

/// A model that learns a step in some milliseconds, with everything random switched on.
const TINY: [&str; 12] = [
    "model.patch=16",
    "model.dim=16",
    "model.depth=2",
    "model.heads=2",
    "model.mlp_dim=32",
    "model.stochastic_depth=0.1",
    "train.batch=250",
    "train.epochs=2",
    "train.ema=0.9",
    "optimizer.lr=2e-3",
    "output.checkpoint_steps=1",
    "output.log_steps=4",
];

fn train_tiny(out: &Path, more: &[&str]) -> Outcome {
    let out = out.to_str().expect("UTF-8");
    vitreous(&[&["train", "small", "--out", out, "--json"], &TINY[..], more].concat())
}

fn start_tiny(arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_vitreous"))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts")
}

fn metrics(run: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(run.join("metrics.jsonl")).expect("metrics");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// All bytes that must not depend on how often a run was cut.
fn results(run: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    for folder in ["model", "best", "checkpoints"] {
        for entry in std::fs::read_dir(run.join(folder)).expect("a folder") {
            let path = entry.expect("an entry").path();
            let name = path.strip_prefix(run).expect("inside").to_path_buf();
            if !name.to_string_lossy().contains(".partial") {
                found.push((name, std::fs::read(&path).expect("a file")));
            }
        }
    }
    found.sort();
    found
}

/// The step of the latest checkpoint.
fn saved_step(run: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(run.join("checkpoints")) else { return 0 };
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let steps = names.filter_map(|name| name.strip_prefix("step-")?.strip_suffix(".safetensors")?.parse().ok());
    steps.max().unwrap_or(0)
}

fn wait_for_step(run: &Path, child: &mut Child, step: u64) {
    while saved_step(run) < step && child.try_wait().expect("a child").is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

#[test]
fn a_run_leaves_a_model_metrics_and_checkpoints() {
    let directory = tempfile::tempdir().expect("a directory");
    let run = directory.path().join("run");
    let outcome = train_tiny(&run, &["output.keep=3"]).succeeded();
    let result = &outcome.json_lines()[0];
    assert_eq!(result["step"], 80);
    assert!(result["val_top1"].as_f64().expect("a share") > 0.3, "{result}");

    let lines = metrics(&run);
    let learning: Vec<&Value> = lines.iter().filter(|line| line.get("loss").is_some()).collect();
    assert_eq!(learning.len(), 20);
    for key in ["step", "epoch", "lr", "grad_norm", "images_per_second", "data_wait", "peak_share"] {
        assert!(learning.iter().all(|line| line[key].is_number()), "{key}");
    }
    assert!(learning[0]["loss"].as_f64() > learning[19]["loss"].as_f64());
    let tests: Vec<&Value> = lines.iter().filter(|line| line.get("val_loss").is_some()).collect();
    assert_eq!(tests.iter().map(|line| line["step"].as_u64()).collect::<Vec<_>>(), [Some(40), Some(80)]);
    assert_eq!(tests[1]["val_top1"], result["val_top1"]);
    assert!(tests[1]["val_top5"].as_f64() >= tests[1]["val_top1"].as_f64());

    assert_eq!(std::fs::read_dir(run.join("checkpoints")).expect("a folder").count(), 3);
    let recipe = std::fs::read_to_string(run.join("recipe.toml")).expect("a recipe");
    assert!(recipe.contains("classes = 10") && recipe.contains("epochs = 2"), "{recipe}");
    // Without a terminal: a line an epoch, and no bar.
    assert_eq!(outcome.stderr.lines().filter(|line| line.starts_with("epoch ")).count(), 2, "{}", outcome.stderr);

    // The model is one that the other commands open.
    let model = run.join("model");
    vitreous(&["summary", model.to_str().expect("UTF-8")]).succeeded();
    vitreous(&["predict", model.to_str().expect("UTF-8"), "pictures"]);
}

#[test]
fn a_run_that_is_killed_ten_times_ends_with_the_same_bytes() {
    let directory = tempfile::tempdir().expect("a directory");
    let (whole, cut) = (directory.path().join("whole"), directory.path().join("cut"));
    train_tiny(&whole, &[]).succeeded();

    let out = cut.to_str().expect("UTF-8");
    let mut child = start_tiny(&[&["train", "small", "--out", out], &TINY[..]].concat());
    // At steps that are spread over the run, some within an epoch, some at its end; the moment within a step is chance.
    for step in [1, 9, 17, 25, 39, 40, 41, 55, 62, 79] {
        wait_for_step(&cut, &mut child, step);
        std::thread::sleep(Duration::from_micros(700 * step % 5000));
        child.kill().expect("killed");
        child.wait().expect("ends");
        child = start_tiny(&["train", "--resume", out]);
    }
    let ended = child.wait_with_output().expect("ends");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));

    let (whole_results, cut_results) = (results(&whole), results(&cut));
    let names = |results: &[(PathBuf, Vec<u8>)]| results.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&whole_results), names(&cut_results));
    for ((name, a), (_, b)) in whole_results.iter().zip(&cut_results) {
        assert!(a == b, "{} differs", name.display());
    }
    // Nothing is told twice, and the numbers are the same.
    let told = |run: &Path| -> Vec<(u64, String, String)> {
        let text = |line: &Value, key: &str| line[key].to_string();
        metrics(run)
            .iter()
            .map(|l| (l["step"].as_u64().expect("a step"), text(l, "loss"), text(l, "val_loss")))
            .collect()
    };
    assert_eq!(told(&whole), told(&cut));
}

#[cfg(unix)]
#[test]
fn ctrl_c_saves_and_says_how_to_go_on() {
    let directory = tempfile::tempdir().expect("a directory");
    let run = directory.path().join("run");
    let out = run.to_str().expect("UTF-8");
    let mut child = start_tiny(&[&["train", "small", "--out", out, "output.checkpoint_steps=0"], &TINY[..10]].concat());
    while !run.join("metrics.jsonl").exists() || metrics(&run).is_empty() {
        std::thread::sleep(Duration::from_millis(1));
        assert!(child.try_wait().expect("a child").is_none(), "it ended too soon");
    }
    assert!(Command::new("kill").args(["-INT", &child.id().to_string()]).status().expect("kill").success());
    let ended = child.wait_with_output().expect("ends");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(130), "{said}");
    assert!(said.contains(&format!("train --resume {out}")), "{said}");
    let step = saved_step(&run);
    assert!(step > 0 && step < 80, "{step}");
    let outcome = vitreous(&["train", "--resume", out, "--json"]).succeeded();
    assert!(outcome.stderr.contains(&format!("goes on after step {step} of 80")), "{}", outcome.stderr);
    // Once more: nothing is left to do, and that is no error.
    vitreous(&["train", "--resume", out, "--json"]).succeeded();
}

#[test]
fn a_second_run_in_a_directory_is_refused() {
    let directory = tempfile::tempdir().expect("a directory");
    let run = directory.path().join("run");
    let out = run.to_str().expect("UTF-8");
    let mut child = start_tiny(&[&["train", "small", "--out", out, "train.epochs=1000"], &TINY[..7]].concat());
    wait_for_step(&run, &mut child, 1);
    while !run.join("recipe.toml").exists() {
        std::thread::sleep(Duration::from_millis(1));
    }
    vitreous(&["train", "--resume", out]).failed(1, &["in use by another run", &child.id().to_string()]);
    vitreous(&["train", "small", "--out", out]).failed(1, &["in use by another run"]);
    child.kill().expect("killed");
    child.wait().expect("ends");
    // The lock went with the process, but the run is still there.
    vitreous(&["train", "small", "--out", out]).failed(2, &["there is a run in it already", "--resume"]);
}

#[cfg(unix)]
#[test]
fn a_full_disk_stops_the_run_and_loses_nothing() {
    let directory = tempfile::tempdir().expect("a directory");
    let run = directory.path().join("run");
    // The first checkpoint fits, then no file may grow beyond a kilobyte: the system refuses as it does on a full disk.
    let out = run.to_str().expect("UTF-8");
    let mut child = start_tiny(&[&["train", "small", "--out", out], &TINY[..]].concat());
    wait_for_step(&run, &mut child, 3);
    child.kill().expect("killed");
    child.wait().expect("ends");
    let before = results_of_checkpoints(&run);
    let script = "trap '' XFSZ; ulimit -f 2; exec \"$0\" train --resume \"$1\"";
    let ended = Command::new("sh").args(["-c", script, env!("CARGO_BIN_EXE_vitreous"), out]).output().expect("a shell");
    let said = String::from_utf8_lossy(&ended.stderr).into_owned();
    assert_eq!(ended.status.code(), Some(1), "{said}");
    assert!(said.contains("What was saved before is whole"), "{said}");
    assert_eq!(results_of_checkpoints(&run), before);
    vitreous(&["train", "--resume", out]).succeeded();
}

fn results_of_checkpoints(run: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(run.join("checkpoints")).expect("a folder").flatten();
    let named =
        entries.map(|e| (e.file_name().to_string_lossy().into_owned(), std::fs::read(e.path()).expect("a file")));
    let mut found: Vec<_> = named.filter(|(name, _)| name.ends_with(".safetensors")).collect();
    found.sort();
    found
}

#[test]
fn recipes_are_listed_and_shown() {
    let listed = vitreous(&["train", "--list"]).succeeded().stdout;
    for name in ["small", "cifar10", "cifar10-strong", "imagenet-s16", "imagenet-b16", "finetune"] {
        assert!(listed.lines().any(|line| line.starts_with(name)), "{name} is not in {listed}");
        let shown = vitreous(&["train", "--show", name]).succeeded().stdout;
        assert!(shown.starts_with("# ") && shown.contains("[optimizer]"), "{shown}");
    }
    let changed = vitreous(&["train", "--show", "small", "optimizer.lr=0.25"]).succeeded().stdout;
    assert!(changed.contains("lr = 0.25"), "{changed}");
}

#[test]
fn wrong_usage_is_refused_with_a_hint() {
    vitreous(&["train", "smal"]).failed(2, &["did you mean `small`?"]);
    vitreous(&["train", "small", "optimizer.lrr=1"]).failed(2, &["`optimizer.lrr`", "did you mean `optimizer.lr`?"]);
    vitreous(&["train", "small", "train.batch=many"]).failed(2, &["`train.batch`"]);
    vitreous(&["train", "small", "model.heads=5"]).failed(2, &["heads"]);
    vitreous(&["train", "small", "--data", "nowhere"]).failed(2, &["nowhere"]);
    vitreous(&["train", "cifar10"]).failed(2, &["data/cifar10", "vitreous data get cifar10"]);
    vitreous(&["train", "finetune", "--data", "pictures"]).failed(2, &["--init MODEL"]);
    let deeper = ["train", "finetune", "--init", "tiny_vit", "--data", "pictures", "model.depth=3"];
    vitreous(&deeper).failed(2, &["`model.depth`", "model.image"]);
    vitreous(&["train", "--resume", "pictures"]).failed(2, &["no run directory"]);
    vitreous(&["train", "small", "train.batch=20000", "--out", "unused"]).failed(2, &["20000", "10000"]);
    assert!(!common::fixtures().join("unused").exists(), "a refused run leaves nothing behind");
}
