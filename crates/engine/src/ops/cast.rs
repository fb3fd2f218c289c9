//! Conversion between f32 and bf16: a pointwise node that rounds, or does nothing.
//!
//! | | |
//! |---|---|
//! | shapes | y has x's shape |
//! | FLOPs | 0 |
//! | gradients | `dx = dy`, in dy's dtype |

use crate::error::Result;
use crate::graph::{Graph, Value};
use crate::ops::{Op, Pointwise, Step};
use crate::types::DType;

impl Graph {
    /// `x` stored as `dtype` (f32 or bf16), rounded to nearest even.
    pub fn cast(&mut self, x: Value, dtype: DType) -> Result<Value> {
        if self.dtype_of(x) == Some(dtype) {
            return Ok(x);
        }
        let steps = if dtype == DType::Bf16 { vec![Step::Round] } else { Vec::new() };
        self.add_op(Op::Pointwise(Pointwise { dtype }), &[x], steps)
    }
}
