//! The training loop: epochs of updates, evaluations between them, checkpoints, metrics.

mod begin;
mod evaluating;

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use vitreous_data::loader::{BatchPosition, BrokenSample, Loader};
use vitreous_engine::machine::Machine;
use vitreous_engine::{Device, Executor, Run, State};

use crate::checkpoint::{Checkpoints, Progress, Values};
use crate::error::TrainError;
use crate::events::Events;
use crate::fingerprint::{Fingerprint, values_but_paths};
use crate::metrics::{EpochMeans, EvaluationMetrics, GradientMetrics, MetricsFile, TrainingMetrics};
use crate::observer::{EpochSummary, Observer, Outcome, RunPlan};
use crate::ranks::{Facts, Ranks, agree, build};
use crate::run_directory::{CHECKPOINTS, MACHINE, METRICS, RunDirectory, write_whole};
use crate::schedule::Schedule;
use crate::scores::Score;
use crate::sessions::{Session, Sessions};
use crate::stepper::{StepResult, StepSettings, Stepper};
use crate::task::{Averaging, Task};
use crate::watch::{WatchMetrics, Watcher};
use begin::{Saved, begin};
use evaluating::Evaluated;

/// The least time between two epochs that are saved, on a GPU.
const CHECKPOINT_PAUSE: Duration = Duration::from_secs(10);

/// How and where a run is made or resumed.
pub struct RunOptions {
    /// Where to write.
    pub target: RunTarget,
    /// The device that computes.
    pub device: Device,
    /// Threads for the work that is done on the CPU.
    pub threads: usize,
    /// Whether the gradient norm of every parameter is written with each line of metrics, and not only at the end of each epoch.
    pub watch_gradients: bool,
    /// Whether the model is looked at with each line of metrics: see [`crate::watch`].
    pub watch_inside: bool,
    /// The command line, for the run directory.
    pub command: Vec<String>,
    /// Set from outside to save and stop after the current update.
    pub stop: Arc<AtomicBool>,
    /// The processes that train together.
    pub ranks: Ranks,
    /// Whether a run is resumed although its recipe or its data differs from those of its checkpoint.
    pub accept_changes: bool,
}

/// Where a run is written.
pub enum RunTarget {
    /// A directory that has no run yet.
    New(PathBuf),
    /// The next free `NAME-1`, `NAME-2` .. in a parent directory.
    Numbered {
        /// The parent.
        parent: PathBuf,
        /// The name.
        name: String,
    },
    /// A run that is resumed.
    Resume(RunDirectory),
    /// Nowhere: rank 0 writes.
    Nowhere,
}

/// Trains. A run directory that has a checkpoint is resumed from there.
pub fn train(task: Box<dyn Task>, options: RunOptions, observer: &mut dyn Observer) -> Result<Outcome, TrainError> {
    // Measured while the device's memory is free, because it takes some.
    let peak = options.device.measured_limit(task.recipe().train.precision.into())?;
    let facts = || Facts {
        version: build(),
        instruction_set: Machine::this().instruction_set.to_string(),
        device: if options.device.is_gpu() { "cuda" } else { "cpu" }.to_string(),
        samples: task.facts().samples,
        recipe: values_but_paths(task.recipe()),
        data: Fingerprint::new(task.recipe(), task.data_marks()).data,
        watch_gradients: options.watch_gradients,
    };
    agree(&options.ranks, facts)?;
    let (stepper, state) = Stepper::on_ranks(task.as_ref(), &options.device, &options.ranks)?;
    Trainer::new(task, stepper, state, options, peak)?.run(observer)
}

struct Trainer {
    task: Box<dyn Task>,
    stepper: Stepper,
    state: State,
    /// Batches per epoch.
    batches_per_epoch: usize,
    /// From the first update on.
    loader: Option<Loader>,
    /// Rank 0 has one.
    directory: Option<RunDirectory>,
    ranks: Ranks,
    stop: Arc<AtomicBool>,
    progress: Progress,
    schedule: Schedule,
    steps_per_epoch: u64,
    checkpoints: Checkpoints,
    /// What it is trained with, for its checkpoints.
    fingerprint: Fingerprint,
    metrics: MetricsFile,
    events: Events,
    sessions: Sessions,
    watch_gradients: bool,
    watcher: Option<Watcher>,
    start: Instant,
    /// When a checkpoint was saved last.
    saved: Instant,
    interval: Interval,
    device: Device,
    /// Floating-point operations per second that the device can do: the most that was measured or reached, because other programs may
    /// have run meanwhile.
    peak: f64,
    plan: RunPlan,
}

