//! NCCL: several GPUs that add up their gradients themselves, and ranks without MPI that send each other bytes.
//!
//! - [`library`]: its functions, found when they are needed.
//! - [`communicator`]: a GPU among others.
//! - [`link`]: the [`Collective`](crate::collective::Collective) of ranks that have no MPI.
//! - [`reduction`]: the sums of gradients, bucket by bucket, while the backward pass goes on.
//! - [`start`]: whether the GPUs of all ranks can work together, which all ranks decide alike.

mod communicator;
mod library;
mod link;
mod reduction;
mod start;

pub(super) use library::version;
pub(crate) use link::{alone, open};
pub use reduction::Reduction;
