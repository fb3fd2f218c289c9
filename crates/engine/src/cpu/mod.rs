//! The CPU executor and its kernels.

mod convert;
mod math;
mod memory;
mod simd;
mod team;