/// What this process did since the last line of metrics. The losses since then are in [`Progress`], because a resumed run needs them.
struct Interval {
    start: Instant,
    waited: Duration,
    waited_for_ranks: Duration,
    units: u64,
    flops: u64,
}

impl Interval {
    fn begin() -> Interval {
        let none = Duration::ZERO;
        Interval { start: Instant::now(), waited: none, waited_for_ranks: none, units: 0, flops: 0 }
    }
}

impl Trainer {
    fn new(
        task: Box<dyn Task>,
        stepper: Stepper,
        mut state: State,
        options: RunOptions,
        peak: f64,
    ) -> Result<Trainer, TrainError> {
        let RunOptions { target, device, threads, watch_gradients, watch_inside, command, stop, ranks, accept_changes } =
            options;
        let (recipe, facts) = (task.recipe(), task.facts());
        let toml = recipe.to_toml();
        // Only now: a run that cannot be started leaves nothing behind.
        let directory = match target {
            RunTarget::New(path) => Some(RunDirectory::create(&path, &toml)?),
            RunTarget::Numbered { parent, name } => Some(RunDirectory::create_numbered(&parent, &name, &toml)?),
            RunTarget::Resume(directory) => Some(directory),
            RunTarget::Nowhere => None,
        };
        if let Some(directory) = &directory {
            for (name, bytes) in task.files()? {
                write_whole(&directory.file(&name), &bytes)?;
            }
        }
        let batches_per_epoch = task.batches().batches_per_epoch();
        let batches = batches_per_epoch as u64;
        let batches_per_step = batches.min(recipe.train.accumulate as u64);
        let steps_per_epoch = batches.div_ceil(batches_per_step);
        let regular = [steps_per_epoch, recipe.output.checkpoint_steps];
        let path = directory.as_ref().map(|directory| directory.path().to_path_buf()).unwrap_or_default();
        let checkpoints = Checkpoints::new(&path.join(CHECKPOINTS), recipe.output.keep).regular_at(regular);
        let fingerprint = Fingerprint::new(recipe, task.data_marks());
        let saved = Saved { directory: directory.as_ref(), checkpoints: &checkpoints, fingerprint: &fingerprint };
        let (progress, accepted_changes) = begin(task.as_ref(), &stepper, &mut state, &ranks, saved, accept_changes)?;
        let (metrics, events) = match &directory {
            Some(directory) => (
                MetricsFile::open(&directory.file(METRICS), progress.step)?,
                Events::open(directory.path(), &toml, progress.step)?,
            ),
            None => (MetricsFile::nowhere(), Events::nowhere()),
        };
        let schedule = Schedule::new(&recipe.schedule, recipe.optimizer.lr, recipe.train.epochs, steps_per_epoch);
        let plan = RunPlan {
            steps: schedule.steps,
            steps_per_epoch,
            first_step: progress.step,
            units_per_step: (facts.units_per_epoch * batches_per_step / batches) as usize,
            unit: facts.unit,
            parameters: state.table().iter().map(|p| p.shape.elements()).sum(),
            trained: state.table().iter().filter(|p| p.gradient_offset.is_some()).map(|p| p.shape.elements()).sum(),
            bytes: stepper.bytes() + state.bytes(),
            flops: stepper.largest_flops() * batches_per_step,
            directory: path,
            ranks: ranks.summary().map(|all| match stepper.carrier() {
                Some(carrier) => format!("{all}; {carrier}"),
                None => all,
            }),
            batches_per_step: batches_per_step as usize,
            idle_ranks: ranks.size().saturating_sub(batches_per_step as usize),
        };
        let session = Session {
            first_step: plan.first_step,
            step: plan.first_step,
            steps: plan.steps,
            parameters: plan.parameters,
            precision: recipe.train.precision.name().to_string(),
            accepted_changes,
            ranks: ranks.size(),
            ..Session::now(command, &device, threads)
        };
        Ok(Trainer {
            sessions: match &directory {
                Some(directory) => Sessions::begin(&directory.file(MACHINE), session)?,
                None => Sessions::nowhere(),
            },
            // That of all ranks together.
            peak: peak * ranks.size() as f64,
            ranks,
            device,
            watch_gradients,
            watcher: (watch_inside && directory.is_some()).then(Watcher::default),
            events,
            directory,
            stop,
            task,
            stepper,
            state,
            batches_per_epoch,
            loader: None,
            progress,
            schedule,
            steps_per_epoch,
            checkpoints,
            fingerprint,
            metrics,
            start: Instant::now(),
            saved: Instant::now(),
            interval: Interval::begin(),
            plan,
        })
    }

