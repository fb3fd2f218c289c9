//! Reverse-mode differentiation, from graph to graph: the rule of each op adds the nodes that compute the gradients of
//! its inputs.
//!
//! With recomputation (activation checkpointing), a rule that needs a value from inside a block does not get the value
//! of the forward pass but a copy of the nodes that compute it, inserted before the block's backward pass. So only the
//! inputs of a block stay in memory. Random masks are functions of their path, so a copy produces the same bits.

use std::collections::HashMap;

use crate::error::{Error, Result};
use crate::graph::{Graph, Value};
use crate::ops::{Op, Pointwise, Step};
use crate::trim::trim_in_place;
use crate::types::{DType, Type};

/// Options for taking gradients.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq)]
pub struct GradientOptions {
    /// Recompute the activations of blocks instead of keeping them.
    pub recompute: bool,
}

/// The backward pass as seen by the gradient rule of the current node.
pub struct Backward<'g> {
    graph: &'g mut Graph,
    node: usize,
    /// Whether a node's outputs depend on a value whose gradient is requested.
    needed: Vec<bool>,
    gradients: HashMap<Value, Value>,
    /// Copies of nodes inside recomputed blocks.
    copies: HashMap<usize, usize>,
    recompute: bool,
}

impl Graph {
    /// The gradients of `loss`, a scalar, with respect to each of `wanted`.
    pub fn gradients(&mut self, loss: Value, wanted: &[Value], options: GradientOptions) -> Result<Vec<Value>> {
        self.check_own(&[loss])?;
        self.check_own(wanted)?;
        if self.type_of(loss).shape.elements() != 1 {
            let node = &self.nodes[loss.node()];
            let reason = format!("the loss must be a single number, it is {}", self.type_of(loss));
            return Err(Error::NoGradient { op: node.op.name(), path: node.path.clone(), reason });
        }
        let shape = self.shape_of(loss).clone();
        let one = self.detached("gradient", |graph| graph.constant("one", shape, vec![1.0]))?;
        let gradients = self.reached_gradients(loss, one, wanted, options)?;
        // To train what the loss does not depend on is a mistake.
        gradients.into_iter().zip(wanted).map(|(one, value)| one.ok_or_else(|| self.unreached(*value))).collect()
    }

    /// The gradients of `Σ value · seed` with respect to each of `wanted`; 0 where it does not depend on one.
    pub fn gradients_from(
        &mut self,
        value: Value,
        seed: Value,
        wanted: &[Value],
        options: GradientOptions,
    ) -> Result<Vec<Value>> {
        let gradients = self.reached_gradients(value, seed, wanted, options)?;
        let given = gradients.into_iter().zip(wanted).map(|(one, value)| match one {
            Some(gradient) => Ok(gradient),
            None => {
                let shape = self.shape_of(*value).clone();
                let zeros = vec![0.0; shape.elements()];
                self.detached("gradient", |graph| graph.constant("zeros", shape, zeros))
            }
        });
        given.collect()
    }

    /// The gradients of `Σ value · seed`; none where it does not depend on a value.
    fn reached_gradients(
        &mut self,
        value: Value,
        seed: Value,
        wanted: &[Value],
        options: GradientOptions,
    ) -> Result<Vec<Option<Value>>> {
        self.check_own(&[value, seed])?;
        self.check_own(wanted)?;
        if self.shape_of(value) != self.shape_of(seed) {
            let reason =
                format!("the seed must be of the value's shape {}, got {}", self.shape_of(value), self.shape_of(seed));
            let node = &self.nodes[value.node()];
            return Err(Error::NoGradient { op: node.op.name(), path: node.path.clone(), reason });
        }
        let needed = self.dependents(wanted);
        let last = value.node();
        let mut pass = Backward {
            graph: self,
            node: last,
            needed,
            gradients: HashMap::from([(value, seed)]),
            copies: HashMap::new(),
            recompute: options.recompute,
        };
        for node in (0..=last).rev() {
            let outputs = pass.graph.nodes[node].outputs.len();
            let reached = (0..outputs).any(|output| pass.gradients.contains_key(&Value::new(node, output)));
            if !reached || !pass.needed[node] || pass.graph.nodes[node].op.is_leaf() {
                continue;
            }
            if !pass.give_known(node)? {
                pass.differentiate(node)?;
            }
        }
        let gradients = pass.gradients;
        Ok(wanted.iter().map(|value| gradients.get(value).copied()).collect())
    }

    /// The loss without the rows it does not depend on, for taking gradients.
    pub(crate) fn trimmed(&mut self, loss: Value) -> Result<Value> {
        self.check_own(&[loss])?;
        Ok(trim_in_place(self, loss))
    }

