//! Rows that nobody reads are not computed.
//!
//! A Vision Transformer's head sees the class token alone, so of the last layer only one row in 197 matters behind the keys
//! and values: a sixteenth of the whole model's work would be for nothing. Going back from the results, each value is asked
//! which of its tokens are wanted; ops that treat every token by itself then compute just those.
//!
//! A gradient reads every row of what it is taken of. So for training this is done before gradients are taken: what the loss
//! needs is built again from the wanted rows, and the gradient goes back through that. Where all tokens are asked for, all
//! are computed.
//!
//! Each result of a plan is computed as it would be alone. Who asks for the last layer's attention, or all of its tokens, beside the
//! logits gets those computed whole, and once more the one row of them that the logits depend on: a product of one row adds its
//! numbers up in another order than one of many, and asking for more must change nothing.

use std::collections::{HashMap, HashSet};
use std::ops::Range;

use crate::graph::{Graph, Node, Value};
use crate::ops::{Attention, Op, Slice, Step};
use crate::types::{Shape, Type};

/// Which tokens of a value are wanted.
#[derive(Clone, Debug, PartialEq, Eq)]
enum Demand {
    Nothing,
    Rows(Range<usize>),
    All,
}

impl Demand {
    fn and(&mut self, other: Demand) {
        *self = match (std::mem::replace(self, Demand::All), other) {
            (Demand::Nothing, demand) | (demand, Demand::Nothing) => demand,
            (a, b) if a == b => a,
            _ => Demand::All,
        };
    }
}

/// How a node's input is read when only some tokens of its result are wanted.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Reading {
    /// The same tokens of it, which are this axis.
    SameRows(usize),
    /// All of it.
    Whole,
}

/// A graph without the rows that nobody reads.
pub(crate) struct Trimmed {
    pub graph: Graph,
    /// The results that were asked for.
    pub outputs: Vec<Value>,
    /// Where the values went that are as they were.
    pub map: HashMap<Value, Value>,
}

/// Leaves out the rows that nobody reads; `None` if there is nothing to leave out.
pub(crate) fn trim(graph: &Graph, outputs: &[Value]) -> Option<Trimmed> {
    let has_slices = graph.nodes().iter().any(|node| wanted_rows(graph, node).is_some());
    let trains = graph.parameter_gradients.iter().any(Option::is_some);
    if !has_slices || trains || graph.writes_caches() || graph.nodes().iter().any(|node| node.op.has_effect()) {
        return None;
    }
    let demands: Vec<_> = outputs.iter().map(|&output| demands(graph, output)).collect();
    demands.iter().any(|demands| saves(graph, demands)).then(|| rebuild(graph, outputs, &demands))
}

/// Adds to a graph what computes a value, the same, without the rows that nobody reads, and gives it; the value itself if
/// there is nothing to leave out. What was computed before stays, for who asks for it.
pub(crate) fn trim_in_place(graph: &mut Graph, output: Value) -> Value {
    let demands = demands(graph, output);
    if !saves(graph, &demands) {
        return output;
    }
    let old = graph.clone();
    let mut builder = Builder::new(&old, old.clone());
    for (index, node) in old.nodes().iter().enumerate() {
        let needed = demands[index].iter().any(|demand| *demand != Demand::Nothing);
        let rows = trimmed_rows(&old, &demands[index], node);
        if needed && (rows.is_some() || node.inputs.iter().any(|input| builder.moved.contains_key(input))) {
            builder.add(index, node, rows.clone());
            if rows.is_none() {
                let values = (0..node.outputs.len()).map(|output| Value::new(index, output));
                let same: Vec<_> = values.map(|value| (value, builder.now(value))).collect();
                builder.graph.same.extend(same);
            }
        }
    }
    let output = builder.now(output);
    *graph = builder.graph;
    // They are of the rows that were there before.
    graph.known_gradients.clear();
    output
}

/// Whether any node would compute fewer rows.
fn saves(graph: &Graph, demands: &[Vec<Demand>]) -> bool {
    let mut nodes = graph.nodes().iter().zip(demands);
    nodes.any(|(node, demands)| trimmed_rows(graph, demands, node).is_some())
}

/// The tokens that a slice reads, if they are few: a copy of nearly all of them would save nothing.
fn wanted_rows(graph: &Graph, node: &Node) -> Option<Range<usize>> {
    let Op::Slice(Slice { axis: 1, start, end }) = node.op else { return None };
    let &[_, tokens, _] = graph.shape_of(node.inputs[0]).axes() else { return None };
    (2 * (end - start) <= tokens).then_some(start..end)
}

