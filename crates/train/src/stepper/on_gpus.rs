//! The batches of an update on GPUs that add up their gradients themselves.
//!
//! Each rank accumulates its own batches, and the sums travel once per update, while the backward pass of its last batch goes on. They are
//! those of one process up to rounding, and the same bits on every repetition and on all ranks.

use std::sync::Arc;

use vitreous_data::loader::Batch;
use vitreous_engine::collective::{Wire, World};
use vitreous_engine::{Device, Parameter, Run, State, cuda};

use super::shared::{BatchResult, Shared};
use super::{NextBatch, Stepper};
use crate::error::TrainError;
use crate::task::{Task, Weighting};

/// How gradients get from GPU to GPU.
#[derive(Debug, Default)]
pub(super) struct Carrier {
    /// NCCL, which adds them up on the GPUs; without it they go through the memory of the hosts.
    pub reduction: Option<Arc<cuda::Reduction>>,
    /// The same in words; nothing on processors.
    pub words: Option<String>,
}

impl Carrier {
    /// What the GPUs of all ranks can do. All ranks call this, and find the same.
    pub fn find(
        world: &World,
        device: &Device,
        table: &[Parameter],
        floats: usize,
        wire: Wire,
    ) -> Result<Carrier, TrainError> {
        let Device::Cuda(gpu) = device else { return Ok(Carrier::default()) };
        Ok(match cuda::Reduction::start(world, gpu, table, floats, wire)? {
            Ok(reduction) => {
                let words = format!("gradients are added up by {}", reduction.library());
                Carrier { reduction: Some(reduction), words: Some(words) }
            }
            Err(why) => {
                let words = format!("gradients go through host memory, without NCCL: {why}");
                Carrier { reduction: None, words: Some(words) }
            }
        })
    }
}

/// What a rank has of an update: the results of its batches, the batches, and what the randomness of the last one followed from.
pub(super) type OwnBatches = (Vec<BatchResult>, Vec<Batch>, Run);

impl Stepper {
    /// How gradients get from GPU to GPU, in words; `None` where there are none.
    pub fn carrier(&self) -> Option<&str> {
        self.shared.as_ref()?.carrier.words.as_deref()
    }

    /// Runs the batches of this rank; none where its gradients do not go from GPU to GPU. The gradients in the state are those of all ranks
    /// when the last run has ended.
    pub(super) fn run_on_gpus(
        &mut self,
        shared: &Shared,
        task: &dyn Task,
        state: &mut State,
        (count, units): (usize, usize),
        next: &mut NextBatch,
        run: Run,
    ) -> Result<OwnBatches, TrainError> {
        let Some(reduction) = &shared.carrier.reduction else { return Ok((Vec::new(), Vec::new(), run)) };
        let (rank, size) = (shared.ranks.rank(), shared.ranks.size());
        let (mut results, mut used, mut last) = (Vec::new(), Vec::new(), run);
        let own = shared.ranks.own_batches(count);
        if own == 0 {
            // The others wait for this rank's part, which is nothing.
            reduction.reduce(state, true)?;
        }
        for place in 0..own {
            let batch = self.take(next)?;
            self.passes.input("accumulate")?[0] = if place == 0 { 0.0 } else { 1.0 };
            if self.weighting == Weighting::ByUnits {
                self.passes.input("weight")?[0] = (batch.units as f64 / units as f64) as f32;
            }
            last = self.run_of(place * size + rank, run);
            match place + 1 == own {
                true => self.passes.run_reducing(state, last, reduction)?,
                false => self.passes.run(state, last)?,
            }
            self.send_next(next)?;
            results.push(self.result_of(task, state, &batch, last)?);
            used.push(batch);
        }
        Ok((results, used, last))
    }
}
