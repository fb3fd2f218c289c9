//! What is behind the last layer's stream: from vectors to logits, for answers of some tokens alone and for what each layer would say.

use vitreous_engine::{Executor, Graph, Intervention, Value};
use vitreous_models::{Model, OnDevice};

use super::input::{Lengths, LiveInput};
use crate::error::ExplainError;

/// Rows that are computed at once: one for an answer, some for a text.
const ROWS: [usize; 3] = [1, 8, 64];
/// The input in place of the last stream.
const STREAM: &str = "stream";

/// The end of a model, made ready.
pub(crate) struct Tail {
    key: TailKey,
    executor: Executor,
    logits: Value,
    outputs: usize,
}

/// What it is made for.
#[derive(Clone, Debug, PartialEq)]
pub(crate) struct TailKey {
    pub lengths: Lengths,
    pub last: String,
    pub edits: Vec<Intervention>,
    pub end: TailEnd,
}

/// What is computed at the end.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) enum TailEnd {
    /// The model's main result.
    Result,
    /// The vectors of all tokens.
    Tokens,
}

/// So many rows at once, for `wanted`, in a model that takes no more than `longest`.
pub(crate) fn rows_for(wanted: usize, longest: usize) -> usize {
    ROWS.into_iter().find(|&rows| rows >= wanted).unwrap_or(ROWS[2]).min(longest.max(1))
}

impl Tail {
    pub fn is_for(&self, key: &TailKey) -> bool {
        self.key == *key
    }

    pub fn new(model: &Model, key: TailKey, source: &mut OnDevice) -> Result<Tail, ExplainError> {
        let mut interventions = vec![Intervention::input(&key.last, STREAM)];
        interventions.extend_from_slice(&key.edits);
        let mut graph = Graph::for_inference();
        let call = key.lengths.call();
        let built = graph.with_interventions(&interventions, |graph| model.architecture.build(graph, &call))?;
        let logits = match key.end {
            TailEnd::Result => built.result()?,
            TailEnd::Tokens => built.need("tokens")?,
        };
        let outputs = graph.shape_of(logits).columns();
        let plan = source.plan(&mut graph, &[logits])?;
        let executor = source.executor("what a layer would say", None, plan)?;
        Ok(Tail { key, executor, logits, outputs })
    }

    /// Numbers of a row of logits.
    pub fn outputs(&self) -> usize {
        self.outputs
    }

    /// The logits of vectors, as many as the tail was made for.
    pub fn run(&mut self, stream: &[f32]) -> Result<&[f32], ExplainError> {
        let Lengths { tokens, target, masked } = self.key.lengths;
        // What is computed of tokens alone still wants some: any will do.
        let any = LiveInput::Text { ids: vec![0; tokens], types: Vec::new(), masked: (0..masked).collect() };
        any.fill(&mut self.executor)?;
        let pair = LiveInput::Pair { source: vec![0; tokens], read: vec![0; target] };
        pair.fill(&mut self.executor)?;
        self.executor.input(STREAM)?.copy_from_slice(stream);
        self.executor.infer()?;
        Ok(self.executor.output_slice(self.logits)?)
    }
}
