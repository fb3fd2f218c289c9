//! The plan: a graph with dead code gone, nodes fused, and every value's place in memory fixed.
//!
//! A plan belongs to no run and no device memory; an executor takes the memory that the plan says and runs it as often as
//! wanted without asking for more.

mod fuse;
mod place;
mod print;

use std::collections::HashMap;

use crate::error::{Error, Result};
use crate::graph::{Graph, Node, Value};
use crate::ops::Op;
use crate::types::Type;
use place::Temporary;

/// Where a value lives.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Location {
    /// In the arena, at this byte.
    Arena(usize),
    /// In the flat buffer of parameters, at this float.
    Parameters(usize),
    /// In the flat buffer of gradients, at this float.
    Gradients(usize),
    /// In the constants, at this float.
    Constants(usize),
}

/// What an executor says of its kernels' needs, so that the plan's memory is the whole truth.
pub trait Target {
    /// Bytes that a node's kernel needs while it runs, shared by all threads.
    fn workspace_bytes(&self, graph: &Graph, node: &Node) -> usize;
    /// Bytes that a node's kernel needs a thread.
    fn scratch_bytes(&self, graph: &Graph, node: &Node) -> usize;
}

/// A graph made ready to run.
#[derive(Clone, Debug)]
pub struct Plan {
    graph: Graph,
    locations: Vec<Vec<Location>>,
    workspaces: Vec<usize>,
    workspace_bytes: Vec<usize>,
    map: HashMap<Value, Value>,
    outputs: Vec<Value>,
    arena_bytes: usize,
    lower_bound: usize,
    scratch_bytes: usize,
}

impl Plan {
    /// Plans the computation of `outputs` and of everything that has an effect.
    pub fn new(graph: &Graph, outputs: &[Value], target: &dyn Target) -> Result<Plan> {
        for &output in outputs {
            let exists = graph.nodes().get(output.node()).is_some_and(|node| output.output() < node.outputs.len());
            if !exists {
                let name = graph.nodes().get(output.node()).map_or("?", |node| &node.path).to_string();
                return Err(Error::Unknown { what: "value of this graph", name, known: Vec::new() });
            }
        }
        let fuse::Fused { graph, outputs, map } = fuse::fuse(graph, outputs);
        let mut plan = Plan {
            locations: graph.nodes().iter().map(|node| vec![Location::Arena(0); node.outputs.len()]).collect(),
            workspaces: vec![0; graph.nodes().len()],
            workspace_bytes: graph.nodes().iter().map(|node| target.workspace_bytes(&graph, node)).collect(),
            scratch_bytes: graph.nodes().iter().map(|node| target.scratch_bytes(&graph, node)).max().unwrap_or(0),
            graph,
            map,
            outputs,
            arena_bytes: 0,
            lower_bound: 0,
        };
        plan.locate();
        Ok(plan)
    }

    /// The fused graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// Where a value of the original graph is now; `None` if it is never computed.
    pub fn value(&self, original: Value) -> Option<Value> {
        self.map.get(&original).copied()
    }

    /// Where a value of the original graph is now, if the plan was asked for it: others' memory is used again.
    pub fn output(&self, original: Value) -> Option<Value> {
        self.value(original).filter(|value| self.outputs.contains(value))
    }

    /// Where a value of the fused graph lives.
    pub fn location(&self, value: Value) -> Location {
        self.locations[value.node()][value.output()]
    }

    /// The arena byte at which a node's workspace starts.
    pub fn workspace(&self, node: usize) -> usize {
        self.workspaces[node]
    }

    /// Bytes of a node's workspace.
    pub fn workspace_bytes(&self, node: usize) -> usize {
        self.workspace_bytes[node]
    }

    /// Bytes of the arena: inputs, outputs, activations, gradients of activations, workspaces.
    pub fn arena_bytes(&self) -> usize {
        self.arena_bytes
    }

    /// Bytes that each thread needs for itself.
    pub fn scratch_bytes(&self) -> usize {
        self.scratch_bytes
    }

    /// Bytes of the constants.
    pub fn constant_bytes(&self) -> usize {
        self.graph.constants.iter().map(|values| constant_floats(values) * 4).sum()
    }

    /// The most memory that running takes, besides the parameters and what belongs to them.
    pub fn peak_bytes(&self, threads: usize) -> usize {
        self.arena_bytes + self.constant_bytes() + threads * self.scratch_bytes
    }

