//! Finds the first value of a run that is not finite: which layer, or whose gradient, a training went bad at.
//!
//! The plan is run as always, but for the updates, and each kernel's results are looked at before the next kernel runs. That takes
//! one run's time and no memory, and what is found is what the training computed, fused and rounded as it was.

use std::fmt;
use std::sync::Mutex;

use super::kernel::Kernel;
use super::memory::FloatSlice;
use super::{Executor, updates};
use crate::error::Result;
use crate::graph::{Graph, Value};
use crate::ops::Op;
use crate::random::Run;
use crate::state::State;
use crate::types::DType;

/// What a value that is not finite is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotFiniteKind {
    /// A parameter was so before the step.
    Parameter,
    /// An input of the run.
    Input,
    /// A value of the forward pass.
    Activation,
    /// A value of the backward pass.
    Gradient,
}

/// The first value that is not finite.
#[derive(Clone, Debug, PartialEq)]
pub struct NotFinite {
    /// What it is.
    pub kind: NotFiniteKind,
    /// Its path: of the parameter, the input or the layer that it belongs to.
    pub path: String,
    /// The place of the first number that is not finite.
    pub index: usize,
    /// That number: NaN or an infinity.
    pub value: f32,
}

impl fmt::Display for NotFinite {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let what = match self.kind {
            NotFiniteKind::Parameter => "parameter",
            NotFiniteKind::Input => "input",
            NotFiniteKind::Activation => "result of",
            NotFiniteKind::Gradient => "gradient of",
        };
        write!(f, "{what} `{}` is {} at {}", self.path, self.value, self.index)
    }
}

/// Looks at the results of every kernel of a run.
#[derive(Default)]
pub(super) struct Watch {
    first: Mutex<Option<Found>>,
}

#[derive(Clone, Copy)]
struct Found {
    value: Value,
    index: usize,
    number: f32,
}

impl Watch {
    /// Looks at a kernel's results. Tiles of a chain come in any order, so the earliest is kept.
    pub fn look(&self, kernel: &Kernel) {
        if kernel.node.op.is_leaf() || matches!(kernel.node.op, Op::Reshape(_)) {
            return;
        }
        // What attention keeps besides its result may be infinite where all keys are padding.
        let outputs = if matches!(kernel.node.op, Op::Attention(_)) { 1 } else { kernel.node.outputs.len() };
        for (output, value_type) in kernel.node.outputs[..outputs].iter().enumerate() {
            if value_type.dtype == DType::I32 {
                continue;
            }
            let value = Value::new(kernel.index, output);
            let Some((place, number)) = first_not_finite(kernel.memory.read(value)) else { continue };
            let samples = value_type.shape.axes().first().copied().unwrap_or(1);
            let index = place + kernel.first_sample() * (value_type.shape.elements() / samples);
            let found = Found { value, index, number };
            let mut first = self.first.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if first.is_none_or(|first| (found.value, found.index) < (first.value, first.index)) {
                *first = Some(found);
            }
        }
    }

    /// Whether anything was found.
    pub fn has_found(&self) -> bool {
        self.first.lock().unwrap_or_else(std::sync::PoisonError::into_inner).is_some()
    }
}

fn first_not_finite(values: FloatSlice) -> Option<(usize, f32)> {
    let place = match values {
        FloatSlice::F32(values) => values.iter().position(|x| !x.is_finite()),
        FloatSlice::Bf16(values) => values.iter().position(|x| !x.is_finite()),
    }?;
    let mut number = [0.0];
    let number = values.read(place..place + 1, &mut number)[0];
    Some((place, number))
}

/// What a value of the backward pass is the gradient of, or the layer that it is of.
fn describe(graph: &Graph, value: Value) -> (NotFiniteKind, String) {
    let is_it = |gradient: &Value| graph.root_of(*gradient) == value;
    let by_parameter = graph.parameter_gradients.iter().position(|gradient| gradient.as_ref().is_some_and(is_it));
    let accumulated = || {
        graph.nodes().iter().find_map(|node| match &node.op {
            Op::AccumulateGradient(op) if is_it(&node.inputs[1]) => Some(op.parameter),
            _ => None,
        })
    };
    if let Some(parameter) = by_parameter.or_else(accumulated) {
        return (NotFiniteKind::Gradient, graph.parameters()[parameter].name.clone());
    }
    let path = graph.nodes()[value.node()].path.as_str();
    let path = path.strip_prefix("again.").unwrap_or(path);
    match path.strip_prefix("gradient.") {
        // The last part is the op's that computes the gradient.
        Some(path) => (NotFiniteKind::Gradient, path.rsplit_once('.').map_or(path, |(layer, _)| layer).to_string()),
        None => (NotFiniteKind::Activation, layer_of(graph, value.node()).unwrap_or(path).to_string()),
    }
}

/// The layer whose weight a node reads: what was joined with a product or norm has taken its path, but the layer says more.
fn layer_of(graph: &Graph, node: usize) -> Option<&str> {
    let node = &graph.nodes()[node];
    let weight = node.inputs.get(1).filter(|_| matches!(node.op, Op::Linear(_) | Op::LayerNorm(_) | Op::RmsNorm(_)))?;
    match &graph.nodes()[weight.node()].op {
        Op::Parameter(parameter) => graph.parameters()[parameter.index].name.rsplit_once('.').map(|(layer, _)| layer),
        _ => None,
    }
}

impl Executor {
    /// Finds what went bad: the first value that is not finite, among the parameters, then the inputs as they are, then in the order
    /// of the run. To be asked after a step whose loss or gradient norm was not finite, with the same `run`; the step has left the
    /// parameters as they were, and nothing is updated or added up here either. `None` if all is finite.
    pub fn find_non_finite(&mut self, state: &mut State, run: Run) -> Result<Option<NotFinite>> {
        self.check_state(state)?;
        for parameter in state.table() {
            if let Some((index, value)) = first_not_finite(FloatSlice::F32(state.parameter(&parameter.name)?)) {
                let (kind, path) = (NotFiniteKind::Parameter, parameter.name.clone());
                return Ok(Some(NotFinite { kind, path, index, value }));
            }
        }
        let graph = self.plan.graph();
        let inputs: Vec<(String, DType)> =
            graph.inputs().map(|(path, value)| (path.to_string(), graph.type_of(value).dtype)).collect();
        for (path, dtype) in inputs {
            let found = match dtype {
                DType::F32 => first_not_finite(FloatSlice::F32(self.input(&path)?)),
                DType::Bf16 => first_not_finite(FloatSlice::Bf16(self.input_bf16(&path)?)),
                DType::I32 => None,
            };
            if let Some((index, value)) = found {
                return Ok(Some(NotFinite { kind: NotFiniteKind::Input, path, index, value }));
            }
        }
        let watch = Watch::default();
        let pieces = std::mem::take(&mut self.pieces);
        let result = self.run_nodes(Some(&updates::Buffers::new(state, &pieces)), run, Some(&watch));
        self.pieces = pieces;
        result?;
        let found = watch.first.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        Ok(found.map(|found| {
            let (kind, path) = describe(self.plan.graph(), found.value);
            NotFinite { kind, path, index: found.index, value: found.number }
        }))
    }
}
