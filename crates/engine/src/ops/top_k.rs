//! The k largest numbers of each row, the largest first; of equal ones the one with the smaller index.
//!
//! NaN is never among them. Where a row has fewer than k numbers, the rest are minus infinity with the index -1.
//!
//! | | |
//! |---|---|
//! | shapes | `[.., n]` gives values `[.., k]` (f32) and their indices `[.., k]` (i32), `1 <= k <= n` |
//! | FLOPs | `n` comparisons per row, counted as operations |
//! | gradients | none: it is for choosing tokens |

use crate::error::Result;
use crate::graph::{Graph, Value};
use crate::ops::{Broken, Rules, expect_float, expect_inputs};
use crate::types::{DType, Shape, Type};

/// The k largest numbers of each row. Results: the numbers, and their indices.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct TopK {
    /// How many.
    pub k: usize,
}

impl Rules for TopK {
    fn name(&self) -> &'static str {
        "top_k"
    }

    fn infer(&self, inputs: &[Type]) -> Result<Vec<Type>, Broken> {
        let [x] = expect_inputs(inputs)?;
        expect_float(x)?;
        let mut axes = x.shape.axes().to_vec();
        let Some(columns) = axes.last_mut() else { return Err("needs at least one axis".to_string()) };
        if self.k == 0 || self.k > *columns {
            return Err(format!("k must be between 1 and the row's length {columns}; it is {}", self.k));
        }
        *columns = self.k;
        Ok(vec![Type::f32(Shape::new(axes.clone())), Type::new(Shape::new(axes), DType::I32)])
    }

    fn flops(&self, inputs: &[&Type], _outputs: &[Type]) -> u64 {
        inputs[0].shape.elements() as u64
    }
}

impl Graph {
    /// The k largest numbers of each row `[.., k]`, the largest first, and their indices (i32).
    pub fn top_k(&mut self, x: Value, k: usize) -> Result<(Value, Value)> {
        let values = self.push(TopK { k }, &[x])?;
        Ok((values, Value::new(values.node(), 1)))
    }
}
