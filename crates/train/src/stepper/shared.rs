//! An update whose batches are shared out among ranks: see [`crate::ranks`].

use serde::{Deserialize, Serialize};
use vitreous_data::loader::Batch;
use vitreous_engine::{Run, State};

use super::on_gpus::Carrier;
use super::{NextBatch, StepResult, StepSettings, Stepper, set_rates};
use crate::error::TrainError;
use crate::ranks::{Link, Moments, Ranks, Reducer};
use crate::task::{Correct, Task, Weighting};

/// What a stepper has besides, where it is one of several.
pub(super) struct Shared {
    pub ranks: Ranks,
    pub reducer: Reducer,
    pub carrier: Carrier,
}

/// What a rank tells of a batch that it has run.
#[derive(Clone, Copy, Debug, Serialize, Deserialize)]
pub(super) struct BatchResult {
    loss: f64,
    right: u64,
    total: u64,
    units: u64,
    flops: u64,
}

/// What a rank tells of its batches of an update.
#[derive(Clone, Debug, Serialize, Deserialize)]
struct RankResult {
    batches: Vec<BatchResult>,
    /// Whether it was asked to stop.
    stop: bool,
    /// Whether a checkpoint is due, as rank 0 sees it.
    save: bool,
}

impl Stepper {
    /// As [`Stepper::step`], with the batches of all ranks.
    pub(super) fn step_shared(
        &mut self,
        shared: &mut Shared,
        task: &dyn Task,
        state: &mut State,
        settings: StepSettings,
        next: &mut NextBatch,
        run: Run,
    ) -> Result<(StepResult, Vec<Batch>), TrainError> {
        let (rank, size) = (shared.ranks.rank(), shared.ranks.size());
        let count = settings.batches;
        let weighted = self.weighting == Weighting::ByUnits;
        let units = match weighted {
            true => self.units_of_all(&shared.ranks, count, next)?,
            false => 0,
        };
        let (mut own, mut used, mut last) = self.run_on_gpus(shared, task, state, (count, units), next, run)?;
        // GPUs that add up themselves have run all by now.
        let rounds = if shared.carrier.reduction.is_some() { 0 } else { count.div_ceil(size) };
        for round in 0..rounds {
            let (index, contributors) = (round * size + rank, size.min(count - round * size));
            shared.reducer.begin(contributors, round + 1 == rounds);
            if index >= count {
                shared.reducer.skip();
            } else {
                let batch = self.take(next)?;
                let share = match weighted {
                    true => batch.units as f64 / units as f64,
                    false => 1.0 / count as f64,
                };
                last = self.run_and_send(shared, state, (index, share), run)?;
                self.send_next(next)?;
                own.push(self.result_of(task, state, &batch, last)?);
                used.push(batch);
            }
            shared.reducer.finish(state)?;
        }
        let told = RankResult { batches: own, stop: settings.stop, save: settings.save };
        let all = shared.ranks.gather(told)?;
        let mut result = summed(&all, count, weighted.then_some(units));
        let Some((update, gradient_norm)) = &mut self.update else {
            return Err(TrainError::Ranks("updates of several ranks accumulate gradients".to_string()));
        };
        set_rates(update, settings)?;
        update.input("gradient_scale")?[0] = 1.0 / result.gradient_sum_of as f32;
        if state.shard().is_some() {
            let mut link = Link::new(&shared.reducer);
            update.run_sharded(state, run, &mut link)?;
            link.result()?;
        } else {
            update.run(state, run)?;
        }
        let norm = update.number(*gradient_norm)?;
        result.grad_norm = f64::from(norm);
        match used.last() {
            Some(batch) if !norm.is_finite() => {
                self.not_finite(state, batch, last, &format!("the gradient norm is {norm}"))
            }
            None if !norm.is_finite() => {
                Err(TrainError::NotFinite { step: 0, what: format!("the gradient norm is {norm}") })
            }
            _ => Ok((result, used)),
        }
    }

    /// The other ranks, if moments are shared out among them.
    pub(crate) fn moments_elsewhere(&self, state: &State) -> Option<&Reducer> {
        self.shared.as_ref().filter(|_| state.shard().is_some()).map(|shared| &shared.reducer)
    }

    /// Gives each rank the moments of its pieces, of all that rank 0 has. All ranks call this.
    pub(crate) fn hand_out_moments(&self, all: Option<&Moments>, state: &mut State) -> Result<(), TrainError> {
        self.shared.as_ref().map_or(Ok(()), |shared| shared.reducer.hand_out_moments(all, state))
    }

    /// Completes the gradients of the last update, where each rank has a part of them. All ranks call this.
    pub(crate) fn complete_gradients(&self, state: &mut State) -> Result<(), TrainError> {
        self.shared.as_ref().map_or(Ok(()), |shared| shared.reducer.complete_gradients(state))
    }

    /// The units of all batches of an update.
    fn units_of_all(&mut self, ranks: &Ranks, count: usize, next: &mut NextBatch) -> Result<usize, TrainError> {
        let own = ranks.own_batches(count);
        self.fetch(own, next)?;
        let units: usize = self.waiting.iter().take(own).map(|batch| batch.units).sum();
        Ok(ranks.gather(units)?.iter().sum())
    }

    /// Runs a batch. Its gradients go to the others while it runs. Returns what its randomness followed from.
    fn run_and_send(
        &mut self,
        shared: &mut Shared,
        state: &mut State,
        (index, share): (usize, f64),
        run: Run,
    ) -> Result<Run, TrainError> {
        // What was there is in the sums of its owners.
        self.passes.input("accumulate")?[0] = 0.0;
        if self.weighting == Weighting::ByUnits {
            self.passes.input("weight")?[0] = share as f32;
        }
        let run = self.run_of(index, run);
        let reducer = &mut shared.reducer;
        self.passes.run_noting(state, run, &mut |parameter, gradient| reducer.take(parameter, gradient))?;
        if self.sends_ahead {
            state.bring_home()?;
            shared.reducer.take_all(state);
        }
        Ok(run)
    }

    pub(super) fn result_of(
        &mut self,
        task: &dyn Task,
        state: &mut State,
        batch: &Batch,
        run: Run,
    ) -> Result<BatchResult, TrainError> {
        let pass = self.groups[batch.group].clone();
        self.passes.choose(batch.group);
        let loss = f64::from(self.passes.number(pass.loss)?);
        if !loss.is_finite() {
            return self.not_finite(state, batch, run, &format!("the loss is {loss}"));
        }
        let outputs: Result<Vec<&[f32]>, _> =
            pass.outputs.iter().map(|&value| self.passes.output_slice(value)).collect();
        let Correct { right, total } = task.correct(batch, &outputs?).unwrap_or_default();
        Ok(BatchResult { loss, right, total, units: batch.units as u64, flops: pass.flops })
    }
}

/// The result of an update, from those of its batches in their order: as one process adds them.
fn summed(all: &[RankResult], count: usize, units: Option<usize>) -> StepResult {
    let mut result = StepResult {
        gradient_sum_of: if units.is_some() { 1 } else { count },
        stop: all.iter().any(|rank| rank.stop),
        save: all.first().is_some_and(|first| first.save),
        ..StepResult::default()
    };
    for index in 0..count {
        let Some(batch) = all.get(index % all.len()).and_then(|rank| rank.batches.get(index / all.len())) else {
            continue;
        };
        result.loss += match units {
            None => batch.loss / count as f64,
            Some(units) => batch.loss * (batch.units as f64 / units as f64),
        };
        result.correct.right += batch.right;
        result.correct.total += batch.total;
        result.units += batch.units;
        result.flops += batch.flops;
    }
    result
}
