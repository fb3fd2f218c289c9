//! Twenty steps of each task of texts beside PyTorch, `transformers` and sentence-transformers (tests/fixtures/make_text_training.py).

mod hashed;

use std::path::{Path, PathBuf};

use hashed::hashed;
use serde_json::Value;
use vitreous_data::loader::{ArraySpec, ArrayValues, Batch, NamedArray};
use vitreous_data::text::{IGNORED, OpenLabelled, OpenPairs, open, open_labelled, open_plain, open_tagged};
use vitreous_engine::{Device, Executor, Run, State};
use vitreous_train::recipe::shipped;
use vitreous_train::schedule::Schedule;
use vitreous_train::stepper::{StepSettings, Stepper};
use vitreous_train::tasks::classify_text::ClassifyTextTask;
use vitreous_train::tasks::mask_tokens::MaskTokensTask;
use vitreous_train::tasks::match_texts::MatchTextsTask;
use vitreous_train::tasks::tag_tokens::TagTokensTask;
use vitreous_train::{Recipe, Task};

const ROWS: usize = 8;
const LENGTH: usize = 12;
const DEVICE: Device = Device::Cpu { threads: 2 };

/// Whole numbers from `low` to `high - 1`.
fn whole(name: &str, count: usize, low: i32, high: i32) -> Vec<i32> {
    hashed(name, count).iter().map(|&x| low + ((x + 1.0) / 2.0 * (high - low) as f32) as i32).collect()
}

/// Texts of 3 to LENGTH tokens, padded, the second half of each of the second type.
#[derive(Clone)]
struct Texts {
    ids: Vec<i32>,
    types: Vec<i32>,
    lengths: Vec<i32>,
}

impl Texts {
    fn new(name: &str) -> Texts {
        let lengths = whole(&format!("lengths {name}"), ROWS, 3, LENGTH as i32 + 1);
        let mut ids = whole(&format!("tokens {name}"), ROWS * LENGTH, 5, 150);
        let mut types = vec![0; ROWS * LENGTH];
        for (row, &length) in lengths.iter().enumerate() {
            let (start, length) = (row * LENGTH, length as usize);
            (ids[start], ids[start + length - 1]) = (2, 3);
            ids[start + length..start + LENGTH].fill(0);
            types[start + length / 2..start + length].fill(1);
        }
        Texts { ids, types, lengths }
    }

    /// The token at this place of each text.
    fn column(&self, place: usize) -> Vec<i32> {
        self.ids.chunks_exact(LENGTH).map(|row| row[place]).collect()
    }
}

/// What a batch has beside the texts.
enum Targets {
    Classes(Vec<i32>),
    Numbers(Vec<f32>),
    /// The places of masked tokens among all, and what was there.
    Masked(Vec<i32>, Vec<i32>),
}

fn classes(step: usize) -> (Texts, Targets) {
    let texts = Texts::new(&step.to_string());
    let targets = texts.column(1).into_iter().map(|id| id % 3).collect();
    (texts, Targets::Classes(targets))
}

fn labels(step: usize) -> (Texts, Targets) {
    let texts = Texts::new(&step.to_string());
    let of_text = |(first, second): (i32, i32)| [first % 2, second % 2, i32::from(first > 70)].map(|x| x as f32);
    let targets = texts.column(1).into_iter().zip(texts.column(2)).flat_map(of_text).collect();
    (texts, Targets::Numbers(targets))
}

fn number(step: usize) -> (Texts, Targets) {
    let texts = Texts::new(&step.to_string());
    let targets = texts.column(1).into_iter().map(|id| (id % 11) as f32 / 5.0 - 1.0).collect();
    (texts, Targets::Numbers(targets))
}

/// A tag for each token but the special ones and every third.
fn tags(step: usize) -> (Texts, Targets) {
    let texts = Texts::new(&step.to_string());
    let tag = |(place, &id): (usize, &i32)| if id >= 5 && place % LENGTH % 3 != 2 { id % 4 } else { IGNORED };
    let targets = texts.ids.iter().enumerate().map(tag).collect();
    (texts, Targets::Classes(targets))
}

