//! How a run went over time: loss, accuracy, learning rate, speed.

use crate::chart::Lines;
use crate::escape;
use vitreous_train::{Format, LOSS, Metric, RunRecord};

use super::{figure, title};

/// A number of a run over its epochs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Curve {
    /// The training loss.
    Loss,
    /// The training accuracy, in percent.
    Accuracy,
    /// The learning rate.
    LearningRate,
    /// Units per second.
    Speed,
    /// The share of time spent waiting for data, in percent.
    Wait,
    /// The norm of the whole gradient.
    GradientNorm,
    /// A number of the evaluations on the validation data.
    Validation(&'static Metric),
}

/// A chart: its title, its vertical axis, what stands below it, how the axis is divided, and its curves with their names.
struct Chart {
    title: String,
    axis: String,
    note: &'static str,
    scale: Scale,
    curves: Vec<(&'static str, Curve)>,
}

/// How the vertical axis of a chart is divided.
#[derive(Clone, Copy)]
pub enum Scale {
    /// As far as the numbers reach.
    Tight,
    /// From zero on.
    FromZero,
    /// Logarithmic.
    Log,
}

impl Scale {
    /// The chart with such an axis.
    pub fn of(self, lines: Lines) -> Lines {
        match self {
            Scale::Tight => lines,
            Scale::FromZero => lines.from_zero(),
            Scale::Log => lines.log_y(),
        }
    }
}

/// The metrics of a run's evaluations: those that decide first, then the loss, then the others.
pub fn metrics(runs: &[&RunRecord]) -> Vec<&'static Metric> {
    let mut found: Vec<&'static Metric> = Vec::new();
    for score in runs.iter().flat_map(|run| &run.history.evaluations).flat_map(|line| &line.scores) {
        if !found.contains(&score.metric) {
            found.push(score.metric);
        }
    }
    found.sort_by_key(|metric| (!metric.decides, **metric != LOSS));
    found
}

/// The vertical axis of a metric.
pub fn axis(metric: &Metric) -> String {
    match metric.format {
        Format::Percent => format!("{}, %", metric.label),
        Format::Decimals(_) => metric.label.to_string(),
    }
}

/// All charts of a run: one per metric of its evaluations, with the same number of training where there is one, then the others.
fn charts(run: &RunRecord) -> Vec<Chart> {
    let mut metrics = metrics(&[run]);
    if !metrics.contains(&&LOSS) {
        metrics.push(&LOSS);
    }
    let of_metric = |metric: &'static Metric| {
        let training = match metric.key {
            "loss" => Some(("training", Curve::Loss)),
            "top1" => Some(("training", Curve::Accuracy)),
            _ => None,
        };
        let note = match metric.key {
            "loss" => {
                "Training uses augmentation, label smoothing and dropout where the recipe says so, so its loss can be above the validation loss."
            }
            _ => "",
        };
        let curves = training.into_iter().chain([("validation", Curve::Validation(metric))]).collect();
        Chart { title: title(metric), axis: axis(metric), note, scale: Scale::Tight, curves }
    };
    let other = |title: &str, axis: &str, note, scale, name, curve| Chart {
        title: title.to_string(),
        axis: axis.to_string(),
        note,
        scale,
        curves: vec![(name, curve)],
    };
    let waiting = "The share of time in which the model waited for its batches.";
    let gradient = "Of all parameters together, before clipping.";
    let speed = run.history.training.last().map_or("units/s".to_string(), |line| format!("{}/s", line.unit));
    let others = [
        other("Learning rate", "learning rate", "", Scale::FromZero, "learning rate", Curve::LearningRate),
        other("Speed", &speed, "", Scale::FromZero, "speed", Curve::Speed),
        other("Waiting for data", "% of the time", waiting, Scale::FromZero, "waiting", Curve::Wait),
        other("Gradient norm", "norm, logarithmic", gradient, Scale::Log, "gradient", Curve::GradientNorm),
    ];
    metrics.into_iter().map(of_metric).chain(others).collect()
}

/// The charts of one run.
pub fn html(run: &RunRecord) -> String {
    let charts: String = charts(run).iter().filter_map(|chart| chart.figure(run)).collect();
    match charts.is_empty() {
        true => match run.fault_of("metrics.jsonl") {
            Some(fault) => format!("<p>There is nothing to show: {}</p>", escape(&fault.to_string())),
            None => "<p>Nothing was measured yet: the first line of metrics comes some steps after the start.</p>"
                .to_string(),
        },
        false => format!("<div class=\"charts\">{charts}</div>"),
    }
}

impl Chart {
    /// `None` where the run has no such numbers.
    fn figure(&self, run: &RunRecord) -> Option<String> {
        let mut lines = self.scale.of(Lines::new(&self.title).x("epoch").whole_x().y(&self.axis));
        let mut empty = true;
        for (name, curve) in &self.curves {
            let points = points(run, *curve);
            if !points.is_empty() {
                lines = lines.series(name, &points);
                empty = false;
            }
        }
        (!empty).then(|| figure(&self.title, &lines.svg(), self.note))
    }
}

/// A curve's points: epochs and numbers.
pub fn points(run: &RunRecord, curve: Curve) -> Vec<(f64, f64)> {
    if let Curve::Validation(metric) = curve {
        let factor = if metric.format == Format::Percent { 100.0 } else { 1.0 };
        let lines = run.history.evaluations.iter();
        return lines.filter_map(|line| Some((line.epoch, factor * line.get(metric.key)?))).collect();
    }
    let lines = run.history.training.iter().filter_map(|line| {
        let value = match curve {
            Curve::Loss => line.loss,
            Curve::Accuracy => 100.0 * line.top1?,
            Curve::LearningRate => line.lr,
            Curve::Speed => line.speed,
            Curve::Wait => 100.0 * line.data_wait,
            Curve::GradientNorm => line.grad_norm,
            Curve::Validation(_) => return None,
        };
        Some((line.epoch, value))
    });
    lines.collect()
}
