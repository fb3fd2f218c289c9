//! The relevance of tokens as JSON: what `explain --json` prints and a server answers.

use serde_json::{Value, json};
use vitreous_explain::encoder::{Attributions, Target};

use super::TokenRelevance;
use crate::inside::json::{attribution, effects};

/// The relevance of each token for one number; see the guide for its fields.
pub fn relevance(relevance: &TokenRelevance) -> Value {
    let target = match &relevance.target {
        Target::Output(output) => json!({"output": output}),
        Target::OfToken { token, output } => json!({"token": token, "output": output}),
        Target::Span { start, end } => json!({"start": start, "end": end}),
        Target::HalfSquaredLength => json!("vector"),
        Target::Similarity(_) => json!("similarity"),
    };
    let integrated = |of: &Attributions| {
        json!({
            "tokens": of.tokens, "value": of.value, "baseline": of.baseline, "sum": of.sum(), "error": of.error(), "steps": of.steps,
        })
    };
    json!({
        "target": target,
        "name": relevance.name,
        "array": relevance.key,
        "gradient_attention": relevance.gradient_attention,
        "integrated_gradients": relevance.integrated.as_ref().map(integrated),
        "attribution": relevance.parts.as_ref().map(attribution),
        "effects": relevance.effects.as_ref().map(effects),
    })
}
