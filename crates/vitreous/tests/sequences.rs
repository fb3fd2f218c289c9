//! Encoder-decoders through the command: pre-training, fine-tuning on pairs, writing, evaluating, explaining, and what a user can get
//! wrong.

mod common;

use std::fmt::Write as _;
use std::path::{Path, PathBuf};

use common::training::killed_and_whole_are_the_same;
use common::vitreous;
use serde_json::Value;
use vitreous_models::{Model, OpenOptions};

fn text(path: &Path) -> &str {
    path.to_str().expect("UTF-8")
}

fn written(directory: &Path, name: &str, content: &str) -> String {
    let path = directory.join(name);
    std::fs::write(&path, content).expect("written");
    text(&path).to_string()
}

fn prose(directory: &Path) -> String {
    let mut prose = String::new();
    for index in 0..400 {
        writeln!(prose, "The cat number {} sat on the mat. It looked at the dog! Where is {index}?\n", index % 10)
            .expect("text");
    }
    written(directory, "prose.txt", &prose)
}

/// Pairs whose target is the source's numbers backwards.
fn pairs(directory: &Path) -> String {
    let mut lines = String::new();
    for index in 0..120usize {
        let numbers: Vec<String> = (0..1 + index % 4).map(|place| ((index * 7 + place * 3) % 10).to_string()).collect();
        let backwards: Vec<String> = numbers.iter().rev().cloned().collect();
        writeln!(lines, "number {}\t{}", numbers.join(" "), backwards.join(" ")).expect("text");
    }
    written(directory, "pairs.tsv", &lines)
}

const T5: [&str; 9] = [
    "model.dim=16",
    "model.heads=2",
    "model.head_dim=8",
    "model.encoder_layers=2",
    "model.decoder_layers=2",
    "model.mlp_dim=32",
    "text.vocabulary=300",
    "text.max_tokens=24",
    "train.batch=8",
];

const BART: [&str; 10] = [
    "model.dim=16",
    "model.heads=2",
    "model.decoder_heads=2",
    "model.encoder_layers=2",
    "model.decoder_layers=2",
    "model.mlp_dim=32",
    "model.decoder_mlp_dim=32",
    "text.vocabulary=300",
    "text.max_tokens=24",
    "train.batch=8",
];

/// A model that was pre-trained for a few steps.
fn pretrained(directory: &Path, recipe: &str, sizes: &[&str]) -> PathBuf {
    let run = directory.join(recipe);
    let (data, out) = (prose(directory), text(&run).to_string());
    vitreous(&[&["train", recipe, "--data", &data, "--out", &out, "--device", "cpu"], sizes].concat()).succeeded();
    run
}

fn losses(run: &Path) -> Vec<f64> {
    let lines = std::fs::read_to_string(run.join("metrics.jsonl")).expect("metrics");
    let all = lines.lines().map(|line| serde_json::from_str::<Value>(line).expect("JSON"));
    all.filter_map(|line| line["loss"].as_f64()).collect()
}

