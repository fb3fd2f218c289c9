//! The backward pass: the gradient of a number that a model computes, with respect to values inside it.

use vitreous_engine::{DType, Device, Executor, GradientOptions, Graph, Run, State, Value};
use vitreous_models::Model;

use crate::error::ExplainError;
use crate::inputs::{InputValues, fill};

/// The input that says of which outputs, by a 1 among zeros: one plan serves every class.
pub(crate) const SEED: &str = "seed";

/// The number that gradients are taken of.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum Objective {
    /// `Σ value · seed`, with the input [`SEED`] of the value's shape.
    Seeded(Value),
    /// `½ Σ value²`: half the squared length of features, whose gradient begins with the features.
    HalfSquaredLength(Value),
}

pub(crate) struct Backward {
    executor: Executor,
    objective: Objective,
    gradients: Vec<Value>,
}

impl Backward {
    /// Adds gradients to a model's graph with respect to `wanted`, and plans for them. `purpose` is for the error of too little memory.
    pub fn new(
        graph: &mut Graph,
        objective: Objective,
        wanted: &[Value],
        purpose: &str,
        device: &Device,
    ) -> Result<Backward, ExplainError> {
        let (value, seed) = match objective {
            Objective::Seeded(value) => (value, graph.input(SEED, graph.shape_of(value).clone(), DType::F32)?),
            Objective::HalfSquaredLength(value) => (value, value),
        };
        let gradients = graph.gradients_from(value, seed, wanted, GradientOptions::default())?;
        let outputs: Vec<Value> = gradients.iter().copied().chain([value]).collect();
        let plan = device.plan(graph, &outputs)?;
        device.check_memory(purpose, device.bytes_needed(&plan))?;
        Ok(Backward { executor: Executor::new(plan, device)?, objective, gradients })
    }

    /// A model's parameters, for the backward passes of all graphs of it. Forward and backward products want a matrix packed in
    /// different ways: so weights are kept plain, once.
    pub fn state(model: &Model, graph: &Graph, device: &Device) -> Result<State, ExplainError> {
        device.check_memory("the model's weights for gradients", device.state_bytes_needed(graph))?;
        let mut state = State::new(graph)?;
        model.load(&mut state)?;
        Ok(state)
    }

    pub fn run(&mut self, state: &mut State, inputs: &[(&str, InputValues)]) -> Result<(), ExplainError> {
        fill(&mut self.executor, inputs)?;
        Ok(self.executor.run(state, Run { seed: 0, step: 0 })?)
    }

    /// The gradient with respect to one of the values that were wanted, by its place among them.
    pub fn gradient(&self, place: usize) -> Result<&[f32], ExplainError> {
        Ok(self.executor.output_slice(self.gradients[place])?)
    }

    /// The number that gradients are of, for each of `samples` that lie one behind the other.
    pub fn objectives(&self, samples: usize, seed: &[f32]) -> Result<Vec<f64>, ExplainError> {
        let product = |(&a, &b): (&f32, &f32)| f64::from(a) * f64::from(b);
        Ok(match self.objective {
            Objective::Seeded(value) => {
                let values = self.executor.output(value)?;
                let size = values.len() / samples.max(1);
                let rows = values.chunks_exact(size).zip(seed.chunks_exact(size));
                rows.map(|(values, seed)| values.iter().zip(seed).filter(|(_, seed)| **seed != 0.0).map(product).sum())
                    .collect()
            }
            Objective::HalfSquaredLength(value) => {
                let values = self.executor.output(value)?;
                let rows = values.chunks_exact(values.len() / samples.max(1));
                rows.map(|row| row.iter().zip(row).map(product).sum::<f64>() / 2.0).collect()
            }
        })
    }
}
