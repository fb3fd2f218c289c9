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
            assert_eq!(losses.len(), 48, "{apart}");
            assert!(
                losses.iter().all(|loss| loss.as_f64().is_some_and(|loss| loss > 0.0 && loss < 10.0)),
                "{losses:?}"
            );
        }
    }
}

/// Of chats only answers are learned, and padding is no token: the questions have no loss, and what is looked at is the text alone.
#[test]
fn watching_chats_looks_at_answers_and_not_at_padding() {
    let directory = tempfile::tempdir().expect("a directory");
    let chat = |n: usize| {
        let (question, answer) = [("red or blue?", "blue"), ("old or new?", "old")][n % 2];
        format!(
            "{{\"messages\": [{{\"role\": \"user\", \"content\": \"{question}\"}}, {{\"role\": \"assistant\", \"content\": \
             \"{answer}\"}}]}}\n"
        )
    };
    let data = written(directory.path(), "chats.jsonl", (0..64).map(chat).collect::<String>());
    let tokenizer = concat!(env!("CARGO_MANIFEST_DIR"), "/../train/tests/fixtures/chats/tokenizer");
    let from = format!("text.tokenizer_from={tokenizer}");
    let watched = |length: &str| {
        let run = directory.path().join(length);
        let out = run.to_str().expect("UTF-8");
        let options = ["train", "gpt", "--data", &data, "--out", out, "--watch", &from, length, "data.apart=true"];
        // A rate that changes nothing, so that both runs look at the same weights.
        let more = [
            "optimizer.lr=1e-20",
            "schedule.final_lr=0",
            "train.epochs=1",
            "model.max_length=128",
            "output.log_steps=1",
        ];
        let is_kept = |word: &&str| !["text.", "optimizer.", "train.epochs"].iter().any(|key| word.starts_with(key));
        let small: Vec<&str> = SMALL.into_iter().filter(is_kept).collect();
        vitreous(&[&options[..], &small, &more].concat()).succeeded();
        let lines = metrics(&run);
        lines.into_iter().find(|line| line.get("update_ratios").is_some()).expect("a watched line")
    };
    // Chats have 33 and 35 tokens: one in each sequence, the rest is padding.
    let (line, padded) = (watched("text.max_tokens=60"), watched("text.max_tokens=66"));
    let losses = line["loss_by_position"].as_array().expect("losses");
    assert_eq!(losses.len(), 60);
    let learned: Vec<usize> = (0..60).filter(|&at| losses[at].is_f64()).collect();
    assert!(learned.first().is_some_and(|&at| at > 10) && learned.last().is_some_and(|&at| at < 35), "{learned:?}");
    assert!(learned.iter().all(|&at| losses[at].as_f64().is_some_and(|loss| loss > 0.0 && loss < 10.0)), "{losses:?}");
    let numbers = |line: &serde_json::Value, what: &str| -> Vec<f64> {
        let all = line[what].as_object().expect(what).values();
        let flat = all.flat_map(|value| value.as_array().cloned().unwrap_or_else(|| vec![value.clone()]));
        flat.map(|number| number.as_f64().expect("a number")).collect()
    };
    for what in ["attention_entropy", "induction", "dead_units"] {
        let (one, other) = (numbers(&line, what), numbers(&padded, what));
        assert_eq!(one.len(), other.len());
        assert!(one.iter().zip(&other).all(|(a, b)| (a - b).abs() < 1e-5), "{what}: {one:?} and {other:?}");
    }
    assert!(numbers(&line, "induction").iter().any(|score| *score > 0.0), "no token of a chat comes twice");
}

#[test]
fn several_files_and_folders_are_learned() {
    let directory = tempfile::tempdir().expect("a directory");
    let first = prose(directory.path());
    let folder = directory.path().join("more");
    std::fs::create_dir(&folder).expect("a folder");
    let more = folder.to_str().expect("UTF-8");
    let text = "a horse without a name walked over the hill\n".repeat(60);
    for name in ["a.txt", "b.txt"] {
        written(&folder, name, &text);
    }
    let run = directory.path().join("run");
    let out = run.to_str().expect("UTF-8");
    let words = ["train", "characters", "--data", &first, more, "--out", out, "--json"];
    vitreous(&[&words[..], &SMALL].concat()).succeeded();
    let recipe = std::fs::read_to_string(run.join("recipe.toml")).expect("a recipe");
    assert!(recipe.contains(&format!("more = [\"{more}\"]")), "{recipe}");
    // The letter z is in no text; those of the folder have a w, an h and a k, and the first file knows no `v`.
    let tokenizer = std::fs::read_to_string(run.join("tokenizer.json")).expect("a tokenizer");
    assert!(tokenizer.contains("\"v\"") && !tokenizer.contains("\"z\""), "the folder was not read");
    vitreous(&["train", "--resume", out, "--json"]).succeeded();
    vitreous(&["train", "bert", "--data", &first, more]).failed(2, &["takes one file or folder", more]);
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