#[test]
fn pretraining_learns_and_fine_tuning_writes_and_explains() {
    for (recipe, sizes) in [("t5", &T5[..]), ("bart", &BART[..])] {
        let directory = tempfile::tempdir().expect("a directory");
        let run = pretrained(
            directory.path(),
            recipe,
            &[sizes, &["train.epochs=3", "optimizer.lr=3e-3", "output.log_steps=5"]].concat(),
        );
        let losses = losses(&run);
        assert!(losses.last() < losses.first(), "{recipe}: {losses:?}");
        // What the run wrote is a model of transformers' with its tokenizer.
        let config: Value =
            serde_json::from_slice(&std::fs::read(run.join("model/config.json")).expect("a file")).expect("JSON");
        assert_eq!(config["model_type"], recipe);
        assert!(run.join("model/tokenizer.json").is_file(), "{recipe}");

        let data = pairs(directory.path());
        let tuned = directory.path().join("tuned");
        vitreous(&[
            "train",
            "seq2seq",
            "--init",
            text(&run),
            "--data",
            &data,
            "--out",
            text(&tuned),
            "--device",
            "cpu",
            "train.epochs=2",
            "train.tokens=256",
            "optimizer.lr=3e-3",
            "test.sentences=3",
            "data.validation_share=0.05",
        ])
        .succeeded();
        let evaluation: Value =
            serde_json::from_slice(&std::fs::read(tuned.join("evaluation.json")).expect("a file")).expect("JSON");
        assert!(evaluation["rouge_l"].is_number() && evaluation["sacrebleu"].is_number(), "{evaluation}");

        let answer = vitreous(&["generate", text(&tuned), "number 1 2 3", "--max-tokens", "8", "--json"]).succeeded();
        let first = &answer.json_lines()[0];
        assert_eq!(first["prompt"], "number 1 2 3");
        let tokens = first["tokens"].as_array().expect("tokens").len();
        assert!(tokens <= 8 && (first["stop"] == "end" || tokens == 8 && first["stop"] == "length"), "{first}");
        // The same by both commands, and beams are sorted.
        let translated = vitreous(&["translate", text(&tuned), "number 1 2 3", "--max-tokens", "8"]).succeeded();
        assert_eq!(translated.stdout.trim_end(), first["text"].as_str().expect("text").trim_end());
        let beams = vitreous(&[
            "translate",
            text(&tuned),
            "number 1 2",
            "number 3",
            "--beam",
            "3",
            "--n-best",
            "3",
            "--max-tokens",
            "8",
            "--json",
            "--no-repeat",
            "2",
            "--early-stopping",
            "never",
            "--min-tokens",
            "2",
        ])
        .succeeded();
        for line in beams.json_lines() {
            let scores: Vec<f64> = line["texts"]
                .as_array()
                .expect("texts")
                .iter()
                .map(|text| text["score"].as_f64().expect("a score"))
                .collect();
            assert!(scores.len() == 3 && scores.windows(2).all(|pair| pair[0] >= pair[1]), "{line}");
        }
        let scored = vitreous(&["eval", text(&tuned), "--data", &data, "--limit", "6", "--json"]).succeeded();
        let scored = &scored.json_lines()[0];
        assert!(scored["rouge1"].is_number() && scored["bleu"]["score"].is_number(), "{scored}");

        let pages = directory.path().join("pages");
        let explained =
            vitreous(&["explain", text(&tuned), "--text", "number 1 2", "--out", text(&pages), "--json"]).succeeded();
        let explained = &explained.json_lines()[0];
        for stack in ["encoder", "decoder", "cross"] {
            assert_eq!(explained["attention"][stack].as_array().map(Vec::len), Some(2), "{recipe}: {stack}");
        }
        let rows = explained["attention"]["cross"][0]["mean"].as_array().expect("rows");
        for row in rows {
            let sum: f64 = row.as_array().expect("a row").iter().map(|weight| weight.as_f64().expect("a weight")).sum();
            assert!((sum - 1.0).abs() < 1e-4, "{sum}");
        }
        assert!(Path::new(explained["page"].as_str().expect("a path")).is_file());
    }
}

#[test]
fn a_run_that_was_killed_goes_on_as_if_it_had_not_been() {
    let directory = tempfile::tempdir().expect("a directory");
    let short = ["train.epochs=1", "output.log_steps=1", "output.checkpoint_steps=1", "--device", "cpu"];
    let data = prose(directory.path());
    let folder = |name: &str| {
        let folder = directory.path().join(name);
        std::fs::create_dir(&folder).expect("a folder");
        folder
    };
    let words = [&["train", "t5", "--data", &data], &T5[..], &short[..]].concat();
    killed_and_whole_are_the_same(&folder("spans"), &words, &[2, 5]);
    let words = [&["train", "bart", "--data", &data], &BART[..], &short[..]].concat();
    killed_and_whole_are_the_same(&folder("noise"), &words, &[2, 5]);
    let run = pretrained(directory.path(), "t5", &[&T5[..], &["train.epochs=1"]].concat());
    let pairs = pairs(directory.path());
    let tuning = ["train", "seq2seq", "--init", text(&run), "--data", &pairs, "train.tokens=128", "test.sentences=2"];
    killed_and_whole_are_the_same(&folder("pairs"), &[&tuning[..], &short[..]].concat(), &[2, 4]);
    let adapted = [&tuning[..], &short[..], &["finetune.lora_rank=2"]].concat();
    killed_and_whole_are_the_same(&folder("adapted"), &adapted, &[3]);
}

