//! Where attention stands in a model's graph, and where its queries, keys and values come from.

use std::ops::Range;

use vitreous_engine::ops::Attention;
use vitreous_engine::{Graph, Op, Value};

/// What attention reads.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Projection {
    Query,
    Key,
    Value,
}

/// One layer's attention.
#[derive(Clone, Debug)]
pub(crate) struct Tap {
    /// The op, with its heads and its scale.
    pub op: Attention,
    /// Its output, `[1, tokens, dim]`.
    pub output: Value,
    /// Queries, keys and values: three values `[1, tokens, dim]`, or one that has them side by side.
    pub inputs: Vec<Value>,
    /// Numbers of a token in its output.
    pub dim: usize,
}

impl Tap {
    /// All of a graph, the first layer first.
    pub fn all(graph: &Graph) -> vitreous_engine::Result<Vec<Tap>> {
        let mut taps = Vec::new();
        for node in graph.nodes() {
            if let Op::Attention(op) = &node.op {
                let inputs = node.inputs[..op.projections()].to_vec();
                let dim = node.outputs[0].shape.columns();
                taps.push(Tap { op: op.clone(), output: graph.find(&node.path)?, inputs, dim });
            }
        }
        Ok(taps)
    }

    /// Numbers of a token in one head.
    pub fn head_width(&self) -> usize {
        self.dim / self.op.heads
    }

    /// The value that has a projection, and in which columns some heads lie there.
    pub fn columns(&self, projection: Projection, heads: &Range<usize>) -> (Value, Range<usize>) {
        let width = self.head_width();
        let (value, first) = match self.inputs[..] {
            [packed] => (packed, projection as usize * self.dim),
            _ => (self.inputs[projection as usize], 0),
        };
        (value, first + heads.start * width..first + heads.end * width)
    }
}

/// The vectors of all tokens before the first layer, and after each: `[1, tokens, dim]`. A layer is a block of the graph.
pub(crate) fn layer_outputs(graph: &Graph) -> vitreous_engine::Result<Vec<Value>> {
    let blocks = graph.nodes().iter().filter_map(|node| node.block).max().map_or(0, |last| last + 1);
    let inside = |block: u32| graph.nodes().iter().filter(move |node| node.block == Some(block));
    // The first op of a layer reads what comes in.
    let before = inside(0).next().map(|node| node.inputs[0]);
    let after = (0..blocks).filter_map(|block| inside(block).next_back()).map(|node| graph.find(&node.path));
    before.map(Ok).into_iter().chain(after).collect()
}
