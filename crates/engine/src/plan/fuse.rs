//! Rewrites a graph so that fewer kernels run, each passing over memory once. The result computes the same values.
//!
//! - Elementwise nodes become steps of the node before them: bias, activation, dropout and residual of their matrix
//!   product; the activation's gradient of the input gradient; gradient sums of the norm's gradient.
//! - What remains elementwise before a norm becomes steps of the norm, and rounding its result a property of it.
//! - A bias gradient (a sum of rows) joins the weight gradient that reads the same rows.
//! - A bf16 value that becomes the middle of a fused node is rounded there, so that fusing changes no bit and may
//!   differ between a block and its recomputation (a GPU's products may add a residual before that).
//! - f32 values that only products read which round them to bf16 are stored as bf16 in the first place.
//! - Of an activation with dropout, its slope is kept for the backward pass; see [`slopes`].

use std::collections::{HashMap, HashSet};

use super::{Target, slopes};
use crate::graph::{Graph, Node, Value};
use crate::ops::{LinearWeightGradient, Op, Pointwise, Step};
use crate::types::{DType, Type};

/// A fused graph, and where the original values went.
pub(super) struct Fused {
    pub graph: Graph,
    pub outputs: Vec<Value>,
    pub map: HashMap<Value, Value>,
}

/// Removes what `outputs`, effects and caches do not need, and fuses the rest.
pub(super) fn fuse(graph: &Graph, outputs: &[Value], target: &dyn Target) -> Fused {
    let mut fuser = Fuser::new(graph, outputs);
    let count = graph.nodes.len();
    for node in 0..count {
        if fuser.alive[node] && matches!(fuser.nodes[node].op, Op::Pointwise(_)) {
            fuser.join_producer(node);
        }
    }
    for node in 0..count {
        if fuser.alive[node] && matches!(fuser.nodes[node].op, Op::LayerNorm(_) | Op::RmsNorm(_)) {
            fuser.join_norm(node);
        }
    }
    for node in 0..fuser.nodes.len() {
        if fuser.alive[node] && matches!(fuser.nodes[node].op, Op::LayerNorm(_) | Op::RmsNorm(_)) {
            fuser.join_rounding(node);
        }
    }
    for node in 0..count {
        if fuser.alive[node] && matches!(fuser.nodes[node].op, Op::SumLeading(_)) {
            fuser.join_weight_gradient(node);
        }
    }
    fuser.narrow(target);
    if target.rounds_once() {
        fuser.round_once(target);
    }
    let mut fused = fuser.finish(graph);
    slopes::keep_slopes(&mut fused);
    fused
}

struct Fuser {
    /// The original nodes, then the joined ones.
    nodes: Vec<Node>,
    alive: Vec<bool>,
    /// Running order: a joined node takes the place of one of its parts.
    order: Vec<usize>,
    /// Where values of joined nodes went.
    moved: HashMap<Value, Value>,
    /// Nodes that read a value, dead ones among them.
    readers: HashMap<Value, Vec<usize>>,
    /// Results that were asked for, and gradients of parameters.
    kept: HashSet<Value>,
    /// Places in the running order at which parameters change.
    effects: Vec<usize>,
    outputs: Vec<Value>,
    gradients: Vec<Option<Value>>,
}

/// Whether steps can follow the op's first result.
fn takes_steps(op: &Op) -> bool {
    matches!(
        op,
        Op::Linear(_)
            | Op::LinearInputGradient(_)
            | Op::MatMul(_)
            | Op::Pointwise(_)
            | Op::LayerNormGradient(_)
            | Op::RmsNormGradient(_)
    )
}