/// LoRA's matrices are merged into those of attention; everything else is as it was.
#[test]
fn lora_changes_the_projections_of_attention_alone() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = pairs(directory.path());
    for (recipe, sizes) in [("t5", &T5[..]), ("bart", &BART[..])] {
        let directory = tempfile::tempdir_in(directory.path()).expect("a directory");
        let run = pretrained(directory.path(), recipe, &[sizes, &["train.epochs=1"]].concat());
        let tuned = directory.path().join("tuned");
        let words =
            ["train", "seq2seq", "--init", text(&run), "--data", &data, "--out", text(&tuned), "--device", "cpu"];
        let changes = ["train.epochs=1", "train.tokens=256", "test.sentences=2", "finetune.lora_rank=2"];
        vitreous(&[&words[..], &changes[..]].concat()).succeeded();
        let open = |run: &Path| Model::open(&run.join("model"), &OpenOptions::default()).expect("a model");
        let (before, after) = (open(&run), open(&tuned));
        for parameter in before.parameters() {
            let values = |model: &Model| model.parameter(&parameter.name).expect("values").into_owned();
            let is_adapted = parameter.name.contains("attention") && parameter.name.ends_with("weight");
            assert_eq!(values(&before) != values(&after), is_adapted, "{recipe}: {}", parameter.name);
        }
    }
    vitreous(&["train", "t5", "--data", &data, "finetune.lora_rank=2"])
        .failed(2, &["finetune.lora_rank", "--init MODEL"]);
}

/// Articles with their summaries, as XSum has them.
#[test]
fn json_lines_of_summaries_are_pairs() {
    let directory = tempfile::tempdir().expect("a directory");
    let run = pretrained(directory.path(), "t5", &[&T5[..], &["train.epochs=1"]].concat());
    let mut lines = String::new();
    for index in 0..40 {
        let article = "The cat sat on the mat. ".repeat(1 + index % 30);
        writeln!(lines, "{}", serde_json::json!({"document": article, "summary": format!("Cat {index}"), "id": index}))
            .expect("text");
    }
    let data = written(directory.path(), "xsum.jsonl", &lines);
    let tuned = directory.path().join("tuned");
    let outcome = vitreous(&[
        "train",
        "seq2seq",
        "--init",
        text(&run),
        "--data",
        &data,
        "--out",
        text(&tuned),
        "--device",
        "cpu",
        "train.epochs=1",
        "text.max_source=64",
        "text.max_target=8",
        "test.sentences=2",
        "data.validation_share=0.1",
    ])
    .succeeded();
    assert!(outcome.stderr.contains("truncated"), "{}", outcome.stderr);
}

