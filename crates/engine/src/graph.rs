//! The computation graph of a model. The builder method of each op lives in the op's file under [`crate::ops`].

use std::collections::HashMap;

use crate::blocks::BlockFormat;
use crate::error::{Error, Result};
use crate::intervention::{EDITED, Pending};
use crate::ops::{Op, Step};
use crate::parameter::Level;
pub(crate) use crate::parameter::Parameter;
use crate::precision::Precision;
use crate::types::{DType, Shape, Type};

/// One output of one node.
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

/// One op with its inputs. Nodes are in topological order.
#[derive(Clone, Debug)]
pub struct Node {
    /// The op.
    pub op: Op,
    /// Its inputs.
    pub inputs: Vec<Value>,
    /// Elementwise steps applied after the op (for a norm: before it); a `Pointwise` op consists of its steps alone.
    pub steps: Vec<Step>,
    /// Types of the outputs. Outputs stored by steps come after the op's own.
    pub outputs: Vec<Type>,
    /// Its path in the model, e.g. `blocks.3.attention.qkv.linear`.
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

/// Alignment of each parameter in the flat buffers, in floats: one cache line.
pub const PARAMETER_ALIGNMENT: usize = 16;

/// Whether dropout and stochastic depth are active.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Mode {
    /// They are active.
    Training,
    /// They are the identity and add no nodes to the graph.
    Inference,
}

/// A scope for shared parameters, and the length of the scope that it replaces.
#[derive(Clone, Debug)]
struct Sharing {
    name: String,
    scope: usize,
}

