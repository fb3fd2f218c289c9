//! Chains: runs of kernels that treat every sample by itself. A chain is run tile by tile, a tile being some samples: one
//! thread takes its samples through all kernels of the chain before the next tile. What only the chain itself
//! reads then never exists for the whole batch: it lives in the thread's own memory, small enough to stay in its cache.
//!
//! Only ops of forward passes form chains. In a backward pass the weight gradients, which sum over all samples, stand between
//! them, and moving those apart would keep more activations' gradients alive than it saves.
//!
//! Which nodes form a chain and how large its tiles are follows from the graph alone, so results do not depend on the number
//! of threads; and as no kernel of a chain mixes samples, tiles change no bit.

use crate::graph::{Graph, Node, Value};
use crate::ops::attention::Attention;
use crate::ops::{Op, Step};
use crate::precision::Precision;
use crate::types::{Shape, Type};

/// Rows of activations that a tile has at most, and bytes of any one value in it: it is to stay in a core's cache, most of it.
const MOST_ROWS: usize = 256;
const MOST_BYTES: usize = 1536 << 10;
/// Rows that a matrix product must have in a tile to be worth it.
const LEAST_PRODUCT_ROWS: usize = 16;
/// Tiles that a chain must have, so that threads can share it.
const LEAST_TILES: usize = 16;
/// How much less a byte of weights costs than one of activations: weights are read in order, from a cache that all cores share, and no core
/// waits for what another has written.
const WEIGHTS_ARE_CHEAPER: usize = 8;

/// A run of nodes that is executed tile by tile.
#[derive(Clone, Debug)]
pub struct Chain {
    /// The first node.
    pub first: usize,
    /// The last node.
    pub last: usize,
    /// Samples a tile.
    pub samples: usize,
    /// Number of tiles.
    pub tiles: usize,
    /// Bytes of a thread's memory for what only the chain reads.
    pub bytes: usize,
    /// The graph as a tile sees it: values of samples have `samples` of them.
    pub graph: Graph,
}

/// Finds the chains of a fused graph.
pub(super) fn chains(graph: &Graph) -> Vec<Chain> {
    let mut finder = Finder { graph, carries: Vec::new(), open: None, found: Vec::new() };
    for index in 0..graph.nodes().len() {
        finder.visit(index);
    }
    finder.close();
    finder.found
}

struct Finder<'g> {
    graph: &'g Graph,
    /// Whether a node's results belong to samples, which are their first axis.
    carries: Vec<bool>,
    /// First and last node of the chain that is being gathered, and the number of its samples.
    open: Option<(usize, usize, usize)>,
    found: Vec<Chain>,
}

