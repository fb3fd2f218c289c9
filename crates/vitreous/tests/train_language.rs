//! Training of language models as a user does it: from a text to a model that writes, and what goes wrong on the way.

mod common;

use std::fmt::Write as _;
use std::path::Path;

use common::training::{killed_and_whole_are_the_same, metrics};
use common::vitreous;

fn written(directory: &Path, name: &str, text: impl AsRef<[u8]>) -> String {
    let path = directory.join(name);
    std::fs::write(&path, text).expect("written");
    path.to_str().expect("UTF-8").to_string()
}

fn prose(directory: &Path) -> String {
    let mut text = String::new();
    for index in 0..300 {
        writeln!(text, "the cat number {} sat on the mat and looked at the dog", index % 10).expect("text");
    }
    written(directory, "prose.txt", text)
}

const SMALL: [&str; 10] = [
    "model.dim=32",
    "model.heads=4",
    "model.depth=2",
    "model.mlp_dim=64",
    "text.max_tokens=48",
    "train.batch=8",
    "train.epochs=2",
    "optimizer.lr=0.005",
    "--device",
    "cpu",
];

/// The vocabulary's product is looked at in parts, and attention that keeps documents apart is looked at like any other.
#[test]
fn a_watched_language_model_shows_induction_and_its_loss_by_position() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = prose(directory.path());
    for apart in ["data.apart=false", "data.apart=true"] {
        let run = directory.path().join(apart);
        let out = run.to_str().expect("UTF-8");
        // An override behind `--watch` is one, and not a word of it.
        let options = ["train", "characters", "--data", &data, "--out", out, "--watch", apart];
        let told = vitreous(&[&options[..], &SMALL[..]].concat()).succeeded();
        assert!(told.stderr.contains("at the first token"), "{}", told.stderr);
        let lines = metrics(&run);
        let watched: Vec<_> = lines.iter().filter(|line| line.get("update_ratios").is_some()).collect();
        assert!(!watched.is_empty());
        for line in watched {
            for what in ["attention_entropy", "induction"] {
                assert_eq!(line[what]["blocks.1.attention"].as_array().expect("heads").len(), 4, "{apart}: {what}");
            }
            let losses = line["loss_by_position"].as_array().expect("losses");
            assert_eq!(losses.len(), 47, "{apart}");
            assert!(
                losses.iter().all(|loss| loss.as_f64().is_some_and(|loss| loss > 0.0 && loss < 10.0)),
                "{losses:?}"
            );
        }
    }
}

#[test]
fn a_text_becomes_a_model_that_writes_and_is_evaluated() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = prose(directory.path());
    let run = directory.path().join("run");
    let out = run.to_str().expect("UTF-8");
    let told = vitreous(&[&["train", "characters", "--data", &data, "--out", out], &SMALL[..]].concat()).succeeded();
    for part in ["bits per byte", "generate", "/model"] {
        assert!(told.stdout.contains(part), "{}", told.stdout);
    }
    // Some of what the model wrote.
    assert!(told.stderr.contains("| "), "{}", told.stderr);
    let page = std::fs::read_to_string(run.join("report.html")).expect("a page");
    assert!(page.contains("What it wrote"), "the sample is not in the report");
    let model = run.join("model");
    let model = model.to_str().expect("UTF-8");
    let text = vitreous(&["generate", model, "the cat", "--max-tokens", "12", "--device", "cpu"]).succeeded();
    assert!(!text.stdout.trim().is_empty());
    let scores = vitreous(&["eval", model, "--data", &data, "--device", "cpu", "--json"]).succeeded();
    assert!(scores.stdout.contains("perplexity"), "{}", scores.stdout);
}

#[test]
fn a_killed_run_with_muon_ends_with_the_same_bytes() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = prose(directory.path());
    let more = ["optimizer.name=muon", "output.log_steps=1", "output.checkpoint_steps=1"];
    let words = [&["train", "characters", "--data", &data], &SMALL[..], &more].concat();
    killed_and_whole_are_the_same(directory.path(), &words, &[2, 5, 11]);
}

#[test]
fn mistakes_of_newcomers_are_told_with_advice() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = prose(directory.path());
    let train = |words: &[&str]| vitreous(&[&["train"], words].concat());
    let no_run = |name: &str| assert!(!directory.path().join(name).exists(), "{name} was left behind");
    let out = directory.path().join("run");
    let out = ["--out", out.to_str().expect("UTF-8")];
    train(&["gpt"]).failed(2, &["there is no data", "--data FILE"]);
    train(&[&["gpt", "--data", "/no/such/file"], &out[..]].concat()).failed(2, &["/no/such/file"]);
    let empty = written(directory.path(), "empty.txt", "");
    train(&[&["gpt", "--data", &empty], &out[..]].concat()).failed(2, &["it is empty"]);
    let bytes = written(directory.path(), "bytes.txt", [0_u8, 1, 2, 255, 0, 3]);
    train(&[&["gpt", "--data", &bytes], &out[..]].concat()).failed(2, &["these are bytes, not text"]);
    let short = written(directory.path(), "short.txt", "a few words only");
    train(&[&["characters", "--data", &short], &out[..]].concat()).failed(2, &["tokens", "text.max_tokens"]);
    let chats =
        written(directory.path(), "chats.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"Hi\"}]}\n");
    train(&[&["gpt", "--data", &chats], &out[..]].concat()).failed(2, &["--init MODEL"]);
    train(&[&["gpt", "--data", &data, "--init", "/no/model"], &out[..]].concat()).failed(2, &["/no/model"]);
    train(&[&["finetune-language", "--data", &data], &out[..]].concat()).failed(2, &["no pretrained model was named"]);
    train(&[&["gpt", "--data", &data, "text.tokenizer=words"], &out[..]].concat())
        .failed(2, &["text.tokenizer", "bpe"]);
    train(&[&["gpt", "--data", &data, "optimizer.name=moun"], &out[..]].concat()).failed(2, &["muon"]);
    train(&[&["gpt", "--data", &data, "text.vocabulary=10"], &out[..]].concat()).failed(2, &["258"]);
    no_run("run");
}
