//! The loop: epochs of updates, evaluations between them, checkpoints, metrics.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use vitreous_data::augment::{Augment, Mixer};
use vitreous_data::dataset::Splits;
use vitreous_data::loader::{Batch, Broken, Loader, LoaderOptions, Preparation, TargetKind};
use vitreous_engine::cpu::measured_limit;
use vitreous_engine::{Run, State};

use crate::checkpoint::{Checkpoints, Progress};
use crate::error::TrainError;
use crate::evaluate::{Evaluation, Evaluator};
use crate::events::Events;
use crate::metrics::{EvaluationMetrics, GradientMetrics, MetricsFile, StepMetrics};
use crate::recipe::{LossKind, Recipe};
use crate::run_directory::{CHECKPOINTS, EVALUATION, MACHINE, METRICS, RunDirectory};
use crate::schedule::Schedule;
use crate::sittings::{Sitting, Sittings};
use crate::step::{StepResult, Stepper};
use crate::subject::Subject;
use crate::tested::{Tested, TestedAbout};

/// A run to be made, or to be taken up.
pub struct Job {
    /// What to compute. `model` is completed from the data and from what is fine-tuned.
    pub recipe: Recipe,
    /// What to learn from.
    pub splits: Splits,
    /// Where to write.
    pub place: Place,
    /// Threads of the model.
    pub threads: usize,
    /// Whether the length of each parameter's gradient is written with every line of metrics, and not only at each epoch's end.
    pub watch_gradients: bool,
    /// How the process was called, to be written down.
    pub command: Vec<String>,
    /// Set from outside to save and stop after the present update.
    pub stop: Arc<AtomicBool>,
}

/// Where a run is written.
pub enum Place {
    /// A directory that has no run yet.
    New(PathBuf),
    /// The next free `NAME-1`, `NAME-2` .. in a parent directory.
    Numbered {
        /// The parent.
        parent: PathBuf,
        /// The name.
        name: String,
    },
    /// A run that is taken up.
    Resumed(RunDirectory),
}

/// What is told while a run goes on.
pub trait Observer {
    /// Before the first update.
    fn started(&mut self, plan: &RunPlan);
    /// After each update.
    fn stepped(&mut self, step: u64, result: &StepResult, lr: f64);
    /// When a line of metrics was written.
    fn measured(&mut self, metrics: &StepMetrics);
    /// After each epoch, with its last line of metrics, and with its evaluation if there was one.
    fn epoch_ended(&mut self, epoch: u64, metrics: Option<&EvaluationMetrics>, train: &StepMetrics);
    /// While an evaluation goes on.
    fn evaluating(&mut self, done: usize, all: usize);
}

/// What will be done.
#[derive(Clone, Debug)]
pub struct RunPlan {
    /// Updates in all.
    pub steps: u64,
    /// Updates in an epoch.
    pub steps_per_epoch: u64,
    /// Where it starts: 0, or where a run is taken up.
    pub first_step: u64,
    /// Images of an update; the last of an epoch may have fewer.
    pub images_per_step: usize,
    /// Parameters of the model.
    pub parameters: usize,
    /// Parameters that learn.
    pub trained: usize,
    /// Memory of plan and state.
    pub bytes: usize,
    /// Arithmetic of an update.
    pub flops: u64,
    /// The run directory.
    pub directory: PathBuf,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The run directory.
    pub directory: PathBuf,
    /// Whether it was stopped from outside before its end.
    pub stopped: bool,
    /// Updates so far.
    pub step: u64,
    /// The last evaluation.
    pub last: Option<EvaluationMetrics>,
    /// The best evaluation: share of right answers (or mean average precision), and step.
    pub best: Option<(f64, u64)>,
    /// Images that could not be read.
    pub broken: Vec<Broken>,
    /// Time that this process trained.
    pub time: Duration,
}

/// Trains. A directory that has a checkpoint is taken up from there.
pub fn train(job: Job, observer: &mut dyn Observer) -> Result<Outcome, TrainError> {
    Trainer::new(job)?.run(observer)
}

struct Trainer {
    recipe: Recipe,
    directory: RunDirectory,
    stop: Arc<AtomicBool>,
    subject: Subject,
    stepper: Stepper,
    state: State,
    progress: Progress,
    schedule: Schedule,
    steps_per_epoch: u64,
    checkpoints: Checkpoints,
    metrics: MetricsFile,
    events: Events,
    sittings: Sittings,
    watch_gradients: bool,
    /// What the data was found to be.
    data: String,
    evaluator: Evaluator,
    learning: LoaderOptions,
    start: Instant,
    interval: Interval,
    threads: usize,
    /// Floating-point operations a second that the machine can do: the most of all that was measured or reached, because what else
    /// runs at the time makes it less.
    limit: f64,
    plan: RunPlan,
}

