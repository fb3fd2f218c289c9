//! What does not fit into memory is refused before any of it is taken, with what would fit.
#![cfg(target_os = "linux")] // where the system tells what is available

mod common;

use std::io::Write;
use std::path::Path;

use common::translation::{TINY_TEXT, pair_folder};
use common::{changed_copy, fixtures, vitreous};
use serde_json::{Value, json};

/// The number behind a text.
fn number_behind(text: &str, what: &str) -> usize {
    let rest = text.split(what).nth(1).unwrap_or_else(|| panic!("`{what}` is not in {text}"));
    rest.chars().take_while(char::is_ascii_digit).collect::<String>().parse().expect("a number")
}

#[test]
fn training_beyond_memory_says_the_batch_that_fits() {
    let directory = tempfile::tempdir().expect("a folder");
    let run = directory.path().join("run");
    let out = run.to_str().expect("UTF-8");
    let words = ["train", "small", "model.preset=vit_base_patch16_384", "train.batch=10000"];
    let refused = |more: &[&str]| {
        let arguments = [&words, more, &["--device", "cpu", "--out", out]].concat();
        vitreous(&arguments).failed(1, &["training with train.batch=10000 needs ", " GiB "]).stderr
    };
    let plain = refused(&[]);
    let fits = number_behind(&plain, "available; take a smaller batch: train.batch=");
    let recomputed = number_behind(&plain, "and fit with train.batch=");
    assert!(plain.contains(" would fit; or train.recompute=true would need "), "{plain}");
    assert!(0 < fits && fits < recomputed && recomputed < 10_000, "{plain}");
    // What else takes memory at the same time changes this a little.
    let already = refused(&["train.recompute=true"]);
    let again = number_behind(&already, "take a smaller batch: train.batch=");
    assert!(again.abs_diff(recomputed) < recomputed / 2 && !already.contains("recompute"), "{already}");
    assert!(!run.exists());
}

#[test]
fn a_translator_beyond_memory_says_the_tokens_that_fit() {
    let directory = tempfile::tempdir().expect("a folder");
    let (data, run) = (directory.path().join("pairs"), directory.path().join("run"));
    pair_folder(&data);
    let places = ["--data", data.to_str().expect("UTF-8"), "--out", run.to_str().expect("UTF-8")];
    let tokens = ["train.tokens=2000000000", "--device", "cpu"];
    let arguments = [&["train", "translation"], &TINY_TEXT[..], &tokens, &places].concat();
    let said = vitreous(&arguments).failed(1, &["training with train.tokens=2000000000 needs "]).stderr;
    let fits = number_behind(&said, "take a smaller batch: train.tokens=");
    assert!((100..2_000_000_000).contains(&fits), "{said}");
    assert!(!run.exists());
}

/// For every family that is trained from scratch: no batch would help, so that the model itself is refused, as bad input.
#[test]
fn a_model_beyond_memory_is_refused_with_what_it_needs() {
    let directory = tempfile::tempdir().expect("a folder");
    let (data, prose, run) =
        (directory.path().join("pairs"), directory.path().join("prose.txt"), directory.path().join("run"));
    pair_folder(&data);
    std::fs::write(&prose, "the cat sat on the mat and looked at the dog\n".repeat(300)).expect("written");
    let [data, prose, out] = [&data, &prose, &run].map(|path| path.to_str().expect("UTF-8"));
    let large = ["model.dim=1048576", "model.heads=16", "--device", "cpu", "--out", out];
    let text = ["--data", prose, "text.vocabulary=100", "text.max_tokens=16", "train.batch=2"];
    let runs = [
        vec!["train", "small"],
        [&["train", "translation"], &TINY_TEXT[..], &["--data", data]].concat(),
        [&["train", "bert"], &text[..]].concat(),
    ];
    for words in runs {
        let said =
            vitreous(&[&words[..], &large].concat()).failed(2, &["training a model of ", " parameters, "]).stderr;
        assert!(said.contains(" GiB (") && said.contains(" are available; take a smaller model"), "{said}");
        assert!(!run.exists(), "{words:?}");
    }
}

/// A description is no allocation: what a configuration asks for is told.
#[test]
fn a_summary_of_a_model_beyond_memory_takes_none() {
    let directory = tempfile::tempdir().expect("a folder");
    let config = r#"{"model_type": "bert", "vocab_size": 30522, "hidden_size": 1048576, "num_hidden_layers": 96,
        "num_attention_heads": 16, "intermediate_size": 4194304, "max_position_embeddings": 512}"#;
    std::fs::write(directory.path().join("config.json"), config).expect("written");
    let model = directory.path().to_str().expect("UTF-8");
    let text = vitreous(&["summary", model]).succeeded().stdout;
    assert!(text.contains("PiB of weights") || text.contains("TiB of weights"), "{text}");
    vitreous(&["embed", model, "a text"]).failed(2, &["no weights are here"]);
    vitreous(&["bench", model]).failed(2, &[" are available"]);
}

/// A copy of a tiny encoder whose table of words has so many rows. They are a hole at the end of the file, and take no room on a disk.
fn with_rows(to: &Path, rows: usize) {
    changed_copy("texts/bert_plain", to, "config.json", |config| config["vocab_size"] = rows.into());
    let bytes = std::fs::read(fixtures().join("texts/bert_plain/model.safetensors")).expect("weights");
    let (length, rest) = bytes.split_at(8);
    let (header, data) = rest.split_at(u64::from_le_bytes(length.try_into().expect("eight bytes")) as usize);
    let mut header: serde_json::Map<String, Value> = serde_json::from_slice(header).expect("JSON");
    let table = "embeddings.word_embeddings.weight";
    let dim = header[table]["shape"][1].as_u64().expect("a size") as usize;
    header.remove("__metadata__");
    header.remove(table);
    let mut values = Vec::new();
    for tensor in header.values_mut() {
        let [from, to] = [0, 1].map(|side| tensor["data_offsets"][side].as_u64().expect("an offset") as usize);
        tensor["data_offsets"] = json!([values.len(), values.len() + to - from]);
        values.extend_from_slice(&data[from..to]);
    }
    let end = values.len() + 4 * rows * dim;
    header
        .insert(table.to_string(), json!({"dtype": "F32", "shape": [rows, dim], "data_offsets": [values.len(), end]}));
    let header = serde_json::to_vec(&header).expect("JSON");
    let mut file = std::fs::File::create(to.join("model.safetensors")).expect("a file");
    file.write_all(&(header.len() as u64).to_le_bytes()).expect("written");
    file.write_all(&header).and_then(|()| file.write_all(&values)).expect("written");
    file.set_len((8 + header.len() + end) as u64).expect("a hole");
}

#[test]
fn weights_beyond_memory_are_refused_before_they_are_read() {
    let rows = 4_000_000_000;
    let available = vitreous_engine::machine::available_memory().expect("Linux tells");
    if available > 100 << 30 {
        return eprintln!("skipped: {available} bytes of memory are enough for the largest table of words");
    }
    let directory = tempfile::tempdir().expect("a folder");
    let model = directory.path().join("model");
    with_rows(&model, rows);
    let (model, out) = (model.to_str().expect("UTF-8"), directory.path().join("out"));
    vitreous(&["embed", model, "a text", "--device", "cpu"])
        .failed(2, &["running the model needs 119", " are available"]);
    vitreous(&["convert", model, out.to_str().expect("UTF-8")]).failed(2, &["word_embeddings", " are available"]);
    assert!(!out.exists());
}
