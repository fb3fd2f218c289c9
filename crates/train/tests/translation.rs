//! Translators from pairs to scores: a task that can be learned wholly, gradients that are added by tokens, runs that go on as if they had
//! never stopped.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use vitreous_data::random::Random;
use vitreous_data::text::{Pair, PairSplits, Tokenisers};
use vitreous_train::metrics::{EvaluationMetrics, History, StepMetrics};
use vitreous_train::translation::{PairData, TranslationReport};
use vitreous_train::{
    AnyRecipe, Observer, Orders, Outcome, Place, RunDirectory, RunPlan, StepResult, TestedScores, TranslationRecipe,
    Work, train,
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

fn recipe(overrides: &[&str]) -> TranslationRecipe {
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
        "optimizer.lr=3e-3",
        "output.log_steps=5",
    ];
    let overrides: Vec<String> = base.iter().chain(overrides).map(|pair| pair.to_string()).collect();
    TranslationRecipe::read("test", "task = \"translation\"", &overrides).expect("a sound recipe")
}

/// Keeps the last scores; sets the flag after a step.
#[derive(Default)]
struct Watch {
    scores: Option<TranslationReport>,
    stop: Option<(u64, Arc<AtomicBool>)>,
}

impl Observer for Watch {
    fn started(&mut self, _plan: &RunPlan) {}
    fn stepped(&mut self, step: u64, _result: &StepResult, _asked: u64, _lr: f64) {
        if let Some((at, flag)) = &self.stop {
            flag.store(step == *at, Ordering::Relaxed);
        }
    }
    fn measured(&mut self, _metrics: &StepMetrics) {}
    fn tested(&mut self, scores: &TestedScores) {
        if let TestedScores::Translation(report) = scores {
            self.scores = Some((**report).clone());
        }
    }
    fn epoch_ended(&mut self, _epoch: u64, _metrics: Option<&EvaluationMetrics>, _train: &StepMetrics) {}
    fn evaluating(&mut self, _done: usize, _all: usize) {}
}

fn run(recipe: TranslationRecipe, splits: PairSplits, place: Place, watch: &mut Watch) -> Outcome {
    let stop = Arc::new(AtomicBool::new(false));
    if let Some((_, flag)) = &mut watch.stop {
        *flag = stop.clone();
    }
    let tokenisers = match &place {
        Place::Resumed(directory) => Some(Tokenisers::open(directory.path()).expect("tokenisers")),
        _ => None,
    };
    let data = PairData::new(&recipe, splits, "digits".to_string(), tokenisers).expect("pairs");
    let orders = Orders { place, threads: 2, watch_gradients: false, command: Vec::new(), stop };
    train(Work::Translation { recipe: Box::new(recipe), data: Box::new(data) }, orders, watch).expect("a run")
}

#[test]
fn copying_and_reversing_is_learned() {
    let directory = tempfile::tempdir().expect("a directory");
    let mut watch = Watch::default();
    let recipe = recipe(&["train.epochs=6", "loss.label_smoothing=0.0", "output.eval_epochs=6"]);
    run(recipe, splits(6000), Place::New(directory.path().join("run")), &mut watch);
    let report = watch.scores.expect("a test");
    println!("{report:?}");
    // Every token right but one in a hundred; and nearly every whole sentence.
    assert!(report.precisions[0] >= 99.0 && report.bleu >= 98.0, "{report:?}");
    assert!(report.perplexity < 1.05, "{report:?}");
    let shown = &report.shown[0];
    assert_eq!(shown.reference, shown.translation);
}
