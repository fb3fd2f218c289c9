//! Testing while training: the model on the images that it does not learn from.

use std::borrow::Cow;

use vitreous_data::dataset::Splits;
use vitreous_data::loader::{Broken, Loader, LoaderOptions, Preparation, TargetKind};
use vitreous_engine::{DType, Device, Executor, Graph, Mode, Parameter, Plan, Precision, State, Value};
use vitreous_models::VitConfig;

use crate::error::TrainError;
use crate::evaluation::{LabelScores, Mistakes, Scores};
use crate::image_input::{form_for, give_images, model, raw_ones};
use crate::images::loader_threads;
use crate::recipe::Recipe;
use crate::subject::Subject;
use crate::task::Found;
use crate::tested::TestedScores;

/// Tests a recipe's model.
pub struct Evaluator {
    config: VitConfig,
    precision: Precision,
    options: LoaderOptions,
    device: Device,
    /// Made ready by the first test, and kept for the others.
    ready: Option<(Executor, Value)>,
    broken: Vec<Broken>,
}

/// Answers as they come.
enum Tally {
    One(Box<Scores>, Mistakes),
    Several(LabelScores),
}

/// Plans what a test runs: a model's answers to a batch. Where that comes in raw form, `raw` says what is left to be done with its images.
pub(crate) fn test_plan(
    config: &VitConfig,
    precision: Precision,
    batch: usize,
    raw: Option<&LoaderOptions>,
    device: &Device,
) -> Result<(Plan, Value), TrainError> {
    let mut graph = Graph::new(Mode::Inference, precision);
    let built = model(&mut graph, config, batch, raw, None)?;
    let logits = graph.cast(built.logits.expect("a model that is trained has a head"), DType::F32)?;
    Ok((device.plan_with_fixed_weights(&graph, &[logits])?, logits))
}

impl Evaluator {
    /// A test on the validation part. Images of one class are scored by it, whatever the loss is, as `vitreous eval` does.
    pub fn new(recipe: &Recipe, splits: &Splits, subject: &Subject, device: &Device) -> Evaluator {
        let config = subject.model.config.clone();
        let options = LoaderOptions {
            dataset: splits.validation.clone(),
            preparation: Preparation::Plain(subject.preprocess.clone()),
            form: form_for(device),
            mixer: None,
            shape: [config.channels, config.image.height, config.image.width],
            classes: splits.classes.len(),
            targets: if splits.several_labels { TargetKind::Each { smoothing: 0.0 } } else { TargetKind::Class },
            batch: recipe.train.batch,
            seed: 0,
            shuffle: false,
            threads: loader_threads(recipe),
        };
        let precision = recipe.train.precision.into();
        Evaluator { config, precision, options, device: device.clone(), ready: None, broken: Vec::new() }
    }

    /// Images that could not be read.
    pub fn broken(&self) -> &[Broken] {
        &self.broken
    }

    /// The model with the state's parameters.
    fn executor(&mut self, state: &State) -> Result<(Executor, Value), TrainError> {
        let lend = |parameter: &Parameter| state.parameter(&parameter.name).map(Cow::Borrowed);
        if let Some((mut executor, logits)) = self.ready.take() {
            executor.take_weights(lend)?;
            return Ok((executor, logits));
        }
        let raw = raw_ones(&self.options);
        let (plan, logits) = test_plan(&self.config, self.precision, self.options.batch, raw, &self.device)?;
        Ok((Executor::with_weights(plan, &self.device, lend)?, logits))
    }

    /// Tests with the state's parameters; `None` if there are no images.
    pub fn run(&mut self, state: &State, tell: &mut dyn FnMut(usize, usize)) -> Result<Option<Found>, TrainError> {
        let images = self.options.dataset.len();
        if images == 0 {
            return Ok(None);
        }
        let (mut executor, logits) = self.executor(state)?;
        let classes = self.options.classes;
        let mut tally = match self.options.targets {
            TargetKind::Class => Tally::One(Box::new(Scores::new(classes)), Mistakes::default()),
            _ => Tally::Several(LabelScores::new(classes)),
        };
        let mut done = 0;
        let mut loader = Loader::start(self.options.clone(), 0, 0, 1);
        while let Some(batch) = loader.next() {
            let batch = batch?;
            give_images(&mut executor, &batch, self.options.form)?;
            executor.infer()?;
            let rows = executor.output_slice(logits)?.chunks_exact(classes);
            for (index, row) in rows.take(batch.count).enumerate() {
                match &mut tally {
                    Tally::One(scores, mistakes) => {
                        let (label, sample) = (batch.labels[index] as u32, batch.samples[index]);
                        if let Some(answer) = scores.add(row, label) {
                            mistakes.add(sample, label, answer, || self.options.dataset.name(sample));
                        }
                    }
                    Tally::Several(scores) => {
                        let targets = batch.targets[index * classes..][..classes].iter().zip(0..);
                        let labels: Vec<u32> = targets.filter(|(there, _)| **there > 0.5).map(|(_, c)| c).collect();
                        scores.add(row, &labels);
                    }
                }
            }
            done += batch.count;
            loader.give_back(batch);
            tell(done, images);
        }
        self.broken = loader.broken();
        // A GPU has room for both; a machine with little memory wants it back for training.
        self.ready = self.device.is_gpu().then_some((executor, logits));
        if done == 0 {
            return Ok(None);
        }
        Ok(Some(match tally {
            Tally::One(scores, mistakes) => {
                Found { scores: TestedScores::One(Box::new(scores.report())), mistakes: mistakes.into_vec() }
            }
            Tally::Several(scores) => Found { scores: TestedScores::Several(scores.report()), mistakes: Vec::new() },
        }))
    }
}

#[cfg(test)]
mod tests {
    use vitreous_data::loader::Form;

    use super::*;

    #[test]
    fn raw_batches_are_tested_as_prepared_ones_are() {
        let splits = vitreous_data::dataset::builtin();
        let words = ["train.batch=700", "model.image=28", "model.patch=14", "model.dim=8", "model.channels=1"];
        let more = ["model.depth=1", "model.heads=2", "model.mlp_dim=8", "data.threads=1"];
        let overrides: Vec<String> = words.iter().chain(&more).map(|pair| pair.to_string()).collect();
        let mut recipe = Recipe::read("test", "", &overrides).expect("a sound recipe");
        let subject = Subject::new(&mut recipe, &splits).expect("a model");
        let mut graph = Graph::for_inference();
        model(&mut graph, &recipe.model, 1, None, None).expect("builds");
        let mut state = State::new(&graph).expect("memory");
        subject.start(&recipe, &mut state).expect("initial values");
        let loss_and_mistakes = |form: Form| {
            let mut evaluator = Evaluator::new(&recipe, &splits, &subject, &Device::Cpu { threads: 1 });
            evaluator.options.form = form;
            let found = evaluator.run(&state, &mut |_, _| {}).expect("runs").expect("images");
            let TestedScores::One(report) = found.scores else { panic!("one class an image") };
            assert_eq!(report.samples, 2000);
            (report.loss, format!("{:?}", found.mistakes))
        };
        assert_eq!(loss_and_mistakes(Form::Raw), loss_and_mistakes(Form::Prepared));
    }
}