/// The tokens 1 and 2 are predicted, and masked, but for the second of odd rows, which stays. The shortest texts have but one.
fn masks(step: usize) -> (Texts, Targets) {
    let mut texts = Texts::new(&step.to_string());
    let (mut places, mut wanted) = (Vec::new(), Vec::new());
    for row in 0..ROWS {
        for place in [1, 2] {
            let at = row * LENGTH + place;
            let there = texts.ids[at];
            let is_word = there >= 5;
            places.push(if is_word { at as i32 } else { 0 });
            wanted.push(if is_word { there } else { IGNORED });
            if is_word && (place == 1 || row % 2 == 0) {
                texts.ids[at] = 4;
            }
        }
    }
    (texts, Targets::Masked(places, wanted))
}

/// Each second text has the tokens of the first, the other way round, and one type.
fn pairs(step: usize) -> (Texts, Targets) {
    let mut texts = Texts::new(&format!("first {step}"));
    let mut second = texts.clone();
    for (row, &length) in second.ids.chunks_exact_mut(LENGTH).zip(&texts.lengths) {
        row[1..length as usize - 1].reverse();
    }
    texts.ids.extend(second.ids);
    texts.types.extend(vec![0; ROWS * LENGTH]);
    texts.lengths.extend(second.lengths);
    (texts, Targets::Classes((0..ROWS as i32).collect()))
}

/// A batch with the arrays that the task says.
fn batch(arrays: &[ArraySpec], (texts, targets): (Texts, Targets)) -> Batch {
    let (integers, floats, masked) = match targets {
        Targets::Classes(classes) => (classes, Vec::new(), Vec::new()),
        Targets::Numbers(numbers) => (Vec::new(), numbers, Vec::new()),
        Targets::Masked(places, wanted) => (wanted, Vec::new(), places),
    };
    let units = integers.iter().filter(|&&target| target != IGNORED).count();
    let array = |spec: &ArraySpec| {
        let values = match spec.name {
            "tokens" => ArrayValues::I32(texts.ids.clone()),
            "token_types" => ArrayValues::I32(texts.types.clone()),
            "lengths" => ArrayValues::I32(texts.lengths.clone()),
            "masked" => ArrayValues::I32(masked.clone()),
            "targets" if floats.is_empty() => ArrayValues::I32(integers.clone()),
            "targets" => ArrayValues::F32(floats.clone()),
            other => panic!("a batch has no {other}"),
        };
        NamedArray { name: spec.name, shape: spec.shape.clone(), values }
    };
    Batch { arrays: arrays.iter().map(array).collect(), samples: (0..ROWS).collect(), units, ..Batch::default() }
}

fn model(name: &str) -> PathBuf {
    Path::new(env!("CARGO_MANIFEST_DIR")).join("../vitreous/tests/fixtures/texts").join(name)
}

fn recipe(name: &str, init: &str, overrides: &[&str]) -> Recipe {
    let init = format!("finetune.init={:?}", model(init).to_str().expect("UTF-8"));
    let mut all = vec![init.as_str(), "train.batch=8", "model.dropout=0", "model.attention_dropout=0"];
    // What the script has, whatever the recipe says by now.
    all.extend(["train.epochs=20", "optimizer.lr=2e-3", "optimizer.weight_decay=0.01", "optimizer.clip=1"]);
    all.extend(["schedule.kind=linear", "schedule.warmup_steps=4", "schedule.final_lr=0"]);
    all.extend(overrides);
    let all: Vec<String> = all.iter().map(|pair| pair.to_string()).collect();
    let recipe = shipped().iter().find(|recipe| recipe.name == name).expect("a recipe");
    recipe.read(&all).expect("a sound recipe")
}

/// A file with these lines, each of which has ten words of one token: batches have LENGTH tokens, and one shape.
fn written(folder: &Path, name: &str, line: impl Fn(usize, &str) -> String) -> PathBuf {
    let path = folder.join(name);
    let lines: String = (0..3 * ROWS).map(|index| line(index, &["a"; LENGTH - 2].join(" "))).collect();
    std::fs::write(&path, lines).expect("written");
    path
}