impl Fuser {
    fn new(graph: &Graph, outputs: &[Value]) -> Self {
        let nodes = graph.nodes.clone();
        let mut alive = vec![false; nodes.len()];
        for output in outputs {
            alive[output.node()] = true;
        }
        graph.inputs_of_edited().for_each(|input| alive[input] = true);
        for index in (0..nodes.len()).rev() {
            if alive[index] || nodes[index].op.has_effect() || nodes[index].op.writes_cache() {
                alive[index] = true;
                for input in &nodes[index].inputs {
                    alive[input.node()] = true;
                }
            }
        }
        let mut readers: HashMap<Value, Vec<usize>> = HashMap::new();
        for (index, node) in nodes.iter().enumerate().filter(|(index, _)| alive[*index]) {
            for &input in &node.inputs {
                readers.entry(input).or_default().push(index);
            }
        }
        let gradients: Vec<Option<Value>> =
            graph.parameter_gradients.iter().map(|g| g.filter(|g| alive[g.node()])).collect();
        let kept = outputs.iter().chain(gradients.iter().flatten()).copied().collect();
        let order = (0..nodes.len()).collect();
        let effects = (0..nodes.len()).filter(|&node| nodes[node].op.changes_parameters()).collect();
        let moved = HashMap::new();
        Fuser { nodes, alive, order, moved, readers, kept, effects, outputs: outputs.to_vec(), gradients }
    }

    /// Notes that a value is now a result of another node.
    fn move_value(&mut self, from: Value, to: Value) {
        self.moved.insert(from, to);
        if let Some(readers) = self.readers.remove(&from) {
            self.readers.entry(to).or_default().extend(readers);
        }
        if self.kept.remove(&from) {
            self.kept.insert(to);
        }
    }

    fn resolve(&self, mut value: Value) -> Value {
        while let Some(&next) = self.moved.get(&value) {
            value = next;
        }
        value
    }

    fn input(&self, node: usize, index: usize) -> Value {
        self.resolve(self.nodes[node].inputs[index])
    }

    /// The alive nodes that read `value`, `except` not counted.
    fn readers(&self, value: Value, except: usize) -> impl Iterator<Item = usize> {
        let all = self.readers.get(&value).map_or(&[][..], Vec::as_slice).iter().copied();
        all.filter(move |&node| node != except && self.alive[node])
    }

    /// Whether anybody but `except` wants a value.
    fn is_wanted(&self, value: Value, except: usize) -> bool {
        self.kept.contains(&value) || self.readers(value, except).next().is_some()
    }

    /// Whether `earlier` can be moved behind `later`: nobody in between reads it.
    fn can_wait(&self, earlier: usize, later: usize) -> bool {
        (0..self.nodes[earlier].outputs.len()).all(|output| {
            let mut readers = self.readers(Value::new(earlier, output), later);
            readers.all(|reader| self.order[reader] > self.order[later])
        })
    }

    /// Whether something between two nodes changes parameters: what reads them must stay on its side.
    fn crosses_effect(&self, earlier: usize, later: usize) -> bool {
        self.effects.iter().any(|&effect| (self.order[earlier]..self.order[later]).contains(&effect))
    }

    /// The producer that an elementwise node can join, and by which of its inputs.
    fn producer_of(&self, node: usize) -> Option<(usize, usize)> {
        let commutes = matches!(self.nodes[node].steps[..], [Step::Add { .. } | Step::Multiply { .. }]);
        let shape = |value: Value| &self.nodes[value.node()].outputs[value.output()].shape;
        let mut candidates = vec![0];
        if commutes && shape(self.input(node, 0)) == shape(self.input(node, 1)) {
            candidates.push(1);
        }
        // The latest producer first: what it is combined with is there already.
        candidates.sort_by_key(|&index| std::cmp::Reverse(self.order[self.input(node, index).node()]));
        candidates.into_iter().find_map(|index| {
            let value = self.input(node, index);
            let fits = value.output() == 0 && takes_steps(&self.nodes[value.node()].op);
            // A step cannot read a result of the node it becomes part of: neither the running value itself (x + x) nor
            // what the node stores on its way.
            let others = (0..self.nodes[node].inputs.len()).filter(|&other| other != index);
            let apart = others.into_iter().all(|other| self.input(node, other).node() != value.node());
            (fits && apart).then_some((value.node(), index))
        })
    }

