//! Language models from text or chats to scores: a text that can be learnt by heart, runs that go on as if they had never stopped, the
//! answers of chats token by token.

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use serde_json::Value as Json;
use vitreous_data::text::chat_template::{ChatMessage, ChatTemplate};
use vitreous_data::text::{TextTokenizer, open_plain};
use vitreous_engine::Device;
use vitreous_models::{Model, OpenOptions};
use vitreous_train::metrics::TrainingMetrics;
use vitreous_train::tasks::language::{LanguageReport, LanguageTask, chat_tokens};
use vitreous_train::{
    EpochSummary, Observer, Outcome, Recipe, RunDirectory, RunOptions, RunPlan, RunTarget, Scores, StepResult,
    TrainError, train,
};

const DEVICE: Device = Device::Cpu { threads: 2 };

fn fixture(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/fixtures/chats").join(name)
}

/// Lines that say the same again and again, so that a small model can learn them.
fn verse(lines: usize) -> String {
    let line =
        |n: usize| format!("the {} cat sat on the {} mat\n", ["red", "blue"][n % 2], ["old", "new", "wet"][n % 3]);
    (0..lines).map(line).collect()
}

fn recipe(data: &Path, overrides: &[&str]) -> Recipe {
    let path = format!("data.path={:?}", data.to_string_lossy());
    let base = [
        path.as_str(),
        "train.batch=8",
        "train.epochs=2",
        "text.max_tokens=32",
        "text.tokenizer=characters",
        "model.dim=32",
        "model.heads=4",
        "model.depth=2",
        "model.mlp_dim=64",
        "model.max_length=64",
        "optimizer.lr=5e-3",
        "data.validation_share=0.1",
        "test.sample_tokens=20",
        "output.log_steps=5",
    ];
    let overrides: Vec<String> = base.iter().chain(overrides).map(|pair| pair.to_string()).collect();
    Recipe::read("test", "task = \"language\"", &overrides).expect("a sound recipe")
}

/// A LLaMA of the same size.
const LLAMA: [&str; 7] = [
    "model.family=llama",
    "model.dim=32",
    "model.heads=4",
    "model.kv_heads=2",
    "model.depth=2",
    "model.mlp_dim=64",
    "model.max_length=64",
];

/// Keeps the last report; stops after a step.
#[derive(Default)]
struct Watch {
    report: Option<LanguageReport>,
    losses: Vec<f64>,
    stop: Option<(u64, Arc<AtomicBool>)>,
}

impl Observer for Watch {
    fn started(&mut self, _plan: &RunPlan) {}
    fn stepped(&mut self, step: u64, result: &StepResult, _lr: f64) {
        self.losses.push(result.loss);
        if let Some((at, flag)) = &self.stop {
            flag.store(step == *at, Ordering::Relaxed);
        }
    }
    fn logged(&mut self, _metrics: &TrainingMetrics) {}
    fn evaluating(&mut self, _done: usize, _all: usize) {}
    fn evaluated(&mut self, scores: &Scores) {
        self.report = scores.report().cloned();
    }
    fn epoch_ended(&mut self, _summary: &EpochSummary) {}
}

fn task(recipe: Recipe, resumed: Option<&Path>) -> Result<LanguageTask, TrainError> {
    let texts = open_plain(Path::new(&recipe.data.path)).expect("texts");
    let tokenizer = resumed.map(|run| TextTokenizer::open(run).expect("a tokenizer"));
    LanguageTask::new(recipe, &texts, tokenizer, &DEVICE)
}

fn run(recipe: Recipe, target: RunTarget, watch: &mut Watch) -> Outcome {
    let stop = Arc::new(AtomicBool::new(false));
    if let Some((_, flag)) = &mut watch.stop {
        *flag = stop.clone();
    }
    let resumed = match &target {
        RunTarget::Resume(directory) => Some(directory.path().to_path_buf()),
        _ => None,
    };
    let task = task(recipe, resumed.as_deref()).expect("a task");
    let options = RunOptions {
        target,
        device: DEVICE,
        threads: 2,
        watch_gradients: false,
        watch_inside: false,
        command: Vec::new(),
        stop,
        ranks: Default::default(),
        accept_changes: false,
    };
    train(Box::new(task), options, watch).expect("a run")
}

/// The refusal of a task that cannot be made.
fn refusal(recipe: Recipe) -> String {
    match task(recipe, None) {
        Ok(_) => panic!("it was not refused"),
        Err(error) => error.to_string(),
    }
}

