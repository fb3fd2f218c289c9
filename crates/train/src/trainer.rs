//! The loop: epochs of updates, evaluations between them, checkpoints, metrics.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use vitreous_data::dataset::Splits;
use vitreous_data::loader::Broken;
use vitreous_engine::{Device, Run, State};

use crate::checkpoint::{Checkpoints, Progress};
use crate::error::TrainError;
use crate::events::Events;
use crate::images::ImageTask;
use crate::metrics::{EvaluationMetrics, GradientMetrics, MetricsFile, StepMetrics};
use crate::recipe::{PrecisionChoice, Recipe, TranslationRecipe};
use crate::run_directory::{CHECKPOINTS, EVALUATION, MACHINE, METRICS, RunDirectory, write_whole};
use crate::schedule::Schedule;
use crate::sittings::{Sitting, Sittings};
use crate::step::StepResult;
use crate::task::{Found, LoopSettings, SpeedUnit, Task, Update};
use crate::tested::{Tested, TestedAbout, TestedScores};
use crate::translation::{PairData, TranslationTask};

/// The least time between two epochs that are saved, on a GPU.
const CHECKPOINT_PAUSE: Duration = Duration::from_secs(10);

/// What is learned.
pub enum Work {
    /// The classes of images.
    Images {
        /// What to compute. `model` is completed from the data and from what is fine-tuned.
        recipe: Box<Recipe>,
        /// What to learn from.
        splits: Splits,
    },
    /// To translate.
    Translation {
        /// What to compute. The model's vocabularies are completed from the data.
        recipe: Box<TranslationRecipe>,
        /// What to learn from.
        data: Box<PairData>,
    },
}

/// How and where a run is made, or taken up.
pub struct Orders {
    /// Where to write.
    pub place: Place,
    /// What the model learns on.
    pub device: Device,
    /// Threads of what is done on the processor.
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
    /// After each update, with how many answers were asked for, of which some were right.
    fn stepped(&mut self, step: u64, result: &StepResult, asked: u64, lr: f64);
    /// When a line of metrics was written.
    fn measured(&mut self, metrics: &StepMetrics);
    /// After an evaluation, with all that it found.
    fn tested(&mut self, _scores: &TestedScores) {}
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
    /// Images or tokens of an update, about: the last of an epoch may have fewer.
    pub units_per_step: usize,
    /// Which of the two.
    pub unit: SpeedUnit,
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
    /// The best evaluation: share of right answers (or mean average precision, or BLEU), and step.
    pub best: Option<(f64, u64)>,
    /// Images that could not be read.
    pub broken: Vec<Broken>,
    /// Time that this process trained.
    pub time: Duration,
}

/// Trains. A directory that has a checkpoint is taken up from there.
pub fn train(work: Work, orders: Orders, observer: &mut dyn Observer) -> Result<Outcome, TrainError> {
    // Measured while the device's memory is free: it takes some.
    let limit_in = |precision: PrecisionChoice| orders.device.measured_limit(precision.into());
    match work {
        Work::Images { recipe, splits } => {
            let limit = limit_in(recipe.train.precision)?;
            let (task, state) = ImageTask::new(*recipe, &splits, &orders.device)?;
            Trainer::new(task.settings(), Box::new(task), state, orders, limit)?.run(observer)
        }
        Work::Translation { recipe, data } => {
            let limit = limit_in(recipe.train.precision)?;
            let (task, state) = TranslationTask::new(*recipe, *data, &orders.device)?;
            Trainer::new(task.settings(), Box::new(task), state, orders, limit)?.run(observer)
        }
    }
}

struct Trainer {
    settings: LoopSettings,
    task: Box<dyn Task>,
    directory: RunDirectory,
    stop: Arc<AtomicBool>,
    state: State,
    progress: Progress,
    schedule: Schedule,
    steps_per_epoch: u64,
    checkpoints: Checkpoints,
    metrics: MetricsFile,
    events: Events,
    sittings: Sittings,
    watch_gradients: bool,
    start: Instant,
    interval: Interval,
    device: Device,
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
    units: u64,
    flops: u64,
}