/// What a result wants of each result of each node.
fn demands(graph: &Graph, output: Value) -> Vec<Vec<Demand>> {
    let nodes = graph.nodes();
    let mut demands: Vec<Vec<Demand>> = nodes.iter().map(|node| vec![Demand::Nothing; node.outputs.len()]).collect();
    demands[output.node()][output.output()] = Demand::All;
    for (index, node) in nodes.iter().enumerate().rev() {
        if demands[index].iter().all(|demand| *demand == Demand::Nothing) {
            continue;
        }
        let rows = trimmed_rows(graph, &demands[index], node);
        for (input, value) in node.inputs.iter().enumerate() {
            let demand = match (&rows, wanted_rows(graph, node)) {
                (Some(rows), _) if matches!(reading(graph, node, input), Some(Reading::SameRows(_))) => {
                    Demand::Rows(rows.clone())
                }
                (None, Some(rows)) => Demand::Rows(rows),
                _ => Demand::All,
            };
            demands[value.node()][value.output()].and(demand);
        }
    }
    demands
}

/// The tokens that a node will compute, if not all.
fn trimmed_rows(graph: &Graph, demands: &[Demand], node: &Node) -> Option<Range<usize>> {
    let (Demand::Rows(rows), rest) = demands.split_first()? else { return None };
    let alone = rest.iter().all(|demand| *demand == Demand::Nothing);
    let by_rows = (0..node.inputs.len()).all(|input| reading(graph, node, input).is_some());
    (alone && by_rows && !node.op.is_leaf()).then(|| rows.clone())
}

/// How an input is read if the op treats every token of its result `[samples, tokens, n]` by itself; `None` if it does not.
fn reading(graph: &Graph, node: &Node, input: usize) -> Option<Reading> {
    let &[_, tokens, _] = node.outputs.first()?.shape.axes() else { return None };
    // Dropout depends on the place in the tensor; stochastic depth on the sample, which stays.
    let fixed = |step: &Step| !matches!(step, Step::Dropout(_) | Step::DroppedActivation { .. } | Step::Store { .. });
    if !node.steps.iter().all(fixed) {
        return None;
    }
    match (&node.op, input) {
        (Op::Linear(_) | Op::LayerNorm(_) | Op::RmsNorm(_) | Op::Pointwise(_), 0) => Some(Reading::SameRows(1)),
        (Op::Linear(_) | Op::LayerNorm(_) | Op::RmsNorm(_) | Op::Pointwise(_), _) => {
            Some(match graph.shape_of(node.inputs[input]).axes() {
                // A matrix of weights may be of any size; only operands of steps have tokens.
                _ if !node.steps.iter().any(|step| step.input() == Some(input)) => Reading::Whole,
                [_, rows, _] if *rows == tokens => Reading::SameRows(1),
                [rows, _] if *rows == tokens => Reading::SameRows(0),
                _ => Reading::Whole,
            })
        }
        // A query's mask depends on its number, as its bias and its dropout do.
        (Op::Attention(op), _) if !op.reach().is_unlimited() || op.bias || op.dropout.is_some() => None,
        (Op::Attention(op), 0) if !op.packed => Some(Reading::SameRows(1)),
        (Op::Attention(_), _) => Some(Reading::Whole),
        _ => None,
    }
}

/// Builds what each result demands; what several demand alike is built once.
fn rebuild(graph: &Graph, outputs: &[Value], demands: &[Vec<Vec<Demand>>]) -> Trimmed {
    let mut builder = Builder::new(graph, graph.without_nodes());
    let mut moved = vec![HashMap::new(); outputs.len()];
    let mut map = HashMap::new();
    let inputs: HashSet<usize> = graph.inputs_of_edited().collect();
    for (index, node) in graph.nodes().iter().enumerate() {
        for (demands, moved) in demands.iter().zip(&mut moved) {
            let unread = demands[index].iter().all(|demand| *demand == Demand::Nothing);
            if unread && !inputs.contains(&index) {
                continue;
            }
            std::mem::swap(&mut builder.moved, moved);
            let rows = trimmed_rows(graph, &demands[index], node);
            builder.add(index, node, rows.clone());
            if rows.is_none() {
                for output in 0..node.outputs.len() {
                    let value = Value::new(index, output);
                    map.entry(value).or_insert(builder.moved[&value]);
                }
            }
            std::mem::swap(&mut builder.moved, moved);
        }
    }
    let now: Vec<Value> = outputs.iter().zip(&moved).map(|(output, moved)| moved[output]).collect();
    map.extend(outputs.iter().copied().zip(now.iter().copied()));
    Trimmed { graph: builder.graph, outputs: now, map }
}

