//! A task of one's own, from outside the crate: the loop, the stepper, metrics and checkpoints need nothing but the trait.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use serde_json::{Value as Json, json};
use vitreous_data::loader::{ArraySpec, ArrayValues, Batch, BatchSource, EpochOrder, LoadError};
use vitreous_engine::{
    CrossEntropyOptions, DType, Device, Graph, Group, Init, LayerKind, Parameter, Role, State, Value,
};
use vitreous_models::{Architecture, Initialisation, initialise};
use vitreous_train::metrics::TrainingMetrics;
use vitreous_train::{
    Averaging, Correct, Direction, EpochSummary, Format, LOSS, Metric, Objective, Observer, Ranks, Recipe, RecipeError,
    Report, RunOptions, RunPlan, RunTarget, Score, Scores, StepResult, Task, TaskContext, TaskFacts, TaskType,
    TrainError, Weighting, train,
};

const SAMPLES: usize = 64;
const ROWS: usize = 8;

static WRONG: Metric = Metric {
    key: "wrong",
    label: "wrong answers",
    format: Format::Decimals(0),
    direction: Direction::LowerIsBetter,
    decides: true,
};

/// Which of two numbers is the larger.
#[derive(Debug)]
struct LargerNumber;

impl TaskType for LargerNumber {
    fn name(&self) -> &'static str {
        "larger_number"
    }
    fn metrics(&self) -> &'static [&'static Metric] {
        static METRICS: [&Metric; 2] = [&LOSS, &WRONG];
        &METRICS
    }
    fn defaults(&self) -> Recipe {
        let mut recipe = Recipe::new(&LargerNumber, &toml_like());
        (recipe.train.epochs, recipe.train.accumulate, recipe.optimizer.lr) = (5, 2, 0.05);
        (recipe.schedule.warmup_epochs, recipe.output.keep) = (0.0, 1);
        recipe
    }
    fn usual_family(&self) -> &'static str {
        "vit"
    }
    fn check_model(&self, _architecture: &dyn Architecture) -> Result<(), String> {
        Ok(())
    }
    fn normalise(&self, _recipe: &mut Recipe) -> Result<(), RecipeError> {
        Ok(())
    }
    fn check(&self, _recipe: &Recipe) -> Result<(), RecipeError> {
        Ok(())
    }
    fn complete(&self, _recipe: &mut Recipe, _overrides: &[String]) -> Result<(), TrainError> {
        Ok(())
    }
    fn open(&self, recipe: Recipe, _context: &TaskContext) -> Result<Box<dyn Task>, TrainError> {
        Ok(Box::new(Comparing::new(recipe)))
    }
    fn read_scores(&self, _evaluation: &Json) -> Option<Result<Scores, String>> {
        None
    }
}

/// No keys of its own.
fn toml_like() -> std::collections::BTreeMap<String, String> {
    std::collections::BTreeMap::new()
}

/// Two numbers of a sample, and which is the larger.
fn sample(index: usize) -> ([f32; 2], i32) {
    let number = |place: usize| ((index * 37 + place * 11) % 23) as f32 / 23.0 - 0.5;
    let pair = [number(1), number(4)];
    (pair, i32::from(pair[1] > pair[0]))
}

struct Numbers {
    groups: [Vec<ArraySpec>; 1],
}

impl BatchSource for Numbers {
    fn groups(&self) -> &[Vec<ArraySpec>] {
        &self.groups
    }
    fn batches_per_epoch(&self) -> usize {
        SAMPLES / ROWS
    }
    fn order(&self, epoch: u64) -> EpochOrder {
        let batches = (0..SAMPLES / ROWS).map(|batch| (0, batch * ROWS..(batch + 1) * ROWS));
        EpochOrder::new(epoch, (0..SAMPLES as u32).collect(), batches.collect())
    }
    fn fill(&self, order: &EpochOrder, batch: &mut Batch) -> Result<(), LoadError> {
        let rows: Vec<usize> = order.samples(batch.position.index).iter().map(|&sample| sample as usize).collect();
        batch.arrays[0].values = ArrayValues::F32(rows.iter().flat_map(|&row| sample(row).0).collect());
        batch.arrays[1].values = ArrayValues::I32(rows.iter().map(|&row| sample(row).1).collect());
        (batch.units, batch.samples) = (rows.len(), rows);
        Ok(())
    }
}

struct Comparing {
    recipe: Recipe,
    facts: TaskFacts,
}

impl Comparing {
    fn new(recipe: Recipe) -> Comparing {
        let facts = TaskFacts {
            data: "numbers".to_string(),
            summary: format!("{SAMPLES} pairs of numbers"),
            notes: Vec::new(),
            samples: SAMPLES,
            unit: "pairs",
            units_per_epoch: SAMPLES as u64,
            loader_threads: 1,
            weighting: Weighting::Equal,
            batch_size: ("train.batch", ROWS),
            row_sizes: vec![1],
            averaging: Averaging::default(),
        };
        Comparing { recipe, facts }
    }
}

/// A linear layer on the two numbers.
fn logits(graph: &mut Graph, rows: usize) -> vitreous_engine::Result<Value> {
    let numbers = graph.input("numbers", [rows, 2], DType::F32)?;
    let weight = graph.declare("weight", [2, 2], Role::Weight.starting(Init::Matrix(LayerKind::Linear)))?;
    graph.linear(numbers, weight, None)
}

#[derive(Debug)]
struct Counted {
    wrong: u64,
}

impl Report for Counted {
    fn to_json(&self) -> Json {
        json!({ "wrong": self.wrong })
    }
    fn samples(&self) -> (u64, &'static str) {
        (SAMPLES as u64, "pairs")
    }
}

