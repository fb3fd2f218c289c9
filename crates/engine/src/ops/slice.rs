//! Slice: a range of one axis. Pad with zeros: its gradient.
//!
//! | | |
//! |---|---|
//! | shapes | the axis gets the size of the range; pad restores its full size |
//! | FLOPs | 0 |
//! | gradients | each is the other's |

use crate::error::Result;
use crate::gradient::Backward;
use crate::graph::{Graph, Value};
use crate::ops::{Broken, Rules, expect_float, expect_inputs};
use crate::types::{Shape, Type};

/// A range of one axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Slice {
    /// The axis.
    pub axis: usize,
    /// First index.
    pub start: usize,
    /// One past the last index.
    pub end: usize,
}

/// Zeros before and after, along one axis.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Pad {
    /// The axis.
    pub axis: usize,
    /// Number of zeros before.
    pub start: usize,
    /// Size of the axis in the result.
    pub size: usize,
}

fn with_axis(shape: &Shape, axis: usize, size: usize) -> Shape {
    let mut axes = shape.axes().to_vec();
    axes[axis] = size;
    Shape::new(axes)
}

impl Rules for Slice {
    fn name(&self) -> &'static str {
        "slice"
    }

    fn infer(&self, inputs: &[Type]) -> Result<Vec<Type>, Broken> {
        let [x] = expect_inputs(inputs)?;
        let Slice { axis, start, end } = *self;
        if axis >= x.shape.rank() || start >= end || end > x.shape.axes()[axis] {
            return Err(format!("the range {start}..{end} must not be empty and lie inside axis {axis}"));
        }
        Ok(vec![Type::new(with_axis(&x.shape, axis, end - start), x.dtype)])
    }

    fn gradient(&self, backward: &mut Backward) -> Result<()> {
        let size = backward.input_type(0).shape.axes()[self.axis];
        let pad = Pad { axis: self.axis, start: self.start, size };
        backward.map_gradient(|graph, dy| graph.push(pad, &[dy]))
    }
}

impl Rules for Pad {
    fn name(&self) -> &'static str {
        "pad"
    }

    fn infer(&self, inputs: &[Type]) -> Result<Vec<Type>, Broken> {
        let [x] = expect_inputs(inputs)?;
        expect_float(x)?;
        let Pad { axis, start, size } = *self;
        if axis >= x.shape.rank() || start.checked_add(x.shape.axes()[axis]).is_none_or(|end| end > size) {
            return Err(format!("axis {axis} from {start} on must fit {size}"));
        }
        Ok(vec![Type::new(with_axis(&x.shape, axis, size), x.dtype)])
    }

    fn gradient(&self, backward: &mut Backward) -> Result<()> {
        let end = self.start + backward.input_type(0).shape.axes()[self.axis];
        let (axis, start) = (self.axis, self.start);
        backward.map_gradient(|graph, dy| graph.slice(dy, axis, start, end))
    }
}

impl Graph {
    /// Indices `start..end` of `axis`.
    pub fn slice(&mut self, x: Value, axis: usize, start: usize, end: usize) -> Result<Value> {
        self.push(Slice { axis, start, end }, &[x])
    }
}