    /// Like [`Graph::gradients`], for parameters: each gradient becomes a value of its own that can stay in the flat
    /// buffer.
    pub fn parameter_gradients(
        &mut self,
        loss: Value,
        wanted: &[Value],
        options: GradientOptions,
    ) -> Result<Vec<Value>> {
        let loss = self.trimmed(loss)?;
        let mut gradients = self.gradients(loss, wanted, options)?;
        let mut claimed = std::collections::HashSet::new();
        for (value, gradient) in wanted.iter().zip(&mut gradients) {
            let Op::Parameter(parameter) = &self.nodes[value.node()].op else {
                let node = &self.nodes[value.node()];
                let reason = "not a parameter".to_string();
                return Err(Error::NoGradient { op: node.op.name(), path: node.path.clone(), reason });
            };
            let index = parameter.index;
            let own =
                !self.nodes[self.root_of(*gradient).node()].op.is_leaf() && self.type_of(*gradient).dtype == DType::F32;
            if !own || !claimed.insert(self.root_of(*gradient)) {
                let copy = Op::Pointwise(Pointwise { dtype: DType::F32 });
                *gradient = self.detached("gradient", |graph| graph.add_op(copy, &[*gradient], Vec::new()))?;
                claimed.insert(*gradient);
            }
            self.parameter_gradients[index] = Some(*gradient);
        }
        Ok(gradients)
    }

    /// The value that owns the memory: a reshape, or an output written into another value's rows, is a view of it.
    pub(crate) fn root_of(&self, mut value: Value) -> Value {
        while self.nodes[value.node()].op.shows_its_input() {
            value = self.nodes[value.node()].inputs[0];
        }
        value
    }

    fn check_own(&self, values: &[Value]) -> Result<()> {
        let own = |value: &Value| self.nodes.get(value.node()).is_some_and(|node| value.output() < node.outputs.len());
        if values.iter().all(own) {
            return Ok(());
        }
        let reason = "a value is not of this graph".to_string();
        Err(Error::NoGradient { op: "gradient", path: self.path_of("gradient"), reason })
    }

    /// Names of the parameters that a value depends on: those that a loss trains.
    pub fn parameters_behind(&self, value: Value) -> Vec<&str> {
        let mut behind = vec![false; self.nodes.len()];
        behind[value.node()] = true;
        for (index, node) in self.nodes.iter().enumerate().rev() {
            if behind[index] {
                node.inputs.iter().for_each(|input| behind[input.node()] = true);
            }
        }
        let parameters = self.nodes.iter().zip(behind).filter_map(|(node, behind)| match &node.op {
            Op::Parameter(op) if behind => Some(self.parameters[op.index].name.as_str()),
            _ => None,
        });
        parameters.collect()
    }

    fn dependents(&self, wanted: &[Value]) -> Vec<bool> {
        let mut needed = vec![false; self.nodes.len()];
        for value in wanted {
            needed[value.node()] = true;
        }
        for (index, node) in self.nodes.iter().enumerate() {
            if node.inputs.iter().any(|input| needed[input.node()]) {
                needed[index] = true;
            }
        }
        needed
    }

    fn unreached(&self, value: Value) -> Error {
        let node = &self.nodes[value.node()];
        let reason = "the loss does not depend on it; freeze it or use it in the graph".to_string();
        Error::NoGradient { op: node.op.name(), path: node.path.clone(), reason }
    }
}