    fn run(mut self, observer: &mut dyn Observer) -> Result<Outcome, TrainError> {
        observer.started(&self.plan);
        self.start_loader();
        self.saved = Instant::now();
        self.start = Instant::now();
        self.interval = Interval::begin();
        self.ranks.expect_progress();
        while self.progress.step < self.schedule.steps {
            let rate = self.schedule.rate(self.progress.step);
            let is_logged = self.is_logged(self.progress.step + 1);
            let (result, watched) = self.update(rate, is_logged)?;
            observer.stepped(self.progress.step, &result, rate);

            let step = self.progress.step;
            if is_logged {
                let line = self.log(&result, rate)?;
                observer.logged(&line);
                if let Some(watched) = &watched {
                    self.metrics.add(watched)?;
                    self.events.watched(watched)?;
                    observer.watched(watched);
                }
                if let Some(training) = line.of_epoch {
                    self.end_epoch(training, observer)?;
                }
            }
            // A rank that is asked to stop stops all, after the same update.
            let stop = if self.ranks.size() > 1 { result.stop } else { self.stop.load(Ordering::Relaxed) };
            let is_due = if self.ranks.size() > 1 { result.save } else { self.checkpoint_is_due(step) };
            if is_due || stop {
                self.save_checkpoint()?;
                self.saved = Instant::now();
            }
            if stop {
                break;
            }
        }
        self.outcome()
    }

    fn save_checkpoint(&mut self) -> Result<(), TrainError> {
        self.state.bring_home()?;
        let others = self.stepper.moments_elsewhere(&self.state);
        let Some(directory) = &self.directory else {
            return others.map_or(Ok(()), |others| others.help_save(&self.state));
        };
        directory.directory(CHECKPOINTS)?;
        let moments = |index: usize, second: bool| match others {
            Some(others) => others.moments_of(&self.state, index, second),
            None => Ok(Vec::new()),
        };
        let values = Values { state: &self.state, moments: others.is_some().then_some(&moments) };
        self.checkpoints.save(&values, &self.progress, &self.fingerprint).map(|_| ())
    }

    fn outcome(mut self) -> Result<Outcome, TrainError> {
        let stopped = self.progress.step < self.schedule.steps;
        let mut unreadable = self.loader.as_ref().map_or_else(Vec::new, Loader::broken);
        unreadable.extend(self.task.unreadable());
        // Each rank reads its own samples.
        let told = unreadable.into_iter().map(|BrokenSample { name, reason }| (name, reason)).collect();
        let all: Vec<Vec<(String, String)>> = self.ranks.gather(told)?;
        let all = all.into_iter().flatten();
        let mut unreadable: Vec<_> = all.map(|(name, reason)| BrokenSample { name, reason }).collect();
        unreadable.sort();
        unreadable.dedup();
        let step = self.progress.step;
        let last = self.metrics.history.evaluations.pop();
        let metric = last.as_ref().and_then(EvaluationMetrics::deciding).map(|score| score.metric);
        let best = self.progress.best.zip(metric).map(|((value, step), metric)| (Score { metric, value }, step));
        let directory = self.plan.directory.clone();
        let time = self.start.elapsed();
        self.sessions.reached(step, time.as_secs_f64())?;
        Ok(Outcome { directory, stopped, step, last, best, unreadable, time })
    }

    /// Starts to load batches from the next update on.
    fn start_loader(&mut self) {
        let (epoch, place) = (self.progress.step / self.steps_per_epoch, self.progress.step % self.steps_per_epoch);
        let train = &self.task.recipe().train;
        let first = BatchPosition { epoch, index: place as usize * train.accumulate };
        let threads = self.task.facts().loader_threads;
        let (ranks, accumulate) = (self.ranks.clone(), train.accumulate);
        let is_own = move |index: usize| ranks.takes(index, accumulate);
        self.loader = Some(Loader::of_some(self.task.batches(), first, train.epochs, threads, is_own));
    }

