//! Write rows: puts rows into a cache, in place, at an offset of their own for each sample. A decoder adds the keys and values of
//! its new tokens behind those of the earlier ones this way.
//!
//! | | |
//! |---|---|
//! | shapes | `cache [slots, capacity, dim]`, `rows [slots, count, dim]`, `offsets [slots]` (i32): the cache, with row i of a sample at its offset + i |
//! | formats | rows are stored as the cache's format: f32 is rounded to bf16, bf16 widened to f32 |
//! | FLOPs | 0 |
//! | gradients | none: it is for inference |
//!
//! An offset whose rows would not fit is an error of the run that names it.

use crate::error::{Error, Result};
use crate::graph::{Graph, Value};
use crate::ops::{Broken, Op, Rules, expect_float, expect_inputs};
use crate::types::{DType, Type};

/// Puts rows into a cache. Inputs: the cache, rows, offsets. The result is the cache, and has no memory of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteRows;

impl Rules for WriteRows {
    fn name(&self) -> &'static str {
        "write_rows"
    }

    fn infer(&self, inputs: &[Type]) -> Result<Vec<Type>, Broken> {
        let [cache, rows, offsets] = expect_inputs(inputs)?;
        match (cache.shape.axes(), rows.shape.axes(), offsets.shape.axes()) {
            ([slots, capacity, dim], [s, count, d], [o])
                if s == slots && d == dim && o == slots && count <= capacity => {}
            _ => {
                return Err("takes cache [slots, capacity, dim], rows [slots, count, dim], offsets [slots]".to_string());
            }
        }
        expect_float(cache)?;
        expect_float(rows)?;
        if offsets.dtype != DType::I32 {
            return Err("offsets must be i32".to_string());
        }
        Ok(vec![cache.clone()])
    }
}

impl Graph {
    /// Puts `rows [slots, count, dim]` into a cache at `offsets [slots]` (i32), and gives the cache as it is then. Read what this
    /// gives, not the cache itself: only that comes after the writing. A graph writes a cache once.
    pub fn write_rows(&mut self, cache: Value, rows: Value, offsets: Value) -> Result<Value> {
        let refused = |graph: &Graph, rule: &str| {
            let path = graph.path_of("write_rows");
            Err(Error::Rule { op: "write_rows", path, inputs: Vec::new(), rule: rule.to_string() })
        };
        let is_cache = |node: usize| self.nodes().get(node).is_some_and(|node| matches!(node.op, Op::Cache(_)));
        if !is_cache(cache.node()) {
            return refused(self, "rows can be written into a cache only: nothing else outlives a run");
        }
        if self.nodes().iter().any(|node| node.op.writes_cache() && node.inputs[0] == cache) {
            return refused(self, "this graph writes the cache already: put all rows into one write");
        }
        if self.nodes().get(rows.node()).is_some() && self.root_of(rows) == cache {
            return refused(self, "the rows that are written must be another value than the cache");
        }
        self.push(WriteRows, &[cache, rows, offsets])
    }
}
