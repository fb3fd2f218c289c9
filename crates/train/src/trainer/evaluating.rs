//! Evaluations between epochs: of the model, and of the mean of the last checkpoints; the better one is saved.

use std::path::Path;

use vitreous_engine::State;

use super::Trainer;
use crate::error::TrainError;
use crate::evaluation::{Evaluation, EvaluationAbout};
use crate::metrics::EvaluationMetrics;
use crate::observer::{CheckpointAverage, Observer};
use crate::ranks::Ranks;
use crate::run_directory::{BEST, EVALUATION, MODEL};
use crate::scores::{Score, Scores};

/// An evaluation of the model that was saved.
pub(super) struct Evaluated {
    pub metrics: Option<EvaluationMetrics>,
    pub average: Option<CheckpointAverage>,
}

impl Trainer {
    /// Evaluates the model (its moving average where there is one) on the validation data, and saves it. At the end of a run that
    /// averages checkpoints, their mean is evaluated, too, and saved in place of the model if it is the best of all.
    pub(super) fn evaluate(&mut self, observer: &mut dyn Observer) -> Result<Evaluated, TrainError> {
        let Some(model) = self.directory.as_ref().map(|directory| directory.directory(MODEL)).transpose()? else {
            self.help_evaluate()?;
            return Ok(Evaluated { metrics: None, average: None });
        };
        self.state.bring_home()?;
        self.state.swap_average();
        let mut exported = self.task.exported(&self.state)?;
        let ranks = self.ranks.clone();
        let progress = &mut |done, all| {
            ranks.note_progress();
            observer.evaluating(done, all);
        };
        let shares = self.task.shares_evaluation();
        let sharing = if shares { ranks.clone() } else { Ranks::default() };
        let mut scores = self.task.evaluate(exported.as_ref().unwrap_or(&self.state), &sharing, progress)?;
        let count = self.task.facts().averaging.checkpoints;
        let mut average = None;
        if self.averages_now() {
            // The checkpoint of this step is written after this.
            let mean = self.checkpoints.average_with(&self.state, count - 1)?;
            if shares {
                self.ranks.from_first(Some(mean.is_some()))?;
            }
            if let Some(mut mean) = mean {
                if shares {
                    self.ranks.numbers_from_first(mean.parameters_mut())?;
                }
                let of_mean = self.task.evaluate(&mean, &sharing, progress)?;
                let score = of_mean.as_ref().and_then(Scores::deciding);
                let used = self.is_best(score, scores.as_ref());
                average = Some(CheckpointAverage { checkpoints: count, score, used });
                if used {
                    (exported, scores) = (Some(mean), of_mean);
                }
            }
        }
        let saved = self.save_model(
            &model,
            exported.as_ref().unwrap_or(&self.state),
            scores.as_ref().and_then(Scores::deciding),
        );
        self.state.swap_average();
        self.progress.best = saved?;
        if !self.device.is_gpu() {
            // Clock rates vary, and other programs use the CPU, too.
            let measured = self.device.measured_limit(self.task.recipe().train.precision.into())?;
            self.peak = self.peak.max(measured * self.ranks.size() as f64);
        }
        let Some(scores) = scores else { return Ok(Evaluated { metrics: None, average }) };
        Ok(Evaluated { metrics: Some(self.log_evaluation(scores, observer)?), average })
    }

    /// Does this rank's part of an evaluation, if that is shared out. Rank 0 has the result.
    fn help_evaluate(&mut self) -> Result<(), TrainError> {
        if !self.task.shares_evaluation() {
            return Ok(());
        }
        self.state.bring_home()?;
        self.state.swap_average();
        let evaluated = self.help_with_all();
        self.state.swap_average();
        evaluated
    }

    /// As rank 0 does in [`Trainer::evaluate`]: the model, and then the mean of checkpoints, which rank 0 reads.
    fn help_with_all(&mut self) -> Result<(), TrainError> {
        let exported = self.task.exported(&self.state)?;
        let ranks = self.ranks.clone();
        let progress = &mut |_, _| ranks.note_progress();
        self.task.evaluate(exported.as_ref().unwrap_or(&self.state), &ranks, progress)?;
        if self.averages_now() && ranks.from_first(None::<bool>)? {
            let mut mean = self.state.parameters_alone()?;
            ranks.numbers_from_first(mean.parameters_mut())?;
            self.task.evaluate(&mean, &ranks, progress)?;
        }
        Ok(())
    }

    /// Whether the mean of the last checkpoints is evaluated, too.
    fn averages_now(&self) -> bool {
        self.task.facts().averaging.checkpoints > 1 && self.is_last_step()
    }

    /// Whether a score is better than those of all checkpoints, of which the last has been evaluated now. Without validation data
    /// there is nothing to compare, and what the recipe asks for is best.
    fn is_best(&self, score: Option<Score>, last: Option<&Scores>) -> bool {
        let Some(Score { metric, value }) = score else { return last.is_none() };
        let last = last.and_then(Scores::deciding).map(|score| score.value);
        let before = self.progress.best.map(|(best, _)| best);
        last.into_iter().chain(before).all(|other| metric.is_better(value, other))
    }

    /// Saves the model, and saves it as the best if it is. Returns the best value so far and its step.
    fn save_model(&self, model: &Path, state: &State, score: Option<Score>) -> Result<Option<(f64, u64)>, TrainError> {
        self.task.save(model, state)?;
        let best = self.progress.best;
        if best.is_none_or(|(best, _)| score.is_some_and(|score| score.metric.is_better(score.value, best))) {
            if let Some(directory) = &self.directory {
                self.task.save(&directory.directory(BEST)?, state)?;
            }
            return Ok(score.map(|score| (score.value, self.progress.step)));
        }
        Ok(best)
    }

    /// Writes an evaluation down.
    fn log_evaluation(&mut self, scores: Scores, observer: &mut dyn Observer) -> Result<EvaluationMetrics, TrainError> {
        let step = self.progress.step;
        let epoch = step as f64 / self.steps_per_epoch as f64;
        let metrics = EvaluationMetrics::new(&scores, step, epoch, self.start.elapsed().as_secs_f64());
        let about = EvaluationAbout { step, epoch, data: self.task.facts().data.clone() };
        let evaluation = Evaluation { about, scores };
        if let Some(directory) = &self.directory {
            evaluation.write(&directory.file(EVALUATION))?;
        }
        observer.evaluated(&evaluation.scores);
        self.metrics.add(&metrics)?;
        self.events.evaluation(&metrics)?;
        Ok(metrics)
    }
}
