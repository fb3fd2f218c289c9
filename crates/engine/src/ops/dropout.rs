//! Dropout: `y = x · m / (1 - rate)`, where m is 0 with probability `rate`, else 1. The identity at inference.
//!
//! The mask is a function of (seed, step, place, position); it is recomputed for the gradient, never stored.
//!
//! | | |
//! |---|---|
//! | shapes | y has x's shape |
//! | FLOPs | 1 per element |
//! | gradients | `dx` is `dy` times the same mask |

use crate::error::Result;
use crate::gradient::Backward;
use crate::graph::{Graph, Mode, Value};
use crate::ops::Step;
use crate::random::place_of;

/// A dropout rate and the place of its random numbers.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Drop {
    /// Probability that a value is dropped.
    pub rate: f32,
    /// Hash of the path: the place of the random numbers.
    pub place: u64,
}

pub(super) fn gradient(backward: &mut Backward, drop: Drop) -> Result<()> {
    backward.map_gradient(|graph, dy| graph.unary(Step::Dropout(drop), dy))
}

impl Graph {
    /// Dropout; at inference, or at rate 0, `x` itself.
    pub fn dropout(&mut self, x: Value, rate: f32) -> Result<Value> {
        if rate == 0.0 || (self.mode() == Mode::Inference && (0.0..1.0).contains(&rate)) {
            return Ok(x);
        }
        let place = place_of(&self.next_path("dropout"));
        self.unary(Step::Dropout(Drop { rate, place }), x)
    }
}