    fn join_producer(&mut self, node: usize) {
        let Some((producer, by)) = self.producer_of(node) else { return };
        let others: Vec<Value> =
            (0..self.nodes[node].inputs.len()).filter(|&i| i != by).map(|i| self.input(node, i)).collect();
        if self.crosses_effect(producer, node) {
            return;
        }
        let order = if self.can_wait(producer, node) {
            self.order[node]
        } else if others.iter().all(|other| self.order[other.node()] < self.order[producer]) {
            self.order[producer]
        } else {
            return;
        };
        let value = Value::new(producer, 0);
        let mut joined = self.nodes[producer].clone();
        joined.inputs = (0..joined.inputs.len()).map(|i| self.input(producer, i)).collect();
        let kept = self.is_wanted(value, node);
        let stored = joined.outputs.len();
        if kept {
            joined.steps.push(Step::Store { output: stored });
            joined.outputs.push(joined.outputs[0].clone());
        }
        if joined.outputs[0].dtype == DType::Bf16 {
            joined.steps.push(Step::Round);
        }
        let base = joined.inputs.len();
        joined.inputs.extend(&others);
        for step in &self.nodes[node].steps {
            let mut step = step.clone();
            if let Some(input) = step.input() {
                // With the second operand as the running value, the step reads the first.
                let other = if by == 0 { input - 1 } else { 0 };
                step.set_input(base + other);
            }
            joined.steps.push(step);
        }
        joined.outputs[0] = self.nodes[node].outputs[0].clone();
        joined.path.clone_from(&self.nodes[node].path);
        let new = self.replace(joined, order, &[producer, node]);
        for output in 1..self.nodes[producer].outputs.len() {
            self.move_value(Value::new(producer, output), Value::new(new, output));
        }
        if kept {
            self.move_value(value, Value::new(new, stored));
        }
        self.move_value(Value::new(node, 0), Value::new(new, 0));
    }

    fn join_norm(&mut self, norm: usize) {
        let value = self.input(norm, 0);
        let before = value.node();
        let fits = value.output() == 0
            && (1..self.nodes[norm].inputs.len()).all(|index| self.input(norm, index).node() != before)
            && !self.crosses_effect(before, norm)
            && matches!(self.nodes[before].op, Op::Pointwise(_))
            && !self.nodes[before].steps.is_empty()
            && self.can_wait(before, norm);
        if !fits {
            return;
        }
        let mut joined = self.nodes[norm].clone();
        joined.inputs = (0..joined.inputs.len()).map(|i| self.input(norm, i)).collect();
        let (own, base) = (joined.outputs.len(), joined.inputs.len());
        joined.inputs[0] = self.input(before, 0);
        joined.inputs.extend((1..self.nodes[before].inputs.len()).map(|i| self.input(before, i)));
        // The elementwise node's further results (stored on the way) come behind the norm's own.
        let extra = self.nodes[before].outputs.len() - 1;
        joined.outputs.extend_from_slice(&self.nodes[before].outputs[1..]);
        for step in &self.nodes[before].steps {
            let mut step = step.clone();
            if let Some(input) = step.input() {
                step.set_input(base + input - 1);
            }
            if let Step::Store { output } = &mut step {
                *output = own + *output - 1;
            }
            joined.steps.push(step);
        }
        let kept = self.is_wanted(value, norm);
        if kept {
            joined.steps.push(Step::Store { output: own + extra });
            joined.outputs.push(self.nodes[before].outputs[0].clone());
        }
        if self.nodes[before].outputs[0].dtype == DType::Bf16 {
            joined.steps.push(Step::Round);
        }
        let new = self.replace(joined, self.order[norm], &[before, norm]);
        for output in 0..own {
            self.move_value(Value::new(norm, output), Value::new(new, output));
        }
        for output in 0..extra {
            self.move_value(Value::new(before, output + 1), Value::new(new, own + output));
        }
        if kept {
            self.move_value(value, Value::new(new, own + extra));
        }
    }

