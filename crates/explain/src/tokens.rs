//! Refuses tokens that a model cannot read.

use vitreous_models::TokenInput;

use crate::error::ExplainError;

/// Refuses more tokens than a model reads, and tokens that it has no embedding for. `side` is `source`, `target` or `text`.
pub(crate) fn check_tokens(side: &'static str, tokens: &[u32], of_model: TokenInput) -> Result<(), ExplainError> {
    let TokenInput { vocabulary, longest, .. } = of_model;
    if tokens.len() > longest {
        return Err(ExplainError::TooLong { side, got: tokens.len(), most: longest });
    }
    match tokens.iter().find(|&&token| token as usize >= vocabulary) {
        Some(&token) => Err(ExplainError::NoToken { side, token, vocabulary }),
        None => Ok(()),
    }
}
