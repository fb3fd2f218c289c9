//! The CPU executor and its kernels.

mod attention;
mod convert;
mod math;
mod memory;
mod simd;
mod team;
