//! The plan: a graph with dead code gone, nodes fused, and every value's place in memory fixed.
//!
//! A plan belongs to no run and no device memory; an executor takes the memory that the plan says and runs it as often as
//! wanted without asking for more.

mod fuse;
mod place;
mod print;
mod slopes;
mod tile;
mod weights;

use std::collections::HashMap;

use crate::error::{Error, Result};
use crate::graph::{Graph, Node, Value};
use crate::ops::Op;
use crate::trim;
use crate::types::{DType, Shape, Type};
use place::Temporary;
pub use tile::Chain;
pub(crate) use weights::{FixedWeights, WeightForm, WeightKey};

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
    /// In a cache, by its place among [`Plan::caches`].
    Cache(usize),
    /// In the memory that each thread has for tiles of a chain, at this byte.
    Tile(usize),
    /// Among the executor's weights that do not change, by the number of the form that is read.
    FixedWeights(usize),
    /// Nowhere as it is: only products read it, packed.
    PackedOnly,
}

/// What an executor says of its kernels' needs, so that the plan's memory is the whole truth.
pub trait Target {
    /// Bytes that a node's kernel needs while it runs, shared by all threads.
    fn workspace_bytes(&self, graph: &Graph, node: &Node) -> usize;
    /// Whether a product rounds both operands, of these shapes, to bf16.
    fn rounds_operands(&self, op: &Op, first: &Shape, second: &Shape) -> bool;
    /// Whether the weights will not change between runs, so that the executor keeps them itself.
    fn keeps_weights(&self) -> bool {
        false
    }
    /// Floats that a product's weight takes when packed, if weights are kept and the kernel wants this one packed.
    fn packed_weight_floats(&self, _graph: &Graph, _node: &Node) -> Option<usize> {
        None
    }
    /// Whether runs of kernels are executed tile by tile.
    fn forms_chains(&self) -> bool {
        true
    }
    /// Whether what products round is rounded once, before them, and read by all of them as bf16. Otherwise each rounds for itself.
    fn rounds_once(&self) -> bool {
        false
    }
    /// Bytes that a node's kernel needs a thread. It gets no more, so that what is said too small is seen.
    fn scratch_bytes(&self, graph: &Graph, node: &Node) -> usize;
}

