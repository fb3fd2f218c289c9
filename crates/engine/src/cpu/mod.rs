//! The CPU executor and its kernels.

mod attention;
mod convert;
mod gemm;
mod math;
mod memory;
mod rows;
mod simd;
mod team;
