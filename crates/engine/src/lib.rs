//! Vitreous' engine: one graph, its gradient, its plan, and the executors that run it.

pub mod cpu;
pub mod ops;
pub mod precision;
pub mod random;
