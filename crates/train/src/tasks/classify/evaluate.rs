//! Evaluation of a classifier on the validation images.

use std::borrow::Cow;

use vitreous_data::dataset::Splits;
use vitreous_data::loader::{Broken, Loader, LoaderOptions, Preparation, TargetKind};
use vitreous_engine::{DType, Device, Executor, Graph, Mode, Parameter, Plan, Precision, State, Value};
use vitreous_models::VitConfig;

use super::classifier::Classifier;
use super::inputs::{fill_images, form_for, model};
use super::metrics::{Mistakes, MultiLabel, SingleLabel};
use super::report::{ClassifyReport, LabelMetrics};
use super::settings::ClassifySettings;
use crate::error::TrainError;
use crate::scores::Scores;

/// Evaluates the same model again and again, with other parameters.
pub(super) struct Evaluator {
    config: VitConfig,
    names: Vec<String>,
    precision: Precision,
    pub(super) options: LoaderOptions,
    device: Device,
    /// Kept between evaluations on a GPU, which then has the kernels ready.
    ready: Option<(Executor, Value)>,
    unreadable: Vec<Broken>,
}

/// Predictions, by how many labels an image can have.
enum Predictions {
    Single(Box<SingleLabel>, Mistakes),
    Multi(MultiLabel),
}

impl Evaluator {
    /// Evaluates on the validation split. Images of one class are scored by it whatever the loss is, as `vitreous eval` does.
    pub fn new(
        settings: &ClassifySettings,
        precision: Precision,
        splits: &Splits,
        classifier: &Classifier,
        device: &Device,
    ) -> Evaluator {
        let config = classifier.model.config.clone();
        let options = LoaderOptions {
            dataset: splits.validation.clone(),
            preparation: Preparation::Plain(classifier.preprocess.clone()),
            form: form_for(device),
            mixer: None,
            shape: [config.channels, config.image.height, config.image.width],
            classes: splits.classes.len(),
            targets: if splits.several_labels { TargetKind::Each { smoothing: 0.0 } } else { TargetKind::Class },
            batch: settings.train.batch,
            seed: 0,
            shuffle: false,
            threads: settings.loader_threads(),
        };
        let (names, device) = (splits.classes.clone(), device.clone());
        Evaluator { config, names, precision, options, device, ready: None, unreadable: Vec::new() }
    }

    /// Images that could not be read.
    pub fn unreadable(&self) -> &[Broken] {
        &self.unreadable
    }

    /// Bytes of the device's memory that an evaluation with this batch takes.
    pub fn bytes(&self, batch: usize) -> Result<usize, TrainError> {
        let (plan, _) = self.plan(batch)?;
        Ok(self.device.bytes_needed_with_weights(&plan))
    }

    fn plan(&self, batch: usize) -> Result<(Plan, Value), TrainError> {
        let mut graph = Graph::new(Mode::Inference, self.precision);
        let built = model(&mut graph, &self.config, &self.options, batch, None)?;
        let logits = built.logits.ok_or_else(|| TrainError::Data("the data has no classes".to_string()))?;
        let logits = graph.cast(logits, DType::F32)?;
        Ok((self.device.plan_with_fixed_weights(&graph, &[logits])?, logits))
    }

    /// The model with the state's parameters.
    fn executor(&mut self, state: &State) -> Result<(Executor, Value), TrainError> {
        let lend = |parameter: &Parameter| state.parameter(&parameter.name).map(Cow::Borrowed);
        if let Some((mut executor, logits)) = self.ready.take() {
            executor.take_weights(lend)?;
            return Ok((executor, logits));
        }
        let (plan, logits) = self.plan(self.options.batch)?;
        Ok((Executor::with_weights(plan, &self.device, lend)?, logits))
    }

