//! Probabilities of tokens in OpenAI's two shapes.

use serde_json::{Map, Value as Json, json};
use vitreous_models::generate::WrittenToken;
use vitreous_runtime::language::LanguageModel;

/// A token as text; one that is a part of a character has replacement characters.
fn token_text(model: &LanguageModel, token: u32) -> String {
    match model.tokenizer.token_bytes(token) {
        Some(bytes) => String::from_utf8_lossy(&bytes).into_owned(),
        None => model.tokenizer.token(token).unwrap_or_default(),
    }
}

/// Of chats: a list with each token, its bytes and the likeliest in its place.
pub fn of_chat(model: &LanguageModel, tokens: &[WrittenToken]) -> Json {
    let one = |token: u32, logprob: Option<f64>| json!({"token": token_text(model, token), "logprob": logprob, "bytes": model.tokenizer.token_bytes(token)});
    let content = tokens.iter().map(|written| {
        let mut object = one(written.token, written.logprob);
        let top = written.top.iter().map(|top| one(top.token, Some(top.logprob)));
        object["top_logprobs"] = top.collect();
        object
    });
    json!({"content": content.collect::<Vec<Json>>()})
}

/// How many characters tokens have, by the same count as `text_offset`.
pub fn characters(model: &LanguageModel, tokens: &[WrittenToken]) -> usize {
    tokens.iter().map(|written| token_text(model, written.token).chars().count()).sum()
}

/// Of completions: lists of texts, logarithms and places. `offset` is where the first token's text begins, in characters.
pub fn of_completion(model: &LanguageModel, tokens: &[WrittenToken], mut offset: usize) -> Json {
    let texts: Vec<String> = tokens.iter().map(|written| token_text(model, written.token)).collect();
    let top = tokens.iter().map(|written| {
        let pair = |top: &vitreous_models::generate::TokenLogprob| (token_text(model, top.token), json!(top.logprob));
        // Before the first token of a prompt there is nothing that would make it likely.
        written.logprob.map(|_| Json::Object(written.top.iter().map(pair).collect::<Map<String, Json>>()))
    });
    let offsets = texts.iter().map(|text| {
        let place = offset;
        offset += text.chars().count();
        place
    });
    let offsets: Vec<usize> = offsets.collect();
    json!({
        "tokens": texts,
        "token_logprobs": tokens.iter().map(|written| written.logprob).collect::<Vec<_>>(),
        "top_logprobs": top.collect::<Vec<Option<Json>>>(),
        "text_offset": offsets,
    })
}
