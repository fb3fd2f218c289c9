//! What parts of a model do, as JSON: the fields of `explain --json` that a server answers, too.

use serde_json::{Value, json};
use vitreous_explain::inside::{Attribution, HeadEffects, HeadScores};

/// What parts add to a logit.
pub fn attribution(parts: &Attribution) -> Value {
    let layers = parts.layers.iter().enumerate().map(|(layer, parts)| {
        json!({"layer": layer, "heads": parts.heads, "attention_bias": parts.attention_bias, "mlp": parts.mlp})
    });
    json!({
        "logit": parts.logit, "embedding": parts.embedding, "layers": layers.collect::<Vec<_>>(), "bias": parts.bias, "sum": parts.sum(),
    })
}

/// What happens without parts.
pub fn effects(effects: &HeadEffects) -> Value {
    json!({
        "logit": effects.logit, "log_probability": effects.log_probability, "heads": effects.heads, "head_logits": effects.head_logits,
        "mlps": effects.mlps, "mlp_logits": effects.mlp_logits,
    })
}

/// What kind of head each head is.
pub fn scores(scores: &[Vec<HeadScores>]) -> Value {
    let of = |score: fn(&HeadScores) -> f64| -> Vec<Vec<f64>> {
        scores.iter().map(|heads| heads.iter().map(score).collect()).collect()
    };
    json!({
        "induction": of(|scores| scores.induction),
        "previous_token": of(|scores| scores.previous_token),
        "duplicate_token": of(|scores| scores.duplicate_token),
    })
}
