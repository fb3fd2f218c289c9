//! What a model is given, by the names of its inputs.

use vitreous_engine::Executor;

use crate::error::ExplainError;

/// The numbers of an input.
#[derive(Clone, Copy, Debug)]
pub(crate) enum InputValues<'a> {
    /// Images, embeddings, seeds of gradients.
    Floats(&'a [f32]),
    /// Tokens, token types, lengths.
    Integers(&'a [i32]),
}

/// Fills the inputs that a plan reads. It may read fewer than there are: with embeddings in their place, no tokens.
pub(crate) fn fill(executor: &mut Executor, inputs: &[(&str, InputValues)]) -> Result<(), ExplainError> {
    for (name, values) in inputs {
        if !executor.plan().graph().inputs().any(|(read, _)| read == *name) {
            continue;
        }
        match values {
            InputValues::Floats(values) => executor.input(name)?.copy_from_slice(values),
            InputValues::Integers(values) => executor.input_i32(name)?.copy_from_slice(values),
        }
    }
    Ok(())
}