    /// Floating-point operations of one run.
    pub fn flops(&self) -> u64 {
        self.graph.flops()
    }

    /// Gives every value its location.
    fn locate(&mut self) {
        let last = self.last_readers();
        let constants = self.constant_offsets();
        let gradients = self.gradient_places();
        let mut temporaries = Vec::new();
        let mut owners = Vec::new();
        for (index, node) in self.graph.nodes().iter().enumerate() {
            for (output, value_type) in node.outputs.iter().enumerate() {
                let value = Value::new(index, output);
                let location = match &node.op {
                    Op::Parameter(op) => Location::Parameters(self.graph.parameters()[op.index].offset),
                    Op::Constant(op) => Location::Constants(constants[op.index]),
                    Op::Reshape(_) => continue,
                    _ => match gradients.get(&value) {
                        Some(&offset) => Location::Gradients(offset),
                        None => {
                            // Inputs are written before the run and may be kept for the next one.
                            let first = if matches!(node.op, Op::Input(_)) { 0 } else { index };
                            temporaries.push(Temporary { bytes: value_type.bytes(), first, last: last[index][output] });
                            owners.push(Ok(value));
                            continue;
                        }
                    },
                };
                self.locations[index][output] = location;
            }
            if self.workspace_bytes[index] > 0 {
                temporaries.push(Temporary { bytes: self.workspace_bytes[index], first: index, last: index });
                owners.push(Err(index));
            }
        }
        let placement = place::place(&temporaries);
        for (owner, &offset) in owners.iter().zip(&placement.offsets) {
            match *owner {
                Ok(value) => self.locations[value.node()][value.output()] = Location::Arena(offset),
                Err(node) => self.workspaces[node] = offset,
            }
        }
        for index in 0..self.graph.nodes().len() {
            if let Op::Reshape(_) = self.graph.nodes()[index].op {
                self.locations[index][0] = self.location(self.graph.root_of(Value::new(index, 0)));
            }
        }
        self.arena_bytes = placement.arena_bytes;
        self.lower_bound = place::lower_bound(&temporaries);
    }

    /// The last node that reads each value, itself or through a reshape; its own node where nobody does.
    fn last_readers(&self) -> Vec<Vec<usize>> {
        let nodes = self.graph.nodes();
        let end = nodes.len().saturating_sub(1);
        let mut last: Vec<Vec<usize>> = (0..).zip(nodes).map(|(index, node)| vec![index; node.outputs.len()]).collect();
        for (index, node) in nodes.iter().enumerate() {
            for &input in &node.inputs {
                let root = self.graph.root_of(input);
                last[root.node()][root.output()] = index;
            }
        }
        let inputs = (0..nodes.len()).filter(|&index| matches!(nodes[index].op, Op::Input(_)));
        for kept in inputs.map(|index| Value::new(index, 0)).chain(self.outputs.iter().copied()) {
            let root = self.graph.root_of(kept);
            last[root.node()][root.output()] = end;
        }
        last
    }

    fn constant_offsets(&self) -> Vec<usize> {
        let mut offset = 0;
        let mut offsets = Vec::new();
        for values in &self.graph.constants {
            offsets.push(offset);
            offset += constant_floats(values);
        }
        offsets
    }

    /// The values that live in the flat buffer of gradients.
    fn gradient_places(&self) -> HashMap<Value, usize> {
        let gradients = self.graph.parameter_gradients.iter().zip(self.graph.parameters());
        let placed = gradients.filter_map(|(value, parameter)| Some(((*value)?, parameter.gradient_offset?)));
        placed.map(|(value, offset)| (self.graph.root_of(value), offset)).collect()
    }

    /// The constants in one buffer.
    pub(crate) fn constants(&self) -> Vec<f32> {
        let mut all = Vec::new();
        for values in &self.graph.constants {
            all.extend_from_slice(values);
            all.resize(all.len().next_multiple_of(place::ALIGNMENT / 4), 0.0);
        }
        all
    }

    pub(crate) fn type_of(&self, value: Value) -> &Type {
        self.graph.type_of(value)
    }
}

fn constant_floats(values: &[f32]) -> usize {
    values.len().next_multiple_of(place::ALIGNMENT / 4)
}
