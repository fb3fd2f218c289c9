//! Transpose: a permutation of the axes.
//!
//! | | |
//! |---|---|
//! | shapes | axis i of the result is axis `order[i]` of x |
//! | FLOPs | 0 |
//! | gradients | the inverse permutation |

use crate::error::Result;
use crate::gradient::Backward;
use crate::graph::{Graph, Value};
use crate::ops::{Broken, Rules, expect_inputs};
use crate::types::{Shape, Type};

/// A permutation of the axes.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Transpose {
    /// For each axis of the result, the axis of x.
    pub order: Vec<usize>,
}

impl Rules for Transpose {
    fn name(&self) -> &'static str {
        "transpose"
    }

    fn infer(&self, inputs: &[Type]) -> Result<Vec<Type>, Broken> {
        let [x] = expect_inputs(inputs)?;
        let mut sorted = self.order.clone();
        sorted.sort_unstable();
        if !sorted.iter().copied().eq(0..x.shape.rank()) {
            return Err(format!("the order {:?} must name each of the {} axes once", self.order, x.shape.rank()));
        }
        let axes: Vec<usize> = self.order.iter().map(|&axis| x.shape.axes()[axis]).collect();
        Ok(vec![Type::new(Shape::new(axes), x.dtype)])
    }

    fn gradient(&self, backward: &mut Backward) -> Result<()> {
        let mut inverse = vec![0; self.order.len()];
        for (to, &from) in self.order.iter().enumerate() {
            inverse[from] = to;
        }
        backward.map_gradient(|graph, dy| graph.transpose(dy, &inverse))
    }
}

impl Graph {
    /// Permutes the axes: axis i of the result is axis `order[i]` of `x`.
    pub fn transpose(&mut self, x: Value, order: &[usize]) -> Result<Value> {
        self.push(Transpose { order: order.to_vec() }, &[x])
    }
}
