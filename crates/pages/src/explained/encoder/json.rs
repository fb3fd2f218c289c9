//! The explanation of a text as one line of JSON.

use serde_json::{Value, json};
use vitreous_data::text::Encoding;

use crate::explain_encoder::json::relevance;
use crate::explain_encoder::{NamedFillings, ScoredClass, TextPage, TextPrediction};

/// The explanation as JSON; see the guide for its fields.
pub fn object(page: &TextPage, logits: &[f32], encoding: &Encoding) -> Value {
    let mut object = json!({});
    for (name, text) in &page.texts {
        let key = match *name {
            "Second text" => "text_pair",
            "Question" => "question",
            "Context" => "context",
            _ => "text",
        };
        object[key] = json!(text);
    }
    object["tokens"] = json!(page.tokens);
    object["ids"] = json!(page.ids);
    object["token_types"] = json!(encoding.token_types);
    object["special"] = json!(page.special);
    add_prediction(&mut object, page, logits);
    let count = page.tokens.len().max(1);
    let attention = page.attention.iter().map(|layer| {
        let rows: Vec<&[f32]> = layer.mean.chunks_exact(count).collect();
        json!({"layer": layer.layer, "heads": layer.heads, "mean": rows})
    });
    object["attention"] = attention.collect();
    object["relevance"] = page.relevance.iter().map(relevance).collect();
    if let Some(note) = &page.relevance_note {
        object["relevance_note"] = json!(note);
    }
    if !page.fillings.is_empty() {
        object["fillings"] = page.fillings.iter().map(fillings).collect();
    }
    object
}

fn class(class: &ScoredClass) -> Value {
    json!({"index": class.index, "label": class.label, "score": class.score})
}

fn filling((id, name, score): &(u32, String, f32)) -> Value {
    json!({"token": name, "id": id, "score": score})
}

/// As `predict` and `fill` have it.
fn add_prediction(object: &mut Value, page: &TextPage, logits: &[f32]) {
    match &page.prediction {
        TextPrediction::Classes { top, .. } => {
            object["top"] = top.iter().map(class).collect();
            object["logits"] = json!(logits);
        }
        TextPrediction::Numbers(numbers) => {
            let number = |(label, value): &(String, f32)| json!({"label": label, "value": value});
            object["numbers"] = numbers.iter().map(number).collect();
            object["logits"] = json!(logits);
        }
        TextPrediction::TokenClasses(classes) => {
            object["classes"] = classes.iter().map(|one| one.as_ref().map_or(Value::Null, class)).collect();
        }
        TextPrediction::Answers(answers) => {
            let answer = |(text, score): &(String, f64)| json!({"answer": text, "score": score});
            object["answers"] = answers.iter().map(answer).collect();
        }
        TextPrediction::Masked => {
            let last = page.fillings.last();
            let top = |mask: usize| last.map(|last| last.tokens[mask].iter().map(filling).collect::<Vec<_>>());
            let mask = |&mask: &usize| json!({"index": mask, "top": top(mask)});
            object["masks"] = page.masked.iter().map(mask).collect();
        }
        TextPrediction::Vector { width, length, pooling, similarity } => {
            object["vector"] = json!({"width": width, "length": length, "pooling": pooling});
            if let Some((other, cosine)) = similarity {
                object["similarity"] = json!({"text": other, "score": cosine});
            }
        }
    }
}

fn fillings(layer: &NamedFillings) -> Value {
    let top = |top: &Vec<(u32, String, f32)>| -> Value { top.iter().map(filling).collect() };
    json!({"layer": layer.layer, "tokens": layer.tokens.iter().map(top).collect::<Vec<_>>()})
}
