//! The forward pass: the model's answer, and what attention reads in every layer.
//!
//! Of each layer only queries, keys and values are kept, `3 · tokens · dim` numbers, and not the weights, `heads · tokens²`: those
//! follow from them, some heads at a time. See `heads.rs`.

use std::ops::Range;

use vitreous_engine::{Device, Executor, Graph, Mode, Parameter, Precision, Value};
use vitreous_models::{Call, Model};

use crate::error::ExplainError;
use crate::matrix::copy_columns;
use crate::taps::{Projection, Tap};

pub(crate) struct Forward {
    executor: Executor,
    logits: Option<Value>,
    features: Value,
    /// All tokens after the last layer, where the model has no head.
    tokens: Option<Value>,
    /// Attention of every layer.
    pub taps: Vec<Tap>,
}

impl Forward {
    pub fn new(model: &Model, device: &Device) -> Result<Forward, ExplainError> {
        let mut graph = Graph::new(Mode::Inference, Precision::F32);
        let built = model.architecture.build(&mut graph, &Call::whole(1))?;
        let (features, logits) = (built.need("features")?, built.get("logits"));
        let taps = Tap::all(&graph)?;
        let mut outputs = vec![features];
        outputs.extend(logits);
        let tokens = if logits.is_none() { Some(built.need("tokens")?) } else { None };
        outputs.extend(tokens);
        outputs.extend(taps.iter().flat_map(|tap| &tap.inputs));
        let plan = device.plan_with_fixed_weights(&graph, &outputs)?;
        device.check_memory("explaining an image", device.bytes_needed_with_weights(&plan))?;
        let lend = |parameter: &Parameter| model.weight(&parameter.name).map_err(ExplainError::from);
        let executor = Executor::with_weights(plan, device, lend)?;
        Ok(Forward { executor, logits, features, tokens, taps })
    }

    pub fn run(&mut self, pixels: &[f32]) -> Result<(), ExplainError> {
        self.executor.input("images")?.copy_from_slice(pixels);
        Ok(self.executor.infer()?)
    }

    pub fn logits(&self) -> Result<Option<Vec<f32>>, ExplainError> {
        Ok(self.logits.map(|logits| self.executor.output(logits)).transpose()?)
    }

    pub fn features(&self) -> Result<Vec<f32>, ExplainError> {
        Ok(self.executor.output(self.features)?)
    }

    /// The final tokens, `[tokens, dim]`, where the model has no head.
    pub fn tokens(&self) -> Result<Option<Vec<f32>>, ExplainError> {
        Ok(self.tokens.map(|tokens| self.executor.output(tokens)).transpose()?)
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
        let row = if tap.op.packed { 3 * tap.dim } else { tap.dim };
        copy_columns(self.executor.output_slice(value)?, row, columns, to);
        Ok(())
    }
}
