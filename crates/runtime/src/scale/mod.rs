//! A training run on many ranks, on paper: how long a step takes, how much memory a rank needs, and which layout is best.
//!
//! Everything is computed from four things: what the graph of the model costs ([`Workload`]), how fast one rank computes
//! ([`Device`]), how fast ranks reach each other ([`Cluster`]), and how the work is divided ([`Layout`]). Nothing is run or
//! allocated. The formulas are those of the papers, and each stands beside the line that computes it:
//!
//! - ring all-reduce: Patarasuk and Yuan, "Bandwidth optimal all-reduce algorithms" (2009); in two levels, within a host and
//!   then across: Cho et al., "BlueConnect" (2019),
//! - sharded moments, gradients and parameters: Rajbhandari et al., "ZeRO" (2019),
//! - tensor parallelism: Shoeybi et al., "Megatron-LM" (2019); pipelines: Narayanan et al., "Efficient Large-Scale Language
//!   Model Training on GPU Clusters Using Megatron-LM" (2021).
//!
//! What it leaves out: hosts and links that are slower than others, congestion, failures, reading of data, and that smaller
//! matrices are multiplied at fewer FLOP/s.

mod communication;
mod device;
mod layout;
mod memory;
mod prediction;
mod proposal;
mod workload;

pub use communication::{Cluster, Group, exposed};
pub use device::{Device, Measured};
pub use layout::{Layout, Sharding};
pub use memory::{StateBytes, bytes_per_parameter};
pub use prediction::{Prediction, Step, predict};
pub use proposal::{Proposal, propose};
pub use workload::{Activations, Workload};
