//! How a run went over time: loss, accuracy, learning rate, speed.

use vitreous_pages::chart::Lines;
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
    /// The share of the machine's measured limit that the model's arithmetic reached, in percent.
    Peak,
    /// The length of the whole gradient.
    GradientNorm,
    /// The test's loss.
    TestLoss,
    /// The test's share of right answers, in percent.
    TestAccuracy,
    /// The test's mean average precision.
    TestPrecision,
}

/// A chart: its title, its vertical axis, what stands below it, whether the axis begins at 0, and its curves with their names.
struct Chart {
    title: &'static str,
    axis: &'static str,
    note: &'static str,
    from_zero: bool,
    curves: &'static [(&'static str, Curve)],
}

const CHARTS: [Chart; 7] = [
    Chart {
        title: "Accuracy",
        axis: "right, %",
        note: "",
        from_zero: false,
        curves: &[("training", Curve::Accuracy), ("test", Curve::TestAccuracy)],
    },
    Chart {
        title: "Mean average precision",
        axis: "precision",
        note: "",
        from_zero: false,
        curves: &[("test", Curve::TestPrecision)],
    },
    Chart {
        title: "Loss",
        axis: "loss",
        note: "",
        from_zero: false,
        curves: &[("training", Curve::Loss), ("test", Curve::TestLoss)],
    },
    Chart {
        title: "Learning rate",
        axis: "rate",
        note: "",
        from_zero: true,
        curves: &[("learning rate", Curve::LearningRate)],
    },
    Chart { title: "Speed", axis: "images/s", note: "", from_zero: true, curves: &[("speed", Curve::Speed)] },
    Chart {
        title: "Waiting for data",
        axis: "% of the time",
        note: "How long the model waited for images to be prepared.",
        from_zero: true,
        curves: &[("waiting", Curve::Wait)],
    },
    Chart {
        title: "Use of the processor",
        axis: "% of its limit",
        note: "Arithmetic of the model, of the most that this machine was measured to do.",
        from_zero: true,
        curves: &[("use", Curve::Peak)],
    },
];

/// The charts of one run.
pub fn html(run: &RunRecord) -> String {
    let charts: String = CHARTS.iter().filter_map(|chart| chart.figure(run)).collect();
    match charts.is_empty() {
        true => {
            "<p>Nothing was measured yet: the first line of metrics comes some steps after the start.</p>".to_string()
        }
        false => format!("<div class=\"charts\">{charts}</div>"),
    }
}

impl Chart {
    /// `None` where the run has no such numbers.
    fn figure(&self, run: &RunRecord) -> Option<String> {
        let mut lines = Lines::new(self.title).x("epoch").y(self.axis);
        if self.from_zero {
            lines = lines.from_zero();
        }
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
            Curve::Speed => line.images_per_second,
            Curve::Wait => 100.0 * line.data_wait,
            Curve::Peak => 100.0 * line.peak_share,
            Curve::GradientNorm => line.grad_norm,
            Curve::TestLoss | Curve::TestAccuracy | Curve::TestPrecision => return None,
        };
        Some((line.epoch, value))
    });
    let tested = run.history.tested.iter().filter_map(|line| {
        let value = match curve {
            Curve::TestLoss => line.val_loss,
            Curve::TestAccuracy => 100.0 * line.val_top1?,
            Curve::TestPrecision => line.val_map?,
            _ => return None,
        };
        Some((line.epoch, value))
    });
    learned.chain(tested).collect()
}
