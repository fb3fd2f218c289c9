//! A named value of a model, as a run computes it.

use vitreous_engine::{DType, Device, Graph, Op, Value};
use vitreous_models::{Call, Model, OnDevice};

use super::{Given, fill_given};
use crate::error::ExplainError;

/// One named value of a model in a run, with its shape: what patching takes over.
pub fn value_of(
    model: &Model,
    given: &Given,
    path: &str,
    device: &Device,
) -> Result<(Vec<usize>, Vec<f32>), ExplainError> {
    let tokens = if let Given::Tokens(tokens) = given { tokens.len() } else { 1 };
    let mut graph = Graph::for_inference();
    model.architecture.build(&mut graph, &Call::whole(1).tokens(tokens.max(1)))?;
    let value = match attention_part(&graph, path) {
        Some((attention, part)) => part.of(&mut graph, attention)?,
        None if graph.editable_paths().iter().any(|known| known == path) => graph.find(path)?,
        None => return Err(graph.unknown_path(path.to_string()).into()),
    };
    let value = graph.cast(value, DType::F32)?;
    let mut source = OnDevice::new(device, Box::new(model));
    let plan = source.plan(&mut graph, &[value])?;
    let mut executor = source.executor("reading a value", None, plan)?;
    fill_given(&mut executor, given, 1)?;
    executor.infer()?;
    Ok((graph.shape_of(value).axes().to_vec(), executor.output(value)?))
}

/// A part of an attention that has no value of its own in the graph.
enum AttentionPart {
    /// One of so many heads.
    Head {
        head: usize,
        of: usize,
    },
    Weights(Option<usize>),
}

/// The attention that a path is a part of: `SCOPE.heads.5`, `SCOPE.weights` or `SCOPE.heads.5.weights`.
fn attention_part(graph: &Graph, path: &str) -> Option<(Value, AttentionPart)> {
    let (path, is_weights) = path.strip_suffix(".weights").map_or((path, false), |rest| (rest, true));
    let (scope, head) = match path.rsplit_once(".heads.") {
        Some((scope, head)) => (scope, Some(head.parse::<usize>().ok()?)),
        None => (path, None),
    };
    let (node, of) = graph.nodes().iter().find_map(|node| match &node.op {
        Op::Attention(op) if node.path.rsplit_once('.').map(|p| p.0) == Some(scope) => Some((node, op.heads)),
        _ => None,
    })?;
    let fits = head.is_none_or(|head| head < of);
    match (is_weights, head) {
        _ if !fits => None,
        (true, head) => Some((graph.find(&node.path).ok()?, AttentionPart::Weights(head))),
        // Heads as they are after edits.
        (false, Some(head)) => Some((graph.find(&format!("{scope}.heads")).ok()?, AttentionPart::Head { head, of })),
        (false, None) => None,
    }
}

impl AttentionPart {
    fn of(self, graph: &mut Graph, value: Value) -> vitreous_engine::Result<Value> {
        match self {
            AttentionPart::Weights(None) => graph.attention_weights(value),
            AttentionPart::Weights(Some(head)) => {
                let weights = graph.attention_weights(value)?;
                graph.slice(weights, 1, head, head + 1)
            }
            AttentionPart::Head { head, of } => {
                let width = graph.shape_of(value).columns() / of;
                graph.slice(value, 2, head * width, (head + 1) * width)
            }
        }
    }
}