    /// Batches of the next update; the last update of an epoch may have fewer.
    fn batches_of_update(&self) -> usize {
        let accumulate = self.task.recipe().train.accumulate;
        let place = (self.progress.step % self.steps_per_epoch) as usize;
        (self.batches_per_epoch - place * accumulate).min(accumulate)
    }

    /// Whether a line of metrics is written after a step.
    fn is_logged(&self, step: u64) -> bool {
        step.is_multiple_of(self.task.recipe().output.log_steps) || step.is_multiple_of(self.steps_per_epoch)
    }

    /// Makes an update; with `look`, a watched model is looked at.
    fn update(&mut self, rate: f64, look: bool) -> Result<(StepResult, Option<WatchMetrics>), TrainError> {
        let step = self.progress.step;
        let run = Run { seed: self.task.recipe().train.seed, step };
        let settings = StepSettings {
            batches: self.batches_of_update(),
            rate,
            ema_decay: self.ema_decay(step),
            stop: self.stop.load(Ordering::Relaxed),
            save: self.checkpoint_is_due(step + 1),
        };
        let mut watcher = self.watcher.as_mut().filter(|_| look);
        if let Some(watcher) = &mut watcher {
            watcher.before(&mut self.state)?;
        }
        let loader = self.loader.as_mut().expect("the loader was started");
        let mut waited = Duration::ZERO;
        let mut next = |waiting: &Executor| {
            let before = Instant::now();
            let batch = loader.next().transpose()?;
            // While a GPU computes, it does not wait.
            waited += before.elapsed().min(waiting.idle_for()?);
            Ok(batch)
        };
        let (result, used) = match self.stepper.step(self.task.as_ref(), &mut self.state, settings, &mut next, run) {
            Err(TrainError::NotFinite { what, .. }) => {
                let what = format!("{what}. {}", self.advice()?);
                return Err(TrainError::NotFinite { step: step + 1, what });
            }
            other => other?,
        };
        let watched = match (watcher, used.last()) {
            (Some(watcher), Some(batch)) => {
                let seen = watcher.after(self.task.as_ref(), &mut self.state, batch, run, &self.device)?;
                Some(WatchMetrics { step: step + 1, ..seen })
            }
            _ => None,
        };
        used.into_iter().for_each(|batch| loader.give_back(batch));
        self.progress.step += 1;
        self.progress.updates += 1;
        self.progress.loss_sum += result.loss;
        self.progress.right += result.correct.right;
        self.progress.asked += result.correct.total;
        self.interval.waited += waited;
        self.interval.waited_for_ranks += self.ranks.take_waited();
        self.interval.units += result.units;
        self.interval.flops += result.flops;
        Ok((result, watched))
    }

    /// What to do about numbers that are not finite.
    fn advice(&self) -> Result<String, TrainError> {
        let kept = match self.checkpoints.all()?.last() {
            Some((step, path)) => format!("The checkpoint of step {step} is kept: {}. ", path.display()),
            None => "No checkpoint was saved yet. ".to_string(),
        };
        let clip = match self.task.recipe().optimizer.clip {
            0.0 => "optimizer.clip=1",
            _ => "a smaller optimizer.clip",
        };
        Ok(format!("{kept}Try a lower optimizer.lr, a longer warm-up, or {clip}"))
    }

    /// The decay of the moving average after a step: small at first, so that it soon forgets the initial values.
    fn ema_decay(&self, step: u64) -> Option<f64> {
        let Averaging { ema, ema_warmup, .. } = self.task.facts().averaging;
        let warm = (1 + step) as f64 / (10 + step) as f64;
        let decay = if ema_warmup { ema.min(warm) } else { ema };
        Some(decay).filter(|_| ema > 0.0)
    }