/// What tells nodes apart: the node of the old graph, the rows that are left of it, and its new inputs.
type Made = (usize, Option<Range<usize>>, Vec<Value>);

struct Builder<'g> {
    old: &'g Graph,
    graph: Graph,
    /// Where values of the old graph are.
    moved: HashMap<Value, Value>,
    /// Slices that were made, by value, axis and range.
    parts: HashMap<(Value, usize, Range<usize>), Value>,
    /// Nodes that were made.
    built: HashMap<Made, usize>,
}

impl<'g> Builder<'g> {
    fn new(old: &'g Graph, graph: Graph) -> Self {
        Builder { old, graph, moved: HashMap::new(), parts: HashMap::new(), built: HashMap::new() }
    }

    fn add(&mut self, index: usize, node: &Node, rows: Option<Range<usize>>) {
        let mut inputs: Vec<Value> = node.inputs.iter().map(|input| self.now(*input)).collect();
        if rows.is_none() && wanted_rows(self.old, node).is_some() && self.has_type(inputs[0], &node.outputs[0]) {
            // What it would cut out is all that there is.
            self.moved.insert(Value::new(index, 0), inputs[0]);
            return;
        }
        let mut op = node.op.clone();
        if let Some(rows) = &rows {
            if let Op::Attention(attention @ Attention { packed: true, .. }) = &mut op {
                attention.packed = false;
                let packed = inputs.remove(0);
                let dim = node.outputs[0].shape.columns();
                let projections = [0, 1, 2].map(|i| self.part(node, packed, 2, i * dim..(i + 1) * dim));
                inputs.splice(0..0, projections);
                inputs[0] = self.part(node, inputs[0], 1, rows.clone());
            }
            for (input, value) in node.inputs.iter().enumerate() {
                if let Some(Reading::SameRows(axis)) = reading(self.old, node, input) {
                    let whole = self.has_type(inputs[input], self.old.type_of(*value));
                    inputs[input] =
                        if whole { self.part(node, inputs[input], axis, rows.clone()) } else { inputs[input] };
                }
            }
        }
        let key = (index, rows, inputs.clone());
        let new = self.built.get(&key).copied().unwrap_or_else(|| {
            let types: Vec<Type> = inputs.iter().map(|&input| self.graph.type_of(input).clone()).collect();
            let outputs =
                op.infer(&types, &node.steps).expect("an op that treats tokens one by one takes fewer of them");
            self.graph.nodes.push(Node { op, inputs, outputs, ..node.clone() });
            self.built.insert(key, self.graph.nodes.len() - 1);
            self.graph.nodes.len() - 1
        });
        for output in 0..node.outputs.len() {
            self.moved.insert(Value::new(index, output), Value::new(new, output));
        }
    }

    /// Where a value of the old graph is: in a graph that goes on from it, mostly where it was.
    fn now(&self, value: Value) -> Value {
        self.moved.get(&value).copied().unwrap_or(value)
    }

    fn has_type(&self, value: Value, wanted: &Type) -> bool {
        self.graph.type_of(value) == wanted
    }

    /// A part of a value, for a node.
    fn part(&mut self, node: &Node, value: Value, axis: usize, range: Range<usize>) -> Value {
        let key = (value, axis, range.clone());
        if let Some(&part) = self.parts.get(&key) {
            return part;
        }
        let whole = self.graph.type_of(value);
        let mut axes = whole.shape.axes().to_vec();
        axes[axis] = range.len();
        let outputs = vec![Type::new(Shape::new(axes), whole.dtype)];
        let op = Op::Slice(Slice { axis, start: range.start, end: range.end });
        let path = format!("{}.part", node.path);
        let part = Value::new(self.graph.nodes.len(), 0);
        self.graph.nodes.push(Node { op, inputs: vec![value], steps: Vec::new(), outputs, path, block: node.block });
        self.parts.insert(key, part);
        part
    }
}
