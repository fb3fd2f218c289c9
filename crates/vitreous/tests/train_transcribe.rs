//! Fine-tuning of a tiny speech model through the command, and the page of a recording.

mod common;

use std::path::{Path, PathBuf};

use common::training::killed_and_whole_are_the_same;
use common::vitreous;
use serde_json::Value as Json;

/// A model with windows of 0.8 s, and two recordings.
fn fixture(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("../train/tests/fixtures/transcribe").join(name);
    path.to_string_lossy().into_owned()
}

/// A list of the two recordings, many times, with `train.csv` and `validation.csv`.
fn data(directory: &Path, more: &str) -> String {
    let row = |name: &str, text: &str| format!("{},{text}\n", fixture(name));
    let both = [row("long.wav", "Bees hum."), row("short.wav", "A cat")].concat();
    std::fs::write(directory.join("train.csv"), format!("path,text\n{}{more}", both.repeat(8))).expect("written");
    std::fs::write(directory.join("validation.csv"), format!("path,text\n{both}")).expect("written");
    directory.to_string_lossy().into_owned()
}

const SHORT: [&str; 6] =
    ["train.batch=4", "data.language=de", "output.log_steps=1", "output.checkpoint_steps=1", "--device", "cpu"];

fn folder(directory: &tempfile::TempDir, name: &str) -> PathBuf {
    let folder = directory.path().join(name);
    std::fs::create_dir(&folder).expect("a folder");
    folder
}

#[test]
fn a_run_learns_and_its_model_is_transcribed_with() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = data(directory.path(), "");
    let run = directory.path().join("run");
    let out = run.to_string_lossy().into_owned();
    let model = fixture("model");
    let words = ["train", "transcribe", "--init", &model, "--data", &data, "--out", &out, "--json"];
    let learning = ["train.epochs=40", "optimizer.lr=1e-2", "augment.apply_spec_augment=false"];
    let answer = vitreous(&[&words[..], &SHORT, &learning].concat()).succeeded().json_lines();
    // Two recordings are soon known by heart.
    assert_eq!(answer[0]["val_wer"], 0.0, "{}", answer[0]);
    assert_eq!(answer[0]["val_cer"], 0.0, "{}", answer[0]);
    assert!(answer[0]["val_loss"].as_f64().expect("a loss") < 0.1, "{}", answer[0]);
    // What is beside the model: all that it was opened with.
    let generation: Json =
        serde_json::from_slice(&std::fs::read(run.join("model/generation_config.json")).expect("written"))
            .expect("JSON");
    assert_eq!(generation["alignment_heads"], serde_json::json!([[1, 0]]));
    for name in ["tokenizer.json", "preprocessor_config.json", "model.safetensors", "config.json"] {
        assert!(run.join("model").join(name).is_file(), "{name}");
    }
    let recording = fixture("long.wav");
    let settings = ["--language", "de", "--temperature", "0", "--no-speech-threshold", "1", "--device", "cpu"];
    vitreous(&[&["transcribe", &out, &recording, "--json"], &settings[..]].concat()).succeeded();
    // Its page: each word has a row, and its attention sums to 1.
    let pages = directory.path().join("pages");
    let page = pages.to_string_lossy().into_owned();
    let explained = vitreous(&["explain", &out, &recording, "--out", &page, "--json", "--device", "cpu"]);
    let explained = explained.succeeded().json_lines();
    assert_eq!(explained[0]["positions_per_second"], 50);
    for window in explained[0]["windows"].as_array().expect("windows") {
        for word in window["words"].as_array().expect("words") {
            let attention: Vec<f64> = serde_json::from_value(word["attention"].clone()).expect("numbers");
            assert_eq!(attention.len() as u64, window["frames"].as_u64().expect("frames") / 2);
            assert!((attention.iter().sum::<f64>() - 1.0).abs() < 1e-4, "{word}");
        }
    }
    let html = std::fs::read_to_string(explained[0]["page"].as_str().expect("a page")).expect("written");
    assert!(html.contains("Where the decoder listened"));
    vitreous(&["explain", &out]).failed(2, &["explained with a recording"]);
    vitreous(&["explain", &out, &recording, "--text", "a"]).failed(2, &["--text cannot be used"]);
}

#[test]
fn runs_that_are_resumed_end_with_the_same_bytes() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = data(directory.path(), "");
    let model = fixture("model");
    let words = ["train", "transcribe", "--init", &model, "--data", &data, "train.epochs=2", "optimizer.lr=1e-3"];
    let masked = ["augment.mask_time_prob=0.3", "model.dropout=0.1"];
    let words = [&words[..], &SHORT, &masked].concat();
    killed_and_whole_are_the_same(&folder(&directory, "whole"), &words, &[2, 5]);
    let adapted = [&words[..], &["finetune.lora_rank=2"]].concat();
    killed_and_whole_are_the_same(&folder(&directory, "adapted"), &adapted, &[3]);
}

#[test]
fn what_cannot_be_learned_from_is_left_out_with_a_sentence() {
    let directory = tempfile::tempdir().expect("a directory");
    // Silence of a second, which is longer than a window; a file that is no audio; a text that is too long.
    let samples = vec![0u8; 32_000];
    let mut wave = b"RIFF\x24\x7d\x00\x00WAVEfmt \x10\x00\x00\x00\x01\x00\x01\x00\x80\x3e\x00\x00\x00\x7d\x00\x00\x02\x00\x10\x00data\x00\x7d\x00\x00".to_vec();
    wave.extend(&samples);
    std::fs::write(directory.path().join("second.wav"), wave).expect("written");
    std::fs::write(directory.path().join("picture.wav"), b"\x89PNG\r\n\x1a\n").expect("written");
    let long = format!("{},{}\n", fixture("short.wav"), "word ".repeat(20));
    let data = data(directory.path(), &format!("second.wav,silence\npicture.wav,a picture\n{long}"));
    let out = directory.path().join("run").to_string_lossy().into_owned();
    let model = fixture("model");
    let words = ["train", "transcribe", "--init", &model, "--data", &data, "--out", &out, "train.epochs=1"];
    let outcome = vitreous(&[&words[..], &SHORT].concat()).succeeded();
    let said = format!("{}{}", outcome.stdout, outcome.stderr);
    assert!(said.contains("2 recordings are left out"), "{said}");
    assert!(said.contains("it is 1.0 s long, but only recordings of at most 0.8 s fit into a window"), "{said}");
    assert!(said.contains("their text is empty, or longer than the 24 tokens"), "{said}");
    assert!(said.contains("16 recordings"), "{said}");
    // Another kind of model, no data, no model.
    vitreous(&["train", "transcribe", "--data", &data]).failed(2, &["no pretrained model was named"]);
    vitreous(&["train", "transcribe", "--init", &model, "data.language=de"]).failed(2, &["there is no data"]);
    vitreous(&["train", "--init", &model, "--data", &data]).failed(2, &["vitreous train transcribe --init"]);
}
