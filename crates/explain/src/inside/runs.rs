//! Runs of a model from the middle on: some of its values are given, one set for each sample, and only what is behind them is computed.

use vitreous_engine::{Graph, Intervention};

use super::{Inside, fill_given};
use crate::error::ExplainError;

/// Tokens that are computed at once, over all samples of a batch.
const TOKENS_AT_ONCE: usize = 4096;

impl Inside<'_> {
    /// The logits of one token for every sample, `[outputs]` each. `values(sample, i)` are the numbers of `paths[i]` in a sample;
    /// `edits` are done in all.
    pub(super) fn logits_with(
        &mut self,
        paths: &[String],
        edits: &[Intervention],
        samples: usize,
        token: usize,
        values: impl Fn(usize, usize) -> Vec<f32>,
        mut look: impl FnMut(usize, &[f32]),
    ) -> Result<(), ExplainError> {
        let batch = (TOKENS_AT_ONCE / self.tokens.max(1)).clamp(1, samples.max(1));
        let inputs: Vec<String> = (0..paths.len()).map(|index| format!("given.{index}")).collect();
        let mut all: Vec<Intervention> =
            paths.iter().zip(&inputs).map(|(path, input)| Intervention::input(path, input)).collect();
        all.extend_from_slice(edits);
        let mut graph = Graph::for_inference();
        let built = self.build(&mut graph, batch, &all)?;
        let logits = self.logits(&mut graph, &built, token)?;
        let outputs = graph.shape_of(logits).columns();
        let plan = self.source.plan(&mut graph, &[logits])?;
        let mut executor = self.source.executor("runs with interventions", None, plan)?;
        fill_given(&mut executor, &self.given, batch)?;
        for first in (0..samples).step_by(batch) {
            for (index, input) in inputs.iter().enumerate() {
                // What an edit of the model replaces is not read, nor is what only it would read.
                let Ok(to) = executor.input(input) else { continue };
                let size = to.len() / batch;
                // Beyond the last sample, it is computed again.
                for (place, to) in to.chunks_exact_mut(size).enumerate() {
                    to.copy_from_slice(&values((first + place).min(samples - 1), index));
                }
            }
            executor.infer()?;
            let rows = executor.output_slice(logits)?.chunks_exact(outputs);
            rows.enumerate().take(samples - first).for_each(|(place, row)| look(first + place, row));
        }
        Ok(())
    }
}
