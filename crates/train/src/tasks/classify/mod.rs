//! Learning the classes of images.

use std::path::Path;
use std::time::{Duration, Instant};

use vitreous_data::augment::{Augment, Mixer};
use vitreous_data::dataset::Splits;
use vitreous_data::loader::{Broken, Form, Loader, LoaderOptions, Preparation, TargetKind};
use vitreous_engine::{Device, Executor, Run, State};

use crate::error::TrainError;
use crate::evaluate::Evaluator;
use crate::image_input::{form_for, raw_ones};
use crate::recipe::{LossKind, Recipe};
use crate::step::Stepper;
use crate::subject::Subject;
use crate::task::{Found, LoopSettings, SpeedUnit, Task, TaskSize, Update};

/// A recipe's model, its images, and how it learns them.
pub(crate) struct ImageTask {
    recipe: Recipe,
    /// What the data was found to be.
    data: String,
    subject: Subject,
    stepper: Stepper,
    learning: LoaderOptions,
    evaluator: Evaluator,
    /// Begins with the first update.
    loader: Option<Loader>,
    size: TaskSize,
    /// Updates of the epoch that were made.
    place: u64,
}

impl ImageTask {
    /// Plans a recipe's updates, and makes the state that they change. Only what a user must mend is refused; nothing is written.
    pub fn new(mut recipe: Recipe, splits: &Splits, device: &Device) -> Result<(ImageTask, State), TrainError> {
        let subject = Subject::new(&mut recipe, splits)?;
        let several = match recipe.loss.kind {
            LossKind::Auto => splits.several_labels,
            kind => kind == LossKind::BinaryCrossEntropy,
        };
        if splits.several_labels && !several {
            let what = "images have several labels here: `loss.kind` must be \"binary_cross_entropy\"";
            return Err(TrainError::Data(what.to_string()));
        }
        let learning = learning_options(&recipe, splits, &subject, several, form_for(device))?;
        let batches = learning.batches() as u64;
        if batches == 0 {
            let what = format!(
                "a batch of {} is more than the {} training images; lower train.batch",
                recipe.train.batch,
                splits.train.len()
            );
            return Err(TrainError::Data(what));
        }
        let batches_per_step = batches.min(recipe.train.accumulate as u64);
        let (stepper, state) = Stepper::new(&recipe, learning.targets, raw_ones(&learning), device)?;
        let size = TaskSize {
            samples: splits.train.len(),
            steps_per_epoch: batches.div_ceil(batches_per_step),
            units_per_step: recipe.train.batch * batches_per_step as usize,
            bytes: stepper.bytes(),
            flops: stepper.flops() * batches_per_step,
        };
        let evaluator = Evaluator::new(&recipe, splits, &subject, device);
        let data = splits.kind.clone();
        let task = ImageTask { recipe, data, subject, stepper, learning, evaluator, loader: None, size, place: 0 };
        Ok((task, state))
    }

    /// What the loop needs of the recipe, which is complete now.
    pub fn settings(&self) -> LoopSettings {
        let Recipe { train, optimizer, schedule, output, .. } = &self.recipe;
        LoopSettings {
            seed: train.seed,
            epochs: train.epochs,
            precision: train.precision,
            ema: train.ema,
            ema_warmup: train.ema_warmup,
            average: 1,
            lr: optimizer.lr,
            clip: optimizer.clip,
            schedule: schedule.clone(),
            output: output.clone(),
            toml: self.recipe.to_toml(),
        }
    }

    /// Batches of the next update; an epoch's last update may have fewer.
    fn batches_of_update(&self) -> usize {
        let accumulate = self.recipe.train.accumulate;
        let left = self.learning.batches() - self.place as usize * accumulate;
        left.min(accumulate)
    }
}

impl Task for ImageTask {
    fn size(&self) -> TaskSize {
        self.size
    }

    fn unit(&self) -> SpeedUnit {
        SpeedUnit::Images
    }

    fn data(&self) -> &str {
        &self.data
    }

    fn names(&self) -> &[String] {
        &self.subject.model.labels
    }

    fn start(&self, state: &mut State) -> Result<(), TrainError> {
        self.subject.start(&self.recipe, state)
    }

    fn begin(&mut self, step: u64) {
        self.place = step % self.size.steps_per_epoch;
        let batch = self.place as usize * self.recipe.train.accumulate;
        let (epoch, epochs) = (step / self.size.steps_per_epoch, self.recipe.train.epochs);
        self.loader = Some(Loader::start(self.learning.clone(), epoch, batch, epochs));
    }

    fn update(&mut self, state: &mut State, rate: f64, ema_decay: Option<f64>, run: Run) -> Result<Update, TrainError> {
        let count = self.batches_of_update();
        let loader = self.loader.as_mut().expect("begun");
        let mut waited = Duration::ZERO;
        let mut next = |waiting: &Executor| {
            let before = Instant::now();
            let batch = loader.next().transpose()?;
            // While a GPU computes, it does not wait.
            waited += before.elapsed().min(waiting.idle_for()?);
            Ok(batch)
        };
        let (result, batches) = self.stepper.step(state, count, &mut next, (rate, ema_decay), run)?;
        self.place = (self.place + 1) % self.size.steps_per_epoch;
        let units = (batches.len() * self.recipe.train.batch) as u64;
        let flops = batches.len() as u64 * self.stepper.flops();
        let loader = self.loader.as_mut().expect("begun");
        batches.into_iter().for_each(|batch| loader.give_back(batch));
        // Of mixed images, and of images with several labels, no class is the right one.
        let asked = if self.learning.targets == TargetKind::Class { units } else { 0 };
        Ok(Update { result, asked, units, flops, waited })
    }

    fn evaluate(&mut self, state: &State, tell: &mut dyn FnMut(usize, usize)) -> Result<Option<Found>, TrainError> {
        self.evaluator.run(state, tell)
    }

    fn to_be_saved(&self, state: &State) -> Result<Option<State>, TrainError> {
        self.subject.without_adapters(&self.recipe, state)
    }

    fn save(&self, directory: &Path, state: &State) -> Result<(), TrainError> {
        self.subject.save(directory, state)
    }

    fn broken(&self) -> Vec<Broken> {
        let mut broken = self.loader.as_ref().map_or_else(Vec::new, Loader::broken);
        broken.extend_from_slice(self.evaluator.broken());
        broken
    }
}

fn learning_options(
    recipe: &Recipe,
    splits: &Splits,
    subject: &Subject,
    several: bool,
    form: Form,
) -> Result<LoaderOptions, TrainError> {
    let mixer = Mixer::new(&recipe.augment)?;
    let smoothing = recipe.loss.label_smoothing;
    let targets = match () {
        () if several => TargetKind::Each { smoothing },
        () if mixer.is_some() => TargetKind::Shares { smoothing },
        () => TargetKind::Class,
    };
    let config = &subject.model.config;
    Ok(LoaderOptions {
        dataset: splits.train.clone(),
        preparation: Preparation::Augmented(Box::new(Augment::new(&recipe.augment, &subject.preprocess)?)),
        form,
        mixer,
        shape: [config.channels, config.image.height, config.image.width],
        classes: splits.classes.len(),
        targets,
        batch: recipe.train.batch,
        seed: recipe.train.seed,
        shuffle: true,
        threads: loader_threads(recipe),
    })
}

/// Threads that prepare images.
pub(crate) fn loader_threads(recipe: &Recipe) -> usize {
    match recipe.data.threads {
        0 => std::thread::available_parallelism().map_or(1, std::num::NonZero::get).min(16),
        threads => threads,
    }
}
