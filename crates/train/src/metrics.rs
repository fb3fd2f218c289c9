//! `metrics.jsonl`: what a run measured, one JSON object per line.
//!
//! There are four sorts of lines: of training, with the mean loss since the line before; of evaluations, with keys that begin with
//! `val_`; of gradients; and of what `--watch` saw. The line of training at the end of an epoch has the means over the epoch, too.

use std::collections::BTreeMap;
use std::fs::{File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::ser::SerializeMap;
use serde::{Deserialize, Deserializer, Serialize, Serializer};
use serde_json::Value;

use vitreous_files::open::read_bounded;

use crate::error::TrainError;
use crate::run_directory::{MOST_METRICS, write_whole};
use crate::scores::{LOSS, Metric, Score, Scores};
use crate::watch::WatchMetrics;

/// What the keys of an evaluation's numbers begin with.
const VALIDATION: &str = "val_";
/// What the key of the speed ends with, behind its unit.
const SPEED: &str = "_per_second";

/// A line of training. Rates and fractions of time are of the time since the line before.
#[derive(Clone, Debug, PartialEq)]
pub struct TrainingMetrics {
    /// Updates so far.
    pub step: u64,
    /// Epochs so far.
    pub epoch: f64,
    /// The mean loss since the last line.
    pub loss: f64,
    /// The accuracy since then, where an answer can be right.
    pub top1: Option<f64>,
    /// The learning rate.
    pub lr: f64,
    /// The gradient norm of all parameters together, before clipping.
    pub grad_norm: f64,
    /// Units per second; the file has it as `images_per_second`, `tokens_per_second` ..
    pub speed: f64,
    /// The unit: "images", "tokens" ..
    pub unit: String,
    /// The fraction of time spent waiting for data.
    pub data_wait: f64,
    /// The fraction of time that rank 0 spent waiting for other ranks, where there are some.
    pub rank_wait: Option<f64>,
    /// The fraction of the device's measured peak that the model's arithmetic reached.
    pub peak_share: f64,
    /// Seconds that this process has trained.
    pub seconds: f64,
    /// At the end of an epoch: the means over it.
    pub of_epoch: Option<EpochMeans>,
}

/// The means over the updates of an epoch.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct EpochMeans {
    /// The mean loss.
    pub loss: f64,
    /// The accuracy, where an answer can be right.
    pub top1: Option<f64>,
}

impl EpochMeans {
    /// The means over the steps behind `first_step` that these lines tell of; `None` if they tell of none. A line is the mean over
    /// the steps since the line before it.
    pub fn of(lines: &[TrainingMetrics], first_step: u64) -> Option<EpochMeans> {
        let (mut before, mut loss, mut top1, mut known) = (first_step, 0.0, 0.0, true);
        for line in lines.iter().filter(|line| line.step > first_step) {
            let steps = line.step.saturating_sub(before) as f64;
            loss += steps * line.loss;
            match line.top1 {
                Some(share) => top1 += steps * share,
                None => known = false,
            }
            before = line.step;
        }
        let steps = (before - first_step) as f64;
        (steps > 0.0).then(|| EpochMeans { loss: loss / steps, top1: known.then(|| top1 / steps) })
    }
}

/// A line of training as the file has it.
#[derive(Deserialize)]
struct TrainingLine {
    step: u64,
    epoch: f64,
    loss: f64,
    top1: Option<f64>,
    lr: f64,
    grad_norm: f64,
    data_wait: f64,
    rank_wait: Option<f64>,
    peak_share: f64,
    seconds: f64,
    epoch_loss: Option<f64>,
    epoch_top1: Option<f64>,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

impl Serialize for TrainingMetrics {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("step", &self.step)?;
        map.serialize_entry("epoch", &self.epoch)?;
        map.serialize_entry("loss", &self.loss)?;
        if let Some(top1) = self.top1 {
            map.serialize_entry("top1", &top1)?;
        }
        map.serialize_entry("lr", &self.lr)?;
        map.serialize_entry("grad_norm", &self.grad_norm)?;
        map.serialize_entry(&format!("{}{SPEED}", self.unit), &self.speed)?;
        map.serialize_entry("data_wait", &self.data_wait)?;
        if let Some(rank_wait) = self.rank_wait {
            map.serialize_entry("rank_wait", &rank_wait)?;
        }
        map.serialize_entry("peak_share", &self.peak_share)?;
        map.serialize_entry("seconds", &self.seconds)?;
        if let Some(EpochMeans { loss, top1 }) = self.of_epoch {
            map.serialize_entry("epoch_loss", &loss)?;
            if let Some(top1) = top1 {
                map.serialize_entry("epoch_top1", &top1)?;
            }
        }
        map.end()
    }
}

