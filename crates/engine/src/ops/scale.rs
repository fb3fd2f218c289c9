//! Scale: `y = factor · x`, with a factor fixed when the graph is built.
//!
//! | | |
//! |---|---|
//! | shapes | y has x's shape |
//! | FLOPs | 1 per element |
//! | gradients | `dx = factor · dy` |

use crate::error::Result;
use crate::gradient::Backward;
use crate::graph::{Graph, Value};
use crate::ops::Step;

pub(super) fn gradient(backward: &mut Backward, factor: f32) -> Result<()> {
    backward.map_gradient(|graph, dy| graph.scale(dy, factor))
}

impl Graph {
    /// `factor · x`.
    pub fn scale(&mut self, x: Value, factor: f32) -> Result<Value> {
        self.unary(Step::Scale(factor), x)
    }
}