    /// Writes a line of metrics and begins the next interval.
    fn log(&mut self, result: &StepResult, lr: f64) -> Result<TrainingMetrics, TrainError> {
        let Progress { step, loss_sum, right, asked, updates, .. } = self.progress;
        let seconds = self.interval.start.elapsed().as_secs_f64();
        let waited = self.interval.waited.as_secs_f64();
        let flop_rate = self.interval.flops as f64 / (seconds - waited);
        // What was reached is possible, whatever was measured while other programs ran.
        if !self.device.is_gpu() {
            self.peak = self.peak.max(flop_rate);
        }
        let rank_wait = self.interval.waited_for_ranks.as_secs_f64() / seconds;
        let mut line = TrainingMetrics {
            step,
            epoch: step as f64 / self.steps_per_epoch as f64,
            loss: loss_sum / updates.max(1) as f64,
            top1: (asked > 0).then(|| right as f64 / asked as f64),
            lr,
            grad_norm: result.grad_norm,
            speed: self.interval.units as f64 / seconds,
            unit: self.task.facts().unit.to_string(),
            data_wait: waited / seconds,
            rank_wait: (self.ranks.size() > 1).then_some(rank_wait),
            peak_share: flop_rate / self.peak,
            seconds: self.start.elapsed().as_secs_f64(),
            of_epoch: None,
        };
        self.metrics.history.training.push(line.clone());
        if step.is_multiple_of(self.steps_per_epoch) {
            line.of_epoch = EpochMeans::of(&self.metrics.history.training, step - self.steps_per_epoch);
            // The next epoch needs them no more.
            self.metrics.history.training.clear();
        }
        self.metrics.add(&line)?;
        self.events.training(&line)?;
        if self.watch_gradients || step.is_multiple_of(self.steps_per_epoch) {
            self.log_gradients(result)?;
        }
        let Progress { loss_sum, right, asked, updates, .. } = &mut self.progress;
        (*loss_sum, *right, *asked, *updates) = (0.0, 0, 0, 0);
        self.interval = Interval::begin();
        Ok(line)
    }

    fn log_gradients(&mut self, result: &StepResult) -> Result<(), TrainError> {
        self.stepper.complete_gradients(&mut self.state)?;
        if self.directory.is_none() {
            return Ok(());
        }
        self.state.bring_home()?;
        let count = result.gradient_sum_of as f64;
        let norms = self.state.gradient_norms().map(|(name, norm)| (name.to_string(), f64::from(norm) / count));
        let norms = GradientMetrics { step: self.progress.step, gradient_norms: norms.collect() };
        self.metrics.add(&norms)?;
        self.events.gradients(&norms)
    }

    /// Evaluates if that is due, and tells how the epoch went.
    fn end_epoch(&mut self, training: EpochMeans, observer: &mut dyn Observer) -> Result<(), TrainError> {
        let step = self.progress.step;
        let Evaluated { metrics, average } = match self.evaluation_is_due() {
            true => self.evaluate(observer)?,
            false => Evaluated { metrics: None, average: None },
        };
        self.sessions.reached(step, self.start.elapsed().as_secs_f64())?;
        let epoch = step / self.steps_per_epoch;
        observer.epoch_ended(&EpochSummary { epoch, training, evaluation: metrics.as_ref(), average });
        self.metrics.history.evaluations.extend(metrics);
        self.interval = Interval::begin();
        Ok(())
    }

    fn evaluation_is_due(&self) -> bool {
        let epoch = self.progress.step / self.steps_per_epoch;
        let recipe = self.task.recipe();
        epoch.is_multiple_of(recipe.output.eval_epochs) || epoch == recipe.train.epochs
    }

    /// Whether a checkpoint is saved after a step that ends an epoch. On a GPU an epoch may take a fraction of a second, as saving does: then
    /// not every epoch is saved, but the last one is, and all where checkpoints are averaged.
    fn epoch_is_kept(&self, step: u64) -> bool {
        let averages = self.task.facts().averaging.checkpoints > 1;
        let is_last = step == self.schedule.steps;
        is_last || !self.device.is_gpu() || averages || self.saved.elapsed() > CHECKPOINT_PAUSE
    }

    fn is_last_step(&self) -> bool {
        self.progress.step == self.schedule.steps
    }

    /// Whether a checkpoint is saved after a step. Of several ranks, rank 0 says it, before the step.
    fn checkpoint_is_due(&self, step: u64) -> bool {
        let output = &self.task.recipe().output;
        let by_steps = output.checkpoint_steps > 0 && step.is_multiple_of(output.checkpoint_steps);
        let minutes = output.checkpoint_minutes;
        let by_time = minutes > 0.0 && self.saved.elapsed().as_secs_f64() > 60.0 * minutes;
        by_steps || by_time || (step.is_multiple_of(self.steps_per_epoch) && self.epoch_is_kept(step))
    }
}