fn weights(run: &Path) -> Vec<u8> {
    std::fs::read(run.join("model/model.safetensors")).expect("weights")
}

#[test]
fn a_text_is_learnt_and_its_model_opens_again() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = folder.path().join("verse.txt");
    std::fs::write(&text, verse(400)).expect("written");
    for (name, overrides) in [
        ("gpt", &["loss.z_loss=1e-4", "train.epochs=4"][..]),
        (
            "muon",
            &[
                "optimizer.name=muon",
                "text.tokenizer=bytes",
                "optimizer.momentum=0.95",
                "optimizer.nesterov=true",
                "train.epochs=6",
            ],
        ),
        (
            "llama",
            &[
                "text.tokenizer=bpe",
                "text.vocabulary=270",
                "train.accumulate=2",
                "train.epochs=8",
                "train.recompute=true",
            ],
        ),
    ] {
        let mut watch = Watch::default();
        let out = folder.path().join(name);
        let family: &[&str] = if name == "llama" { &LLAMA } else { &[] };
        run(recipe(&text, &[family, overrides].concat()), RunTarget::New(out.clone()), &mut watch);
        let report = watch.report.expect("a report");
        // All but the two words of a line that differ can be known.
        assert!(report.bits_per_byte < 1.0, "{name}: {report:?}");
        assert!((report.perplexity - report.loss.exp()).abs() < 1e-9);
        let bits =
            report.loss * report.predicted_tokens as f64 / std::f64::consts::LN_2 / report.predicted_bytes as f64;
        assert!((report.bits_per_byte - bits).abs() < 1e-9, "{report:?}");
        assert!(!report.sample.is_empty(), "{name}");
        let model = Model::open(&out.join("model"), &OpenOptions::default()).expect("a model");
        let tokenizer = TextTokenizer::open(&out.join("model")).expect("a tokenizer");
        assert_eq!(model.architecture.signature().next_token(), Some(tokenizer.vocabulary_size()));
    }
}

#[test]
fn a_run_that_was_stopped_ends_with_the_same_bytes() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = folder.path().join("verse.txt");
    std::fs::write(&text, verse(200)).expect("written");
    for name in ["adamw", "muon"] {
        let optimizer = format!("optimizer.name={name}");
        let changes: [&str; 4] = [&optimizer, "model.dropout=0.1", "train.accumulate=2", "train.batch=4"];
        let new = || recipe(&text, &changes);
        let (whole, stopped) =
            (folder.path().join(format!("{name}-whole")), folder.path().join(format!("{name}-stopped")));
        run(new(), RunTarget::New(whole.clone()), &mut Watch::default());
        let mut watch = Watch { stop: Some((7, Arc::default())), ..Watch::default() };
        assert!(run(new(), RunTarget::New(stopped.clone()), &mut watch).stopped);
        let (directory, recipe) = RunDirectory::open(&stopped).expect("a run");
        run(recipe, RunTarget::Resume(directory), &mut Watch::default());
        assert!(weights(&whole) == weights(&stopped), "{name}");
    }
}

/// Documents that are kept apart, in batches with both kinds of positions.
#[test]
fn documents_are_kept_apart() {
    let folder = tempfile::tempdir().expect("a folder");
    let text = folder.path().join("verse.txt");
    std::fs::write(&text, verse(300).replace("mat\n", "mat\n\n")).expect("written");
    let changes = ["data.documents=blank_lines", "data.apart=true", "text.max_tokens=60"];
    for more in [&[][..], &LLAMA] {
        let mut watch = Watch::default();
        let out = folder.path().join(format!("run-{}", more.len()));
        run(recipe(&text, &[&changes[..], more].concat()), RunTarget::New(out), &mut watch);
        let report = watch.report.expect("a report");
        assert!(report.loss.is_finite() && report.bits_per_byte < 2.5, "{report:?}");
    }
}

#[test]
fn answers_of_chats_are_those_of_transformers_token_by_token() {
    let chats: Vec<Json> =
        serde_json::from_slice(&std::fs::read(fixture("chats.json")).expect("a file")).expect("JSON");
    let tokenizer = TextTokenizer::open(&fixture("tokenizer")).expect("a tokenizer");
    let template = ChatTemplate::of(&tokenizer).expect("sound").expect("a template");
    assert!(chats.len() >= 4);
    for chat in chats {
        let text = |message: &Json, key: &str| message[key].as_str().expect("text").to_string();
        let messages: Vec<ChatMessage> = (chat["messages"].as_array().expect("messages").iter())
            .map(|message| ChatMessage::new(text(message, "role"), text(message, "content")))
            .collect();
        let found = chat_tokens(&template, &tokenizer, &messages).expect("tokens");
        let numbers = |key: &str| -> Vec<u64> {
            chat[key].as_array().expect("a list").iter().map(|number| number.as_u64().expect("a number")).collect()
        };
        assert_eq!(found.ids.iter().map(|&id| u64::from(id)).collect::<Vec<_>>(), numbers("ids"));
        assert_eq!(
            found.counted.iter().map(|&counts| u64::from(counts)).collect::<Vec<_>>(),
            numbers("mask"),
            "{chat}"
        );
    }
}

