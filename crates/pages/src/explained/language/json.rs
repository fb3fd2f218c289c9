//! The explanation of a language model's text as one line of JSON.

use serde_json::{Value, json};

use crate::explain_language::{LanguagePage, NamedToken, NearestWords};
use crate::inside::json::{attribution, effects, scores};

/// The explanation as JSON; see the guide for its fields.
pub fn object(page: &LanguagePage) -> Value {
    let text = &page.text;
    let actual = page.actual.iter().map(|actual| match actual {
        Some((share, rank)) => json!({"probability": share, "rank": rank}),
        None => Value::Null,
    });
    let lens = text.fillings.iter().map(|layer| {
        let top = |top: &Vec<(u32, String, f32)>| -> Value {
            top.iter().map(|(id, name, score)| json!({"token": name, "id": id, "score": score})).collect()
        };
        json!({"layer": layer.layer, "tokens": layer.tokens.iter().map(top).collect::<Vec<_>>()})
    });
    let count = text.tokens.len().max(1);
    let attention = text.attention.iter().map(|layer| {
        let rows: Vec<&[f32]> = layer.mean.chunks_exact(count).collect();
        json!({"layer": layer.layer, "heads": layer.heads, "mean": rows})
    });
    let mut object = json!({
        "text": text.texts.first().map(|(_, text)| text),
        "tokens": text.tokens,
        "ids": text.ids,
        "actual": actual.collect::<Vec<_>>(),
        "position": page.position,
        "target": token(&page.target),
        "lens": lens.collect::<Vec<_>>(),
        "effects": effects(&page.effects),
        "scores": scores(&page.scores),
        "repeated_scores": scores(&page.repeated_scores),
        "attention": attention.collect::<Vec<_>>(),
        "edits": page.edits,
    });
    match &page.attribution {
        Ok(parts) => object["attribution"] = attribution(parts),
        Err(why) => object["attribution_note"] = json!(why),
    }
    if let Some(patching) = &page.patching {
        let effects = &patching.effects;
        object["patching"] = json!({
            "text": patching.text, "tokens": patching.tokens, "against": token(&patching.against), "own": effects.own, "other": effects.other,
            "patched": effects.patched,
        });
    }
    let near = |(path, tokens): &NearestWords| {
        let tokens = tokens.iter().map(|(one, cosine)| json!({"token": one.name, "id": one.id, "cosine": cosine}));
        json!({"path": path, "tokens": tokens.collect::<Vec<_>>()})
    };
    if !page.nearest.is_empty() {
        object["nearest"] = page.nearest.iter().map(near).collect();
    }
    object
}

fn token(token: &NamedToken) -> Value {
    json!({"token": token.name, "id": token.id})
}
