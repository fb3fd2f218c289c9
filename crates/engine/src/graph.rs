//! The graph: what a model is. Builder methods for the ops live in each op's file under [`crate::ops`].

use std::collections::HashMap;

use crate::error::{Error, Result};
use crate::ops::{Op, Step};
use crate::parameter::Level;
pub(crate) use crate::parameter::Parameter;
use crate::precision::Precision;
use crate::types::{DType, Shape, Type};

/// One result of one node.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Value {
    pub(crate) node: u32,
    pub(crate) output: u32,
}

impl Value {
    pub(crate) fn new(node: usize, output: usize) -> Self {
        Value { node: node as u32, output: output as u32 }
    }

    pub(crate) fn node(self) -> usize {
        self.node as usize
    }

    pub(crate) fn output(self) -> usize {
        self.output as usize
    }
}

/// One op with its inputs. Nodes stand in an order in which they can be run.
#[derive(Clone, Debug)]
pub struct Node {
    /// What is computed.
    pub op: Op,
    /// What it is computed from.
    pub inputs: Vec<Value>,
    /// Elementwise steps that follow (for a norm: precede) the op; a `Pointwise` op is nothing but its steps.
    pub steps: Vec<Step>,
    /// The results' types. Results that steps store on their way come after the op's own.
    pub outputs: Vec<Type>,
    /// Its place in the model, e.g. `blocks.3.attention.qkv.linear`.
    pub path: String,
    /// The recomputation block it belongs to.
    pub block: Option<u32>,
}

impl Node {
    /// The op's name, followed by its fused steps: `linear+add+gelu`.
    pub fn label(&self) -> String {
        let steps = self.steps.iter().map(Step::name);
        let names = std::iter::once(self.op.name()).chain(steps);
        names.filter(|name| !name.is_empty()).collect::<Vec<_>>().join("+")
    }
}

/// Flat buffers start each parameter at a multiple of this many floats: a cache line.
pub const PARAMETER_ALIGNMENT: usize = 16;

/// Whether dropout and stochastic depth act.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// They act.
    Training,
    /// They are the identity, and leave no trace in the graph.
    Inference,
}

/// A name for shared parameters, and the length of the scope that it stands for.
#[derive(Clone, Debug)]
struct Sharing {
    name: String,
    scope: usize,
}

/// A model's computation, built op by op. Shapes are inferred, and mistakes refused, as it is built.
#[derive(Clone, Debug)]
pub struct Graph {
    pub(crate) nodes: Vec<Node>,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) constants: Vec<Vec<f32>>,
    pub(crate) parameter_gradients: Vec<Option<Value>>,
    /// Values that are computed again, the same, by nodes with less to do: see [`crate::trim`].
    pub(crate) same: HashMap<Value, Value>,
    names: HashMap<String, Value>,
    scope: String,
    block: Option<u32>,
    blocks: u32,
    /// Whether what is declared now belongs to the head.
    head: bool,
    /// Where parameters are looked for instead of the scope: see [`Graph::sharing`].
    sharing: Option<Sharing>,
    mode: Mode,
    precision: Precision,
}

impl Graph {
    /// An empty graph.
    pub fn new(mode: Mode, precision: Precision) -> Self {
        Graph {
            nodes: Vec::new(),
            parameters: Vec::new(),
            constants: Vec::new(),
            parameter_gradients: Vec::new(),
            same: HashMap::new(),
            names: HashMap::new(),
            scope: String::new(),
            block: None,
            blocks: 0,
            head: false,
            sharing: None,
            mode,
            precision,
        }
    }

    /// An empty graph in which dropout acts.
    pub fn for_training() -> Self {
        Graph::new(Mode::Training, Precision::F32)
    }

    /// An empty graph in which dropout is the identity.
    pub fn for_inference() -> Self {
        Graph::new(Mode::Inference, Precision::F32)
    }

    /// Whether dropout acts.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The precision of matrix products.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Builds inside a scope: paths of what is added begin with `name`. Scopes nest.
    pub fn scope<T>(&mut self, name: &str, build: impl FnOnce(&mut Graph) -> Result<T>) -> Result<T> {
        let outer = self.scope.len();
        self.scope = self.path_of(name);
        let result = build(self);
        self.scope.truncate(outer);
        result
    }

    /// Builds inside a scope that is also a unit of recomputation: if gradients are taken with recomputation, only
    /// what enters the block is kept, and its inside is computed again in the backward pass.
    pub fn block<T>(&mut self, name: &str, build: impl FnOnce(&mut Graph) -> Result<T>) -> Result<T> {
        let outer = self.block;
        if outer.is_none() {
            self.block = Some(self.blocks);
            self.blocks += 1;
        }
        let result = self.scope(name, build);
        self.block = outer;
        result
    }

