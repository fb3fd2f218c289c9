//! Translators from pairs to scores: a task that can be learned wholly, gradients that are added by tokens, runs that go on as if they had
//! never stopped.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use vitreous_data::loader::BatchSource;
use vitreous_data::random::Random;
use vitreous_data::text::{Pair, PairSplits, Tokenisers};
use vitreous_engine::Device;
use vitreous_models::archive::Archive;
use vitreous_train::metrics::TrainingMetrics;
use vitreous_train::tasks::translate::{PairData, TranslateTask, TranslationReport};
use vitreous_train::{
    CheckpointAverage, EpochSummary, Observer, Outcome, Recipe, RunDirectory, RunOptions, RunPlan, RunTarget, Scores,
    StepResult, train,
};

/// Pairs whose target is the source, copied if it begins with a `c` and reversed if with an `r`.
fn copy_and_reverse(count: usize, seed: u64) -> Vec<Pair> {
    let mut random = Random::new(seed, 0, 0);
    let mut pair = || {
        let length = 2 + random.below(6);
        let mut words: Vec<String> = (0..length).map(|_| random.below(10).to_string()).collect();
        let order = if random.below(2) == 0 { "c" } else { "r" };
        let source = format!("{order} {}", words.join(" "));
        if order == "r" {
            words.reverse();
        }
        Pair::new(&source, &words.join(" "))
    };
    (0..count).map(|_| pair()).collect()
}

fn splits(count: usize) -> PairSplits {
    let train = copy_and_reverse(count, 1);
    let mut validation = copy_and_reverse(200, 2);
    validation.retain(|pair| !train.contains(pair));
    PairSplits { train, validation, ..PairSplits::default() }
}

fn recipe(overrides: &[&str]) -> Recipe {
    let base = [
        "text.vocabulary=300",
        "train.tokens=1024",
        "model.dim=64",
        "model.heads=4",
        "model.encoder_layers=2",
        "model.decoder_layers=2",
        "model.mlp_dim=128",
        "model.dropout=0.0",
        "model.attention_dropout=0.0",
        "model.shared_vocabulary=true",
        "model.tied_output=true",
        "schedule.warmup_steps=100",
        "optimizer.lr=2e-3",
        "output.log_steps=5",
    ];
    let overrides: Vec<String> = base.iter().chain(overrides).map(|pair| pair.to_string()).collect();
    Recipe::read("test", "task = \"translation\"", &overrides).expect("a sound recipe")
}

/// Keeps the last scores and how the average of checkpoints compares; sets the flag after a step.
#[derive(Default)]
struct Watch {
    scores: Option<TranslationReport>,
    average: Option<CheckpointAverage>,
    stop: Option<(u64, Arc<AtomicBool>)>,
}

impl Observer for Watch {
    fn started(&mut self, _plan: &RunPlan) {}
    fn stepped(&mut self, step: u64, _result: &StepResult, _lr: f64) {
        if let Some((at, flag)) = &self.stop {
            flag.store(step == *at, Ordering::Relaxed);
        }
    }
    fn logged(&mut self, _metrics: &TrainingMetrics) {}
    fn evaluating(&mut self, _done: usize, _all: usize) {}
    fn evaluated(&mut self, scores: &Scores) {
        self.scores = scores.report().cloned();
    }
    fn epoch_ended(&mut self, summary: &EpochSummary) {
        self.average = summary.average;
    }
}

fn run(recipe: Recipe, splits: PairSplits, target: RunTarget, watch: &mut Watch) -> Outcome {
    let tokenisers = match &target {
        RunTarget::Resume(directory) => Some(Tokenisers::open(directory.path()).expect("tokenisers")),
        _ => None,
    };
    let data = PairData::new(&recipe, splits, "digits".to_string(), tokenisers).expect("pairs");
    run_with(recipe, data, target, watch)
}

fn run_with(recipe: Recipe, data: PairData, target: RunTarget, watch: &mut Watch) -> Outcome {
    let stop = Arc::new(AtomicBool::new(false));
    if let Some((_, flag)) = &mut watch.stop {
        *flag = stop.clone();
    }
    let options = RunOptions {
        target,
        device: Device::Cpu { threads: 2 },
        threads: 2,
        watch_gradients: false,
        watch_inside: false,
        command: Vec::new(),
        stop,
        ranks: Default::default(),
        accept_changes: false,
    };
    let task = TranslateTask::new(recipe, data, &Device::Cpu { threads: 2 }).expect("a task");
    train(Box::new(task), options, watch).expect("a run")
}