fn follow_pytorch(name: &str, task: &dyn Task, made: fn(usize) -> (Texts, Targets)) {
    let fixture: Value = serde_json::from_str(include_str!("fixtures/text_training.json")).expect("JSON");
    let expected = |key: &str, step: usize| fixture[name][key][step].as_f64().expect("a number");
    let recipe = task.recipe();
    let schedule = Schedule::new(&recipe.schedule, recipe.optimizer.lr, recipe.train.epochs, 1);
    let (mut stepper, mut state) = Stepper::new(task, &DEVICE).expect("plans");
    task.initialise(&mut state).expect("initial values");
    new_head(&mut state);
    let source = task.batches();
    let [arrays] = source.groups() else { panic!("batches have one shape") };
    for step in 0..20 {
        let mut batches = [batch(arrays, made(step))].into_iter();
        let run = Run { seed: 1, step: step as u64 };
        let settings =
            StepSettings { batches: 1, rate: schedule.rate(step as u64), ema_decay: None, ..Default::default() };
        let next = &mut |_: &Executor| Ok(batches.next());
        let (result, _) = stepper.step(task, &mut state, settings, next, run).expect("runs");
        let (loss, norm) = (expected("losses", step), expected("norms", step));
        assert!((result.loss - loss).abs() < 1e-4, "{name}, step {step}: {} and {loss}", result.loss);
        let apart = (result.grad_norm / norm - 1.0).abs();
        assert!(apart < 1e-3, "{name}, step {step}: norm {} and {norm}", result.grad_norm);
    }
}

fn new_head(state: &mut State) {
    for name in ["head.weight", "head.bias"] {
        if let Ok(values) = state.parameter_mut(name) {
            let numbers = hashed(name, values.len());
            values.iter_mut().zip(numbers).for_each(|(value, number)| *value = 0.5 * number);
        }
    }
}

#[test]
fn text_classifiers_have_pytorchs_losses() {
    let folder = tempfile::tempdir().expect("a folder");
    let as_class = |index: usize, text: &str| format!("{{\"text\": {text:?}, \"label\": \"c{}\"}}\n", index % 3);
    let as_labels = |index: usize, text: &str| format!("{{\"text\": {text:?}, \"labels\": [\"l{}\"]}}\n", index % 3);
    let as_number = |index: usize, text: &str| format!("{{\"text\": {text:?}, \"label\": {index}.5}}\n");
    type Line = fn(usize, &str) -> String;
    type Made = fn(usize) -> (Texts, Targets);
    let all: [(&str, Line, Made); 3] =
        [("classes", as_class, classes), ("labels", as_labels, labels), ("number", as_number, number)];
    for (name, line, made) in all {
        let path = written(folder.path(), &format!("{name}.jsonl"), line);
        let options = OpenLabelled { validation_share: 0.0, ..OpenLabelled::default() };
        let splits = open_labelled(&path, &options).expect("texts");
        let recipe = recipe("classify-text", "bert_plain", &[]);
        let task = ClassifyTextTask::new(recipe, splits, &DEVICE).expect("a task");
        follow_pytorch(name, &task, made);
    }
}

#[test]
fn token_classifiers_have_pytorchs_losses() {
    let folder = tempfile::tempdir().expect("a folder");
    let tagged = |index: usize, text: &str| {
        let tag = ["O", "B-X", "I-X", "B-Y"][index % 4];
        text.split(' ').map(|word| format!("{word} {tag}\n")).chain(["\n".to_string()]).collect()
    };
    let splits = open_tagged(&written(folder.path(), "tags.conll", tagged), 0.0).expect("sentences");
    let task = TagTokensTask::new(recipe("classify-tokens", "bert_plain", &[]), splits, &DEVICE).expect("a task");
    follow_pytorch("tags", &task, tags);
}

#[test]
fn masked_language_models_have_pytorchs_losses() {
    let folder = tempfile::tempdir().expect("a folder");
    let texts = open_plain(&written(folder.path(), "text.txt", |_, text| format!("{text}\n\n"))).expect("texts");
    let overrides =
        ["text.max_tokens=12", "optimizer.betas=[0.9, 0.98]", "optimizer.eps=1e-6", "data.validation_share=0"];
    let recipe = recipe("bert", "bert_masked", &overrides);
    let task = MaskTokensTask::new(recipe, &texts, None, &DEVICE).expect("a task");
    follow_pytorch("masks", &task, masks);
}

#[test]
fn sentence_embeddings_have_sentence_transformers_losses() {
    let folder = tempfile::tempdir().expect("a folder");
    let path = written(folder.path(), "pairs.tsv", |_, text| format!("{text}\t{text}\n"));
    let splits = open(&path, &OpenPairs { languages: None, validation_share: 0.0 }).expect("pairs");
    let task = MatchTextsTask::new(recipe("embeddings", "bert_plain", &[]), splits, &DEVICE).expect("a task");
    follow_pytorch("pairs", &task, pairs);
}