    /// Evaluates the state's parameters; `None` without validation images.
    pub fn run(&mut self, state: &State, progress: &mut dyn FnMut(usize, usize)) -> Result<Option<Scores>, TrainError> {
        let images = self.options.dataset.len();
        if images == 0 {
            return Ok(None);
        }
        let (mut executor, logits) = self.executor(state)?;
        let classes = self.options.classes;
        let mut predictions = match self.options.targets {
            TargetKind::Class => Predictions::Single(Box::new(SingleLabel::new(classes)), Mistakes::default()),
            TargetKind::Shares { .. } | TargetKind::Each { .. } => Predictions::Multi(MultiLabel::new(classes)),
        };
        let mut done = 0;
        let mut loader = Loader::start(self.options.clone(), 0, 0, 1);
        while let Some(batch) = loader.next() {
            let batch = batch?;
            fill_images(&mut executor, &batch, self.options.form)?;
            executor.infer()?;
            let rows = executor.output_slice(logits)?.chunks_exact(classes);
            for (index, row) in rows.take(batch.count).enumerate() {
                match &mut predictions {
                    Predictions::Single(metrics, mistakes) => {
                        let (label, sample) = (batch.labels[index] as u32, batch.samples[index]);
                        if let Some(prediction) = metrics.add(row, label) {
                            mistakes.add(sample, label, prediction, || self.options.dataset.name(sample));
                        }
                    }
                    Predictions::Multi(metrics) => {
                        let there = batch.targets[index * classes..][..classes].iter().zip(0..);
                        let labels: Vec<u32> = there.filter(|(there, _)| **there > 0.5).map(|(_, c)| c).collect();
                        metrics.add(row, &labels);
                    }
                }
            }
            done += batch.count;
            loader.give_back(batch);
            progress(done, images);
        }
        self.unreadable = loader.broken();
        // A GPU has room for both; a machine with little memory needs it for training.
        self.ready = self.device.is_gpu().then_some((executor, logits));
        if done == 0 {
            return Ok(None);
        }
        let (metrics, mistakes) = match predictions {
            Predictions::Single(metrics, mistakes) => {
                (LabelMetrics::Single(Box::new(metrics.report())), mistakes.into_vec())
            }
            Predictions::Multi(metrics) => (LabelMetrics::Multi(metrics.report()), Vec::new()),
        };
        Ok(Some(ClassifyReport { names: self.names.clone(), metrics, mistakes }.into_scores()))
    }
}

#[cfg(test)]
mod tests {
    use vitreous_data::loader::Form;

    use super::*;
    use crate::recipe::Recipe;

    #[test]
    fn raw_batches_are_evaluated_as_prepared_ones_are() {
        let splits = vitreous_data::dataset::builtin();
        let words = ["train.batch=700", "model.image=28", "model.patch=14", "model.dim=8", "model.channels=1"];
        let more = ["model.depth=1", "model.heads=2", "model.mlp_dim=8", "data.threads=1"];
        let overrides: Vec<String> = words.iter().chain(&more).map(|pair| pair.to_string()).collect();
        let mut recipe = Recipe::read("test", "", &overrides).expect("a sound recipe");
        let settings: ClassifySettings = recipe.own().expect("settings");
        let classifier = Classifier::new(&mut recipe, &settings, &splits).expect("a model");
        let device = Device::Cpu { threads: 1 };
        let evaluator = || Evaluator::new(&settings, Precision::F32, &splits, &classifier, &device);
        let mut graph = Graph::for_inference();
        model(&mut graph, &classifier.model.config, &evaluator().options, 1, None).expect("builds");
        let mut state = State::new(&graph).expect("memory");
        classifier.initialise(&settings, 1, &mut state).expect("initial values");
        let loss_and_mistakes = |form: Form| {
            let mut evaluator = evaluator();
            evaluator.options.form = form;
            let scores = evaluator.run(&state, &mut |_, _| {}).expect("runs").expect("images");
            let report = scores.report::<ClassifyReport>().expect("its report");
            let LabelMetrics::Single(metrics) = &report.metrics else { panic!("one class per image") };
            assert_eq!(metrics.samples, 2000);
            (metrics.loss, format!("{:?}", report.mistakes))
        };
        assert_eq!(loss_and_mistakes(Form::Raw), loss_and_mistakes(Form::Prepared));
    }
}
