//! Testing while training: the model on the images that it does not learn from.

use std::borrow::Cow;
use std::sync::Arc;

use vitreous_data::dataset::{Dataset, Splits};
use vitreous_data::loader::{Broken, Loader, LoaderOptions, Preparation, TargetKind};
use vitreous_engine::cpu::Executor;
use vitreous_engine::{DType, Graph, Mode, Parameter, Plan, State};
use vitreous_models::vit;

use crate::error::TrainError;
use crate::recipe::Recipe;
use crate::subject::Subject;
use crate::trainer::loader_threads;

/// What a test gave.
#[derive(Clone, Copy, Debug, Default, PartialEq)]
pub struct Evaluation {
    /// The mean loss.
    pub loss: f64,
    /// The share of images whose class came first.
    pub top1: f64,
    /// The share of images whose class was among the first five.
    pub top5: f64,
}

/// Tests a recipe's model.
pub struct Evaluator {
    recipe: Recipe,
    options: LoaderOptions,
    dataset: Arc<dyn Dataset>,
    threads: usize,
    broken: Vec<Broken>,
}

impl Evaluator {
    /// A test on the validation part.
    pub fn new(recipe: &Recipe, splits: &Splits, subject: &Subject, threads: usize) -> Evaluator {
        let config = &subject.model.config;
        let options = LoaderOptions {
            dataset: splits.validation.clone(),
            preparation: Preparation::Plain(subject.preprocess.clone()),
            mixer: None,
            shape: [config.channels, config.image.height, config.image.width],
            classes: splits.classes.len(),
            targets: TargetKind::Class,
            batch: recipe.train.batch,
            seed: 0,
            shuffle: false,
            threads: loader_threads(recipe),
        };
        let dataset = splits.validation.clone();
        Evaluator { recipe: recipe.clone(), options, dataset, threads, broken: Vec::new() }
    }

    /// Images that could not be read.
    pub fn broken(&self) -> Vec<Broken> {
        self.broken.clone()
    }

    /// Tests with the state's parameters.
    pub fn run(&mut self, state: &State, tell: &mut dyn FnMut(usize, usize)) -> Result<Evaluation, TrainError> {
        let mut graph = Graph::new(Mode::Inference, self.recipe.train.precision.into());
        let built = vit(&mut graph, &self.recipe.model, self.options.batch)?;
        let logits = graph.cast(built.logits.expect("a model that is trained has a head"), DType::F32)?;
        let plan = Plan::for_cpu_with_fixed_weights(&graph, &[logits])?;
        let lend = |parameter: &Parameter| -> vitreous_engine::Result<Cow<'_, [f32]>> {
            state.parameter(&parameter.name).map(Cow::Borrowed)
        };
        let mut executor = Executor::with_weights(plan, self.threads, lend)?;
        let (mut loss, mut top1, mut top5, mut count) = (0.0, 0u64, 0u64, 0usize);
        let classes = self.options.classes;
        let mut loader = Loader::start(self.options.clone(), 0, 0, 1);
        while let Some(batch) = loader.next() {
            let batch = batch?;
            executor.input("images")?.copy_from_slice(&batch.images);
            executor.infer()?;
            let rows = executor.output_slice(logits)?.chunks_exact(classes);
            for (row, &label) in rows.zip(&batch.labels).take(batch.count) {
                let own = row[label as usize];
                let highest = row.iter().fold(f32::NEG_INFINITY, |a, &b| a.max(b));
                let sum: f64 = row.iter().map(|&logit| f64::from(logit - highest).exp()).sum();
                loss += sum.ln() - f64::from(own - highest);
                let before = row
                    .iter()
                    .enumerate()
                    .filter(|(class, other)| **other > own || (**other == own && *class < label as usize));
                let before = before.count();
                top1 += u64::from(before < 1);
                top5 += u64::from(before < 5);
                count += 1;
            }
            loader.give_back(batch);
            tell(count, self.dataset.len());
        }
        self.broken.extend(loader.broken());
        let all = count.max(1) as f64;
        Ok(Evaluation { loss: loss / all, top1: top1 as f64 / all, top5: top5 as f64 / all })
    }
}
