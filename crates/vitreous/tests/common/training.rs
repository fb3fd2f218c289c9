//! What tests of training share: a tiny model, small data, and what a run leaves behind.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::process::{Child, Command, Stdio};
use std::time::Duration;

use serde_json::Value;
use vitreous_models::archive::Archive;

use super::{Outcome, vitreous};

/// A model that learns a step in some milliseconds, with everything random switched on.
pub const TINY: [&str; 12] = [
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

/// Trains the tiny model on the built-in data, with changes.
pub fn train_tiny(out: &Path, more: &[&str]) -> Outcome {
    let out = out.to_str().expect("UTF-8");
    vitreous(&[&["train", "small", "--out", out, "--json"], &TINY[..], more].concat())
}

/// Starts the command without waiting for its end.
pub fn start(arguments: &[&str]) -> Child {
    Command::new(env!("CARGO_BIN_EXE_vitreous"))
        .args(arguments)
        .stdin(Stdio::null())
        .stdout(Stdio::null())
        .stderr(Stdio::piped())
        .spawn()
        .expect("starts")
}

/// The lines of a run's metrics.
pub fn metrics(run: &Path) -> Vec<Value> {
    let text = std::fs::read_to_string(run.join("metrics.jsonl")).expect("metrics");
    text.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect()
}

/// All bytes that must not depend on how often a run was cut.
pub fn results(run: &Path) -> Vec<(PathBuf, Vec<u8>)> {
    let mut found = Vec::new();
    let mut folders: Vec<PathBuf> = ["model", "best", "checkpoints"].map(|folder| run.join(folder)).to_vec();
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).expect("a folder") {
            let path = entry.expect("an entry").path();
            if path.is_dir() {
                folders.push(path);
                continue;
            }
            let name = path.strip_prefix(run).expect("inside").to_path_buf();
            // What a killed writer leaves is removed by a later one.
            let unfinished = [".partial", ".begun"].iter().any(|suffix| name.to_string_lossy().ends_with(suffix));
            if !unfinished {
                found.push((name, std::fs::read(&path).expect("a file")));
            }
        }
    }
    // A run that was not tested has none.
    found
        .extend(std::fs::read(run.join("evaluation.json")).ok().map(|bytes| (PathBuf::from("evaluation.json"), bytes)));
    found.sort();
    found
}

/// The step of the latest checkpoint.
pub fn saved_step(run: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(run.join("checkpoints")) else { return 0 };
    let names = entries.flatten().map(|entry| entry.file_name().to_string_lossy().into_owned());
    let steps = names.filter_map(|name| name.strip_prefix("step-")?.strip_suffix(".safetensors")?.parse().ok());
    steps.max().unwrap_or(0)
}

/// Waits until a checkpoint of this step or a later one is there, or the child has ended.
pub fn wait_for_step(run: &Path, child: &mut Child, step: u64) {
    while saved_step(run) < step && child.try_wait().expect("a child").is_none() {
        std::thread::sleep(Duration::from_millis(1));
    }
}

/// The checkpoints of a run, by name.
pub fn checkpoints(run: &Path) -> Vec<(String, Vec<u8>)> {
    let entries = std::fs::read_dir(run.join("checkpoints")).expect("a folder").flatten();
    let named =
        entries.map(|e| (e.file_name().to_string_lossy().into_owned(), std::fs::read(e.path()).expect("a file")));
    let mut found: Vec<_> = named.filter(|(name, _)| name.ends_with(".safetensors")).collect();
    found.sort();
    found
}

/// All numbers of a file of tensors, by name.
pub fn tensors(path: &Path) -> BTreeMap<String, Vec<f32>> {
    let archive = Archive::open(path).expect("an archive");
    let numbers = |view: vitreous_models::archive::TensorView| view.to_f32().expect("numbers").into_owned();
    archive.tensors().map(|view| (view.name().to_string(), numbers(view))).collect()
}

/// Writes a picture of one colour, with a little noise, as a BMP.
pub fn picture(path: &Path, colour: [u8; 3], number: u8) {
    const SIDE: usize = 20;
    let mut bytes = b"BM".to_vec();
    for field in [54 + 3 * SIDE * SIDE, 0, 54, 40, SIDE, SIDE, 1 | 24 << 16, 0, 3 * SIDE * SIDE, 0, 0, 0, 0] {
        bytes.extend((field as u32).to_le_bytes());
    }
    for pixel in 0..SIDE * SIDE {
        let noise = (pixel * (7 + number as usize) % 31) as u8;
        bytes.extend(colour.iter().rev().map(|value| value.saturating_add(noise)));
    }
    std::fs::create_dir_all(path.parent().expect("a folder")).expect("a folder");
    std::fs::write(path, bytes).expect("a picture");
}

/// Classes of [`pictures`].
pub const COLOURS: [(&str, [u8; 3]); 3] = [("red", [190, 20, 20]), ("green", [20, 190, 20]), ("blue", [20, 20, 190])];

/// A folder `train/CLASS/N.bmp` and `val/CLASS/N.bmp`: seven a class to learn from, two to test with.
pub fn pictures(folder: &Path) {
    for (class, colour) in COLOURS {
        for number in 0..9 {
            let part = if number < 7 { "train" } else { "val" };
            picture(&folder.join(part).join(class).join(format!("{number}.bmp")), colour, number);
        }
    }
}

/// Panics unless two runs left the same bytes and the same losses.
pub fn assert_same_results(whole: &Path, cut: &Path) {
    let (whole_results, cut_results) = (results(whole), results(cut));
    let names = |results: &[(PathBuf, Vec<u8>)]| results.iter().map(|(name, _)| name.clone()).collect::<Vec<_>>();
    assert_eq!(names(&whole_results), names(&cut_results));
    for ((name, a), (_, b)) in whole_results.iter().zip(&cut_results) {
        assert!(a == b, "{} differs", name.display());
    }
    // Nothing is told twice, and the numbers are the same.
    let told = |run: &Path| -> Vec<[String; 6]> {
        let keys = ["step", "loss", "top1", "grad_norm", "val_loss", "gradient_norms"];
        metrics(run).iter().map(|line| keys.map(|key| line[key].to_string())).collect()
    };
    assert_eq!(told(whole), told(cut));
}

/// Trains in one go and, with the same words, stopped by SIGKILL soon after these steps; panics unless both leave the same bytes.
pub fn killed_and_whole_are_the_same(directory: &Path, words: &[&str], kills: &[u64]) {
    let (whole, cut) = (directory.join("whole"), directory.join("cut"));
    let (whole_name, out) = (whole.to_str().expect("UTF-8"), cut.to_str().expect("UTF-8"));
    vitreous(&[words, &["--out", whole_name]].concat()).succeeded();
    let mut child = start(&[words, &["--out", out]].concat());
    for &step in kills {
        wait_for_step(&cut, &mut child, step);
        // The moment within a step is chance.
        std::thread::sleep(Duration::from_micros(700 * step % 5000));
        child.kill().expect("killed");
        child.wait().expect("ends");
        child = start(&["train", "--resume", out]);
    }
    let ended = child.wait_with_output().expect("ends");
    assert!(ended.status.success(), "{}", String::from_utf8_lossy(&ended.stderr));
    assert_same_results(&whole, &cut);
}
