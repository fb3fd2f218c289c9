//! How a training run shows itself: a progress bar on a terminal, one line per epoch elsewhere.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use vitreous_pages::format;
use vitreous_pages::report::pictures::Effort;
use vitreous_runtime::described;
use vitreous_train::metrics::TrainingMetrics;
use vitreous_train::watch::WatchMetrics;
use vitreous_train::{CheckpointAverage, EpochSummary, Observer, RunOptions, RunPlan, Score, Scores, StepResult, Task};

use crate::live_report::LiveReport;
use crate::say::is_quiet;

/// The least time between two reports of a run in progress.
const REPORT_PAUSE: Duration = Duration::from_secs(2);

/// Redrawing more often would only flicker.
const REDRAW: Duration = Duration::from_millis(100);

/// Shows a run on stderr.
pub struct TrainProgress {
    epochs: u64,
    /// The data in a line.
    data: String,
    /// The device in a line.
    device: String,
    bar: ProgressBar,
    stop: Arc<AtomicBool>,
    told_stop: bool,
    plan: Option<RunPlan>,
    loss: f64,
    accuracy: Option<f64>,
    rate: f64,
    speed: f64,
    drawn: Instant,
    started: Instant,
    report: LiveReport,
    /// When the report was written last.
    reported: Option<Instant>,
}

impl TrainProgress {
    /// Of a run of a task.
    pub fn new(task: &dyn Task, options: &RunOptions, report: LiveReport) -> TrainProgress {
        // Hidden by itself where stderr is no terminal.
        let target = if is_quiet() { ProgressDrawTarget::hidden() } else { ProgressDrawTarget::stderr() };
        let bar = ProgressBar::with_draw_target(Some(1), target);
        let style = ProgressStyle::with_template("{bar:12} {percent:>3} %  {wide_msg}").expect("a sound template");
        bar.set_style(style.progress_chars("━╸─"));
        TrainProgress {
            epochs: task.recipe().train.epochs,
            data: task.facts().summary.clone(),
            device: described(&options.device),
            bar,
            stop: options.stop.clone(),
            told_stop: false,
            plan: None,
            loss: f64::NAN,
            accuracy: None,
            rate: 0.0,
            speed: 0.0,
            drawn: Instant::now(),
            started: Instant::now(),
            report,
            reported: None,
        }
    }

    /// The run directory, once the run has begun.
    pub fn directory(&self) -> Option<&Path> {
        self.plan.as_ref().map(|plan| plan.directory.as_path())
    }

    /// Removes the bar, and writes the report of the run.
    pub fn finish(&mut self) {
        self.bar.finish_and_clear();
        self.write_report(Effort::Usual);
    }

    fn write_report(&mut self, effort: Effort) {
        let Some(plan) = &self.plan else { return };
        if let Some(note) = self.report.write(&plan.directory, effort) {
            self.line(&note);
        }
    }

    /// A line that stays.
    fn line(&self, text: &str) {
        self.bar.suspend(|| say!("{text}"));
    }

    fn draw(&mut self, step: u64) {
        let Some(plan) = &self.plan else { return };
        let epoch = (step.saturating_sub(1) / plan.steps_per_epoch + 1).min(self.epochs);
        let speed = match self.speed {
            // Until it was measured.
            0.0 => {
                let units = (step - plan.first_step) as f64 * plan.units_per_step as f64;
                (units / self.started.elapsed().as_secs_f64()).max(1e-3)
            }
            speed => speed,
        };
        let left = (plan.steps - step) as f64 * plan.units_per_step as f64 / speed;
        // The most wanted first: on a narrow terminal the end is cut off.
        let mut parts = vec![
            format!("epoch {epoch}/{}", self.epochs),
            format!("{} left", format::duration(Duration::from_secs_f64(left))),
            format!("loss {:.3}", self.loss),
        ];
        parts.extend(self.accuracy.map(|accuracy| format!("accuracy {:.1} %", 100.0 * accuracy)));
        parts.push(format!("lr {:.1e}", self.rate));
        parts.push(format!("{} {}/s", format::thousands(speed as u64), self.unit()));
        self.bar.set_position(step);
        self.bar.set_message(parts.join("  "));
    }

    /// The unit of speed.
    fn unit(&self) -> &'static str {
        self.plan.as_ref().map_or("units", |plan| plan.unit)
    }
}