/// A graph made ready to run.
#[derive(Clone, Debug)]
pub struct Plan {
    graph: Graph,
    locations: Vec<Vec<Location>>,
    workspaces: Vec<usize>,
    workspace_bytes: Vec<usize>,
    chains: Vec<Chain>,
    fixed_weights: Option<FixedWeights>,
    map: HashMap<Value, Value>,
    outputs: Vec<Value>,
    /// Results that the host does not get after each run.
    left_on_device: Vec<Value>,
    arena_bytes: usize,
    lower_bound: usize,
    /// Bytes that each node's kernel needs a thread, and the most of them.
    node_scratch_bytes: Vec<usize>,
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
        if target.keeps_weights() && graph.parameter_gradients.iter().any(Option::is_some) {
            let reason = "weights that do not change have no gradient; plan with a state".to_string();
            return Err(Error::NoGradient { op: "plan", path: "fixed weights".to_string(), reason });
        }
        let outputs: &[Value] = &outputs.iter().map(|&output| graph.same_as(output)).collect::<Vec<_>>();
        let same = &graph.same;
        let fuse::Fused { graph, outputs, mut map } = match trim::trim(graph, outputs) {
            None => fuse::fuse(graph, outputs, target),
            Some(trimmed) => {
                let mut fused = fuse::fuse(&trimmed.graph, &trimmed.outputs, target);
                let found = |(old, kept): (Value, Value)| Some((old, *fused.map.get(&kept)?));
                fused.map = trimmed.map.into_iter().filter_map(found).collect();
                fused
            }
        };
        for (original, again) in same {
            if let Some(&planned) = map.get(again) {
                map.insert(*original, planned);
            }
        }
        let chains = if target.forms_chains() { tile::chains(&graph) } else { Vec::new() };
        let nodes = graph.nodes();
        // What a node needs follows from the sizes that its kernel sees.
        let workspace_bytes = |index: usize| {
            let seen = seen(&graph, &chains, index);
            target.workspace_bytes(seen, &seen.nodes()[index])
        };
        let too_large = || {
            Error::Machine("the plan's values are too large for any machine; take a smaller batch or model".to_string())
        };
        let fixed_weights = match target.keeps_weights() {
            true => Some(FixedWeights::new(&graph, &chains, target).ok_or_else(too_large)?),
            false => None,
        };
        let mut plan = Plan {
            locations: nodes.iter().map(|node| vec![Location::Arena(0); node.outputs.len()]).collect(),
            workspaces: vec![0; nodes.len()],
            workspace_bytes: (0..nodes.len()).map(workspace_bytes).collect(),
            node_scratch_bytes: Vec::new(),
            scratch_bytes: 0,
            graph,
            chains,
            fixed_weights,
            map,
            outputs,
            left_on_device: Vec::new(),
            arena_bytes: 0,
            lower_bound: 0,
        };
        plan.locate().ok_or_else(too_large)?;
        let scratch_bytes = |index: usize| {
            let seen = seen(&plan.graph, &plan.chains, index);
            target.scratch_bytes(seen, &seen.nodes()[index])
        };
        plan.node_scratch_bytes = (0..plan.graph.nodes().len()).map(scratch_bytes).collect();
        plan.scratch_bytes = plan.most_scratch();
        Ok(plan)
    }

    /// The most that a thread needs: a kernel's scratch, behind the chain's own memory if it is in one.
    fn most_scratch(&self) -> usize {
        let needed =
            |(index, &bytes): (usize, &usize)| chain_of(&self.chains, index).map_or(0, |chain| chain.bytes) + bytes;
        self.node_scratch_bytes.iter().enumerate().map(needed).max().unwrap_or(0)
    }

    /// The fused graph.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// The chains, in running order.
    pub fn chains(&self) -> &[Chain] {
        &self.chains
    }

    /// Where a value of the original graph is now; `None` if it is never computed.
    pub fn value(&self, original: Value) -> Option<Value> {
        self.map.get(&original).copied()
    }

    /// Where a value of the original graph is now, if the plan was asked for it: others' memory is used again.
    pub fn output(&self, original: Value) -> Option<Value> {
        self.value(original).filter(|value| self.outputs.contains(value))
    }

    /// All that the plan was asked for, as values of the fused graph.
    pub(crate) fn outputs(&self) -> &[Value] {
        &self.outputs
    }

    /// The same plan, whose runs leave these results where they were computed: a GPU does not copy them to the host. Caches take
    /// rows from there ([`crate::Caches::copy_results`]), and an executor's `output` copies one when it is asked to.
    pub fn leaving_on_device(mut self, originals: &[Value]) -> Result<Plan> {
        self.left_on_device = originals.iter().map(|&value| self.result(value)).collect::<Result<_>>()?;
        Ok(self)
    }

    /// Whether the host does not get a value of the fused graph after each run.
    pub(crate) fn is_left_on_device(&self, value: Value) -> bool {
        self.left_on_device.contains(&value)
    }

    /// The caches that a run works on, by name: what a [`crate::Caches`] must have for it.
    pub fn caches(&self) -> impl Iterator<Item = (&str, &Type)> {
        self.graph.caches().map(|(name, value)| (name, self.graph.type_of(value)))
    }

    /// An input by its name, of a type.
    pub(crate) fn input(&self, name: &str, dtype: DType) -> Result<Value> {
        let found = self.graph.inputs().find(|(path, _)| *path == name).map(|(_, value)| value);
        let Some(value) = found else {
            let known = self.graph.inputs().map(|(path, _)| path.to_string()).collect();
            return Err(Error::Unknown { what: "input of this plan", name: name.to_string(), known });
        };
        let expected = self.graph.type_of(value);
        if expected.dtype != dtype {
            let (expected, got) = (expected.to_string(), format!("{dtype} numbers"));
            return Err(Error::Data { what: "input", name: name.to_string(), expected, got });
        }
        Ok(value)
    }

    /// What a value of the original graph is called.
    fn name_of(&self, value: Value) -> String {
        let path = |value: Value| self.graph.nodes()[value.node()].path.clone();
        self.value(value).map_or_else(|| "a value that this plan leaves out".to_string(), path)
    }

    /// A value that the plan was asked for, in the fused graph.
    pub(crate) fn result(&self, value: Value) -> Result<Value> {
        self.output(value).ok_or_else(|| Error::Unknown {
            what: "result of this plan (ask for it when planning)",
            name: self.name_of(value),
            known: self.output_paths(),
        })
    }

    /// The error of asking for what a state or a cache has.
    pub(crate) fn is_no_result(&self, value: Value) -> Error {
        let expected = match self.location(value) {
            Location::Cache(_) => "rows of a cache, which `Caches::read` gives",
            _ => "a parameter or its gradient, which the state has",
        };
        Error::Data {
            what: "result",
            name: self.graph.nodes()[value.node()].path.clone(),
            expected: expected.to_string(),
            got: "a result".to_string(),
        }
    }

    /// The error of asking for a result as what it is not.
    pub(crate) fn is_no_slice(&self, value: Value, asked: &str) -> Error {
        let expected = self.output(value).map_or_else(String::new, |value| {
            let value_type = self.type_of(value);
            format!("{} numbers of {}", value_type.shape.elements(), value_type.dtype)
        });
        Error::Data { what: "result", name: self.name_of(value), expected, got: asked.to_string() }
    }

    /// The paths of all that the plan was asked for.
    fn output_paths(&self) -> Vec<String> {
        self.outputs.iter().map(|output| self.graph.nodes()[output.node()].path.clone()).collect()
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

    /// Bytes of [`Plan::scratch_bytes`] that a node's kernel needs, and gets.
    pub fn node_scratch_bytes(&self, node: usize) -> usize {
        self.node_scratch_bytes[node]
    }

    /// The same with other scratch memory for a node, as if its kernel had asked for that.
    #[cfg(test)]
    pub(crate) fn with_scratch_of(mut self, node: usize, bytes: usize) -> Plan {
        self.node_scratch_bytes[node] = bytes;
        self
    }

    /// Bytes of the constants.
    pub fn constant_bytes(&self) -> usize {
        self.graph.constants.iter().map(|values| constant_floats(values) * 4).sum()
    }

    /// The forms of weights that the executor keeps; `None` if a state has them.
    pub(crate) fn fixed_weights(&self) -> Option<&FixedWeights> {
        self.fixed_weights.as_ref()
    }

    /// Bytes of the weights that the executor keeps; 0 if a state has them.
    pub fn weight_bytes(&self) -> usize {
        self.fixed_weights.as_ref().map_or(0, |weights| 4 * weights.floats)
    }

    /// The most memory that running takes, besides a state's parameters and what belongs to them.
    pub fn peak_bytes(&self, threads: usize) -> usize {
        self.arena_bytes + self.constant_bytes() + self.weight_bytes() + threads * self.scratch_bytes
    }

    /// Floating-point operations of one run.
    pub fn flops(&self) -> u64 {
        self.graph.flops()
    }

    /// Gives every value its location; `None` if they do not fit any memory.
    fn locate(&mut self) -> Option<()> {
        let last = self.last_readers();
        let constants = self.constant_offsets();
        let gradients = self.gradient_places();
        let mut caches = 0..;
        let mut temporaries = Vec::new();
        let mut owners = Vec::new();
        let mut in_chains: Vec<(Vec<Temporary>, Vec<Value>)> = vec![Default::default(); self.chains.len()];
        for (index, node) in self.graph.nodes().iter().enumerate() {
            let chain = self.chains.iter().position(|chain| (chain.first..=chain.last).contains(&index));
            for (output, value_type) in node.outputs.iter().enumerate() {
                let value = Value::new(index, output);
                let last = last[index][output];
                let location = match &node.op {
                    Op::Parameter(op) => match &self.fixed_weights {
                        None => Location::Parameters(self.graph.parameters()[op.index].offset),
                        Some(weights) => weights.plain[op.index].map_or(Location::PackedOnly, Location::FixedWeights),
                    },
                    Op::Constant(op) => Location::Constants(constants[op.index]),
                    Op::Cache(_) => Location::Cache(caches.next()?),
                    op if op.shows_its_input() => continue,
                    _ => match (gradients.get(&value), chain) {
                        (Some(&offset), _) => Location::Gradients(offset),
                        (None, Some(chain)) if last <= self.chains[chain].last && !node.op.is_leaf() => {
                            let bytes = self.chains[chain].graph.type_of(value).bytes();
                            in_chains[chain].0.push(Temporary { bytes, first: index, last });
                            in_chains[chain].1.push(value);
                            continue;
                        }
                        _ => {
                            // Inputs are written before the run and may be kept for the next one.
                            let first = if matches!(node.op, Op::Input(_)) { 0 } else { index };
                            temporaries.push(self.alive(value_type.bytes(), first, last));
                            owners.push(Ok(value));
                            continue;
                        }
                    },
                };
                self.locations[index][output] = location;
            }
            if self.workspace_bytes[index] > 0 {
                temporaries.push(self.alive(self.workspace_bytes[index], index, index));
                owners.push(Err(index));
            }
        }
        let placement = place::place(&temporaries)?;
        for (owner, &offset) in owners.iter().zip(&placement.offsets) {
            match *owner {
                Ok(value) => self.locations[value.node()][value.output()] = Location::Arena(offset),
                Err(node) => self.workspaces[node] = offset,
            }
        }
        for (chain, (temporaries, values)) in in_chains.into_iter().enumerate() {
            let placement = place::place(&temporaries)?;
            for (value, &offset) in values.iter().zip(&placement.offsets) {
                self.locations[value.node()][value.output()] = Location::Tile(offset);
            }
            self.chains[chain].bytes = placement.arena_bytes;
        }
        for index in 0..self.graph.nodes().len() {
            if self.graph.nodes()[index].op.shows_its_input() {
                self.locations[index][0] = self.location(self.graph.root_of(Value::new(index, 0)));
            }
        }
        self.arena_bytes = placement.arena_bytes;
        self.lower_bound = place::lower_bound(&temporaries);
        Some(())
    }

    /// Something in the arena from one node to another. The nodes of a chain run at the same time, tile by tile, so what
    /// one of them touches is alive through all of it.
    fn alive(&self, bytes: usize, first: usize, last: usize) -> Temporary {
        let first = chain_of(&self.chains, first).map_or(first, |chain| chain.first);
        let last = chain_of(&self.chains, last).map_or(last, |chain| chain.last);
        Temporary { bytes, first, last }
    }

    /// The last node that reads each value, itself or through a reshape; its own node where nobody does.
    fn last_readers(&self) -> Vec<Vec<usize>> {
        let nodes = self.graph.nodes();
        // Behind all nodes: what is kept for the caller, nobody may overwrite.
        let end = nodes.len();
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

/// The graph as a node's kernel sees it: the whole one, or that of its chain's tiles.
fn seen<'g>(graph: &'g Graph, chains: &'g [Chain], node: usize) -> &'g Graph {
    chain_of(chains, node).map_or(graph, |chain| &chain.graph)
}

/// The chain that a node is in.
fn chain_of(chains: &[Chain], node: usize) -> Option<&Chain> {
    chains.iter().find(|chain| (chain.first..=chain.last).contains(&node))
}

fn constant_floats(values: &[f32]) -> usize {
    values.len().next_multiple_of(place::ALIGNMENT / 4)
}
