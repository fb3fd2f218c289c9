//! Vitreous' engine: one graph, its gradient, its plan, and the executors that run it.
//!
//! Features, on by default: `cuda` (GPUs), `mmap` (large buffers in huge pages), `mpi` (many processes).

// A build without GPUs has no use for what only they need.
#![cfg_attr(not(feature = "cuda"), allow(dead_code, unreachable_code))]

mod blocks;
mod buffer;
mod cache;
pub mod collective;
pub mod cpu;
#[cfg_attr(not(feature = "cuda"), path = "no_cuda.rs")]
pub mod cuda;
mod error;
mod executor;
mod gpu;
mod gradient;
mod graph;
mod intervention;
pub mod machine;
mod not_finite;
pub mod ops;
mod parameter;
pub mod plan;
mod precision;
pub mod random;
pub mod reference;
mod shard;
mod state;
mod trim;
mod types;
mod weights;

pub use blocks::BlockFormat;
pub use buffer::Floats;
pub use cache::{CacheSlots, Caches, ResultCopy, SlotCopy};
pub use error::{Error, Result};
pub use executor::{Device, Executor};
pub use gradient::{Backward, GradientOptions};
pub use graph::{Graph, Mode, Node, PARAMETER_ALIGNMENT, Value};
pub use intervention::{Edit, EditValues, Intervention};
pub use not_finite::{NotFinite, NotFiniteKind};
pub use ops::{
    Activation, AttentionInputs, AttentionOptions, CrossEntropyOptions, Group, MuonScale, Op, Optimizer, Padding,
    RotaryOptions, RotaryPairing, Sliding, Step, StepOptions, StepValues, rotary_frequencies,
};
pub use parameter::{Declaration, Init, LayerKind, Level, Parameter, Role};
pub use plan::Plan;
pub use precision::Precision;
pub use random::Run;
pub use shard::{Shard, ShardLink};
pub use state::State;
pub use types::{DType, Shape, Type};
pub use weights::{SharedWeights, WeightView};