/// All numbers of a file of tensors, by name.
fn tensors(file: &Path) -> BTreeMap<String, Vec<f32>> {
    let archive = Archive::open(file).expect("an archive");
    archive.tensors().map(|view| (view.name().to_string(), view.to_f32().expect("numbers").into_owned())).collect()
}

/// The checkpoints of a run, by step.
fn checkpoints(run: &Path) -> Vec<std::path::PathBuf> {
    let entries = std::fs::read_dir(run.join("checkpoints")).expect("a folder").flatten();
    let mut files: Vec<_> = entries.map(|entry| entry.path()).collect();
    files.sort();
    files
}

#[test]
fn copying_and_reversing_is_learned() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut watch = Watch::default();
    let recipe = recipe(&[
        "train.epochs=10",
        "train.tokens=512",
        "train.average=3",
        "output.keep=3",
        "loss.label_smoothing=0.0",
        "output.eval_epochs=10",
    ]);
    run(recipe, splits(6000), RunTarget::New(directory.path().join("run")), &mut watch);
    let report = watch.scores.expect("a test");
    // Every token right but one in a hundred; and nearly every whole sentence.
    assert!(report.precisions[0] >= 99.0 && report.bleu >= 98.0, "{report:?}");
    assert!(report.perplexity < 1.05, "{report:?}");
    let shown = &report.shown[0];
    assert_eq!(shown.reference, shown.translation);
}

#[test]
fn batches_add_their_gradients_by_tokens() {
    let directory = tempfile::tempdir().expect("a directory");
    let (little, much) = ("1 2 3", "1 2 3 4 5 6 7 8 9 1 2 3 4 5 6 7 8 9 1 2 3");
    let splits = |short: usize| {
        let train = [vec![Pair::new(little, little); short], vec![Pair::new(much, much)]].concat();
        PairSplits { train, ..PairSplits::default() }
    };
    // As many short pairs as fill a batch that the long one fills, too.
    let of_lengths = PairData::new(&recipe(&[]), splits(1), "digits".to_string(), None).expect("pairs");
    let [short, long] = of_lengths.batches.shapes() else { panic!("two shapes") };
    let (tokens, count) = (long.source, long.source / short.source);
    // A rule without a memory: what the parameters have moved is the gradient.
    let plain = ["train.epochs=1", "optimizer.name=sgd", "optimizer.momentum=0.0", "optimizer.lr=1.0"];
    let plain = [&plain[..], &["schedule.kind=constant", "schedule.warmup_steps=0"]].concat();
    let moved = |name: &str, more: &[&str], batches: usize| {
        let recipe = recipe(&[&plain[..], more].concat());
        let data = PairData::new(&recipe, splits(count), "digits".to_string(), None).expect("pairs");
        assert_eq!(data.batches.batches_per_epoch(), batches);
        let order = data.batches.order(0);
        let batch = |index| data.batches.batch(&order, index).expect("a batch");
        let tokens: Vec<usize> = (0..batches).map(|index| batch(index).units).collect();
        let run = directory.path().join(name);
        let outcome = run_with(recipe, data, RunTarget::New(run.clone()), &mut Watch::default());
        assert_eq!(outcome.step, 1);
        (tensors(&checkpoints(&run)[0]), tokens)
    };
    let (together, _) = moved("together", &["train.tokens=1024"], 1);
    let (added, counts) = moved("added", &[&format!("train.tokens={tokens}"), "train.accumulate=2"], 2);
    assert!(counts[0] != counts[1], "{counts:?}: each batch would count the same");
    let mut largest = 0.0f32;
    for (name, values) in &together {
        for (a, b) in values.iter().zip(&added[name]) {
            largest = largest.max((a - b).abs());
        }
    }
    assert!(largest < 1e-5, "{largest}");
}

/// Small, with everything random switched on.
fn short(more: &[&str]) -> Recipe {
    let few = ["train.epochs=4", "train.tokens=256", "model.dropout=0.1", "model.attention_dropout=0.1"];
    recipe(&[&few[..], &["model.dim=16", "model.mlp_dim=32", "output.eval_epochs=2"], more].concat())
}