impl Finder<'_> {
    fn visit(&mut self, index: usize) {
        let node = &self.graph.nodes()[index];
        if node.op.is_leaf() {
            let of_samples = matches!(node.op, Op::Input(_) | Op::Cache(_));
            self.carries.push(of_samples && node.outputs[0].shape.rank() > 0);
            return;
        }
        let owns_gradient = self.graph.parameter_gradients.iter().flatten().any(|gradient| gradient.node() == index);
        let local = !owns_gradient && self.is_local(node);
        // Looked up for each sample, by an op that is in no chain: its numbers may be out of range.
        let looked_up = matches!(node.op, Op::Embedding(_)) && self.carries(node, 1);
        self.carries.push(local || looked_up);
        let samples = node.outputs.first().and_then(|output| output.shape.axes().first()).copied().unwrap_or(0);
        match &mut self.open {
            Some((_, last, open_samples)) if local && *open_samples == samples => *last = index,
            _ => {
                self.close();
                if local {
                    self.open = Some((index, index, samples));
                }
            }
        }
    }

    fn close(&mut self) {
        let Some((first, last, samples)) = self.open.take() else { return };
        let nodes = &self.graph.nodes()[first..=last];
        let computed = || nodes.iter().filter(|node| !node.op.is_leaf());
        let rows = computed().map(|node| rows_per_sample(node, samples)).max().unwrap_or(1);
        let bytes = computed().flat_map(|node| &node.outputs).map(|output| output.bytes() / samples).max().unwrap_or(1);
        let fits = |tile: usize| samples.is_multiple_of(tile) && tile * rows <= MOST_ROWS && tile * bytes <= MOST_BYTES;
        let Some(tile) = (1..=samples / LEAST_TILES).rev().find(|&tile| fits(tile)) else { return };
        // A product of too few rows ends the chain before it.
        let thin = |node: &Node| is_product(&node.op) && tile * rows_per_sample(node, samples) < LEAST_PRODUCT_ROWS;
        let last = nodes.iter().position(thin).map_or(last, |thin| first + thin - 1);
        if last > first && self.is_worth_it(first, last, samples / tile) {
            let graph = self.tile_graph(first, last, (samples, tile));
            self.found.push(Chain { first, last, samples: tile, tiles: samples / tile, bytes: 0, graph });
        }
    }

    /// Whether activations that need not go through memory are worth that every tile reads all weights again.
    fn is_worth_it(&self, first: usize, last: usize, tiles: usize) -> bool {
        // As they are packed.
        let bytes_of_weight = if self.graph.precision() == Precision::Bf16 { 2 } else { 4 };
        let (mut weights, mut activations) = (0, 0);
        for node in self.graph.nodes()[first..=last].iter().filter(|node| !node.op.is_leaf()) {
            activations += node.outputs.iter().map(Type::bytes).sum::<usize>();
            if is_product(&node.op) {
                weights += self.graph.shape_of(node.inputs[1]).elements() * bytes_of_weight;
            }
        }
        weights * tiles <= WEIGHTS_ARE_CHEAPER * activations
    }

    /// The graph with `to` samples instead of `from` in all values that belong to samples and that the chain touches.
    fn tile_graph(&self, first: usize, last: usize, (from, to): (usize, usize)) -> Graph {
        let mut graph = self.graph.without_nodes();
        graph.constants.clear();
        graph.nodes = self.graph.nodes().to_vec();
        let touched: Vec<Value> =
            self.graph.nodes()[first..=last].iter().flat_map(|node| node.inputs.clone()).collect();
        let own = (first..=last)
            .flat_map(|node| (0..self.graph.nodes()[node].outputs.len()).map(move |o| Value::new(node, o)));
        for value in touched.into_iter().chain(own) {
            let value_type = &mut graph.nodes[value.node()].outputs[value.output()];
            // A value that several nodes touch is met again, with `to` samples already.
            if self.carries[value.node()] && value_type.shape.axes().first() == Some(&from) {
                let mut axes = value_type.shape.axes().to_vec();
                axes[0] = to;
                value_type.shape = Shape::new(axes);
            }
        }
        graph
    }

    fn carries(&self, node: &Node, input: usize) -> bool {
        self.carries[node.inputs[input].node()]
    }

    fn shape(&self, node: &Node, input: usize) -> &Shape {
        self.graph.shape_of(node.inputs[input])
    }

    /// Whether a node computes each sample of its results from the same sample of its inputs.
    fn is_local(&self, node: &Node) -> bool {
        if let Op::Broadcast(op) = &node.op {
            // A class token: the same for every sample.
            return !self.carries(node, 0) && self.shape(node, 0).rank() < op.shape.rank();
        }
        let Some(samples) = node.inputs.first().and_then(|_| self.shape(node, 0).axes().first().copied()) else {
            return false;
        };
        let kept = node.outputs.first().and_then(|output| output.shape.axes().first()) == Some(&samples);
        if !kept || !self.carries(node, 0) {
            return false;
        }
        let rank = self.shape(node, 0).rank();
        let op_is_local = match &node.op {
            // Quantised weights want all activations quantised first.
            Op::Linear(_) => rank >= 2 && !self.carries(node, 1) && self.graph.quantised_weight(node).is_none(),
            Op::LayerNorm(op) => rank >= 2 && (!op.affine || !self.carries(node, 1) && !self.carries(node, 2)),
            Op::RmsNorm(_) => rank >= 2 && !self.carries(node, 1),
            Op::Attention(op) => self.is_local_attention(node, op),
            Op::Rotary(_) => node.inputs.len() == 1 || self.carries(node, 1),
            Op::MeanTokens(_) | Op::MaxTokens(_) => rank >= 3,
            Op::Pointwise(_) | Op::Softmax(_) => rank >= 2,
            Op::Patchify(_) | Op::Unfold(_) | Op::Reshape(_) => true,
            Op::Slice(op) => op.axis > 0,
            Op::Concat(op) => op.axis > 0 && (0..node.inputs.len()).all(|input| self.carries(node, input)),
            Op::Transpose(op) => op.order.first() == Some(&0),
            _ => false,
        };
        op_is_local && node.steps.iter().filter_map(Step::input).all(|input| self.is_local_operand(node, input))
    }

    fn is_local_attention(&self, node: &Node, op: &Attention) -> bool {
        let by_sample = (0..op.projections()).chain(op.padding_input()).chain(op.offsets_input());
        let own = by_sample.into_iter().all(|input| self.carries(node, input));
        let bias =
            op.bias_input().is_none_or(|input| !self.carries(node, input) && self.shape(node, input).axes()[0] == 1);
        own && bias
    }

    /// A step's operand must be the same for every sample, or have as many samples as the result.
    fn is_local_operand(&self, node: &Node, input: usize) -> bool {
        let (whole, operand) = (&node.outputs[0].shape, self.shape(node, input));
        if self.carries(node, input) { operand == whole } else { operand.rank() < whole.rank() }
    }
}

fn is_product(op: &Op) -> bool {
    matches!(op, Op::Linear(_))
}

/// Rows of a node's result that belong to one sample.
fn rows_per_sample(node: &Node, samples: usize) -> usize {
    node.outputs.first().map_or(1, |output| (output.shape.rows() / samples.max(1)).max(1))
}
