//! How a run is divided among ranks.

use std::fmt;

/// What each rank keeps only a part of. Each includes those before it.
#[derive(Clone, Copy, Debug, PartialEq, Eq, PartialOrd, Ord)]
pub enum Sharding {
    /// Nothing: plain data parallelism.
    None,
    /// Moments, and weights that only the update reads: ZeRO-1, `train.shard=optimizer`.
    Optimizer,
    /// Gradients, too: ZeRO-2.
    Gradients,
    /// Weights, too: ZeRO-3, FSDP.
    All,
}

/// How a run is divided.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Layout {
    /// Ranks among which every matrix of a layer is divided.
    pub tensor: usize,
    /// Stages of consecutive layers, each on ranks of its own.
    pub pipeline: usize,
    /// Replicas, each with samples of its own.
    pub data: usize,
    /// What replicas divide.
    pub sharding: Sharding,
    /// Samples that are computed together.
    pub micro_batch: usize,
    /// Micro-batches of a replica in a step.
    pub micro_batches: usize,
    /// Whether activations inside a layer are computed again in the backward pass.
    pub recompute: bool,
}

impl Layout {
    /// Whether a matrix or the stack of layers is divided.
    pub fn is_model_parallel(&self) -> bool {
        self.tensor > 1 || self.pipeline > 1
    }

    /// Whether Vitreous trains so on GPUs. The rest is on paper; sharded moments (`train.shard=optimizer`) are done on CPUs.
    pub fn is_done_here(&self) -> bool {
        !self.is_model_parallel() && self.sharding == Sharding::None
    }
}

impl fmt::Display for Layout {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let sharding = match self.sharding {
            Sharding::None => "data parallel",
            Sharding::Optimizer => "ZeRO-1",
            Sharding::Gradients => "ZeRO-2",
            Sharding::All => "FSDP",
        };
        if self.is_model_parallel() {
            write!(f, "tensor {} x pipeline {} x {sharding} {}", self.tensor, self.pipeline, self.data)?;
        } else {
            f.write_str(sharding)?;
        }
        if self.recompute {
            f.write_str(", recomputed")?;
        }
        Ok(())
    }
}