/// What this process did since the last line of metrics. What was learned since then is in [`Progress`], because a run that is
/// taken up goes on with it.
struct Interval {
    start: Instant,
    waited: Duration,
    batches: u64,
}

impl Trainer {
    fn new(job: Job) -> Result<Trainer, TrainError> {
        let Job { mut recipe, splits, place, threads, watch_gradients, command, stop } = job;
        let subject = Subject::new(&mut recipe, &splits)?;
        let several = match recipe.loss.kind {
            LossKind::Auto => splits.several_labels,
            kind => kind == LossKind::BinaryCrossEntropy,
        };
        if splits.several_labels && !several {
            let what = "images have several labels here: `loss.kind` must be \"binary_cross_entropy\"";
            return Err(TrainError::Data(what.to_string()));
        }
        let learning = learning_options(&recipe, &splits, &subject, several)?;
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
        let steps_per_epoch = batches.div_ceil(batches_per_step);
        let (stepper, mut state) = Stepper::new(&recipe, learning.targets, threads)?;
        // Only now: a run that cannot be started leaves nothing behind.
        let directory = match place {
            Place::New(path) => RunDirectory::create(&path, &recipe)?,
            Place::Numbered { parent, name } => RunDirectory::create_numbered(&parent, &name, &recipe)?,
            Place::Resumed(directory) => directory,
        };
        let checkpoints = Checkpoints::new(&directory.file(CHECKPOINTS), recipe.output.keep);
        let progress = match checkpoints.restore(&mut state)? {
            Some(progress) => progress,
            None => {
                subject.start(&recipe, &mut state)?;
                Progress { images: splits.train.len(), ..Progress::default() }
            }
        };
        if progress.images != splits.train.len() {
            let what = format!(
                "the data has {} images to learn from, but had {} when this run was saved; a run can go on only with the same data",
                splits.train.len(),
                progress.images
            );
            return Err(TrainError::Data(what));
        }
        let metrics = MetricsFile::open(&directory.file(METRICS), progress.step)?;
        let evaluator = Evaluator::new(&recipe, &splits, &subject, threads);
        let events = Events::open(directory.path(), &recipe, progress.step)?;
        let schedule = Schedule::new(&recipe, steps_per_epoch);
        let plan = RunPlan {
            steps: schedule.steps,
            steps_per_epoch,
            first_step: progress.step,
            images_per_step: recipe.train.batch * batches_per_step as usize,
            parameters: state.table().iter().map(|p| p.shape.elements()).sum(),
            trained: state.table().iter().filter(|p| p.gradient_offset.is_some()).map(|p| p.shape.elements()).sum(),
            bytes: stepper.bytes() + state.bytes(),
            flops: stepper.flops() * batches_per_step,
            directory: directory.path().to_path_buf(),
        };
        let sitting = Sitting {
            first_step: plan.first_step,
            step: plan.first_step,
            steps: plan.steps,
            parameters: plan.parameters,
            precision: recipe.train.precision.name().to_string(),
            ..Sitting::now(command, threads)
        };
        let now = Instant::now();
        Ok(Trainer {
            threads,
            sittings: Sittings::begin(&directory.file(MACHINE), sitting)?,
            data: splits.kind,
            limit: measured_limit(recipe.train.precision.into(), threads)?,
            watch_gradients,
            events,
            recipe,
            directory,
            stop,
            subject,
            stepper,
            state,
            progress,
            schedule,
            steps_per_epoch,
            checkpoints,
            metrics,
            evaluator,
            learning,
            start: now,
            interval: Interval { start: now, waited: Duration::ZERO, batches: 0 },
            plan,
        })
    }