    /// Builds the head: its parameters are marked as such, so that fine-tuning can replace or train them alone.
    pub fn head<T>(&mut self, build: impl FnOnce(&mut Graph) -> Result<T>) -> Result<T> {
        let outer = std::mem::replace(&mut self.head, true);
        let result = build(self);
        self.head = outer;
        result
    }

    /// Builds with parameters that are shared: their paths begin with `name` instead of the current scope, and one that was
    /// declared before is used again, so that its gradient is the sum over its uses. ALBERT's layers are built like this.
    pub fn sharing<T>(&mut self, name: &str, build: impl FnOnce(&mut Graph) -> Result<T>) -> Result<T> {
        let sharing = Sharing { name: name.to_string(), scope: self.scope.len() };
        let outer = self.sharing.replace(sharing);
        let result = build(self);
        self.sharing = outer;
        result
    }

    /// The path of a parameter that is declared now, and whether one that is there already may be used.
    pub(crate) fn parameter_path(&self, name: &str) -> (String, bool) {
        let path = self.path_of(name);
        match &self.sharing {
            None => (path, false),
            Some(Sharing { name, scope }) => {
                let inside = path[*scope..].trim_start_matches('.');
                (format!("{name}.{inside}"), true)
            }
        }
    }

    /// Where in the stack of blocks the graph stands.
    pub(crate) fn level(&self) -> Level {
        match (self.block, self.blocks) {
            (Some(block), _) => Level::Block(block),
            (None, 0) => Level::Stem,
            (None, _) => Level::Top,
        }
    }

    pub(crate) fn is_in_head(&self) -> bool {
        self.head
    }

    /// The nodes, in running order.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The parameters, in the order of the flat buffers.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// Floats in the flat buffer of parameters, padding included.
    pub fn parameter_floats(&self) -> usize {
        self.parameters.iter().map(|p| padded(p.offset + p.shape.elements())).max().unwrap_or(0)
    }

    /// Floats in the flat buffers of gradients and moments, padding included.
    pub fn gradient_floats(&self) -> usize {
        let ends = self.parameters.iter().filter_map(|p| p.gradient_offset.map(|offset| offset + p.shape.elements()));
        ends.map(padded).max().unwrap_or(0)
    }

    /// A value's type.
    ///
    /// # Panics
    /// Panics if the value is of another graph.
    pub fn type_of(&self, value: Value) -> &Type {
        &self.nodes[value.node()].outputs[value.output()]
    }

    /// The value that is computed in place of another.
    pub(crate) fn same_as(&self, value: Value) -> Value {
        self.same.get(&value).copied().unwrap_or(value)
    }

    /// A value's storage format; `None` if it is not of this graph.
    pub(crate) fn dtype_of(&self, value: Value) -> Option<DType> {
        self.nodes.get(value.node())?.outputs.get(value.output()).map(|output| output.dtype)
    }

    /// A value's shape.
    ///
    /// # Panics
    /// Panics if the value is of another graph.
    pub fn shape_of(&self, value: Value) -> &Shape {
        &self.type_of(value).shape
    }

    /// The path of the node that computes a value.
    ///
    /// # Panics
    /// Panics if the value is of another graph.
    pub fn path(&self, value: Value) -> &str {
        &self.nodes[value.node()].path
    }

    /// The value of that path: an op's first result, an input, a parameter, or a name given by [`Graph::name`].
    pub fn find(&self, path: &str) -> Result<Value> {
        self.names.get(path).copied().ok_or_else(|| {
            let mut known: Vec<String> = self.names.keys().cloned().collect();
            known.sort();
            Error::Unknown { what: "value", name: path.to_string(), known }
        })
    }

    /// Gives a value a name in the current scope, so that it can be found.
    pub fn name(&mut self, name: &str, value: Value) -> Result<Value> {
        let path = self.path_of(name);
        self.register(path, value, "values")?;
        Ok(value)
    }

    /// The shape and values of a constant, by its path.
    pub fn constant_values(&self, path: &str) -> Option<(&Shape, &[f32])> {
        match &self.nodes[self.names.get(path)?.node()].op {
            Op::Constant(constant) => Some((&constant.shape, &self.constants[constant.index])),
            _ => None,
        }
    }

    /// The gradient of a parameter, once [`Graph::training_step`] or gradients of parameters were asked for.
    pub fn parameter_gradient(&self, name: &str) -> Option<Value> {
        let index = self.parameters.iter().position(|parameter| parameter.name == name)?;
        self.parameter_gradients[index]
    }

    pub(crate) fn path_of(&self, name: &str) -> String {
        if self.scope.is_empty() { name.to_string() } else { format!("{}.{name}", self.scope) }
    }

    /// The path that the next op of this name gets: numbered where the scope has one already.
    pub(crate) fn next_path(&self, name: &str) -> String {
        let plain = self.path_of(name);
        if !self.names.contains_key(&plain) {
            return plain;
        }
        let mut number = 2;
        loop {
            let path = format!("{plain}_{number}");
            if !self.names.contains_key(&path) {
                return path;
            }
            number += 1;
        }
    }