impl<'de> Deserialize<'de> for TrainingMetrics {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<TrainingMetrics, D::Error> {
        let line = TrainingLine::deserialize(from)?;
        let speed = line.rest.iter().find_map(|(key, value)| Some((key.strip_suffix(SPEED)?, value.as_f64()?)));
        let (unit, speed) = speed.unwrap_or(("samples", f64::NAN));
        let of_epoch = line.epoch_loss.map(|loss| EpochMeans { loss, top1: line.epoch_top1 });
        let TrainingLine { step, epoch, loss, top1, lr, grad_norm, data_wait, rank_wait, peak_share, seconds, .. } =
            line;
        let unit = unit.to_string();
        Ok(TrainingMetrics {
            step,
            epoch,
            loss,
            top1,
            lr,
            grad_norm,
            speed,
            unit,
            data_wait,
            rank_wait,
            peak_share,
            seconds,
            of_epoch,
        })
    }
}

/// A line of an evaluation on the validation data.
#[derive(Clone, Debug, PartialEq)]
pub struct EvaluationMetrics {
    /// Updates so far.
    pub step: u64,
    /// Epochs so far.
    pub epoch: f64,
    /// Its numbers, the loss first. Those that another version wrote and this one does not know are left out.
    pub scores: Vec<Score>,
    /// Seconds that this process has trained.
    pub seconds: f64,
}

impl EvaluationMetrics {
    /// The line of an evaluation. Numbers that are NaN have no place in it, but for the loss, which every evaluation has.
    pub(crate) fn new(scores: &Scores, step: u64, epoch: f64, seconds: f64) -> EvaluationMetrics {
        let known = |score: &&Score| *score.metric == LOSS || !score.value.is_nan();
        EvaluationMetrics { step, epoch, scores: scores.numbers().iter().filter(known).copied().collect(), seconds }
    }

    /// The value with this key.
    pub fn get(&self, key: &str) -> Option<f64> {
        self.scores.iter().find(|score| score.metric.key == key).map(|score| score.value)
    }

    /// The mean loss.
    pub fn loss(&self) -> f64 {
        self.get(LOSS.key).unwrap_or(f64::NAN)
    }

    /// The number that decides which checkpoint is the best, if there is one.
    pub fn deciding(&self) -> Option<Score> {
        self.scores.iter().copied().find(|score| score.metric.decides && !score.value.is_nan())
    }
}

impl Serialize for EvaluationMetrics {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        let mut map = serializer.serialize_map(None)?;
        map.serialize_entry("step", &self.step)?;
        map.serialize_entry("epoch", &self.epoch)?;
        for Score { metric, value } in &self.scores {
            map.serialize_entry(&format!("{VALIDATION}{}", metric.key), value)?;
        }
        map.serialize_entry("seconds", &self.seconds)?;
        map.end()
    }
}

/// A line of an evaluation as the file has it.
#[derive(Deserialize)]
struct EvaluationLine {
    step: u64,
    epoch: f64,
    // JSON cannot write NaN, so it is null.
    val_loss: Option<f64>,
    seconds: f64,
    #[serde(flatten)]
    rest: BTreeMap<String, Value>,
}