#[test]
fn what_a_user_can_get_wrong_is_said() {
    let directory = tempfile::tempdir().expect("a directory");
    let run = pretrained(directory.path(), "bart", &[&BART[..], &["train.epochs=1", "model.max_length=40"]].concat());
    let model = text(&run);
    let long = "cat ".repeat(60);
    vitreous(&["generate", model, &long]).failed(2, &["a text has", "the model reads 40", "--truncate"]);
    let truncated = vitreous(&["generate", model, &long, "--truncate", "--max-tokens", "5"]).succeeded();
    assert!(truncated.stderr.contains("1 text was longer"), "{}", truncated.stderr);
    vitreous(&["translate", model, "a cat", "--to", "de"]).failed(2, &["no languages", "\"de\""]);
    vitreous(&["generate", model, "a cat", "--temperature", "0.5"]).failed(2, &["--temperature", "encoder-decoder"]);
    for (option, value) in [("--seed", "1"), ("--context", "8"), ("--cache", "bf16"), ("--batch", "2")] {
        vitreous(&["generate", model, "a cat", option, value]).failed(2, &[option, "encoder-decoder"]);
    }
    vitreous(&["generate", model, "a cat", "--out", "never.txt"]).failed(2, &["--out is for the answers to --file"]);
    vitreous(&["generate", model, "a cat", "--n", "3"]).failed(2, &["--n 3", "--beam"]);
    vitreous(&["translate", model, "a cat", "--n-best", "3"]).failed(2, &["--n-best 3", "--beam"]);
    vitreous(&["generate", model, "a cat", "--length-penalty", "99"]).failed(2, &["--length-penalty"]);
    vitreous(&["train", "seq2seq", "--init", model]).failed(2, &["no data"]);
    vitreous(&["train", "t5"]).failed(2, &["no data"]);
    let config = run.join("model/generation_config.json");
    std::fs::write(&config, r#"{"decoder_start_token_id": 4000000}"#).expect("written");
    vitreous(&["generate", model, "a cat"]).failed(2, &["decoder_start_token_id", "4000000"]);
    std::fs::write(&config, r#"{"num_beams": 2, "max_new_tokens": 3}"#).expect("written");
    let line = vitreous(&["generate", model, "a cat", "--json", "--n", "2"]).succeeded();
    let found = line.json_lines();
    assert_eq!(found.len(), 2);
    assert!(found.iter().all(|text| text["tokens"].as_array().is_some_and(|tokens| tokens.len() <= 3)), "{found:?}");
    assert!(found[0]["score"].as_f64() >= found[1]["score"].as_f64(), "{found:?}");
}

/// A model with languages, made by `fixtures/languages/make.py`.
fn with_languages(name: &str) -> String {
    let path = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/languages").join(name);
    text(&path).to_string()
}

/// mBART begins with the language, mBART-50 writes it first, Marian reads it before the text: the tokens are those of `transformers`.
#[test]
fn languages_are_translated_as_transformers_does() {
    let expected = std::fs::read_to_string(with_languages("expected.json")).expect("a file");
    let expected: Value = serde_json::from_str(&expected).expect("JSON");
    let texts: Vec<String> = serde_json::from_value(expected["texts"].clone()).expect("texts");
    for (name, has_source) in [("mbart", true), ("mbart50", true), ("marian", false)] {
        let model = with_languages(name);
        let run = |to: &str, texts: &[String]| {
            let mut arguments = vec!["translate", &model, "--to", to, "--max-tokens", "8", "--json", "--device", "cpu"];
            arguments.extend(["--from", "en"].iter().filter(|_| has_source));
            arguments.push("--");
            arguments.extend(texts.iter().map(String::as_str));
            vitreous(&arguments).succeeded().json_lines()
        };
        for (code, tokens) in expected[name].as_object().expect("languages") {
            let lines = run(code, &texts);
            let found: Vec<&Value> = lines.iter().map(|line| &line["texts"][0]["tokens"]).collect();
            assert_eq!(found, tokens.as_array().expect("rows").iter().collect::<Vec<_>>(), "{name} to {code}");
        }
        if has_source {
            vitreous(&["translate", &model, "--to", "de", "a text", "--device", "cpu"]).failed(2, &["--from", "en_XX"]);
            vitreous(&["translate", &model, "--from", "en", "a text", "--device", "cpu"]).failed(2, &["--to", "de_DE"]);
        } else {
            // As a text says it itself.
            let typed: Vec<String> = texts.iter().map(|text| format!(">>fr<< {text}")).collect();
            let lines = vitreous(
                &[
                    &["translate", &model, "--max-tokens", "8", "--json", "--device", "cpu", "--"],
                    &typed.iter().map(String::as_str).collect::<Vec<_>>()[..],
                ]
                .concat(),
            );
            let found: Vec<Value> =
                lines.succeeded().json_lines().iter().map(|line| line["texts"][0]["tokens"].clone()).collect();
            assert_eq!(Value::from(found), expected[name]["fr"]);
        }
        vitreous(&["translate", &model, "--from", "en", "--to", "tlh", "a text", "--device", "cpu"])
            .failed(2, &["tlh"]);
    }
}

#[test]
fn models_with_languages_are_fine_tuned() {
    let directory = tempfile::tempdir().expect("a directory");
    let data = pairs(directory.path());
    for (name, languages) in [
        ("mbart", &["data.from=en_XX", "data.to=de_DE"][..]),
        ("mbart50", &["data.from=en", "data.to=de"][..]),
        ("marian", &["data.to=fr"][..]),
    ] {
        let (init, run) = (with_languages(name), directory.path().join(name));
        let few =
            ["train.epochs=1", "train.tokens=64", "text.max_source=12", "test.sentences=4", "train.precision=f32"];
        let train = ["train", "seq2seq", "--init", &init, "--data", &data, "--out", text(&run), "--device", "cpu"];
        vitreous(&[&train[..], &few, languages].concat()).succeeded();
        assert!(losses(&run).iter().all(|loss| loss.is_finite()), "{name}");
        // The run's model has its languages.
        let model = text(&run).to_string();
        let source: &[&str] = if name == "marian" { &[] } else { &["--from", "en"] };
        vitreous(
            &[&["translate", &model, "--to", "fr", "the cat", "--max-tokens", "4", "--device", "cpu"], source].concat(),
        )
        .succeeded();
    }
    let (init, run) = (with_languages("mbart"), directory.path().join("without"));
    let train = ["train", "seq2seq", "--init", &init, "--data", &data, "--out", text(&run), "--device", "cpu"];
    vitreous(&train).failed(2, &["en_XX"]);
}