    fn run(mut self, observer: &mut dyn Observer) -> Result<Outcome, TrainError> {
        observer.started(&self.plan);
        let accumulate = self.recipe.train.accumulate;
        let epochs = self.recipe.train.epochs;
        let epoch = self.progress.step / self.steps_per_epoch;
        let batch = (self.progress.step % self.steps_per_epoch) as usize * accumulate;
        let mut loader = Loader::start(self.learning.clone(), epoch, batch, epochs);
        let mut saved = Instant::now();
        let mut last = self.metrics.last_evaluation.take();
        self.start = Instant::now();
        self.begin_interval();
        while self.progress.step < self.schedule.steps {
            let batches = self.next_batches(&mut loader)?;
            let rate = self.schedule.rate(self.progress.step);
            let result = self.update(&batches, rate)?;
            batches.into_iter().for_each(|batch| loader.give_back(batch));
            observer.stepped(self.progress.step, &result, rate);

            let step = self.progress.step;
            let epoch_ends = step.is_multiple_of(self.steps_per_epoch);
            if step.is_multiple_of(self.recipe.output.log_steps) || epoch_ends {
                let line = self.log(&result, rate)?;
                observer.measured(&line);
                if epoch_ends {
                    let tested = if self.evaluation_is_due() { self.evaluate(observer)? } else { None };
                    self.sittings.reached(step, self.start.elapsed().as_secs_f64())?;
                    observer.epoch_ended(step / self.steps_per_epoch, tested.as_ref(), &line);
                    last = tested.or(last);
                    self.begin_interval();
                }
            }
            let stop = self.stop.load(Ordering::Relaxed);
            if epoch_ends || stop || self.checkpoint_is_due(saved) {
                self.checkpoints.save(&self.state, &self.progress)?;
                saved = Instant::now();
            }
            if stop {
                break;
            }
        }
        let stopped = self.progress.step < self.schedule.steps;
        let mut broken = loader.broken();
        broken.extend_from_slice(self.evaluator.broken());
        broken.sort();
        broken.dedup();
        let (step, best) = (self.progress.step, self.progress.best);
        let directory = self.directory.path().to_path_buf();
        let time = self.start.elapsed();
        self.sittings.reached(step, time.as_secs_f64())?;
        Ok(Outcome { directory, stopped, step, last, best, broken, time })
    }

    /// The batches of an update; an epoch's last update may have fewer.
    fn next_batches(&mut self, loader: &mut Loader) -> Result<Vec<Batch>, TrainError> {
        let accumulate = self.recipe.train.accumulate as u64;
        let place = self.progress.step % self.steps_per_epoch;
        let left = self.learning.batches() as u64 - place * accumulate;
        let before = Instant::now();
        let mut batches = Vec::new();
        for _ in 0..left.min(accumulate) {
            let batch = loader.next().expect("the loader has a batch for every step");
            batches.push(batch?);
        }
        self.interval.waited += before.elapsed();
        Ok(batches)
    }

    fn update(&mut self, batches: &[Batch], rate: f64) -> Result<StepResult, TrainError> {
        let step = self.progress.step;
        let run = Run { seed: self.recipe.train.seed, step };
        let decay = self.ema_decay(step);
        let result = match self.stepper.step(&mut self.state, batches, rate, decay, run) {
            Err(TrainError::NotFinite { what, .. }) => {
                let what = format!("{what}. {}", self.advice()?);
                return Err(TrainError::NotFinite { step: step + 1, what });
            }
            other => other?,
        };
        self.progress.step += 1;
        self.progress.loss_sum += result.loss;
        self.progress.right += result.right;
        self.progress.batches += batches.len() as u64;
        self.interval.batches += batches.len() as u64;
        Ok(result)
    }

    /// What to do when numbers went bad.
    fn advice(&self) -> Result<String, TrainError> {
        let kept = match self.checkpoints.all()?.last() {
            Some((step, path)) => format!("The checkpoint of step {step} is kept: {}. ", path.display()),
            None => "No checkpoint was saved yet. ".to_string(),
        };
        let clip = match self.recipe.optimizer.clip {
            0.0 => "optimizer.clip=1",
            _ => "a smaller optimizer.clip",
        };
        Ok(format!("{kept}Try a lower optimizer.lr, a longer warm-up, or {clip}"))
    }

    /// The average's decay after a step: small at first, so that it soon forgets where it started.
    fn ema_decay(&self, step: u64) -> Option<f64> {
        let settings = &self.recipe.train;
        let warm = (1 + step) as f64 / (10 + step) as f64;
        let decay = if settings.ema_warmup { settings.ema.min(warm) } else { settings.ema };
        Some(decay).filter(|_| settings.ema > 0.0)
    }

    fn begin_interval(&mut self) {
        self.interval = Interval { start: Instant::now(), waited: Duration::ZERO, batches: 0 };
    }