impl Interval {
    fn begin() -> Interval {
        Interval { start: Instant::now(), waited: Duration::ZERO, units: 0, flops: 0 }
    }
}

impl Trainer {
    fn new(
        settings: LoopSettings,
        task: Box<dyn Task>,
        mut state: State,
        orders: Orders,
        limit: f64,
    ) -> Result<Trainer, TrainError> {
        let Orders { place, device, threads, watch_gradients, command, stop } = orders;
        // Only now: a run that cannot be started leaves nothing behind.
        let directory = match place {
            Place::New(path) => RunDirectory::create(&path, &settings.toml)?,
            Place::Numbered { parent, name } => RunDirectory::create_numbered(&parent, &name, &settings.toml)?,
            Place::Resumed(directory) => directory,
        };
        for (name, bytes) in task.files()? {
            write_whole(&directory.file(&name), &bytes)?;
        }
        let size = task.size();
        let regular = [size.steps_per_epoch, settings.output.checkpoint_steps];
        let checkpoints = Checkpoints::new(&directory.file(CHECKPOINTS), settings.output.keep).regular_at(regular);
        let progress = match checkpoints.restore(&mut state)? {
            Some(progress) => progress,
            None => {
                task.start(&mut state)?;
                Progress { samples: size.samples, ..Progress::default() }
            }
        };
        if progress.samples != size.samples {
            let what = format!(
                "the data has {} samples to learn from, but had {} when this run was saved; a run can go on only with the same data",
                size.samples, progress.samples
            );
            return Err(TrainError::Data(what));
        }
        let metrics = MetricsFile::open(&directory.file(METRICS), progress.step)?;
        let events = Events::open(directory.path(), &settings.toml, progress.step)?;
        let schedule = Schedule::new(&settings.schedule, settings.lr, settings.epochs, size.steps_per_epoch);
        let plan = RunPlan {
            steps: schedule.steps,
            steps_per_epoch: size.steps_per_epoch,
            first_step: progress.step,
            units_per_step: size.units_per_step,
            unit: task.unit(),
            parameters: state.table().iter().map(|p| p.shape.elements()).sum(),
            trained: state.table().iter().filter(|p| p.gradient_offset.is_some()).map(|p| p.shape.elements()).sum(),
            bytes: size.bytes + state.bytes(),
            flops: size.flops,
            directory: directory.path().to_path_buf(),
        };
        let sitting = Sitting {
            first_step: plan.first_step,
            step: plan.first_step,
            steps: plan.steps,
            parameters: plan.parameters,
            precision: settings.precision.name().to_string(),
            ..Sitting::now(command, &device, threads)
        };
        Ok(Trainer {
            sittings: Sittings::begin(&directory.file(MACHINE), sitting)?,
            limit,
            device,
            watch_gradients,
            events,
            settings,
            directory,
            stop,
            task,
            state,
            progress,
            schedule,
            steps_per_epoch: size.steps_per_epoch,
            checkpoints,
            metrics,
            start: Instant::now(),
            interval: Interval::begin(),
            plan,
        })
    }

