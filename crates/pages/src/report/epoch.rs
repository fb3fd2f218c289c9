//! Means over an epoch: one meaning of "the epoch's loss" everywhere.

use vitreous_train::RunRecord;
use vitreous_train::metrics::StepMetrics;

/// A mean over the steps of one epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EpochMean {
    /// The epoch, from 1.
    pub epoch: u64,
    /// Whether all of its steps are done.
    pub is_whole: bool,
    /// The mean over its steps.
    pub mean: f64,
}

/// The mean over the steps of the last whole epoch; in a run's first epoch, over the steps so far.
///
/// A line of metrics is itself the mean over the steps since the line before, and a line is written at each epoch's end: so a
/// line counts as many times as it has steps.
pub fn last_epoch_mean(run: &RunRecord, number: impl Fn(&StepMetrics) -> Option<f64>) -> Option<EpochMean> {
    let per_epoch = run.steps_per_epoch()?;
    let lines = &run.history.learned;
    let whole = lines.last()?.step / per_epoch;
    let epoch = whole.max(1);
    let first_step = (epoch - 1) * per_epoch;
    let (mut sum, mut steps, mut before) = (0.0, 0, 0);
    for line in lines {
        let covered = line.step.saturating_sub(before.max(first_step));
        before = line.step;
        if line.step <= first_step || line.step > epoch * per_epoch {
            continue;
        }
        if let Some(value) = number(line) {
            sum += value * covered as f64;
            steps += covered;
        }
    }
    (steps > 0).then(|| EpochMean { epoch, is_whole: whole > 0, mean: sum / steps as f64 })
}

#[cfg(test)]
mod tests {
    use std::fs;

    use super::*;

    /// A run with these lines of (step, loss), 25 steps per epoch.
    fn run(lines: &[(u64, f64)]) -> (tempfile::TempDir, RunRecord) {
        let folder = tempfile::tempdir().expect("a folder");
        let line = |(step, loss): &(u64, f64)| {
            format!(
                "{{\"step\":{step},\"epoch\":{},\"loss\":{loss},\"lr\":0.1,\"grad_norm\":1,\"images_per_second\":9,\"data_wait\":0,\"peak_share\":0,\"seconds\":1}}\n",
                *step as f64 / 25.0
            )
        };
        fs::write(folder.path().join("recipe.toml"), "").expect("written");
        fs::write(folder.path().join("metrics.jsonl"), lines.iter().map(line).collect::<String>()).expect("written");
        let run = RunRecord::read(folder.path()).expect("a run");
        (folder, run)
    }

    fn loss(lines: &[(u64, f64)]) -> Option<EpochMean> {
        last_epoch_mean(&run(lines).1, |line| Some(line.loss))
    }

    #[test]
    fn a_line_counts_as_many_times_as_it_has_steps() {
        let first = [(10, 4.0), (20, 3.0), (25, 1.0)];
        let expected = EpochMean { epoch: 1, is_whole: true, mean: (40.0 + 30.0 + 5.0) / 25.0 };
        assert_eq!(loss(&first), Some(expected));
        // A part of the second epoch changes nothing; its end does.
        assert_eq!(loss(&[&first[..], &[(30, 0.5), (40, 0.25)]].concat()), Some(expected));
        let second = loss(&[&first[..], &[(30, 1.0), (40, 2.0), (50, 3.0)]].concat()).expect("a mean");
        assert_eq!(second, EpochMean { epoch: 2, is_whole: true, mean: (5.0 + 20.0 + 30.0) / 25.0 });
    }

    #[test]
    fn a_first_epoch_that_goes_on_has_the_mean_so_far() {
        assert_eq!(loss(&[(10, 4.0), (20, 2.0)]), Some(EpochMean { epoch: 1, is_whole: false, mean: 3.0 }));
        assert_eq!(loss(&[]), None);
    }
}
