//! How a run went over time: loss, accuracy, learning rate, speed.

use vitreous_train::RunRecord;

use super::{figure, is_text};
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
    /// Images or tokens per second.
    Speed,
    /// The share of time spent waiting for data, in percent.
    Wait,
    /// The gradient norm of all parameters together.
    GradientNorm,
    /// Validation loss.
    ValidationLoss,
    /// Validation accuracy, in percent.
    ValidationAccuracy,
    /// Mean average precision on the validation set.
    ValidationPrecision,
    /// BLEU on the validation set.
    ValidationBleu,
}

/// A chart: its title, its vertical axis, its caption, how the axis is divided, and its curves with their names.
struct Chart {
    title: &'static str,
    axis: &'static str,
    note: &'static str,
    scale: Division,
    curves: &'static [(&'static str, Curve)],
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

const CHARTS: [Chart; 8] = [
    Chart {
        title: "Accuracy",
        axis: "accuracy, %",
        note: "",
        scale: Division::Tight,
        curves: &[("training", Curve::Accuracy), ("validation", Curve::ValidationAccuracy)],
    },
    Chart {
        title: "Mean average precision",
        axis: "mean average precision",
        note: "",
        scale: Division::Tight,
        curves: &[("validation", Curve::ValidationPrecision)],
    },
    Chart {
        title: "BLEU",
        axis: "BLEU",
        note: "Overlap of n-grams with the reference translations.",
        scale: Division::Tight,
        curves: &[("validation", Curve::ValidationBleu)],
    },
    Chart {
        title: "Loss",
        axis: "loss",
        note: LOSS_OF_IMAGES,
        scale: Division::Tight,
        curves: &[("training", Curve::Loss), ("validation", Curve::ValidationLoss)],
    },
    Chart {
        title: "Learning rate",
        axis: "learning rate",
        note: "",
        scale: Division::FromZero,
        curves: &[("learning rate", Curve::LearningRate)],
    },
    Chart { title: "Speed", axis: "", note: "", scale: Division::FromZero, curves: &[("speed", Curve::Speed)] },
    Chart {
        title: "Waiting for data",
        axis: "% of the time",
        note: "The share of time in which the model waited for batches.",
        scale: Division::FromZero,
        curves: &[("waiting", Curve::Wait)],
    },
    Chart {
        title: "Gradient norm",
        axis: "norm, logarithmic",
        note: "Of all parameters together, before clipping.",
        scale: Division::Log,
        curves: &[("gradient norm", Curve::GradientNorm)],
    },
];

/// The charts of one run.
pub fn html(run: &RunRecord) -> String {
    let charts: String = CHARTS.iter().filter_map(|chart| chart.figure(run)).collect();
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

/// What speed is measured in.
pub fn speed_unit(run: &RunRecord) -> &'static str {
    if is_text(run) { "tokens/s" } else { "images/s" }
}

impl Chart {
    /// `None` where the run has no such numbers.
    fn figure(&self, run: &RunRecord) -> Option<String> {
        let axis = if self.axis.is_empty() { speed_unit(run) } else { self.axis };
        let note = if self.note == LOSS_OF_IMAGES && is_text(run) { LOSS_OF_TEXT } else { self.note };
        let mut lines = chart(self.title, axis, self.scale);
        let mut empty = true;
        for (name, curve) in self.curves {
            let points = points(run, *curve);
            if !points.is_empty() {
                lines = lines.series(name, &points);
                empty = false;
            }
        }
        (!empty).then(|| figure(self.title, &lines.interactive(), note))
    }
}

/// A curve's points: epochs and values.
pub fn points(run: &RunRecord, curve: Curve) -> Vec<(f64, f64)> {
    let training = run.history.learned.iter().filter_map(|line| {
        let value = match curve {
            Curve::Loss => line.loss,
            Curve::Accuracy => 100.0 * line.top1?,
            Curve::LearningRate => line.lr,
            Curve::Speed => line.speed(),
            Curve::Wait => 100.0 * line.data_wait,
            Curve::GradientNorm => line.grad_norm,
            Curve::ValidationLoss | Curve::ValidationAccuracy | Curve::ValidationPrecision | Curve::ValidationBleu => {
                return None;
            }
        };
        Some((line.epoch, value))
    });
    let validation = run.history.tested.iter().filter_map(|line| {
        let value = match curve {
            Curve::ValidationLoss => line.val_loss,
            Curve::ValidationAccuracy => 100.0 * line.val_top1?,
            Curve::ValidationPrecision => line.val_map?,
            Curve::ValidationBleu => line.val_bleu?,
            Curve::Loss | Curve::Accuracy | Curve::LearningRate | Curve::Speed | Curve::Wait | Curve::GradientNorm => {
                return None;
            }
        };
        Some((line.epoch, value))
    });
    training.chain(validation).collect()
}
