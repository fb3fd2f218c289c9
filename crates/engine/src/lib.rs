//! Vitreous' engine: one graph, its gradient, its plan, and the executors that run it.

mod buffer;
pub mod cpu;
pub mod cuda;
mod error;
mod executor;
mod gradient;
mod graph;
pub mod machine;
mod not_finite;
pub mod ops;
pub mod plan;
mod precision;
pub mod random;
pub mod reference;
mod state;
mod trim;
mod types;

pub use buffer::Floats;
pub use error::{Error, Result};
pub use executor::{Device, Executor};
pub use gradient::{Backward, GradientOptions};
pub use graph::{Graph, Mode, Node, PARAMETER_ALIGNMENT, Parameter, Value};
pub use not_finite::{NotFinite, NotFiniteKind};
pub use ops::{
    Activation, AttentionInputs, AttentionOptions, CrossEntropyOptions, Group, Op, Optimizer, Padding, RotaryOptions,
    RotaryPairing, Sliding, Step, StepOptions, StepValues,
};
pub use plan::Plan;
pub use precision::Precision;
pub use random::Run;
pub use state::State;
pub use types::{DType, Shape, Type};
