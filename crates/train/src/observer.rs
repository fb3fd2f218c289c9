//! What a training run reports during training, and at its end.

use std::path::PathBuf;
use std::time::Duration;

use vitreous_data::loader::BrokenSample;

use crate::metrics::{EpochMeans, EvaluationMetrics, TrainingMetrics};
use crate::scores::{Score, Scores};
use crate::stepper::StepResult;
use crate::watch::WatchMetrics;

/// Follows a run.
pub trait Observer {
    /// Before the first update.
    fn started(&mut self, plan: &RunPlan);
    /// After each update.
    fn stepped(&mut self, step: u64, result: &StepResult, lr: f64);
    /// When a line of metrics was written.
    fn logged(&mut self, metrics: &TrainingMetrics);
    /// When a watched model was looked at.
    fn watched(&mut self, _metrics: &WatchMetrics) {}
    /// During an evaluation: how many samples are done, of how many.
    fn evaluating(&mut self, done: usize, all: usize);
    /// After an evaluation, with its whole result.
    fn evaluated(&mut self, _scores: &Scores) {}
    /// After each epoch.
    fn epoch_ended(&mut self, summary: &EpochSummary);
}

/// What is known at the end of an epoch.
#[derive(Clone, Debug)]
pub struct EpochSummary<'s> {
    /// Which epoch, counted from 1.
    pub epoch: u64,
    /// The means over its updates.
    pub training: EpochMeans,
    /// Its evaluation on the validation data, if there was one.
    pub evaluation: Option<&'s EvaluationMetrics>,
    /// At the end of a run that averages checkpoints: how that went.
    pub average: Option<CheckpointAverage>,
}

/// The mean of the last checkpoints of a run.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct CheckpointAverage {
    /// Of how many checkpoints.
    pub checkpoints: usize,
    /// The number that decides, if it was evaluated.
    pub score: Option<Score>,
    /// Whether it is the model that was saved: it is better on the validation data than every checkpoint, or there is no such data.
    pub used: bool,
}

/// The size of a run.
#[derive(Clone, Debug)]
pub struct RunPlan {
    /// Updates in all.
    pub steps: u64,
    /// Updates per epoch.
    pub steps_per_epoch: u64,
    /// Where it starts: 0, or the step that it is resumed from.
    pub first_step: u64,
    /// Images or tokens of an update, about: the last of an epoch may have fewer.
    pub units_per_step: usize,
    /// Which of the two.
    pub unit: &'static str,
    /// Parameters of the model.
    pub parameters: usize,
    /// Parameters that are trained.
    pub trained: usize,
    /// Memory of plans and state, in bytes.
    pub bytes: usize,
    /// Floating-point operations of an update.
    pub flops: u64,
    /// Batches of an update, those of all ranks together.
    pub batches_per_step: usize,
    /// The ranks, their hosts, and what connects them, if there are several.
    pub ranks: Option<String>,
    /// Ranks that have nothing to do, because an epoch has fewer batches than there are ranks.
    pub idle_ranks: usize,
    /// The run directory; empty but on rank 0.
    pub directory: PathBuf,
}

/// How a run ended.
#[derive(Clone, Debug)]
pub struct Outcome {
    /// The run directory.
    pub directory: PathBuf,
    /// Whether it was stopped from outside before its end.
    pub stopped: bool,
    /// Updates so far.
    pub step: u64,
    /// The last evaluation.
    pub last: Option<EvaluationMetrics>,
    /// The best evaluation: the number that decides, and its step.
    pub best: Option<(Score, u64)>,
    /// Samples that could not be read.
    pub unreadable: Vec<BrokenSample>,
    /// Time that this process trained.
    pub time: Duration,
}

impl Outcome {
    /// The folder in the run directory with the best model: `model`, unless an earlier one in `best` is better.
    pub fn best_model(&self) -> &'static str {
        let last = self.last.as_ref().and_then(EvaluationMetrics::deciding);
        match (self.best, last) {
            (Some((best, step)), Some(last)) if step != self.step && best.metric.is_better(best.value, last.value) => {
                "best"
            }
            _ => "model",
        }
    }
}
