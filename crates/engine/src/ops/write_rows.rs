//! Write rows: puts rows into a kept input, in place. What a decoder remembers of earlier words lives in an input, which stays as it is
//! between runs; each run adds the keys and values of its own words at the places it is given.
//!
//! | | |
//! |---|---|
//! | shapes | `kept [batch, capacity, dim]`, an input; `rows [batch, count, dim]`; `places [batch]` (i32): `kept`, with row i of a sample at its place + i |
//! | FLOPs | 0 |
//! | gradients | none: it is for inference |
//!
//! A place whose rows would not fit is an error of the run that names it.

use crate::error::{Error, Result};
use crate::graph::{Graph, Value};
use crate::ops::{Broken, Op, Rules, expect_inputs};
use crate::types::{DType, Type};

/// Puts rows into a kept input. Inputs: the kept one, rows, places. The result is the kept one, and has no memory of its own.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct WriteRows;

impl Rules for WriteRows {
    fn name(&self) -> &'static str {
        "write_rows"
    }

    fn infer(&self, inputs: &[Type]) -> Result<Vec<Type>, Broken> {
        let [kept, rows, places] = expect_inputs(inputs)?;
        match (kept.shape.axes(), rows.shape.axes(), places.shape.axes()) {
            ([batch, capacity, dim], [b, count, d], [p])
                if b == batch && d == dim && p == batch && count <= capacity => {}
            _ => return Err("takes kept [batch, capacity, dim], rows [batch, count, dim], places [batch]".to_string()),
        }
        if kept.dtype != DType::F32 || rows.dtype != DType::F32 || places.dtype != DType::I32 {
            return Err("what is kept and the rows must be f32, the places i32".to_string());
        }
        Ok(vec![kept.clone()])
    }
}

impl Graph {
    /// Puts `rows [batch, count, dim]` into `kept`, an input, at `places [batch]` (i32), and gives `kept` as it is then. Read what
    /// this gives, not the input: only that comes after the writing.
    pub fn write_rows(&mut self, kept: Value, rows: Value, places: Value) -> Result<Value> {
        if !self.nodes().get(kept.node()).is_some_and(|node| matches!(node.op, Op::Input(_))) {
            let rule = "rows can be written into an input only: nothing else is kept from run to run".to_string();
            let path = self.path_of("write_rows");
            return Err(Error::Rule { op: "write_rows", path, inputs: Vec::new(), rule });
        }
        if self.root_of(rows) == kept {
            let rule = "the rows that are written must be another value than what is kept".to_string();
            return Err(Error::Rule { op: "write_rows", path: self.path_of("write_rows"), inputs: Vec::new(), rule });
        }
        self.push(WriteRows, &[kept, rows, places])
    }
}
