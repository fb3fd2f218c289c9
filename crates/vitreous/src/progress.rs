//! How a training run shows itself: a bar on a terminal, a line an epoch elsewhere.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use indicatif::{ProgressBar, ProgressDrawTarget, ProgressStyle};
use vitreous_data::dataset::Splits;
use vitreous_train::metrics::{EvaluationMetrics, StepMetrics};
use vitreous_train::{Observer, Recipe, RunPlan, StepResult};

use crate::format;
use crate::pages::report::{Effort, LiveReport};

/// Redrawing more often would only flicker.
const REDRAW: Duration = Duration::from_millis(100);

/// Shows a run on stderr.
pub struct TrainProgress {
    epochs: u64,
    images: usize,
    tests: usize,
    kind: String,
    classes: usize,
    bar: ProgressBar,
    stop: Arc<AtomicBool>,
    told_stop: bool,
    plan: Option<RunPlan>,
    loss: f64,
    accuracy: Option<f64>,
    /// Not so for mixed images, and for several labels.
    one_class_is_right: bool,
    batch: usize,
    rate: f64,
    speed: f64,
    drawn: Instant,
    started: Instant,
    report: LiveReport,
}

impl TrainProgress {
    pub fn new(recipe: &Recipe, splits: &Splits, threads: usize, stop: Arc<AtomicBool>) -> TrainProgress {
        // Hidden by itself where stderr is no terminal.
        let bar = ProgressBar::with_draw_target(Some(1), ProgressDrawTarget::stderr());
        let style = ProgressStyle::with_template("{bar:12} {percent:>3} %  {wide_msg}").expect("a sound template");
        bar.set_style(style.progress_chars("━╸─"));
        TrainProgress {
            epochs: recipe.train.epochs,
            images: splits.train.len(),
            tests: splits.validation.len(),
            kind: splits.kind.clone(),
            classes: splits.classes.len(),
            bar,
            stop,
            told_stop: false,
            plan: None,
            loss: f64::NAN,
            accuracy: None,
            one_class_is_right: recipe.augment.mixup == 0.0 && recipe.augment.cutmix == 0.0 && !splits.several_labels,
            batch: recipe.train.batch,
            rate: 0.0,
            speed: 0.0,
            drawn: Instant::now(),
            started: Instant::now(),
            report: LiveReport::new(splits, threads),
        }
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
                let images = (step - plan.first_step) as f64 * plan.images_per_step as f64;
                (images / self.started.elapsed().as_secs_f64()).max(1e-3)
            }
            speed => speed,
        };
        let left = (plan.steps - step) as f64 * plan.images_per_step as f64 / speed;
        // The most wanted first: on a narrow terminal the end is cut off.
        let mut parts = vec![
            format!("epoch {epoch}/{}", self.epochs),
            format!("{} left", format::duration(Duration::from_secs_f64(left))),
            format!("loss {:.3}", self.loss),
        ];
        parts.extend(self.accuracy.map(|accuracy| format!("accuracy {:.1} %", 100.0 * accuracy)));
        parts.push(format!("lr {:.1e}", self.rate));
        parts.push(format!("{} images/s", format::thousands(speed as u64)));
        self.bar.set_position(step);
        self.bar.set_message(parts.join("  "));
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
        self.line(&format!(
            "data    {}: {} images to learn from, {} to test with, {} classes",
            self.kind,
            count(self.images),
            count(self.tests),
            self.classes
        ));
        self.line(&format!(
            "model   {} parameters{trained}; {:.1} GFLOP and {} a step of {} images",
            count(plan.parameters),
            plan.flops as f64 / 1e9,
            format::bytes(plan.bytes),
            plan.images_per_step
        ));
        self.line(&format!("run     {}", plan.directory.display()));
        if plan.first_step > 0 {
            self.line(&format!("goes on after step {} of {}", plan.first_step, plan.steps));
        }
        self.started = Instant::now();
        self.plan = Some(plan.clone());
        self.bar.set_position(plan.first_step);
    }

    fn stepped(&mut self, step: u64, result: &StepResult, lr: f64) {
        // Running means, so that the eye can follow.
        let follow = |before: f64, now: f64| 0.95 * before + 0.05 * now;
        self.loss = if self.loss.is_nan() { result.loss } else { follow(self.loss, result.loss) };
        if self.one_class_is_right {
            let right = result.right as f64 / (self.batch * result.batches) as f64;
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
            0.0 => metrics.images_per_second,
            before => 0.7 * before + 0.3 * metrics.images_per_second,
        };
    }

    fn evaluating(&mut self, done: usize, all: usize) {
        if self.drawn.elapsed() > REDRAW {
            self.bar.set_message(format!("testing {done}/{all}"));
            self.drawn = Instant::now();
        }
    }

    fn epoch_ended(&mut self, epoch: u64, metrics: Option<&EvaluationMetrics>, train: &StepMetrics) {
        let width = self.epochs.to_string().len();
        let mut parts = vec![format!("epoch {epoch:>width$}/{}", self.epochs), format!("loss {:.3}", train.loss)];
        if let Some(metrics) = metrics {
            parts.push(format!("test loss {:.3}", metrics.val_loss));
            parts.extend(metrics.val_top1.map(|top1| format!("test accuracy {:.2} %", 100.0 * top1)));
            parts.extend(metrics.val_map.map(|mean| format!("mean average precision {mean:.4}")));
        }
        parts.push(format!("{} images/s", format::thousands(self.speed as u64)));
        parts.push(format::duration(self.started.elapsed()));
        self.line(&parts.join("  "));
        self.write_report(Effort::Little);
    }
}
