//! How a run went over time: loss, accuracy, learning rate, speed.

use crate::chart::Lines;
use crate::escape;
use vitreous_train::RunRecord;

use super::figure;

/// A number of a run over its epochs.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Curve {
    /// The loss while learning.
    Loss,
    /// The share of right answers while learning, in percent.
    Accuracy,
    /// The learning rate.
    LearningRate,
    /// Images a second.
    Speed,
    /// The share of time spent waiting for data, in percent.
    Wait,
    /// The length of the whole gradient.
    GradientNorm,
    /// The test's loss.
    TestLoss,
    /// The test's share of right answers, in percent.
    TestAccuracy,
    /// The test's mean average precision.
    TestPrecision,
    /// BLEU of test sentences.
    TestBleu,
}

/// A chart: its title, its vertical axis, what stands below it, how the axis is divided, and its curves with their names.
struct Chart {
    title: &'static str,
    axis: &'static str,
    note: &'static str,
    scale: Scale,
    curves: &'static [(&'static str, Curve)],
}

#[derive(Clone, Copy)]
enum Scale {
    /// As far as the numbers reach.
    Tight,
    FromZero,
    /// Each step multiplies.
    Log,
}

const CHARTS: [Chart; 8] = [
    Chart {
        title: "Accuracy",
        axis: "right, %",
        note: "",
        scale: Scale::Tight,
        curves: &[("training", Curve::Accuracy), ("test", Curve::TestAccuracy)],
    },
    Chart {
        title: "Mean average precision",
        axis: "precision",
        note: "",
        scale: Scale::Tight,
        curves: &[("test", Curve::TestPrecision)],
    },
    Chart {
        title: "BLEU",
        axis: "BLEU",
        note: "How much translations share with those of the data.",
        scale: Scale::Tight,
        curves: &[("test", Curve::TestBleu)],
    },
    Chart {
        title: "Loss",
        axis: "loss",
        note: "While learning, images are changed (where there are some), targets smoothed and parts of the model dropped, as the recipe says: so its loss can lie above the test's.",
        scale: Scale::Tight,
        curves: &[("training", Curve::Loss), ("test", Curve::TestLoss)],
    },
    Chart {
        title: "Learning rate",
        axis: "rate",
        note: "",
        scale: Scale::FromZero,
        curves: &[("learning rate", Curve::LearningRate)],
    },
    Chart { title: "Speed", axis: "a second", note: "", scale: Scale::FromZero, curves: &[("speed", Curve::Speed)] },
    Chart {
        title: "Waiting for data",
        axis: "% of the time",
        note: "How long the model waited for its batches.",
        scale: Scale::FromZero,
        curves: &[("waiting", Curve::Wait)],
    },
    Chart {
        title: "Length of the gradient",
        axis: "length, logarithmic",
        note: "Of all parameters together, before it is clipped.",
        scale: Scale::Log,
        curves: &[("gradient", Curve::GradientNorm)],
    },
];

/// The charts of one run.
pub fn html(run: &RunRecord) -> String {
    let charts: String = CHARTS.iter().filter_map(|chart| chart.figure(run)).collect();
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
        let mut lines = Lines::new(self.title).x("epoch").whole_x().y(self.axis);
        lines = match self.scale {
            Scale::Tight => lines,
            Scale::FromZero => lines.from_zero(),
            Scale::Log => lines.log_y(),
        };
        let mut empty = true;
        for (name, curve) in self.curves {
            let points = points(run, *curve);
            if !points.is_empty() {
                lines = lines.series(name, &points);
                empty = false;
            }
        }
        (!empty).then(|| figure(self.title, &lines.svg(), self.note))
    }
}

/// A curve's points: epochs and numbers.
pub fn points(run: &RunRecord, curve: Curve) -> Vec<(f64, f64)> {
    let learned = run.history.learned.iter().filter_map(|line| {
        let value = match curve {
            Curve::Loss => line.loss,
            Curve::Accuracy => 100.0 * line.top1?,
            Curve::LearningRate => line.lr,
            Curve::Speed => line.speed(),
            Curve::Wait => 100.0 * line.data_wait,
            Curve::GradientNorm => line.grad_norm,
            Curve::TestLoss | Curve::TestAccuracy | Curve::TestPrecision | Curve::TestBleu => return None,
        };
        Some((line.epoch, value))
    });
    let tested = run.history.tested.iter().filter_map(|line| {
        let value = match curve {
            Curve::TestLoss => line.val_loss,
            Curve::TestAccuracy => 100.0 * line.val_top1?,
            Curve::TestPrecision => line.val_map?,
            Curve::TestBleu => line.val_bleu?,
            _ => return None,
        };
        Some((line.epoch, value))
    });
    learned.chain(tested).collect()
}