impl<'de> Deserialize<'de> for EvaluationMetrics {
    fn deserialize<D: Deserializer<'de>>(from: D) -> Result<EvaluationMetrics, D::Error> {
        let EvaluationLine { step, epoch, val_loss, seconds, rest } = EvaluationLine::deserialize(from)?;
        let mut scores = vec![Score { metric: &LOSS, value: val_loss.unwrap_or(f64::NAN) }];
        scores.extend(rest.iter().filter_map(|(key, value)| {
            Some(Score { metric: Metric::find(key.strip_prefix(VALIDATION)?)?, value: value.as_f64()? })
        }));
        Ok(EvaluationMetrics { step, epoch, scores, seconds })
    }
}

/// The gradient norm of every parameter.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GradientMetrics {
    /// Updates so far.
    pub step: u64,
    /// By parameter.
    pub gradient_norms: BTreeMap<String, f64>,
}

/// All lines of a file, by sort.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// Of training.
    pub training: Vec<TrainingMetrics>,
    /// Of evaluations.
    pub evaluations: Vec<EvaluationMetrics>,
    /// Of gradients.
    pub gradients: Vec<GradientMetrics>,
    /// Of what was watched.
    pub watched: Vec<WatchMetrics>,
    /// How many lines could not be read.
    pub damaged: usize,
}

impl History {
    /// Reads a file; without one there are no lines. While another process writes the file, its last line may be half written, which
    /// is no damage then.
    pub fn read(path: &Path, is_written: bool) -> Result<History, TrainError> {
        let text = match read_bounded(path, MOST_METRICS) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(History::default()),
            other => other.map_err(TrainError::io(path, "cannot be read"))?,
        };
        let mut history = History::default();
        for line in String::from_utf8_lossy(&text).split_inclusive('\n') {
            match history.add(line) {
                Ok(()) => {}
                Err(_) if is_written && !line.ends_with('\n') => {}
                Err(_) => history.damaged += 1,
            }
        }
        Ok(history)
    }

    fn add(&mut self, line: &str) -> serde_json::Result<()> {
        let value: Value = serde_json::from_str(line)?;
        match () {
            () if value.get("val_loss").is_some() => self.evaluations.push(serde_json::from_value(value)?),
            () if value.get("gradient_norms").is_some() => self.gradients.push(serde_json::from_value(value)?),
            () if value.get("update_ratios").is_some() => self.watched.push(serde_json::from_value(value)?),
            () => self.training.push(serde_json::from_value(value)?),
        }
        Ok(())
    }

    /// The means over the last epoch that has ended or, in the first epoch, over its steps so far.
    pub fn last_epoch(&self, steps_per_epoch: u64) -> Option<EpochMeans> {
        let last = self.training.last()?.step;
        let steps = steps_per_epoch.max(1);
        let end = if last < steps { last } else { last - last % steps };
        let lines: Vec<TrainingMetrics> = self.training.iter().filter(|line| line.step <= end).cloned().collect();
        EpochMeans::of(&lines, end.saturating_sub(steps))
    }
}

/// The file, open for more lines.
#[derive(Debug)]
pub struct MetricsFile {
    path: PathBuf,
    /// None on a rank that does not write.
    file: Option<File>,
    /// The lines that the file had when it was opened.
    pub history: History,
}

/// What must be known of a line to resume a run.
#[derive(Deserialize)]
struct Line {
    step: u64,
}

impl MetricsFile {
    /// Continues behind the lines up to a step. Later lines are of a part of the run that was lost, and are removed.
    pub fn open(path: &Path, step: u64) -> Result<MetricsFile, TrainError> {
        let mut history = History::default();
        if path.exists() {
            let text = read_bounded(path, MOST_METRICS).map_err(TrainError::io(path, "cannot be read"))?;
            let text = String::from_utf8_lossy(&text);
            let stays = |line: &&str| {
                line.ends_with('\n') && serde_json::from_str::<Line>(line).is_ok_and(|line| line.step <= step)
            };
            let kept: String = text.split_inclusive('\n').filter(stays).collect();
            if kept.len() != text.len() {
                write_whole(path, kept.as_bytes())?;
            }
            for line in kept.lines() {
                // A line that cannot be understood keeps no run from going on.
                if history.add(line).is_err() {
                    history.damaged += 1;
                }
            }
        }
        // They can be many, and are not needed again.
        history.gradients.clear();
        history.watched.clear();
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.map_err(TrainError::io(path, "cannot be opened"))?;
        Ok(MetricsFile { path: path.to_path_buf(), file: Some(file), history })
    }

