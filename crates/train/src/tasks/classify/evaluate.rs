//! Evaluation of a classifier on the validation images.

use std::borrow::Cow;
use std::sync::Arc;

use vitreous_data::dataset::Splits;
use vitreous_data::image::{ImageBatchOptions, ImageBatches, ImageTargets, Preparation};
use vitreous_data::loader::{Batch, BatchPosition, BatchSource, BrokenSample, Loader};
use vitreous_engine::{DType, Device, Executor, Graph, Mode, Parameter, Plan, Precision, State, Value};
use vitreous_models::Architecture;

use super::classifier::Classifier;
use super::inputs::{form_for, logits};
use super::metrics::{Mistakes, MultiLabel, SingleLabel};
use super::report::{ClassifyReport, LabelMetrics};
use super::settings::ClassifySettings;
use crate::error::TrainError;
use crate::ranks::{Parcel, Ranks};
use crate::scores::Scores;
use crate::stepper::fill_inputs;

/// Evaluates the same model again and again, with other parameters.
pub(super) struct Evaluator {
    architecture: Box<dyn Architecture>,
    names: Vec<String>,
    precision: Precision,
    pub(super) options: ImageBatchOptions,
    threads: usize,
    device: Device,
    /// Kept between evaluations on a GPU, which then has the kernels ready.
    ready: Option<(Executor, Value)>,
    unreadable: Vec<BrokenSample>,
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
    ) -> Result<Evaluator, TrainError> {
        let options = ImageBatchOptions {
            dataset: splits.validation.clone(),
            preparation: Preparation::Plain(classifier.preprocess.clone()),
            form: form_for(device),
            mixer: None,
            shape: classifier.shape(),
            classes: splits.classes.len(),
            targets: if splits.several_labels {
                ImageTargets::MultiLabel { smoothing: 0.0 }
            } else {
                ImageTargets::Class
            },
            batch: settings.train.batch,
            seed: 0,
            shuffle: false,
        };
        Ok(Evaluator {
            architecture: classifier.model.architecture.boxed()?,
            names: splits.classes.clone(),
            precision,
            options,
            threads: settings.loader_threads(),
            device: device.clone(),
            ready: None,
            unreadable: Vec::new(),
        })
    }

    /// Images that could not be read.
    pub fn unreadable(&self) -> &[BrokenSample] {
        &self.unreadable
    }

    /// Bytes of the device's memory that an evaluation with batches of this many images takes.
    pub fn bytes(&self, rows: usize) -> Result<usize, TrainError> {
        let (plan, _) = self.plan(rows)?;
        Ok(self.device.bytes_needed_with_weights(&plan))
    }

    fn plan(&self, rows: usize) -> Result<(Plan, Value), TrainError> {
        let mut graph = Graph::new(Mode::Inference, self.precision);
        let logits = logits(&mut graph, self.architecture.as_ref(), &self.options, rows, None)?;
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
    pub fn run(
        &mut self,
        state: &State,
        ranks: &Ranks,
        progress: &mut dyn FnMut(usize, usize),
    ) -> Result<Option<Scores>, TrainError> {
        let images = self.options.dataset.len();
        if images == 0 {
            return Ok(None);
        }
        let (mut executor, logits) = self.executor(state)?;
        let classes = self.options.classes;
        let mut predictions = match self.options.targets {
            ImageTargets::Class => Predictions::Single(Box::new(SingleLabel::new(classes)), Mistakes::default()),
            ImageTargets::Probabilities { .. } | ImageTargets::MultiLabel { .. } => {
                Predictions::Multi(MultiLabel::new(classes))
            }
        };
        let mut done = 0;
        let source = Arc::new(ImageBatches::new(self.options.clone()));
        let (batches, own) = (source.batches_per_epoch(), ranks.clone());
        let is_own = move |index: usize| index % own.size() == own.rank();
        let mut loader = Loader::of_some(source, BatchPosition::default(), 1, self.threads, is_own);
        let work = |_: usize| {
            let Some(batch) = loader.next() else { return Ok(Parcel::default()) };
            let batch = batch?;
            let parcel = outputs_of(&batch, &mut executor, logits)?;
            loader.give_back(batch);
            Ok(parcel)
        };
        let name = |sample: usize| self.options.dataset.name(sample);
        let take = |_: usize, parcel: &Parcel| {
            add(&mut predictions, parcel, classes, &name);
            done += samples_of(parcel);
            progress(done, images);
            Ok(())
        };
        ranks.share_out(batches, work, take)?;
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

/// Samples, labels, targets and logits of a batch.
fn outputs_of(batch: &Batch, executor: &mut Executor, logits: Value) -> Result<Parcel, TrainError> {
    fill_inputs(executor, batch, |name| name != "targets")?;
    executor.infer()?;
    let labels = batch.i32("targets").unwrap_or_default().iter().map(|&label| label as u64);
    let samples = batch.samples.iter().map(|&sample| sample as u64);
    let targets = batch.f32("targets").unwrap_or_default().iter().map(|&target| f64::from(target));
    Ok(Parcel {
        counts: [batch.samples.len() as u64].into_iter().chain(samples).chain(labels).collect(),
        floats: executor.output_slice(logits)?.to_vec(),
        doubles: targets.collect(),
    })
}

/// How many samples a batch had.
fn samples_of(parcel: &Parcel) -> usize {
    parcel.counts.first().map_or(0, |&count| count as usize)
}

/// Adds the predictions of a batch.
fn add(predictions: &mut Predictions, parcel: &Parcel, classes: usize, name: &dyn Fn(usize) -> String) {
    let (samples, labels) = parcel.counts.get(1..).unwrap_or_default().split_at(samples_of(parcel));
    for (index, (row, &sample)) in parcel.floats.chunks_exact(classes).zip(samples).enumerate() {
        match predictions {
            Predictions::Single(metrics, mistakes) => {
                let label = labels[index] as u32;
                if let Some(prediction) = metrics.add(row, label) {
                    mistakes.add(sample as usize, label, prediction, || name(sample as usize));
                }
            }
            Predictions::Multi(metrics) => {
                let there = parcel.doubles[index * classes..][..classes].iter().zip(0..);
                let labels: Vec<u32> = there.filter(|(there, _)| **there > 0.5).map(|(_, class)| class).collect();
                metrics.add(row, &labels);
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use vitreous_data::image::ImageForm;

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
        let evaluator =
            || Evaluator::new(&settings, Precision::F32, &splits, &classifier, &device).expect("an evaluator");
        let mut graph = Graph::for_inference();
        logits(&mut graph, classifier.model.architecture.as_ref(), &evaluator().options, 1, None).expect("builds");
        let mut state = State::new(&graph).expect("memory");
        classifier.initialise(&settings, 1, &mut state).expect("initial values");
        let loss_and_mistakes = |form: ImageForm| {
            let mut evaluator = evaluator();
            evaluator.options.form = form;
            let scores = evaluator.run(&state, &Ranks::default(), &mut |_, _| {}).expect("runs").expect("images");
            let report = scores.report::<ClassifyReport>().expect("its report");
            let LabelMetrics::Single(metrics) = &report.metrics else { panic!("one class per image") };
            assert_eq!(metrics.samples, 2000);
            (metrics.loss, format!("{:?}", report.mistakes))
        };
        assert_eq!(loss_and_mistakes(ImageForm::Raw), loss_and_mistakes(ImageForm::Prepared));
    }
}