    pub(crate) fn register(&mut self, path: String, value: Value, what: &'static str) -> Result<()> {
        if self.names.contains_key(&path) {
            return Err(Error::Duplicate { what, name: path });
        }
        self.names.insert(path, value);
        Ok(())
    }

    /// Adds an op after checking its rule. Its first result is returned; the others follow it.
    pub(crate) fn add_op(&mut self, op: Op, inputs: &[Value], steps: Vec<Step>) -> Result<Value> {
        let path = self.next_path(op.path_name(&steps));
        self.add_op_at(op, inputs, steps, path)
    }

    pub(crate) fn add_op_at(&mut self, op: Op, inputs: &[Value], steps: Vec<Step>, path: String) -> Result<Value> {
        let name = op.path_name(&steps);
        let mut types = Vec::with_capacity(inputs.len());
        for &input in inputs {
            let node = self.nodes.get(input.node());
            match node.and_then(|node| node.outputs.get(input.output())) {
                Some(input_type) => types.push(input_type.clone()),
                None => {
                    let rule = "an input is not a value of this graph".to_string();
                    return Err(Error::Rule { op: name, path, inputs: Vec::new(), rule });
                }
            }
        }
        let inferred = op.infer(&types, &steps).and_then(|outputs| check_sizes(&outputs).map(|()| outputs));
        let outputs = match inferred {
            Ok(outputs) => outputs,
            Err(rule) => return Err(Error::Rule { op: name, path, inputs: types, rule }),
        };
        let block = if op.is_leaf() { None } else { self.block };
        let value = Value::new(self.nodes.len(), 0);
        self.register(path.clone(), value, "values")?;
        self.nodes.push(Node { op, inputs: inputs.to_vec(), steps, outputs, path, block });
        Ok(value)
    }

    /// Builds outside of any scope and block, as the gradient does; paths begin with `name`.
    pub(crate) fn detached<T>(&mut self, name: &str, build: impl FnOnce(&mut Graph) -> Result<T>) -> Result<T> {
        let outer = self.enter(name.to_string());
        let result = build(self);
        self.leave(outer);
        result
    }

    /// Puts another scope in place of the current one, outside of any block.
    pub(crate) fn enter(&mut self, scope: String) -> (String, Option<u32>) {
        (std::mem::replace(&mut self.scope, scope), self.block.take())
    }

    /// Takes back what [`Graph::enter`] replaced.
    pub(crate) fn leave(&mut self, (scope, block): (String, Option<u32>)) {
        self.scope = scope;
        self.block = block;
    }

    /// The same parameters, constants and settings, without nodes and names: the planner puts its own in.
    pub(crate) fn without_nodes(&self) -> Graph {
        Graph { nodes: Vec::new(), names: HashMap::new(), same: HashMap::new(), ..self.clone() }
    }

    /// The names of all inputs, with their values.
    pub fn inputs(&self) -> impl Iterator<Item = (&str, Value)> {
        let nodes = self.nodes.iter().enumerate();
        nodes
            .filter(|(_, node)| matches!(node.op, Op::Input(_)))
            .map(|(i, node)| (node.path.as_str(), Value::new(i, 0)))
    }

    /// Floating-point operations of running every node once.
    pub fn flops(&self) -> u64 {
        (0..self.nodes.len()).map(|node| self.node_flops(node)).sum()
    }

    /// Floating-point operations of running one node, given by its place among [`Graph::nodes`].
    pub fn node_flops(&self, index: usize) -> u64 {
        let node = &self.nodes[index];
        let inputs: Vec<&Type> = node.inputs.iter().map(|&input| self.type_of(input)).collect();
        let steps: u64 = node.steps.iter().map(Step::flops_per_element).sum();
        // Steps run over the op's main result; an op with effects alone has none, and no steps.
        let elements = node.outputs.first().map_or(0, |output| output.shape.elements() as u64);
        node.op.flops(&inputs, &node.outputs) + steps * elements
    }
}

/// Rounds up to the alignment of flat buffers.
pub(crate) fn padded(floats: usize) -> usize {
    floats.next_multiple_of(PARAMETER_ALIGNMENT)
}

/// No axis may be zero, and a value's bytes must fit an address.
pub(crate) fn check_sizes(types: &[Type]) -> std::result::Result<(), String> {
    for value_type in types {
        if value_type.shape.axes().contains(&0) {
            return Err(format!("the result would be {value_type}: every axis must be at least 1"));
        }
        let elements = value_type.shape.checked_elements().and_then(|elements| elements.checked_mul(8));
        if elements.is_none_or(|bytes| bytes > isize::MAX as usize) {
            return Err(format!("the result would be {value_type}: too large for any machine"));
        }
    }
    Ok(())
}

/// Promotes two float formats to the wider one.
pub(crate) fn wider(a: DType, b: DType) -> DType {
    if a == DType::F32 || b == DType::F32 { DType::F32 } else { a }
}