/// Chats of one question and one answer, with a tokenizer that has a template.
fn write_chats(folder: &Path) -> PathBuf {
    let path = folder.join("chats.jsonl");
    let chat = |n: usize| {
        let (question, answer) = [("red or blue?", "blue"), ("old or new?", "old")][n % 2];
        format!(
            "{{\"messages\": [{{\"role\": \"user\", \"content\": \"{question}\"}}, {{\"role\": \"assistant\", \"content\": \
             \"{answer}\"}}]}}\n"
        )
    };
    std::fs::write(&path, (0..200).map(chat).collect::<String>()).expect("written");
    path
}

#[test]
fn chats_teach_only_their_answers_and_lora_leaves_the_rest() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = write_chats(folder.path());
    let from = format!("text.tokenizer_from={:?}", fixture("tokenizer").to_string_lossy());
    let new = recipe(&path, &[&from, "text.max_tokens=64", "train.epochs=6", "data.apart=true"]);
    let base = folder.path().join("base");
    let mut watch = Watch::default();
    run(new, RunTarget::New(base.clone()), &mut watch);
    let report = watch.report.expect("a report");
    // The answer is certain after its question; the questions, which are drawn, are not scored.
    assert!(report.loss < 0.1, "{report:?}");
    assert!(report.predicted_tokens < 20 * 12, "{report:?}");
    assert!(
        base.join("model/chat_template.jinja").is_file() || {
            let config = std::fs::read_to_string(base.join("model/tokenizer_config.json")).expect("a file");
            config.contains("chat_template")
        }
    );
    let init = format!("finetune.init={:?}", base.join("model").to_string_lossy());
    let adapted = folder.path().join("adapted");
    let changes: [&str; 4] = [&init, "text.max_tokens=64", "finetune.lora_rank=2", "train.epochs=1"];
    run(recipe(&path, &changes), RunTarget::New(adapted.clone()), &mut Watch::default());
    let (before, after) = (&base.join("model"), &adapted.join("model"));
    let open = |path: &Path| Model::open(path, &OpenOptions::default()).expect("a model");
    let (before, after) = (open(before), open(after));
    for parameter in before.parameters() {
        let values = |model: &Model| model.parameter(&parameter.name).expect("values").into_owned();
        let is_adapted = parameter.name.contains("attention") && parameter.name.ends_with("weight");
        assert_eq!(values(&before) != values(&after), is_adapted, "{}", parameter.name);
    }
}

#[test]
fn what_cannot_be_learnt_is_refused_with_advice() {
    let folder = tempfile::tempdir().expect("a folder");
    let write = |name: &str, text: &str| {
        let path = folder.path().join(name);
        std::fs::write(&path, text).expect("written");
        path
    };
    let short = write("short.txt", "too short");
    assert!(refusal(recipe(&short, &[])).contains("set a smaller text.max_tokens"));
    let few = write("few.txt", &verse(4));
    assert!(refusal(recipe(&few, &["train.batch=64"])).contains("lower train.batch"));
    let long = recipe(&few, &["text.max_tokens=200"]);
    assert!(refusal(long).contains("raise model.max_length"));
    let chats = write_chats(folder.path());
    assert!(refusal(recipe(&chats, &[])).contains("--init MODEL"));
    let lora = Recipe::read("test", "task = \"language\"", &["finetune.lora_rank=4".to_string()]);
    assert!(lora.expect_err("no model").to_string().contains("--init MODEL"));
    let none = write("none.jsonl", "{\"messages\": [{\"role\": \"user\", \"content\": \"Anyone?\"}]}\n");
    let from = format!("text.tokenizer_from={:?}", fixture("tokenizer").to_string_lossy());
    assert!(refusal(recipe(&none, &[&from])).contains("in no chat does the assistant say anything"));
    let bert = Recipe::read("test", "task = \"language\"\n[model]\nfamily = \"bert\"", &[]);
    assert!(bert.expect_err("an encoder").to_string().contains("language model"));
}