impl Backward<'_> {
    fn differentiate(&mut self, node: usize) -> Result<()> {
        self.node = node;
        let op = self.graph.nodes[node].op.clone();
        let scope = format!("gradient.{}", self.graph.nodes[node].path);
        let outer = self.graph.enter(scope);
        let result = op.gradient(self);
        self.graph.leave(outer);
        result
    }

    /// Distributes gradients that were computed with a loss. They are right if nothing scales that loss.
    fn give_known(&mut self, node: usize) -> Result<bool> {
        let loss = Value::new(node, 0);
        let Some(known) = self.graph.known_gradients.get(&loss).cloned() else { return Ok(false) };
        let is_one = |graph: &Graph, value: Value| match &graph.node(value).op {
            Op::Constant(constant) => constant.dtype == DType::F32 && graph.constants[constant.index] == [1.0],
            _ => false,
        };
        if !self.gradients.get(&loss).is_some_and(|&gradient| is_one(self.graph, gradient)) {
            return Ok(false);
        }
        for (value, gradient) in known {
            if self.needed[value.node()] {
                self.add_to(value, gradient)?;
            }
        }
        Ok(true)
    }

    /// The graph that gradients are added to.
    pub(crate) fn graph(&mut self) -> &mut Graph {
        self.graph
    }

    /// The node's steps.
    pub(crate) fn steps(&self) -> &[Step] {
        &self.graph.nodes[self.node].steps
    }

    /// Number of inputs.
    pub(crate) fn input_count(&self) -> usize {
        self.graph.nodes[self.node].inputs.len()
    }

    /// Type of an input.
    pub(crate) fn input_type(&self, index: usize) -> &Type {
        self.graph.type_of(self.graph.nodes[self.node].inputs[index])
    }

    /// An input, available in the backward pass.
    pub(crate) fn input(&mut self, index: usize) -> Result<Value> {
        self.available(self.graph.nodes[self.node].inputs[index])
    }

    /// An output, available in the backward pass.
    pub(crate) fn output(&mut self, index: usize) -> Result<Value> {
        self.available(Value::new(self.node, index))
    }

    /// The gradient of an output, if it has one.
    pub(crate) fn output_gradient(&self, index: usize) -> Option<Value> {
        self.gradients.get(&Value::new(self.node, index)).copied()
    }

    /// Whether the gradient of an input is needed.
    pub(crate) fn wants(&self, index: usize) -> bool {
        self.needed[self.graph.nodes[self.node].inputs[index].node()]
    }

    /// Adds to the gradient of an input.
    pub(crate) fn give(&mut self, index: usize, gradient: Value) -> Result<()> {
        self.add_to(self.graph.nodes[self.node].inputs[index], gradient)
    }

    /// Adds to the gradient of a value.
    fn add_to(&mut self, value: Value, gradient: Value) -> Result<()> {
        debug_assert_eq!(self.graph.shape_of(value), self.graph.shape_of(gradient));
        let sum = match self.gradients.get(&value).copied() {
            Some(before) => self.graph.add(before, gradient)?,
            None => gradient,
        };
        self.gradients.insert(value, sum);
        Ok(())
    }

    /// Distributes the outputs of a gradient node, in order, to the inputs that need a gradient.
    pub(crate) fn give_wanted(&mut self, first: Value) -> Result<()> {
        let count = self.graph.nodes[first.node()].outputs.len();
        for index in 0..count {
            if self.wants(index) {
                self.give(index, Value::new(first.node(), index))?;
            }
        }
        Ok(())
    }

    /// For ops with one differentiable input: its gradient is a function of the output's.
    pub(crate) fn map_gradient(&mut self, rule: impl FnOnce(&mut Graph, Value) -> Result<Value>) -> Result<()> {
        if !self.wants(0) {
            return Ok(());
        }
        let Some(dy) = self.output_gradient(0) else { return Ok(()) };
        let dx = rule(self.graph, dy)?;
        self.give(0, dx)
    }

    /// Passes the output's gradient through unchanged.
    pub(crate) fn pass_gradient(&mut self, index: usize) -> Result<()> {
        match self.output_gradient(0) {
            Some(dy) if self.wants(index) => self.give(index, dy),
            _ => Ok(()),
        }
    }

    /// An error that names the op and its path.
    pub(crate) fn refuse<T>(&self, reason: &str) -> Result<T> {
        let node = &self.graph.nodes[self.node];
        let op = node.op.path_name(&node.steps);
        Err(Error::NoGradient { op, path: node.path.clone(), reason: reason.to_string() })
    }

    /// The value itself or, inside a recomputed block, its copy.
    fn available(&mut self, value: Value) -> Result<Value> {
        let block = self.graph.nodes[self.node].block;
        if !self.recompute || block.is_none() || self.graph.nodes[value.node()].block != block {
            return Ok(value);
        }
        Ok(Value::new(self.copy_node(value.node(), block)?, value.output()))
    }

    /// Copies a node of `block`, and what it depends on inside the block.
    fn copy_node(&mut self, node: usize, block: Option<u32>) -> Result<usize> {
        if let Some(&copy) = self.copies.get(&node) {
            return Ok(copy);
        }
        let original = self.graph.nodes[node].clone();
        let mut inputs = Vec::with_capacity(original.inputs.len());
        for input in original.inputs {
            let inside = self.graph.nodes[input.node()].block == block;
            let from = if inside { self.copy_node(input.node(), block)? } else { input.node() };
            inputs.push(Value::new(from, input.output()));
        }
        let outer = self.graph.enter("again".to_string());
        let path = self.graph.next_path(&original.path);
        let copy = self.graph.add_op_at(original.op, &inputs, original.steps, path);
        self.graph.leave(outer);
        let copy = copy?.node();
        self.copies.insert(node, copy);
        Ok(copy)
    }
}