    fn run(mut self, observer: &mut dyn Observer) -> Result<Outcome, TrainError> {
        observer.started(&self.plan);
        self.task.begin(self.progress.step);
        let mut saved = Instant::now();
        let mut last = self.metrics.last_evaluation.take();
        self.start = Instant::now();
        self.interval = Interval::begin();
        while self.progress.step < self.schedule.steps {
            let rate = self.schedule.rate(self.progress.step);
            let update = self.update(rate)?;
            observer.stepped(self.progress.step, &update.result, update.asked, rate);

            let step = self.progress.step;
            let epoch_ends = step.is_multiple_of(self.steps_per_epoch);
            if step.is_multiple_of(self.settings.output.log_steps) || epoch_ends {
                let line = self.log(&update.result, rate)?;
                observer.measured(&line);
                if epoch_ends {
                    let tested = if self.evaluation_is_due() { self.evaluate(observer)? } else { None };
                    self.sittings.reached(step, self.start.elapsed().as_secs_f64())?;
                    observer.epoch_ended(step / self.steps_per_epoch, tested.as_ref(), &line);
                    last = tested.or(last);
                    self.interval = Interval::begin();
                }
            }
            let stop = self.stop.load(Ordering::Relaxed);
            let epoch_is_kept = epoch_ends && self.epoch_is_kept(saved);
            if epoch_is_kept || stop || self.checkpoint_is_due(saved) {
                self.state.bring_home()?;
                self.checkpoints.save(&self.state, &self.progress)?;
                saved = Instant::now();
            }
            if stop {
                break;
            }
        }
        let stopped = self.progress.step < self.schedule.steps;
        let mut broken = self.task.broken();
        broken.sort();
        broken.dedup();
        let (step, best) = (self.progress.step, self.progress.best);
        let directory = self.directory.path().to_path_buf();
        let time = self.start.elapsed();
        self.sittings.reached(step, time.as_secs_f64())?;
        Ok(Outcome { directory, stopped, step, last, best, broken, time })
    }

    fn update(&mut self, rate: f64) -> Result<Update, TrainError> {
        let step = self.progress.step;
        let run = Run { seed: self.settings.seed, step };
        let decay = self.ema_decay(step);
        let update = match self.task.update(&mut self.state, rate, decay, run) {
            Err(TrainError::NotFinite { what, .. }) => {
                let what = format!("{what}. {}", self.advice()?);
                return Err(TrainError::NotFinite { step: step + 1, what });
            }
            other => other?,
        };
        self.progress.step += 1;
        self.progress.updates += 1;
        self.progress.loss_sum += update.result.loss;
        self.progress.right += update.result.right;
        self.progress.asked += update.asked;
        self.interval.waited += update.waited;
        self.interval.units += update.units;
        self.interval.flops += update.flops;
        Ok(update)
    }

    /// What to do when numbers went bad.
    fn advice(&self) -> Result<String, TrainError> {
        let kept = match self.checkpoints.all()?.last() {
            Some((step, path)) => format!("The checkpoint of step {step} is kept: {}. ", path.display()),
            None => "No checkpoint was saved yet. ".to_string(),
        };
        let clip = match self.settings.clip {
            0.0 => "optimizer.clip=1",
            _ => "a smaller optimizer.clip",
        };
        Ok(format!("{kept}Try a lower optimizer.lr, a longer warm-up, or {clip}"))
    }

    /// The average's decay after a step: small at first, so that it soon forgets where it started.
    fn ema_decay(&self, step: u64) -> Option<f64> {
        let LoopSettings { ema, ema_warmup, .. } = self.settings;
        let warm = (1 + step) as f64 / (10 + step) as f64;
        let decay = if ema_warmup { ema.min(warm) } else { ema };
        Some(decay).filter(|_| ema > 0.0)
    }

    /// Writes a line of metrics and begins the next interval.
    fn log(&mut self, result: &StepResult, lr: f64) -> Result<StepMetrics, TrainError> {
        let Progress { step, loss_sum, right, asked, updates, .. } = self.progress;
        let seconds = self.interval.start.elapsed().as_secs_f64();
        let waited = self.interval.waited.as_secs_f64();
        let speed = self.interval.units as f64 / seconds;
        let of = |unit: SpeedUnit| (self.task.unit() == unit).then_some(speed);
        let rate = self.interval.flops as f64 / (seconds - waited);
        // What was reached is possible, whatever was measured while the machine did other things.
        if !self.device.is_gpu() {
            self.limit = self.limit.max(rate);
        }
        let metrics = StepMetrics {
            step,
            epoch: step as f64 / self.steps_per_epoch as f64,
            loss: loss_sum / updates.max(1) as f64,
            top1: (asked > 0).then(|| right as f64 / asked as f64),
            lr,
            grad_norm: result.grad_norm,
            images_per_second: of(SpeedUnit::Images),
            tokens_per_second: of(SpeedUnit::Tokens),
            data_wait: waited / seconds,
            peak_share: rate / self.limit,
            seconds: self.start.elapsed().as_secs_f64(),
        };
        self.metrics.add(&metrics)?;
        self.events.learned(&metrics)?;
        if self.watch_gradients || step.is_multiple_of(self.steps_per_epoch) {
            self.state.bring_home()?;
            let count = result.batches as f64;
            let norms = self.state.gradient_norms().map(|(name, norm)| (name.to_string(), f64::from(norm) / count));
            let norms = GradientMetrics { step, gradient_norms: norms.collect() };
            self.metrics.add(&norms)?;
            self.events.gradients(&norms)?;
        }
        let Progress { loss_sum, right, asked, updates, .. } = &mut self.progress;
        (*loss_sum, *right, *asked, *updates) = (0.0, 0, 0, 0);
        self.interval = Interval::begin();
        Ok(metrics)
    }

