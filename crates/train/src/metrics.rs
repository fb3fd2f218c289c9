//! `metrics.jsonl`: what a run measured, one object a line.

use std::collections::BTreeMap;
use std::fs::{self, File, OpenOptions};
use std::io::Write;
use std::path::{Path, PathBuf};

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::error::TrainError;
use crate::evaluation::number;
use crate::run_directory::write_whole;
use crate::tested::TestedScores;

/// A line while learning. Rates and shares are of the time since the line before.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct StepMetrics {
    /// Updates so far.
    pub step: u64,
    /// Epochs so far.
    pub epoch: f64,
    /// The mean loss since the last line.
    pub loss: f64,
    /// The share of right answers since then, where images have one class and are not mixed.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub top1: Option<f64>,
    /// The learning rate.
    pub lr: f64,
    /// The length of the gradient of all parameters, before clipping.
    pub grad_norm: f64,
    /// Images a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub images_per_second: Option<f64>,
    /// For text: words of targets a second.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tokens_per_second: Option<f64>,
    /// The share of time spent waiting for data.
    pub data_wait: f64,
    /// The share of the machine's measured limit that the model's arithmetic reached.
    pub peak_share: f64,
    /// Seconds that this process has trained.
    pub seconds: f64,
}

/// A line after an evaluation.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct EvaluationMetrics {
    /// Updates so far.
    pub step: u64,
    /// Epochs so far.
    pub epoch: f64,
    /// The mean loss.
    #[serde(deserialize_with = "number")]
    pub val_loss: f64,
    /// The share of images whose class the model finds first.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub val_top1: Option<f64>,
    /// The share of images whose class is among its first five.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub val_top5: Option<f64>,
    /// For several labels an image: the mean over classes of the average precision, where any class occurs.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub val_map: Option<f64>,
    /// For translations: BLEU, from 0 to 100.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub val_bleu: Option<f64>,
    /// Seconds that this process has trained.
    pub seconds: f64,
}

impl StepMetrics {
    /// Images or tokens a second.
    pub fn speed(&self) -> f64 {
        self.images_per_second.or(self.tokens_per_second).unwrap_or(f64::NAN)
    }
}

impl EvaluationMetrics {
    /// Of what a test found.
    pub(crate) fn of(scores: &TestedScores, step: u64, epoch: f64, seconds: f64) -> EvaluationMetrics {
        let nothing = EvaluationMetrics {
            step,
            epoch,
            val_loss: scores.loss(),
            val_top1: None,
            val_top5: None,
            val_map: None,
            val_bleu: None,
            seconds,
        };
        match scores {
            TestedScores::One(report) => {
                EvaluationMetrics { val_top1: Some(report.top1), val_top5: Some(report.top5), ..nothing }
            }
            TestedScores::Several(report) => {
                let mean = Some(report.mean_average_precision).filter(|mean| !mean.is_nan());
                EvaluationMetrics { val_map: mean, ..nothing }
            }
            TestedScores::Translation(report) => EvaluationMetrics { val_bleu: Some(report.bleu), ..nothing },
        }
    }
}

/// The length of each parameter's gradient.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct GradientMetrics {
    /// Updates so far.
    pub step: u64,
    /// By parameter.
    pub gradient_norms: BTreeMap<String, f64>,
}

/// All lines of a file, by what they tell.
#[derive(Clone, Debug, Default)]
pub struct History {
    /// While learning.
    pub learned: Vec<StepMetrics>,
    /// After evaluations.
    pub tested: Vec<EvaluationMetrics>,
    /// Of gradients.
    pub gradients: Vec<GradientMetrics>,
    /// How many lines could not be read.
    pub damaged: usize,
}

impl History {
    /// Reads a file; one that is not there has no lines. While another process writes it, its last line may be half written,
    /// which is no damage then.
    pub fn read(path: &Path, is_written: bool) -> Result<History, TrainError> {
        let text = match fs::read(path) {
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
            () if value.get("val_loss").is_some() => self.tested.push(serde_json::from_value(value)?),
            () if value.get("gradient_norms").is_some() => self.gradients.push(serde_json::from_value(value)?),
            () => self.learned.push(serde_json::from_value(value)?),
        }
        Ok(())
    }
}

/// The file.
#[derive(Debug)]
pub struct MetricsFile {
    path: PathBuf,
    file: File,
    /// The last evaluation that the file had when it was opened.
    pub last_evaluation: Option<EvaluationMetrics>,
}

/// What must be known of a line to take a run up.
#[derive(Deserialize)]
struct Line {
    step: u64,
}

impl MetricsFile {
    /// Goes on behind the lines up to a step; later ones are of a part of the run that was lost.
    pub fn open(path: &Path, step: u64) -> Result<MetricsFile, TrainError> {
        let mut last_evaluation = None;
        if path.exists() {
            let text = fs::read(path).map_err(TrainError::io(path, "cannot be read"))?;
            let text = String::from_utf8_lossy(&text);
            let stays = |line: &&str| {
                line.ends_with('\n') && serde_json::from_str::<Line>(line).is_ok_and(|line| line.step <= step)
            };
            let kept: String = text.split_inclusive('\n').filter(stays).collect();
            if kept.len() != text.len() {
                write_whole(path, kept.as_bytes())?;
            }
            last_evaluation = kept.lines().rev().find_map(|line| serde_json::from_str(line).ok());
        }
        let file = OpenOptions::new().create(true).append(true).open(path);
        let file = file.map_err(TrainError::io(path, "cannot be opened"))?;
        Ok(MetricsFile { path: path.to_path_buf(), file, last_evaluation })
    }

    /// Adds a line.
    pub fn add(&mut self, line: &impl Serialize) -> Result<(), TrainError> {
        let mut text = serde_json::to_string(line).expect("plain data");
        text.push('\n');
        self.file.write_all(text.as_bytes()).map_err(TrainError::io(&self.path, "cannot be written"))
    }
}
