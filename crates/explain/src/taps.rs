//! Where attention stands in a model's graph, and where its queries, keys and values come from.

use std::ops::Range;

use vitreous_engine::ops::Attention;
use vitreous_engine::{Graph, Op, Value};

use crate::inside::{layer_count, stream_path};

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
        // Query heads may share keys and values.
        let group = if projection == Projection::Query { 1 } else { self.op.heads / self.op.kv_heads };
        let (start, end) = (heads.start / group, heads.end.div_ceil(group));
        (value, first + start * width..first + end * width)
    }
}

/// The vectors of all tokens before the first layer, and after each: `[1, tokens, dim]`.
pub(crate) fn layer_outputs(graph: &Graph) -> vitreous_engine::Result<Vec<Value>> {
    (0..=layer_count(graph)).map(|place| graph.find(&stream_path(place))).collect()
}