/// A model's computation, built op by op. Shapes are inferred, and errors reported, while it is built.
#[derive(Clone, Debug)]
pub struct Graph {
    pub(crate) nodes: Vec<Node>,
    pub(crate) parameters: Vec<Parameter>,
    pub(crate) constants: Vec<Vec<f32>>,
    pub(crate) parameter_gradients: Vec<Option<Value>>,
    /// Values that cheaper nodes compute as well, with the same result: see [`crate::trim`].
    pub(crate) same: HashMap<Value, Value>,
    /// Losses whose gradients, with respect to the values paired with them, were computed with them: see [`crate::ops::loss_in_parts`].
    pub(crate) known_gradients: HashMap<Value, Vec<(Value, Value)>>,
    names: HashMap<String, Value>,
    scope: String,
    block: Option<u32>,
    blocks: u32,
    /// Whether parameters declared now belong to the head.
    head: bool,
    /// The scope in which parameters are looked up instead of the current one: see [`Graph::sharing`].
    sharing: Option<Sharing>,
    /// Interventions that it is being built with, the innermost last.
    pub(crate) pending: Vec<Pending>,
    /// Whether any value was edited.
    pub(crate) edited: bool,
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
            known_gradients: HashMap::new(),
            names: HashMap::new(),
            scope: String::new(),
            block: None,
            blocks: 0,
            head: false,
            sharing: None,
            pending: Vec::new(),
            edited: false,
            mode,
            precision,
        }
    }

    /// An empty graph with dropout active.
    pub fn for_training() -> Self {
        Graph::new(Mode::Training, Precision::F32)
    }

    /// An empty graph with dropout disabled.
    pub fn for_inference() -> Self {
        Graph::new(Mode::Inference, Precision::F32)
    }

    /// Whether dropout is active.
    pub fn mode(&self) -> Mode {
        self.mode
    }

    /// The precision of matrix multiplications.
    pub fn precision(&self) -> Precision {
        self.precision
    }

    /// Builds inside a scope: the paths of everything added begin with `name`. Scopes nest.
    pub fn scope<T>(&mut self, name: &str, build: impl FnOnce(&mut Graph) -> Result<T>) -> Result<T> {
        let outer = self.scope.len();
        self.scope = self.path_of(name);
        let result = build(self);
        self.scope.truncate(outer);
        result
    }

    /// Builds inside a scope that is also a unit of recomputation (activation checkpointing): when gradients are taken
    /// with recomputation, only the inputs of the block are kept, and its activations are recomputed in the backward
    /// pass.
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

    /// Builds the head: its parameters are marked as such, so that fine-tuning can replace them or train them alone.
    pub fn head<T>(&mut self, build: impl FnOnce(&mut Graph) -> Result<T>) -> Result<T> {
        let outer = std::mem::replace(&mut self.head, true);
        let result = build(self);
        self.head = outer;
        result
    }

    /// Builds with shared parameters: their paths begin with `name` instead of the current scope, and a parameter that
    /// was declared before is reused, so that its gradient is the sum over its uses. ALBERT's layers are built like
    /// this.
    pub fn sharing<T>(&mut self, name: &str, build: impl FnOnce(&mut Graph) -> Result<T>) -> Result<T> {
        let sharing = Sharing { name: name.to_string(), scope: self.scope.len() };
        let outer = self.sharing.replace(sharing);
        let result = build(self);
        self.sharing = outer;
        result
    }

    /// The path of a parameter that is declared now, and whether an existing one may be reused.
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

    /// The current position in the stack of blocks.
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

    /// The nodes, in execution order.
    pub fn nodes(&self) -> &[Node] {
        &self.nodes
    }

    /// The parameters, in the order of the flat buffers.
    pub fn parameters(&self) -> &[Parameter] {
        &self.parameters
    }

    /// Says which parameters will be handed over as quantised blocks ([`crate::WeightView::Blocks`]), and in which format: kernels of
    /// plans with fixed weights that can multiply with such blocks then keep them as they are. Matrices whose rows are no whole
    /// blocks are kept as floats.
    pub fn store_weights(&mut self, format: impl Fn(&str) -> Option<BlockFormat>) {
        for parameter in &mut self.parameters {
            let has_whole_blocks = |format: &BlockFormat| {
                parameter.shape.rank() == 2 && parameter.shape.columns().is_multiple_of(format.values())
            };
            parameter.blocks = format(&parameter.name).filter(has_whole_blocks);
        }
    }

    /// The format and shape of the quantised weight of a linear layer, or of an embedding's table.
    pub(crate) fn quantised_weight(&self, node: &Node) -> Option<(BlockFormat, &Shape)> {
        let weight = match node.op {
            Op::Linear(_) => *node.inputs.get(1)?,
            Op::Embedding(_) => *node.inputs.first()?,
            _ => return None,
        };
        let Op::Parameter(op) = &self.nodes()[self.root_of(weight).node()].op else { return None };
        let parameter = &self.parameters[op.index];
        let format = parameter.blocks.filter(|_| *self.shape_of(weight) == parameter.shape)?;
        Some((format, &parameter.shape))
    }

    /// Floats in the flat buffer of parameters, padding included.
    pub fn parameter_floats(&self) -> usize {
        // Each lies behind those before it.
        self.parameters.last().map_or(0, |p| padded(p.offset + p.shape.elements()))
    }

    /// Floats in the flat buffers of gradients and moments, padding included.
    pub fn gradient_floats(&self) -> usize {
        let ends = self.parameters.iter().filter_map(|p| p.gradient_offset.map(|offset| offset + p.shape.elements()));
        ends.map(padded).max().unwrap_or(0)
    }

    /// The type of a value.
    ///
    /// # Panics
    /// Panics if the value belongs to another graph.
    pub fn type_of(&self, value: Value) -> &Type {
        &self.nodes[value.node()].outputs[value.output()]
    }

    /// The value that is computed instead of this one.
    pub(crate) fn same_as(&self, value: Value) -> Value {
        self.same.get(&value).copied().unwrap_or(value)
    }

    /// A value's dtype; `None` if the value does not belong to this graph.
    pub(crate) fn dtype_of(&self, value: Value) -> Option<DType> {
        self.nodes.get(value.node())?.outputs.get(value.output()).map(|output| output.dtype)
    }

    /// The shape of a value.
    ///
    /// # Panics
    /// Panics if the value belongs to another graph.
    pub fn shape_of(&self, value: Value) -> &Shape {
        &self.type_of(value).shape
    }

    /// The node that computes a value.
    ///
    /// # Panics
    /// Panics if the value belongs to another graph.
    pub fn node(&self, value: Value) -> &Node {
        &self.nodes[value.node()]
    }

    /// The path of the node that computes a value.
    ///
    /// # Panics
    /// Panics if the value belongs to another graph.
    pub fn path(&self, value: Value) -> &str {
        &self.nodes[value.node()].path
    }

    /// The value with this path: an op's first output, an input, a parameter, or a name given by [`Graph::name`].
    pub fn find(&self, path: &str) -> Result<Value> {
        self.names.get(path).copied().ok_or_else(|| {
            let mut known: Vec<String> = self.names.keys().cloned().collect();
            known.sort();
            Error::Unknown { what: "value", name: path.to_string(), known }
        })
    }

    /// Names a value in the current scope, so that [`Graph::find`] finds it. What reads it is to read the result: the value after
    /// interventions, if there are any for this name.
    pub fn name(&mut self, name: &str, value: Value) -> Result<Value> {
        let path = self.path_of(name);
        let value = self.intervened(&path, value)?;
        self.register(path, value, "values")?;
        Ok(value)
    }

    /// Builds inside a scope, and gives the result the scope's own name.
    pub fn named(&mut self, name: &str, build: impl FnOnce(&mut Graph) -> Result<Value>) -> Result<Value> {
        let value = self.scope(name, build)?;
        self.name(name, value)
    }

    /// All names, with their values.
    pub(crate) fn names(&self) -> impl Iterator<Item = (&str, Value)> {
        self.names.iter().map(|(name, value)| (name.as_str(), *value))
    }

    /// After a graph was built: whatever has read `value` so far reads `by` instead, for example an input that was declared before the
    /// model was built. What then nobody needs is not computed.
    pub fn replace(&mut self, value: Value, by: Value) -> Result<()> {
        let refused = |graph: &Graph, rule: String| {
            let node = graph.nodes.get(value.node());
            let (op, path) = node.map_or(("replace", String::new()), |node| (node.op.name(), node.path.clone()));
            Err(Error::Rule { op, path, inputs: Vec::new(), rule })
        };
        for one in [value, by] {
            if self.nodes.get(one.node()).is_none_or(|node| one.output() >= node.outputs.len()) {
                return refused(self, "a value to be replaced, or its replacement, is not of this graph".to_string());
            }
        }
        let (old, new) = (self.type_of(value), self.type_of(by));
        if old != new {
            return refused(self, format!("it is {old}, and can only be replaced by the same, not by {new}"));
        }
        let first_reader = self.nodes.iter().position(|node| node.inputs.contains(&value));
        if first_reader.is_some_and(|reader| reader <= by.node()) {
            return refused(self, format!("`{}` must be there before what reads it", self.path(by)));
        }
        for input in self.nodes.iter_mut().flat_map(|node| &mut node.inputs).filter(|input| **input == value) {
            *input = by;
        }
        Ok(())
    }

    /// The shape and values of the constant with this path, if it is one of f32.
    pub fn constant_values(&self, path: &str) -> Option<(&Shape, &[f32])> {
        match &self.nodes[self.names.get(path)?.node()].op {
            Op::Constant(constant) if constant.dtype == DType::F32 => {
                Some((&constant.shape, &self.constants[constant.index]))
            }
            _ => None,
        }
    }

    /// The gradient of a parameter; `None` until [`Graph::training_step`] or gradients of parameters were requested.
    pub fn parameter_gradient(&self, name: &str) -> Option<Value> {
        let index = self.parameters.iter().position(|parameter| parameter.name == name)?;
        self.parameter_gradients[index]
    }

    pub(crate) fn path_of(&self, name: &str) -> String {
        if self.scope.is_empty() { name.to_string() } else { format!("{}.{name}", self.scope) }
    }

    /// The path of the next op with this name: numbered if the scope already has one.
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

    /// Adds an op after checking its inputs. Returns its first output; the others have the following indices.
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
        let is_leaf = op.is_leaf();
        self.register(path.clone(), value, "values")?;
        self.nodes.push(Node { op, inputs: inputs.to_vec(), steps, outputs, path, block });
        if self.pending.is_empty() || is_leaf {
            return Ok(value);
        }
        let path = self.path(value).to_string();
        let edited = self.intervened(&path, value)?;
        self.names.insert(path, edited);
        Ok(edited)
    }

    /// Replaces the current scope by that of an edit of a value; its nodes stay in the current block.
    pub(crate) fn scope_for_edit(&mut self, path: &str) -> String {
        std::mem::replace(&mut self.scope, format!("{path}{EDITED}"))
    }

    /// Restores the scope.
    pub(crate) fn leave_scope(&mut self, outer: String) {
        self.scope = outer;
    }

    /// Builds outside of any scope and block, as gradients do; paths begin with `name`.
    pub(crate) fn detached<T>(&mut self, name: &str, build: impl FnOnce(&mut Graph) -> Result<T>) -> Result<T> {
        let outer = self.enter(name.to_string());
        let result = build(self);
        self.leave(outer);
        result
    }

    /// Replaces the current scope by another, outside of any block.
    pub(crate) fn enter(&mut self, scope: String) -> (String, Option<u32>) {
        (std::mem::replace(&mut self.scope, scope), self.block.take())
    }

    /// Restores what [`Graph::enter`] replaced.
    pub(crate) fn leave(&mut self, (scope, block): (String, Option<u32>)) {
        self.scope = scope;
        self.block = block;
    }

    /// The same parameters, constants and settings, without nodes and names: the planner adds its own.
    pub(crate) fn without_nodes(&self) -> Graph {
        let (names, same, known_gradients) = (HashMap::new(), HashMap::new(), HashMap::new());
        Graph { nodes: Vec::new(), names, same, known_gradients, ..self.clone() }
    }

    /// The names of all inputs, with their values.
    pub fn inputs(&self) -> impl Iterator<Item = (&str, Value)> {
        let nodes = self.nodes.iter().enumerate();
        nodes
            .filter(|(_, node)| matches!(node.op, Op::Input(_)))
            .map(|(i, node)| (node.path.as_str(), Value::new(i, 0)))
    }

    /// Floating-point operations of one run over all nodes.
    pub fn flops(&self) -> u64 {
        (0..self.nodes.len()).map(|node| self.node_flops(node)).sum()
    }

    /// Floating-point operations of one node, given by its index in [`Graph::nodes`].
    pub fn node_flops(&self, index: usize) -> u64 {
        let node = &self.nodes[index];
        let inputs: Vec<&Type> = node.inputs.iter().map(|&input| self.type_of(input)).collect();
        let steps: u64 = node.steps.iter().map(Step::flops_per_element).sum();
        // Steps apply to the op's first output; an op with side effects alone has neither.
        let elements = node.outputs.first().map_or(0, |output| output.shape.elements() as u64);
        node.op.flops(&inputs, &node.outputs) + steps * elements
    }
}

/// Rounds up to the alignment of flat buffers.
pub(crate) fn padded(floats: usize) -> usize {
    floats.next_multiple_of(PARAMETER_ALIGNMENT)
}

/// No axis may be zero, and the size in bytes must fit into an address.
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

/// The wider of two float dtypes.
pub(crate) fn wider(a: DType, b: DType) -> DType {
    if a == DType::F32 || b == DType::F32 { DType::F32 } else { a }
}
