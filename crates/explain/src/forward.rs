//! The forward pass: the model's answer, and what attention reads in every layer.
//!
//! Of each layer only queries, keys and values are kept, `3 · tokens · dim` numbers, and not the weights, `heads · tokens²`: those
//! follow from them, some heads at a time. See `heads.rs`.

use std::ops::Range;

use vitreous_engine::{Device, Executor, Graph, Parameter, Value};
use vitreous_models::Model;

use crate::error::ExplainError;
use crate::inputs::{InputValues, fill};
use crate::matrix::copy_columns;
use crate::taps::{Projection, Tap};

pub(crate) struct Forward {
    executor: Executor,
    /// Attention of every layer.
    pub taps: Vec<Tap>,
}

impl Forward {
    /// Plans a model's graph for what its layers' attention reads, and `outputs`. `purpose` is for the error of too little memory.
    pub fn new(
        model: &Model,
        graph: &Graph,
        taps: Vec<Tap>,
        outputs: &[Value],
        purpose: &str,
        device: &Device,
    ) -> Result<Forward, ExplainError> {
        let outputs: Vec<Value> = outputs.iter().chain(taps.iter().flat_map(|tap| &tap.inputs)).copied().collect();
        let plan = device.plan_with_fixed_weights(graph, &outputs)?;
        device.check_memory(purpose, device.bytes_needed_with_weights(&plan))?;
        let lend = |parameter: &Parameter| model.weight(&parameter.name).map_err(ExplainError::from);
        Ok(Forward { executor: Executor::with_weights(plan, device, lend)?, taps })
    }

    pub fn run(&mut self, inputs: &[(&str, InputValues)]) -> Result<(), ExplainError> {
        fill(&mut self.executor, inputs)?;
        Ok(self.executor.infer()?)
    }

    /// One of the outputs that it was made for.
    pub fn output(&self, value: Value) -> Result<Vec<f32>, ExplainError> {
        Ok(self.executor.output(value)?)
    }

    /// What some heads of a layer read, `[tokens, heads · head width]`.
    pub fn copy_heads(
        &self,
        layer: usize,
        projection: Projection,
        heads: &Range<usize>,
        to: &mut [f32],
    ) -> Result<(), ExplainError> {
        let tap = &self.taps[layer];
        let (value, columns) = tap.columns(projection, heads);
        let row = match (tap.op.packed, projection) {
            (true, _) => 3 * tap.dim,
            (false, Projection::Query) => tap.dim,
            (false, _) => tap.op.kv_heads * tap.head_width(),
        };
        copy_columns(self.executor.output_slice(value)?, row, columns, to);
        Ok(())
    }
}