    fn evaluation_is_due(&self) -> bool {
        let epoch = self.progress.step / self.steps_per_epoch;
        epoch.is_multiple_of(self.settings.output.eval_epochs) || epoch == self.settings.epochs
    }

    /// Whether an epoch that ends is saved. A GPU's may take a part of a second, as saving does: then not every one is, but the last, and all
    /// where they are averaged.
    fn epoch_is_kept(&self, last: Instant) -> bool {
        let is_last = self.progress.step == self.schedule.steps;
        is_last || !self.device.is_gpu() || self.settings.average > 1 || last.elapsed() > CHECKPOINT_PAUSE
    }

    fn checkpoint_is_due(&self, last: Instant) -> bool {
        let output = &self.settings.output;
        let by_steps = output.checkpoint_steps > 0 && self.progress.step.is_multiple_of(output.checkpoint_steps);
        let minutes = output.checkpoint_minutes;
        by_steps || (minutes > 0.0 && last.elapsed().as_secs_f64() > 60.0 * minutes)
    }

    /// Tests the model (its average where there is one) and saves it.
    fn evaluate(&mut self, observer: &mut dyn Observer) -> Result<Option<EvaluationMetrics>, TrainError> {
        self.state.bring_home()?;
        self.state.swap_average();
        let mut other = self.task.to_be_saved(&self.state)?;
        if self.settings.average > 1 && self.progress.step == self.schedule.steps {
            // This step's checkpoint is written after this.
            other = self.checkpoints.average_with(&self.state, self.settings.average - 1)?;
        }
        let state = other.as_ref().unwrap_or(&self.state);
        let found = self.task.evaluate(state, &mut |done, all| observer.evaluating(done, all))?;
        let step = self.progress.step;
        self.task.save(&self.directory.file("model"), state)?;
        let score = found.as_ref().map(|found| found.scores.number()).filter(|score| !score.is_nan());
        if self.progress.best.is_none_or(|(best, _)| score.is_some_and(|score| score > best)) {
            self.progress.best = score.map(|score| (score, step));
            self.task.save(&self.directory.file("best"), state)?;
        }
        self.state.swap_average();
        if !self.device.is_gpu() {
            // Clocks rise and fall, and others use the processor, too.
            self.limit = self.limit.max(self.device.measured_limit(self.settings.precision.into())?);
        }
        let Some(Found { scores, mistakes }) = found else { return Ok(None) };
        let epoch = step as f64 / self.steps_per_epoch as f64;
        let metrics = EvaluationMetrics::of(&scores, step, epoch, self.start.elapsed().as_secs_f64());
        let about = TestedAbout { step, epoch, data: self.task.data().to_string() };
        let tested = Tested { about, names: self.task.names().to_vec(), scores, mistakes };
        tested.write(&self.directory.file(EVALUATION))?;
        observer.tested(&tested.scores);
        self.metrics.add(&metrics)?;
        self.events.tested(&metrics)?;
        Ok(Some(metrics))
    }
}
