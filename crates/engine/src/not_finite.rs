//! Which value of a run was not finite, in the user's terms: a layer, a parameter, or a gradient of one.

use std::fmt;

use crate::graph::{Graph, Value};
use crate::ops::Op;

/// What the non-finite value is.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum NotFiniteKind {
    /// A parameter, before the step.
    Parameter,
    /// An input of the run.
    Input,
    /// An activation of the forward pass.
    Activation,
    /// A gradient of the backward pass.
    Gradient,
}

/// The first non-finite value of a run.
#[derive(Clone, Debug, PartialEq)]
pub struct NotFinite {
    /// What it is.
    pub kind: NotFiniteKind,
    /// Path of the parameter, the input or the layer that it belongs to.
    pub path: String,
    /// Index of the first non-finite element.
    pub index: usize,
    /// That element: NaN or an infinity.
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

/// Whether a value belongs to the forward or the backward pass, and the path of its layer.
pub(crate) fn describe(graph: &Graph, value: Value) -> (NotFiniteKind, String) {
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
        // The last component is the op that computes the gradient.
        Some(path) => (NotFiniteKind::Gradient, path.rsplit_once('.').map_or(path, |(layer, _)| layer).to_string()),
        None => (NotFiniteKind::Activation, layer_of(graph, value.node()).unwrap_or(path).to_string()),
    }
}

/// The layer whose weight a node reads: a node fused into a matrix multiplication or norm has taken over its path, but
/// the layer says more.
fn layer_of(graph: &Graph, node: usize) -> Option<&str> {
    let node = &graph.nodes()[node];
    let weight = node.inputs.get(1).filter(|_| matches!(node.op, Op::Linear(_) | Op::LayerNorm(_) | Op::RmsNorm(_)))?;
    match &graph.nodes()[weight.node()].op {
        Op::Parameter(parameter) => graph.parameters()[parameter.index].name.rsplit_once('.').map(|(layer, _)| layer),
        _ => None,
    }
}