#[test]
fn a_run_that_was_stopped_ends_with_the_same_bytes() {
    let directory = tempfile::tempdir().expect("a directory");
    let (whole, cut) = (directory.path().join("whole"), directory.path().join("cut"));
    let recipe = || short(&["train.accumulate=2", "train.average=3", "output.keep=3"]);
    let outcome = run(recipe(), splits(300), RunTarget::New(whole.clone()), &mut Watch::default());
    let mut target = RunTarget::New(cut.clone());
    // Within the first epoch, at the end of one, and within the last, where the average is near.
    for stop in [2, outcome.step / 2, outcome.step - 2] {
        let mut watch = Watch { stop: Some((stop, Arc::default())), ..Watch::default() };
        let outcome = run(recipe(), splits(300), target, &mut watch);
        assert!(outcome.stopped && outcome.step == stop, "{outcome:?}");
        let (directory, read) = RunDirectory::open(&cut).expect("a run");
        assert_eq!(read.task.name(), "translation");
        target = RunTarget::Resume(directory);
    }
    let ended = run(recipe(), splits(300), target, &mut Watch::default());
    assert_eq!((ended.stopped, ended.step), (false, outcome.step));
    let names = |run: &Path| {
        checkpoints(run)
            .iter()
            .map(|path| path.file_name().map(Into::into))
            .collect::<Vec<Option<std::ffi::OsString>>>()
    };
    assert_eq!(names(&whole), names(&cut));
    let mut files: Vec<_> =
        checkpoints(&whole).iter().map(|path| path.strip_prefix(&whole).expect("inside").to_path_buf()).collect();
    files.push("model/model.safetensors".into());
    for file in files {
        let [a, b] = [&whole, &cut].map(|run| std::fs::read(run.join(&file)).expect("a file"));
        assert!(a == b, "{} differs", file.display());
    }
}

#[test]
fn the_model_at_the_end_is_the_mean_of_the_last_checkpoints() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("run");
    run(short(&["train.average=3", "output.keep=4"]), splits(200), RunTarget::New(path.clone()), &mut Watch::default());
    let kept = checkpoints(&path);
    assert_eq!(kept.len(), 4, "one an epoch");
    let last: Vec<_> = kept[1..].iter().map(|file| tensors(file)).collect();
    let model = tensors(&path.join("model/model.safetensors"));
    let mut differs = false;
    for (name, values) in &model {
        let of = |checkpoint: usize| &last[checkpoint][&format!("parameters/{name}")];
        for (index, &value) in values.iter().enumerate() {
            let mean = (0..3).map(|checkpoint| f64::from(of(checkpoint)[index])).sum::<f64>() / 3.0;
            assert!((f64::from(value) - mean).abs() < 1e-6, "{name}[{index}]: {value}, not {mean}");
            differs |= value != of(2)[index];
        }
    }
    assert!(differs, "the checkpoints are not all the same");
}

#[test]
fn an_average_that_is_worse_than_the_best_checkpoint_is_not_used() {
    let directory = tempfile::tempdir().expect("a directory");
    let path = directory.path().join("run");
    let mut watch = Watch::default();
    // The first checkpoints can hardly translate: their mean with the last is worse than the last.
    let recipe = recipe(&["train.epochs=5", "train.tokens=512", "train.average=5", "output.keep=5"]);
    let outcome = run(recipe, splits(2000), RunTarget::New(path.clone()), &mut watch);
    let (average, report) = (watch.average.expect("an average"), watch.scores.expect("an evaluation"));
    let score = average.score.expect("it was evaluated");
    assert!(!average.used && score.value < report.bleu, "{average:?}, {}", report.bleu);
    assert_eq!(average.checkpoints, 5);
    // The model is that of the last checkpoint, and so are its scores, in every file.
    let last = tensors(checkpoints(&path).last().expect("a checkpoint"));
    let model = tensors(&path.join("model/model.safetensors"));
    assert!(model.iter().all(|(name, values)| *values == last[&format!("parameters/{name}")]));
    let evaluated = outcome.last.as_ref().expect("an evaluation");
    assert_eq!(evaluated.get("bleu"), Some(report.bleu));
    let (best, step) = outcome.best.expect("a best evaluation");
    assert!(best.value >= report.bleu);
    // What is best is what is to be tried next.
    match step == outcome.step {
        true => assert_eq!(outcome.best_model(), "model"),
        false => assert_eq!(outcome.best_model(), "best"),
    }
}