    /// Writes a line of metrics and begins the next interval.
    fn log(&mut self, result: &StepResult, lr: f64) -> Result<StepMetrics, TrainError> {
        let Progress { step, loss_sum, right, batches, .. } = self.progress;
        let seconds = self.interval.start.elapsed().as_secs_f64();
        let waited = self.interval.waited.as_secs_f64();
        // An interval never goes beyond an epoch, so only its last update may have had fewer batches.
        let updates = batches.div_ceil(self.recipe.train.accumulate as u64).max(1) as f64;
        let per_batch = self.recipe.train.batch as f64;
        let flops = self.interval.batches as f64 * self.stepper.flops() as f64;
        let rate = flops / (seconds - waited);
        // What was reached is possible, whatever was measured while the machine did other things.
        self.limit = self.limit.max(rate);
        // Of mixed images, and of images with several labels, no class is the right one.
        let one_class = self.learning.targets == TargetKind::Class;
        let metrics = StepMetrics {
            step,
            epoch: step as f64 / self.steps_per_epoch as f64,
            loss: loss_sum / updates,
            top1: one_class.then(|| right as f64 / (batches as f64 * per_batch)),
            lr,
            grad_norm: result.grad_norm,
            images_per_second: self.interval.batches as f64 * per_batch / seconds,
            data_wait: waited / seconds,
            peak_share: rate / self.limit,
            seconds: self.start.elapsed().as_secs_f64(),
        };
        self.metrics.add(&metrics)?;
        self.events.learned(&metrics)?;
        if self.watch_gradients || step.is_multiple_of(self.steps_per_epoch) {
            let count = result.batches as f64;
            let norms = self.state.gradient_norms().map(|(name, norm)| (name.to_string(), f64::from(norm) / count));
            let norms = GradientMetrics { step, gradient_norms: norms.collect() };
            self.metrics.add(&norms)?;
            self.events.gradients(&norms)?;
        }
        (self.progress.loss_sum, self.progress.right, self.progress.batches) = (0.0, 0, 0);
        self.begin_interval();
        Ok(metrics)
    }

    fn evaluation_is_due(&self) -> bool {
        let epoch = self.progress.step / self.steps_per_epoch;
        epoch.is_multiple_of(self.recipe.output.eval_epochs) || epoch == self.recipe.train.epochs
    }

    fn checkpoint_is_due(&self, last: Instant) -> bool {
        let output = &self.recipe.output;
        let by_steps = output.checkpoint_steps > 0 && self.progress.step.is_multiple_of(output.checkpoint_steps);
        let minutes = output.checkpoint_minutes;
        by_steps || (minutes > 0.0 && last.elapsed().as_secs_f64() > 60.0 * minutes)
    }

    /// Tests the model (its average where there is one) and saves it.
    fn evaluate(&mut self, observer: &mut dyn Observer) -> Result<Option<EvaluationMetrics>, TrainError> {
        self.state.swap_average();
        let merged = self.subject.without_adapters(&self.recipe, &self.state)?;
        let state = merged.as_ref().unwrap_or(&self.state);
        let found = self.evaluator.run(state, &mut |done, all| observer.evaluating(done, all))?;
        let step = self.progress.step;
        self.subject.save(&self.directory.file("model"), state)?;
        let score = found.as_ref().map(|found| found.scores.number()).filter(|score| !score.is_nan());
        if self.progress.best.is_none_or(|(best, _)| score.is_some_and(|score| score > best)) {
            self.progress.best = score.map(|score| (score, step));
            self.subject.save(&self.directory.file("best"), state)?;
        }
        self.state.swap_average();
        self.limit = self.limit.max(measured_limit(self.recipe.train.precision.into(), self.threads)?);
        let Some(Evaluation { scores, mistakes }) = found else { return Ok(None) };
        let epoch = step as f64 / self.steps_per_epoch as f64;
        let seconds = self.start.elapsed().as_secs_f64();
        let metrics = EvaluationMetrics::of(&scores, step, epoch, seconds);
        let (about, names) = (TestedAbout { step, epoch, data: self.data.clone() }, self.subject.model.labels.clone());
        Tested { about, names, scores, mistakes }.write(&self.directory.file(EVALUATION))?;
        self.metrics.add(&metrics)?;
        self.events.tested(&metrics)?;
        Ok(Some(metrics))
    }
}

fn learning_options(
    recipe: &Recipe,
    splits: &Splits,
    subject: &Subject,
    several: bool,
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