impl Observer for TrainProgress {
    fn started(&mut self, plan: &RunPlan) {
        self.bar.set_length(plan.steps);
        let count = |number: usize| format::thousands(number as u64);
        let trained = match plan.trained == plan.parameters {
            true => String::new(),
            false => format!(", {} of them learn", count(plan.trained)),
        };
        self.plan = Some(plan.clone());
        self.line(&format!("data    {}", self.data));
        self.line(&format!(
            "model   {} parameters{trained}; {} of memory; {:.1} GFLOP in a step of {} {}",
            count(plan.parameters),
            format::bytes(plan.bytes),
            plan.flops as f64 / 1e9,
            plan.units_per_step,
            self.unit()
        ));
        self.line(&format!("device  {}", self.device));
        if let Some(ranks) = &plan.ranks {
            self.line(&format!("ranks   {ranks}; {} batches in an update", plan.batches_per_step));
            if plan.idle_ranks > 0 {
                let idle = format::count(plan.idle_ranks, "rank has", "ranks have");
                self.line(&format!(
                    "note: {idle} nothing to do, an epoch has too few batches: take a smaller train.batch"
                ));
            }
        }
        self.line(&format!("run     {}", plan.directory.display()));
        if plan.first_step > 0 {
            self.line(&format!("resumed after step {} of {}", plan.first_step, plan.steps));
        }
        self.started = Instant::now();
        self.bar.set_position(plan.first_step);
    }

    fn stepped(&mut self, step: u64, result: &StepResult, lr: f64) {
        // Running means, so that the eye can follow.
        let follow = |before: f64, now: f64| 0.95 * before + 0.05 * now;
        self.loss = if self.loss.is_nan() { result.loss } else { follow(self.loss, result.loss) };
        if result.correct.total > 0 {
            let right = result.correct.right as f64 / result.correct.total as f64;
            self.accuracy = Some(self.accuracy.map_or(right, |before| follow(before, right)));
        }
        self.rate = lr;
        if self.stop.load(Ordering::Relaxed) && !self.told_stop {
            self.told_stop = true;
            self.line("saving and stopping; Ctrl-C again stops at once");
        }
        if self.drawn.elapsed() > REDRAW {
            self.draw(step);
            self.drawn = Instant::now();
        }
    }

    fn logged(&mut self, metrics: &TrainingMetrics) {
        // The first steps are slower; later ones should not jump.
        self.speed = match self.speed {
            0.0 => metrics.speed,
            before => 0.7 * before + 0.3 * metrics.speed,
        };
    }

    fn watched(&mut self, metrics: &WatchMetrics) {
        self.line(&format!("  step {}: {}", metrics.step, metrics.excerpt()));
    }

    fn evaluating(&mut self, done: usize, all: usize) {
        if self.drawn.elapsed() > REDRAW {
            self.bar.set_message(format!("validation {done}/{all}"));
            self.drawn = Instant::now();
        }
    }

    fn evaluated(&mut self, scores: &Scores) {
        for line in scores.any_report().excerpt() {
            self.line(&format!("  {}", format::one_line(&line)));
        }
    }

    fn epoch_ended(&mut self, summary: &EpochSummary) {
        let EpochSummary { epoch, training, evaluation, average } = summary;
        let width = self.epochs.to_string().len();
        let mut parts = vec![format!("epoch {epoch:>width$}/{}", self.epochs), format!("loss {:.3}", training.loss)];
        if let Some(evaluation) = evaluation {
            let scores: Vec<String> = evaluation.scores.iter().map(Score::to_string).collect();
            parts.push(format!("validation {}", scores.join("  ")));
        }
        parts.extend(average.as_ref().map(about_average));
        parts.push(format!("{} {}/s", format::thousands(self.speed as u64), self.unit()));
        parts.push(format::duration(self.started.elapsed()));
        self.line(&parts.join("  "));
        // Where epochs take parts of a second, as on a GPU, the page would take longer than they do.
        if self.reported.is_none_or(|reported| reported.elapsed() > REPORT_PAUSE) {
            self.write_report(Effort::Little);
            self.reported = Some(Instant::now());
        }
    }
}

/// How the mean of the last checkpoints compares with them.
fn about_average(average: &CheckpointAverage) -> String {
    let CheckpointAverage { checkpoints, score, used } = average;
    let score = score.map(|score| format!(": {score}")).unwrap_or_default();
    match used {
        true => format!("(the mean of {checkpoints} checkpoints)"),
        false => format!("(the mean of {checkpoints} checkpoints is not better{score})"),
    }
}
