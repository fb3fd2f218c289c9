//! Finds the first value of a run that is not finite: which layer, or whose gradient, a training went bad at.
//!
//! The plan is run as always, but for the updates, and each kernel's results are looked at before the next kernel runs. That takes
//! one run's time and no memory, and what is found is what the training computed, fused and rounded as it was.

use std::sync::Mutex;

use super::kernel::Kernel;
use super::memory::FloatSlice;
use super::{Executor, updates};
use crate::error::Result;
use crate::graph::Value;
use crate::not_finite::{NotFinite, NotFiniteKind, describe};
use crate::ops::Op;
use crate::random::Run;
use crate::state::State;
use crate::types::DType;

/// Looks at the results of every kernel of a run.
#[derive(Default)]
pub(super) struct Watch {
    first: Mutex<Option<NonFinite>>,
}

#[derive(Clone, Copy)]
struct NonFinite {
    value: Value,
    index: usize,
    number: f32,
}

impl Watch {
    /// Looks at a kernel's results. Tiles of a chain come in any order, so the earliest is kept.
    pub fn look(&self, kernel: &Kernel) {
        if kernel.node.op.is_leaf() || matches!(kernel.node.op, Op::Reshape(_)) {
            return;
        }
        // What attention keeps besides its result may be infinite where all keys are padding.
        let outputs = if matches!(kernel.node.op, Op::Attention(_)) { 1 } else { kernel.node.outputs.len() };
        for (output, value_type) in kernel.node.outputs[..outputs].iter().enumerate() {
            if value_type.dtype == DType::I32 {
                continue;
            }
            let value = Value::new(kernel.index, output);
            let Some((place, number)) = first_not_finite(kernel.memory.read(value)) else { continue };
            let samples = value_type.shape.axes().first().copied().unwrap_or(1);
            let index = place + kernel.first_sample() * (value_type.shape.elements() / samples);
            let found = NonFinite { value, index, number };
            let mut first = self.first.lock().unwrap_or_else(std::sync::PoisonError::into_inner);
            if first.is_none_or(|first| (found.value, found.index) < (first.value, first.index)) {
                *first = Some(found);
            }
        }
    }

    /// Whether anything was found.
    pub fn has_found(&self) -> bool {
        self.first.lock().unwrap_or_else(std::sync::PoisonError::into_inner).is_some()
    }
}

fn first_not_finite(values: FloatSlice) -> Option<(usize, f32)> {
    let place = match values {
        FloatSlice::F32(values) => values.iter().position(|x| !x.is_finite()),
        FloatSlice::Bf16(values) => values.iter().position(|x| !x.is_finite()),
    }?;
    let mut number = [0.0];
    let number = values.read(place..place + 1, &mut number)[0];
    Some((place, number))
}

impl Executor {
    /// Finds what went bad: the first value that is not finite, among the parameters, then the inputs as they are, then in the order
    /// of the run. To be asked after a step whose loss or gradient norm was not finite, with the same `run`; the step has left the
    /// parameters as they were, and nothing is updated or added up here either. `None` if all is finite.
    pub fn find_non_finite(&mut self, state: &mut State, run: Run) -> Result<Option<NotFinite>> {
        self.check_state(state)?;
        for parameter in state.table() {
            if let Some((index, value)) = first_not_finite(FloatSlice::F32(state.parameter(&parameter.name)?)) {
                let (kind, path) = (NotFiniteKind::Parameter, parameter.name.clone());
                return Ok(Some(NotFinite { kind, path, index, value }));
            }
        }
        let graph = self.plan.graph();
        let inputs: Vec<(String, DType)> =
            graph.inputs().map(|(path, value)| (path.to_string(), graph.type_of(value).dtype)).collect();
        for (path, dtype) in inputs {
            let found = match dtype {
                DType::F32 => first_not_finite(FloatSlice::F32(self.input(&path)?)),
                DType::Bf16 => first_not_finite(FloatSlice::Bf16(self.input_bf16(&path)?)),
                DType::I32 => None,
            };
            if let Some((index, value)) = found {
                return Ok(Some(NotFinite { kind: NotFiniteKind::Input, path, index, value }));
            }
        }
        let watch = Watch::default();
        let pieces = std::mem::take(&mut self.pieces);
        let result = self.run_nodes(Some(&updates::Buffers::new(state, &pieces, None)), None, run, Some(&watch), None);
        self.pieces = pieces;
        result?;
        let found = watch.first.into_inner().unwrap_or_else(std::sync::PoisonError::into_inner);
        Ok(found.map(|found| {
            let (kind, path) = describe(self.plan.graph(), found.value);
            NotFinite { kind, path, index: found.index, value: found.number }
        }))
    }
}
