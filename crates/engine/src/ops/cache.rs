//! Cache: memory that outlives a run, such as the keys and values of the tokens that a decoder has already seen.
//!
//! A graph declares it; [`crate::Caches`] owns it and lends it to each run. Every graph that declares a cache of the same name
//! works on the same memory: prefill and single-token steps, or steps of several batch sizes.
//!
//! | | |
//! |---|---|
//! | shapes | `[slots, capacity, dim]`: a slot is one sequence, with room for `capacity` rows |
//! | formats | f32 or bf16 |
//! | FLOPs | 0 |
//! | gradients | none: it is for inference |

use crate::error::Result;
use crate::graph::{Graph, Value};
use crate::ops::{Broken, Op, Rules, expect_float};
use crate::types::{DType, Shape, Type};

/// Memory that outlives a run.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Cache {
    /// Its type, as this graph sees it: [`crate::Caches`] may have more slots.
    pub value: Type,
}

impl Rules for Cache {
    fn name(&self) -> &'static str {
        "cache"
    }

    fn infer(&self, _inputs: &[Type]) -> Result<Vec<Type>, Broken> {
        if self.value.shape.rank() != 3 {
            return Err(format!("a cache must be [slots, capacity, dim]; it is {}", self.value));
        }
        expect_float(&self.value)?;
        Ok(vec![self.value.clone()])
    }
}

impl Graph {
    /// A cache `[slots, capacity, dim]` of f32 or bf16, by its path. Sample `i` of a run works on slot `i`.
    pub fn cache(&mut self, name: &str, shape: impl Into<Shape>, dtype: DType) -> Result<Value> {
        let path = self.path_of(name);
        self.add_op_at(Cache { value: Type::new(shape, dtype) }.into(), &[], Vec::new(), path)
    }

    /// The paths of all caches, with their values.
    pub fn caches(&self) -> impl Iterator<Item = (&str, Value)> {
        let nodes = self.nodes.iter().enumerate();
        nodes
            .filter(|(_, node)| matches!(node.op, Op::Cache(_)))
            .map(|(index, node)| (node.path.as_str(), Value::new(index, 0)))
    }

    /// Whether a run changes a cache.
    pub(crate) fn writes_caches(&self) -> bool {
        self.nodes.iter().any(|node| node.op.writes_cache())
    }
}