    fn join_weight_gradient(&mut self, sum: usize) {
        let dy = self.input(sum, 0);
        let columns = self.nodes[dy.node()].outputs[dy.output()].shape.columns();
        if self.nodes[sum].outputs[0].shape.axes() != [columns] {
            return;
        }
        let weight_gradient = (0..self.nodes.len()).find(|&node| {
            let plain =
                matches!(self.nodes[node].op, Op::LinearWeightGradient(LinearWeightGradient { bias: false, .. }));
            self.alive[node] && plain && self.input(node, 0) == dy
        });
        let Some(product) = weight_gradient else { return };
        let (earlier, later) = if self.order[sum] < self.order[product] { (sum, product) } else { (product, sum) };
        if !self.can_wait(earlier, later) || self.crosses_effect(earlier, later) {
            return;
        }
        let mut joined = self.nodes[product].clone();
        joined.inputs = (0..joined.inputs.len()).map(|i| self.input(product, i)).collect();
        if let Op::LinearWeightGradient(op) = &mut joined.op {
            op.bias = true;
        }
        joined.outputs.push(self.nodes[sum].outputs[0].clone());
        let new = self.replace(joined, self.order[later], &[sum, product]);
        self.move_value(Value::new(product, 0), Value::new(new, 0));
        self.move_value(Value::new(sum, 0), Value::new(new, 1));
    }

    fn replace(&mut self, joined: Node, order: usize, parts: &[usize]) -> usize {
        for &part in parts {
            self.alive[part] = false;
        }
        let new = self.nodes.len();
        for &input in &joined.inputs {
            self.readers.entry(input).or_default().push(new);
        }
        self.nodes.push(joined);
        self.alive.push(true);
        self.order.push(order);
        new
    }

    /// Stores a norm's result as bf16 if its only reader does nothing but round it.
    fn join_rounding(&mut self, norm: usize) {
        let value = Value::new(norm, 0);
        let readers: Vec<usize> = self.readers(value, usize::MAX).collect();
        let [reader] = readers[..] else { return };
        let rounds = match &self.nodes[reader] {
            Node { op: Op::Pointwise(Pointwise { dtype: DType::Bf16 }), inputs, steps, outputs, .. } => {
                inputs.len() == 1 && outputs.len() == 1 && matches!(steps[..], [] | [Step::Round])
            }
            _ => false,
        };
        if rounds && !self.kept.contains(&value) {
            self.nodes[norm].outputs[0].dtype = DType::Bf16;
            self.alive[reader] = false;
            self.move_value(Value::new(reader, 0), value);
        }
    }

    /// Stores as bf16 what only bf16 products read.
    fn narrow(&mut self, target: &dyn Target) {
        for node in 0..self.nodes.len() {
            let computes = matches!(self.nodes[node].op, Op::LayerNorm(_) | Op::RmsNorm(_) | Op::Pointwise(_))
                || target.rounds_once()
                    && matches!(
                        self.nodes[node].op,
                        Op::Patchify(_) | Op::LayerNormGradient(_) | Op::RmsNormGradient(_)
                    );
            let value = Value::new(node, 0);
            if !self.alive[node] || !computes || self.kept.contains(&value) {
                continue;
            }
            let read = self.readers(value, usize::MAX).next().is_some();
            let only_products =
                read && self.readers(value, usize::MAX).all(|reader| self.rounds(reader, value, target));
            if only_products && self.nodes[node].outputs[0].dtype == DType::F32 {
                self.nodes[node].outputs[0].dtype = DType::Bf16;
            }
        }
    }

    /// Gives every f32 value that products read rounded, and others as it is, a second form: bf16, which all of those products read.
    fn round_once(&mut self, target: &dyn Target) {
        for node in 0..self.nodes.len() {
            if !self.alive[node] || matches!(self.nodes[node].op, Op::Parameter(_)) {
                continue;
            }
            for output in 0..self.nodes[node].outputs.len() {
                let value = Value::new(node, output);
                let rounding: Vec<usize> =
                    self.readers(value, usize::MAX).filter(|&reader| self.multiplies(reader, value, target)).collect();
                if self.nodes[node].outputs[output].dtype == DType::F32 && !rounding.is_empty() {
                    self.round_value(value, &rounding);
                }
            }
        }
    }

    /// Whether a node is a product that rounds its operands, of which the value is one.
    fn multiplies(&self, reader: usize, value: Value, target: &dyn Target) -> bool {
        let node = &self.nodes[reader];
        let products =
            matches!(node.op, Op::Linear(_) | Op::LinearInputGradient(_) | Op::LinearWeightGradient(_) | Op::MatMul(_));
        let shape = |index: usize| {
            let input = self.input(reader, index);
            &self.nodes[input.node()].outputs[input.output()].shape
        };
        products
            && (0..2).any(|index| self.input(reader, index) == value)
            && target.rounds_operands(&node.op, shape(0), shape(1))
    }

