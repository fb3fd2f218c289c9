//! Embedding: looks up rows of a table by index.
//!
//! | | |
//! |---|---|
//! | shapes | `table [vocabulary, dim]`, indices `[..]` (i32) give `[.., dim]` |
//! | FLOPs | 0 |
//! | gradients | the rows of dy added to the table rows they came from; the indices have none |
//!
//! An index outside the vocabulary is an error at run time that names it.

use crate::error::Result;
use crate::gradient::Backward;
use crate::graph::{Graph, Value};
use crate::ops::{Broken, Rules, expect_float, expect_inputs};
use crate::types::{DType, Shape, Type};

/// Looks up rows of a table.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Embedding;

/// Scatter-adds rows into a table of zeros.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct EmbeddingGradient {
    /// Number of rows of the table.
    pub vocabulary: usize,
}

impl Rules for Embedding {
    fn name(&self) -> &'static str {
        "embedding"
    }

    fn infer(&self, inputs: &[Type]) -> Result<Vec<Type>, Broken> {
        let [table, numbers] = expect_inputs(inputs)?;
        expect_float(table)?;
        if table.shape.rank() != 2 || numbers.dtype != DType::I32 {
            return Err("takes a table [vocabulary, dim] and whole numbers (i32)".to_string());
        }
        let mut axes = numbers.shape.axes().to_vec();
        axes.push(table.shape.columns());
        Ok(vec![Type::new(Shape::new(axes), table.dtype)])
    }

    fn gradient(&self, backward: &mut Backward) -> Result<()> {
        if backward.wants(1) {
            return backward.refuse("whole numbers have no gradient");
        }
        let numbers = backward.input(1)?;
        let vocabulary = backward.input_type(0).shape.axes()[0];
        backward.map_gradient(|graph, dy| graph.push(EmbeddingGradient { vocabulary }, &[dy, numbers]))
    }
}

impl Rules for EmbeddingGradient {
    fn name(&self) -> &'static str {
        "embedding_gradient"
    }

    fn infer(&self, inputs: &[Type]) -> Result<Vec<Type>, Broken> {
        let [dy, numbers] = expect_inputs(inputs)?;
        expect_float(dy)?;
        if numbers.dtype != DType::I32 || dy.shape.rank() == 0 || dy.shape.rows() != numbers.shape.elements() {
            return Err("takes one row of dy for each number".to_string());
        }
        Ok(vec![Type::f32([self.vocabulary, dy.shape.columns()])])
    }

    fn flops(&self, inputs: &[&Type], _outputs: &[Type]) -> u64 {
        inputs[0].shape.elements() as u64
    }
}

impl Graph {
    /// Looks up rows of `table [vocabulary, dim]` by `numbers [..]` (i32): `[.., dim]`.
    pub fn embedding(&mut self, table: Value, numbers: Value) -> Result<Value> {
        self.push(Embedding, &[table, numbers])
    }
}
