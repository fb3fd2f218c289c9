//! The CPU executor and its kernels.

mod convert;
mod math;
mod memory;
mod rows;
mod simd;
mod team;