    /// Stores a value a second time, rounded, and has some products multiply that. Steps behind them read the value as it is.
    fn round_value(&mut self, value: Value, readers: &[usize]) {
        let rounded = Type { dtype: DType::Bf16, ..self.nodes[value.node()].outputs[value.output()].clone() };
        let producer = &mut self.nodes[value.node()];
        let copy = if value.output() == 0 && takes_steps(&producer.op) {
            let output = producer.outputs.len();
            producer.steps.push(Step::Store { output });
            producer.outputs.push(rounded);
            Value::new(value.node(), output)
        } else {
            let (path, order) = (producer.path.clone(), self.order[value.node()]);
            let (op, block) = (Op::Pointwise(Pointwise { dtype: DType::Bf16 }), producer.block);
            let node = Node { op, inputs: vec![value], steps: Vec::new(), outputs: vec![rounded], path, block };
            Value::new(self.replace(node, order, &[]), 0)
        };
        for &reader in readers {
            let mut inputs: Vec<Value> = (0..self.nodes[reader].inputs.len()).map(|i| self.input(reader, i)).collect();
            for operand in &mut inputs[..2] {
                if *operand == value {
                    *operand = copy;
                }
            }
            self.nodes[reader].inputs = inputs;
            self.readers.entry(copy).or_default().push(reader);
        }
        let still =
            |reader: &usize| (0..self.nodes[*reader].inputs.len()).any(|index| self.input(*reader, index) == value);
        let left = self.readers.get(&value).map(|all| all.iter().copied().filter(still).collect::<Vec<_>>());
        self.readers.insert(value, left.unwrap_or_default());
    }

    /// Whether a node reads the value as an operand of a product that rounds it, and not otherwise.
    fn rounds(&self, reader: usize, value: Value, target: &dyn Target) -> bool {
        let node = &self.nodes[reader];
        // With the bias gradient, dy is also summed: unrounded, where each product rounds for itself.
        let summed = !target.rounds_once()
            && matches!(node.op, Op::LinearWeightGradient(LinearWeightGradient { bias: true, .. }));
        let elsewhere = (2..node.inputs.len()).any(|index| self.input(reader, index) == value);
        let also = elsewhere || summed && self.input(reader, 0) == value;
        !also && self.multiplies(reader, value, target)
    }

    /// A gradient is added to those of other batches as soon as it is there, so that its memory can be used again.
    fn running_order(&self, node: usize) -> (usize, bool) {
        let accumulates = matches!(self.nodes[node].op, Op::AccumulateGradient(_));
        let inputs = 0..self.nodes[node].inputs.len();
        let latest = inputs.map(|index| self.order[self.input(node, index).node()]).max();
        (latest.filter(|_| accumulates).unwrap_or(self.order[node]), accumulates)
    }

    fn finish(self, original: &Graph) -> Fused {
        let mut running: Vec<usize> = (0..self.nodes.len()).filter(|&node| self.alive[node]).collect();
        running.sort_by_key(|&node| self.running_order(node));
        let place: HashMap<usize, usize> = running.iter().enumerate().map(|(place, &node)| (node, place)).collect();
        let at = |value: Value| {
            let value = self.resolve(value);
            place.get(&value.node()).map(|&node| Value::new(node, value.output()))
        };
        let expect = |value: Value| at(value).expect("what an alive node reads is alive");
        let mut map = HashMap::new();
        for (node, original) in original.nodes.iter().enumerate() {
            for output in 0..original.outputs.len() {
                let value = Value::new(node, output);
                map.extend(at(value).map(|new| (value, new)));
            }
        }
        let mut graph = original.without_nodes();
        graph.parameter_gradients = self.gradients.iter().map(|gradient| gradient.and_then(at)).collect();
        for &node in &running {
            let mut node = self.nodes[node].clone();
            node.inputs = node.inputs.iter().map(|&input| expect(input)).collect();
            graph.nodes.push(node);
        }
        let outputs = self.outputs.iter().map(|&output| expect(output)).collect();
        Fused { graph, outputs, map }
    }
}
