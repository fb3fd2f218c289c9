//! Stochastic depth (drop path): drops a whole residual branch per sample, and scales the kept ones by 1/(1 - rate).
//! The identity at inference.
//!
//! | | |
//! |---|---|
//! | shapes | `x [samples, ..]` gives y of the same shape |
//! | FLOPs | 1 per element |
//! | gradients | `dx` is `dy` times the same mask |

use crate::error::Result;
use crate::gradient::Backward;
use crate::graph::{Graph, Mode, Value};
use crate::ops::{Drop, Step};
use crate::random::place_of;

pub(super) fn gradient(backward: &mut Backward, drop: Drop) -> Result<()> {
    backward.map_gradient(|graph, dy| graph.unary(Step::StochasticDepth(drop), dy))
}

impl Graph {
    /// Stochastic depth over the first axis; at inference, or at rate 0, `x` itself.
    pub fn stochastic_depth(&mut self, x: Value, rate: f32) -> Result<Value> {
        if rate == 0.0 || (self.mode() == Mode::Inference && (0.0..1.0).contains(&rate)) {
            return Ok(x);
        }
        let place = place_of(&self.next_path("stochastic_depth"));
        self.unary(Step::StochasticDepth(Drop { rate, place }), x)
    }
}
