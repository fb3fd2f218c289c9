//! How a run went over time: loss, accuracy, learning rate, speed.

use vitreous_train::{Format, LOSS, Metric, RunRecord};

use super::headline::speed_unit;
use super::{figure, has_metric, is_text, title};
use crate::chart::Lines;
use crate::escape;

/// A number of a run over its epochs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Curve {
    /// Training loss.
    Loss,
    /// Accuracy on training batches, in percent.
    Accuracy,
    /// Learning rate.
    LearningRate,
    /// Images, tokens or other units per second.
    Speed,
    /// The share of time spent waiting for data, in percent.
    Wait,
    /// The gradient norm of all parameters together.
    GradientNorm,
    /// A number of the evaluations on the validation data.
    Validation(&'static Metric),
}

/// A chart: its title, its vertical axis, its caption, how the axis is divided, and its curves with their names.
struct Chart {
    title: String,
    axis: String,
    note: &'static str,
    division: Division,
    curves: Vec<(&'static str, Curve)>,
}

/// How a vertical axis is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Division {
    /// As far as the values reach.
    Tight,
    /// From 0.
    FromZero,
    /// Logarithmic.
    Log,
}

/// Under the loss of a run on images, and on text.
const LOSS_OF_IMAGES: &str = "Each point of the training loss is the mean over the steps since the point before. It includes augmentation, label smoothing and dropout, as the recipe sets them, so it can lie above the validation loss.";
const LOSS_OF_TEXT: &str = "Each point of the training loss is the mean over the steps since the point before. It includes label smoothing and dropout, as the recipe sets them, so it can lie above the validation loss.";

/// The metrics of the evaluations of some runs: those that decide first, then the loss, then the others.
pub fn metrics(runs: &[&RunRecord]) -> Vec<&'static Metric> {
    let mut found: Vec<&'static Metric> = Vec::new();
    for run in runs {
        for score in run.history.evaluations.iter().flat_map(|line| &line.scores) {
            if has_metric(run, score.metric) && !found.contains(&score.metric) {
                found.push(score.metric);
            }
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
            "loss" if is_text(run) => LOSS_OF_TEXT,
            "loss" => LOSS_OF_IMAGES,
            "bleu" => "Overlap of n-grams with the reference translations.",
            _ => "",
        };
        let curves = training.into_iter().chain([("validation", Curve::Validation(metric))]).collect();
        Chart { title: title(metric), axis: axis(metric), note, division: Division::Tight, curves }
    };
    let other = |title: &str, axis: &str, note, division, name, curve| Chart {
        title: title.to_string(),
        axis: axis.to_string(),
        note,
        division,
        curves: vec![(name, curve)],
    };
    let waiting = "The share of time in which the model waited for batches.";
    let gradient = "Of all parameters together, before clipping.";
    let speed = format!("{}/s", speed_unit(run).unwrap_or_default());
    let others = [
        other("Learning rate", "learning rate", "", Division::FromZero, "learning rate", Curve::LearningRate),
        other("Speed", &speed, "", Division::FromZero, "speed", Curve::Speed),
        other("Waiting for data", "% of the time", waiting, Division::FromZero, "waiting", Curve::Wait),
        other("Gradient norm", "norm, logarithmic", gradient, Division::Log, "gradient norm", Curve::GradientNorm),
    ];
    metrics.into_iter().map(of_metric).chain(others).collect()
}

/// The charts of one run.
pub fn html(run: &RunRecord) -> String {
    let charts: String = charts(run).iter().filter_map(|chart| chart.figure(run)).collect();
    match charts.is_empty() {
        true => match run.fault_of("metrics.jsonl") {
            Some(fault) => format!("<p>There is nothing to show: {}</p>", escape(&fault.to_string())),
            None => "<p>Nothing has been logged yet: the first line of metrics comes a few steps after the start.</p>"
                .to_string(),
        },
        false => format!("{SMOOTHING}<div class=\"charts\">{charts}</div>"),
    }
}

/// The control that smooths all curves of a page.
pub const SMOOTHING: &str = "<noscript><style>.smoothing { display: none; }</style></noscript><div class=\"smoothing\">\
    <label>Smoothing <input type=\"range\" id=\"smoothing\" min=\"0\" max=\"0.99\" step=\"0.01\" value=\"0\" autocomplete=\"off\">\
    <output id=\"smoothing-value\">0.00</output></label><span class=\"note\">exponential moving average, bias-corrected, as in \
    TensorBoard</span></div>";

/// An empty chart over epochs.
pub fn chart(title: &str, axis: &str, division: Division) -> Lines {
    let lines = Lines::new(title).x("epoch").whole_x().y(axis);
    match division {
        Division::Tight => lines,
        Division::FromZero => lines.from_zero(),
        Division::Log => lines.log_y(),
    }
}

impl Chart {
    /// `None` where the run has no such numbers.
    fn figure(&self, run: &RunRecord) -> Option<String> {
        let mut lines = chart(&self.title, &self.axis, self.division);
        let mut empty = true;
        for (name, curve) in &self.curves {
            let points = points(run, *curve);
            if !points.is_empty() {
                lines = lines.series(name, &points);
                empty = false;
            }
        }
        (!empty).then(|| figure(&self.title, &lines.interactive(), self.note))
    }
}

/// A curve's points: epochs and values.
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