impl Task for Comparing {
    fn recipe(&self) -> &Recipe {
        &self.recipe
    }
    fn facts(&self) -> &TaskFacts {
        &self.facts
    }
    fn batches(&self) -> Arc<dyn BatchSource> {
        let arrays = vec![ArraySpec::f32("numbers", [ROWS, 2]), ArraySpec::i32("larger", [ROWS])];
        Arc::new(Numbers { groups: [arrays] })
    }
    fn build(&self, graph: &mut Graph, arrays: &[ArraySpec]) -> Result<Objective, TrainError> {
        let rows = arrays[0].shape[0];
        let logits = logits(graph, rows)?;
        let larger = graph.input("larger", [rows], DType::I32)?;
        let loss = graph.cross_entropy(logits, larger, CrossEntropyOptions::default())?;
        Ok(Objective { loss, outputs: vec![logits] })
    }
    fn group(&self, _parameter: &Parameter) -> Option<Group> {
        Some(Group { decay: 0.0, rate_factor: 1.0 })
    }
    fn initialise(&self, state: &mut State) -> Result<(), TrainError> {
        Ok(initialise(state, Initialisation::Xavier, 1, &|_| true)?)
    }
    fn correct(&self, batch: &Batch, outputs: &[&[f32]]) -> Option<Correct> {
        let rows = outputs[0].chunks_exact(2).zip(batch.i32("larger")?);
        let right = rows.filter(|(row, larger)| i32::from(row[1] > row[0]) == **larger).count() as u64;
        Some(Correct { right, total: ROWS as u64 })
    }
    fn evaluate(
        &mut self,
        state: &State,
        _ranks: &Ranks,
        _progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Option<Scores>, TrainError> {
        let weight = state.parameter("weight")?;
        let score = |row: usize, numbers: [f32; 2]| weight[2 * row] * numbers[0] + weight[2 * row + 1] * numbers[1];
        let is_wrong = |index: &usize| {
            let (numbers, larger) = sample(*index);
            i32::from(score(1, numbers) > score(0, numbers)) != larger
        };
        let wrong = (0..SAMPLES).filter(is_wrong).count() as u64;
        let numbers = vec![Score { metric: &LOSS, value: 0.5 }, Score { metric: &WRONG, value: wrong as f64 }];
        Ok(Some(Scores::new(numbers, Counted { wrong })))
    }
    fn save(&self, directory: &Path, state: &State) -> Result<(), TrainError> {
        std::fs::create_dir_all(directory).expect("a folder");
        std::fs::write(directory.join("weights.txt"), format!("{:?}", state.parameters())).expect("written");
        Ok(())
    }
}

#[derive(Default)]
struct Watch {
    wrong: Vec<u64>,
}

impl Observer for Watch {
    fn started(&mut self, plan: &RunPlan) {
        assert_eq!((plan.steps, plan.units_per_step, plan.unit, plan.parameters), (20, 16, "pairs", 4));
    }
    fn stepped(&mut self, _step: u64, result: &StepResult, _lr: f64) {
        assert_eq!((result.correct.total, result.units), (16, 16));
    }
    fn logged(&mut self, _metrics: &TrainingMetrics) {}
    fn evaluating(&mut self, _done: usize, _all: usize) {}
    fn evaluated(&mut self, scores: &Scores) {
        self.wrong.push(scores.report::<Counted>().expect("its own report").wrong);
    }
    fn epoch_ended(&mut self, _summary: &EpochSummary) {}
}

#[test]
fn a_task_from_outside_is_trained() {
    let directory = tempfile::tempdir().expect("a directory");
    let run = directory.path().join("run");
    let task = LargerNumber
        .open(LargerNumber.defaults(), &TaskContext { device: &Device::Cpu { threads: 1 }, threads: 1, resumed: None });
    let options = RunOptions {
        target: RunTarget::New(run.clone()),
        device: Device::Cpu { threads: 1 },
        threads: 1,
        watch_gradients: false,
        watch_inside: false,
        command: Vec::new(),
        ranks: Default::default(),
        accept_changes: false,
        stop: Arc::new(AtomicBool::new(false)),
    };
    let mut watch = Watch::default();
    let outcome = train(task.expect("a task"), options, &mut watch).expect("a run");
    // Fewer wrong answers are better, so the best is the least.
    let (best, _) = outcome.best.expect("evaluations");
    let least = watch.wrong.iter().min().copied().expect("evaluations");
    assert_eq!((best.metric, best.value), (&WRONG, least as f64));
    assert!(least < watch.wrong[0] || least == 0, "{:?}", watch.wrong);

    let lines = std::fs::read_to_string(run.join("metrics.jsonl")).expect("metrics");
    let lines: Vec<Json> = lines.lines().map(|line| serde_json::from_str(line).expect("JSON")).collect();
    assert!(lines.iter().any(|line| line["pairs_per_second"].is_number() && line["top1"].is_number()), "{lines:?}");
    let wrong: Vec<u64> =
        lines.iter().filter_map(|line| line["val_wrong"].as_f64()).map(|wrong| wrong as u64).collect();
    assert_eq!(wrong, watch.wrong);
    let kept = std::fs::read(run.join("evaluation.json")).expect("an evaluation");
    let kept: Json = serde_json::from_slice(&kept).expect("JSON");
    assert_eq!((&kept["wrong"], &kept["split"]), (&json!(watch.wrong.last()), &json!("validation")));
    for folder in ["model", "best"] {
        assert!(run.join(folder).join("weights.txt").is_file(), "{folder}");
    }
    let recipe = std::fs::read_to_string(run.join("recipe.toml")).expect("a recipe");
    assert!(recipe.starts_with("task = \"larger_number\"\n"), "{recipe}");
}