    /// That of a rank that does not write.
    pub fn nowhere() -> MetricsFile {
        MetricsFile { path: PathBuf::new(), file: None, history: History::default() }
    }

    /// Adds a line.
    pub fn add(&mut self, line: &impl Serialize) -> Result<(), TrainError> {
        let Some(file) = &mut self.file else { return Ok(()) };
        let mut text = serde_json::to_string(line).expect("plain data");
        text.push('\n');
        file.write_all(text.as_bytes()).map_err(TrainError::io(&self.path, "cannot be written"))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(step: u64, loss: f64, top1: Option<f64>) -> TrainingMetrics {
        TrainingMetrics {
            step,
            epoch: step as f64 / 7.0,
            loss,
            top1,
            lr: 0.1,
            grad_norm: 1.5,
            speed: 12.0,
            unit: "tokens".to_string(),
            data_wait: 0.0,
            rank_wait: None,
            peak_share: 0.5,
            seconds: 3.0,
            of_epoch: None,
        }
    }

    #[test]
    fn the_mean_over_an_epoch_weighs_lines_by_their_steps() {
        // Epochs of 7 steps, a line every 3: 3 + 3 + 1.
        let lines = [line(3, 1.0, Some(0.5)), line(6, 2.0, Some(1.0)), line(7, 9.0, Some(0.0)), line(10, 5.0, None)];
        let mean = EpochMeans::of(&lines[..3], 0).expect("an epoch");
        assert_eq!((mean.loss, mean.top1), ((3.0 + 6.0 + 9.0) / 7.0, Some(4.5 / 7.0)));
        assert_eq!(EpochMeans::of(&lines, 7), Some(EpochMeans { loss: 5.0, top1: None }));
        assert_eq!(EpochMeans::of(&lines, 10), None);
        let history = |count: usize| History { training: lines[..count].to_vec(), ..History::default() };
        // Within the first epoch, at its end, and within the second.
        assert_eq!(history(2).last_epoch(7).map(|means| means.loss), Some(1.5));
        assert_eq!(history(3).last_epoch(7), Some(mean));
        assert_eq!(history(4).last_epoch(7), Some(mean));
        assert_eq!(history(0).last_epoch(7), None);
    }

    #[test]
    fn lines_are_read_as_they_were_written() {
        let of_epoch = Some(EpochMeans { loss: 0.1 + 0.2, top1: Some(0.5) });
        for line in [line(3, 1.0 / 3.0, None), TrainingMetrics { of_epoch, ..line(7, 1.0, Some(0.25)) }] {
            let text = serde_json::to_string(&line).expect("plain data");
            assert!(text.contains("\"tokens_per_second\":12.0"), "{text}");
            assert_eq!(serde_json::from_str::<TrainingMetrics>(&text).expect("reads"), line);
        }
        let bleu = Metric::find("bleu").expect("a metric");
        let scores = vec![Score { metric: &LOSS, value: 1.5 }, Score { metric: bleu, value: 12.5 }];
        let line = EvaluationMetrics { step: 7, epoch: 1.0, scores, seconds: 2.0 };
        let text = serde_json::to_string(&line).expect("plain data");
        assert_eq!(text, r#"{"step":7,"epoch":1.0,"val_loss":1.5,"val_bleu":12.5,"seconds":2.0}"#);
        assert_eq!(serde_json::from_str::<EvaluationMetrics>(&text).expect("reads"), line);
        assert_eq!(line.deciding(), Some(Score { metric: bleu, value: 12.5 }));
        // A number of a later version is passed over, and a loss that is not a number is one.
        let other = r#"{"step":7,"epoch":1.0,"val_loss":null,"val_later":3.0,"seconds":2.0}"#;
        let line: EvaluationMetrics = serde_json::from_str(other).expect("reads");
        assert!(line.loss().is_nan() && line.scores.len() == 1, "{line:?}");
    }
}
