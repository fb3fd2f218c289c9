//! What each layer would fill in: the masked-token head, applied to the vectors after every layer and not after the last one alone.
//!
//! Known as the logit lens (nostalgebraist, 2020). The head was trained on the last layer's vectors only: of early layers it shows what
//! already looks like an answer to it, not all that they know.

use vitreous_engine::{DType, Executor, Graph, Parameter};
use vitreous_models::Call;

use super::TextPass;
use crate::error::ExplainError;
use crate::inputs::InputValues::{Floats, Integers};
use crate::inputs::fill;

/// The input that stands in place of the last layer's vectors.
const HIDDEN: &str = "hidden";
/// So many tokens are filled in together: each has a number for every token of the vocabulary.
const TOKENS_AT_ONCE: usize = 64;

/// What one layer would fill in.
#[derive(Clone, Debug, PartialEq)]
pub struct LayerFillings {
    /// Which layer, from 0; `None` for the embeddings before the first.
    pub layer: Option<usize>,
    /// For each token of the text, the most probable tokens of the vocabulary in its place with their probabilities, the first first.
    pub tokens: Vec<Vec<(u32, f32)>>,
}

/// The `count` most probable tokens of every layer in every place.
pub(super) fn fillings(pass: &TextPass, count: usize) -> Result<Vec<LayerFillings>, ExplainError> {
    let explainer = &pass.explainer;
    let (tokens, signature) = (pass.len(), &explainer.signature);
    let missing = || ExplainError::NoTarget { what: signature.what(), target: "a masked token" };
    let (vocabulary, dim) = signature.masked_tokens().zip(signature.token_vectors()).ok_or_else(missing)?;
    let (rows, count) = (tokens.min(TOKENS_AT_ONCE), count.clamp(1, vocabulary));
    let mut graph = Graph::for_inference();
    let hidden = graph.input(HIDDEN, [1, tokens, dim], DType::F32)?;
    let call = Call::whole(1).tokens(tokens).masked(rows);
    let built = explainer.model.architecture.build(&mut graph, &call)?;
    graph.replace(built.need("tokens")?, hidden)?;
    let probabilities = graph.softmax(built.need("logits")?)?; // [rows, vocabulary]
    let (scores, ids) = graph.top_k(probabilities, count)?;
    let plan = explainer.device.plan_with_fixed_weights(&graph, &[scores, ids])?;
    explainer.device.check_memory("filling in", explainer.device.bytes_needed_with_weights(&plan))?;
    let lend = |parameter: &Parameter| explainer.model.weight(&parameter.name).map_err(ExplainError::from);
    let mut executor = Executor::with_weights(plan, &explainer.device, lend)?;
    let mut layers = Vec::with_capacity(pass.stream.len());
    for (place, &value) in pass.stream.iter().enumerate() {
        let vectors = pass.forward.output(value)?;
        let mut filled = Vec::with_capacity(tokens);
        while filled.len() < tokens {
            // Beyond the last token, some are filled in again.
            let masked: Vec<i32> = (0..rows).map(|row| (filled.len() + row).min(tokens - 1) as i32).collect();
            fill(&mut executor, &[(HIDDEN, Floats(&vectors)), ("masked", Integers(&masked))])?;
            executor.infer()?;
            let (scores, ids) = (executor.output_slice(scores)?, executor.output_i32(ids)?);
            let top = |(scores, ids): (&[f32], &[i32])| {
                let known = ids.iter().zip(scores).filter(|(id, _)| **id >= 0);
                known.map(|(&id, &score)| (id as u32, score)).collect()
            };
            let left = tokens - filled.len();
            filled.extend(scores.chunks_exact(count).zip(ids.chunks_exact(count)).map(top).take(left));
        }
        layers.push(LayerFillings { layer: place.checked_sub(1), tokens: filled });
    }
    Ok(layers)
}
