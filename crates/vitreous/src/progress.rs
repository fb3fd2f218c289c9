//! How a training run shows itself: a bar on a terminal, a line an epoch elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use vitreous_train::metrics::{EvaluationMetrics, StepMetrics};
use vitreous_train::{Observer, Orders, RunPlan, SpeedUnit, StepResult, TestedScores};

use crate::device::described;
use vitreous_pages::format;
use crate::run_report::{Effort, LiveReport};

/// The least time between two reports of a run that goes on.
const REPORT_PAUSE: Duration = Duration::from_secs(2);

/// Redrawing more often would only flicker.
const REDRAW: Duration = Duration::from_millis(100);

/// Shows a run on stderr.
pub struct TrainProgress {
    epochs: u64,
    /// What is learned from, in a line.
    data: String,
    /// What computes.
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
    /// The last test is of the mean of so many checkpoints.
    averaged: usize,
}

impl TrainProgress {
    /// Of a run of so many epochs on data that is described by a line.
    pub fn new(epochs: u64, data: String, orders: &Orders, report: LiveReport) -> TrainProgress {
        // Hidden by itself where stderr is no terminal.
        let bar = ProgressBar::with_draw_target(Some(1), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{bar:12} {percent:>3} %  {wide_msg}").expect("a sound template");
        bar.set_style(style.progress_chars("━╸─"));
        TrainProgress {
            epochs,
            data,
            device: described(&orders.device),
            bar,
            stop: orders.stop.clone(),
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
            averaged: 1,
        }
    }

    /// Says of the last test that it is of the mean of so many checkpoints.
    pub fn averaged(mut self, checkpoints: usize) -> TrainProgress {
        self.averaged = checkpoints;
        self
    }

    /// Takes the bar away, and writes the report of how it ended.
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

    /// What is counted by the second.
    fn unit(&self) -> &'static str {
        match self.plan.as_ref().map(|plan| plan.unit) {
            Some(SpeedUnit::Tokens) => "tokens",
            _ => "images",
        }
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
            "model   {} parameters{trained}; {:.1} GFLOP and {} a step of {} {}",
            count(plan.parameters),
            plan.flops as f64 / 1e9,
            format::bytes(plan.bytes),
            plan.units_per_step,
            self.unit()
        ));
        self.line(&format!("on      {}", self.device));
        self.line(&format!("run     {}", plan.directory.display()));
        if plan.first_step > 0 {
            self.line(&format!("goes on after step {} of {}", plan.first_step, plan.steps));
        }
        self.started = Instant::now();
        self.bar.set_position(plan.first_step);
    }

    fn stepped(&mut self, step: u64, result: &StepResult, asked: u64, lr: f64) {
        // Running means, so that the eye can follow.
        let follow = |before: f64, now: f64| 0.95 * before + 0.05 * now;
        self.loss = if self.loss.is_nan() { result.loss } else { follow(self.loss, result.loss) };
        if asked > 0 {
            let right = result.right as f64 / asked as f64;
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

    fn measured(&mut self, metrics: &StepMetrics) {
        // The first steps are slower; later ones should not jump.
        self.speed = match self.speed {
            0.0 => metrics.speed(),
            before => 0.7 * before + 0.3 * metrics.speed(),
        };
    }

    fn evaluating(&mut self, done: usize, all: usize) {
        if self.drawn.elapsed() > REDRAW {
            self.bar.set_message(format!("testing {done}/{all}"));
            self.drawn = Instant::now();
        }
    }

    fn tested(&mut self, scores: &TestedScores) {
        if let TestedScores::Translation(report) = scores {
            for shown in &report.shown {
                self.line(&format!("  {}", format::one_line(&shown.source)));
                self.line(&format!("  -> {}", format::one_line(&shown.translation)));
            }
        }
    }

    fn epoch_ended(&mut self, epoch: u64, metrics: Option<&EvaluationMetrics>, train: &StepMetrics) {
        let width = self.epochs.to_string().len();
        let mut parts = vec![format!("epoch {epoch:>width$}/{}", self.epochs), format!("loss {:.3}", train.loss)];
        if let Some(metrics) = metrics {
            parts.push(format!("test loss {:.3}", metrics.val_loss));
            parts.extend(metrics.val_top1.map(|top1| format!("test accuracy {:.2} %", 100.0 * top1)));
            parts.extend(metrics.val_map.map(|mean| format!("mean average precision {mean:.4}")));
            if let Some(bleu) = metrics.val_bleu {
                parts.push(format!("perplexity {:.2}  BLEU {bleu:.2}", metrics.val_loss.exp()));
            }
        }
        if epoch == self.epochs && self.averaged > 1 && metrics.is_some() {
            parts.push(format!("(tested: the mean of {} checkpoints)", self.averaged));
        }
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
