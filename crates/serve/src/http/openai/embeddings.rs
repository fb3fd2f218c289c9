//! `/v1/embeddings`: texts as vectors.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use base64::Engine;
use serde::{Deserialize, Serialize};
use serde_json::json;
use utoipa::ToSchema;
use vitreous_runtime::text::{Purpose, TextInput};

use crate::http::shape::json_answer;
use crate::http::{App, body, cannot};
use crate::models::{Service, TokenizedText};
use crate::refusal::Refusal;
use crate::work::WorkError;

/// One text or several, as text or as tokens.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Inputs {
    /// A text.
    Text(String),
    /// Texts.
    Texts(Vec<String>),
    /// Tokens.
    Tokens(Vec<u32>),
    /// Tokens of several texts.
    TokenLists(Vec<Vec<u32>>),
}

/// What is to become vectors.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct EmbeddingRequest {
    /// The model; may be left out where there is one
    pub model: Option<String>,
    /// The texts
    pub input: Inputs,
    /// `float`, or `base64` for the bytes of little-endian 32-bit floats
    pub encoding_format: Option<String>,
    /// Must be the width of the model's vectors, or left out
    pub dimensions: Option<usize>,
    /// Not OpenAI's: `query` or `document`, for models that write something else before a query than before what is searched
    pub input_type: Option<String>,
}

/// A vector.
#[derive(Serialize)]
#[serde(untagged)]
enum Vector {
    Numbers(Vec<f32>),
    Base64(String),
}

#[derive(Serialize)]
struct Embedding {
    object: &'static str,
    index: usize,
    embedding: Vector,
}

/// Turn texts into vectors
#[utoipa::path(post, path = "/v1/embeddings", tag = "OpenAI", request_body = EmbeddingRequest, responses(
    (status = 200, description = "One vector per text"),
    (status = 400, description = "The request is wrong"),
    (status = 429, description = "The queue is full: ask again after `Retry-After` seconds"),
))]
pub async fn embed(State(app): State<Arc<App>>, request: Request) -> Result<Response, Refusal> {
    let asked: EmbeddingRequest = body::json(&app, request).await?;
    let served = app.model(asked.model.as_deref())?;
    let as_base64 = match asked.encoding_format.as_deref() {
        None | Some("float") => false,
        Some("base64") => true,
        Some(_) => return Err(Refusal::field("encoding_format", "`encoding_format` is float or base64")),
    };
    let purpose = match asked.input_type.as_deref() {
        None => Purpose::Any,
        Some("query" | "search_query") => Purpose::Query,
        Some("document" | "passage" | "search_document") => Purpose::Document,
        Some(_) => return Err(Refusal::field("input_type", "`input_type` is query or document")),
    };
    let place = served.place()?;
    let (vectors, read) = match &served.service {
        Service::Texts(texts) if texts.embeds() => {
            let encoded = match given(&app, asked.input)? {
                Given::Texts(inputs) => texts.tokenize(inputs, Some(purpose)).await?,
                Given::Tokens(lists) => {
                    lists.into_iter().map(|ids| texts.given_tokens(ids)).collect::<Result<_, WorkError>>()?
                }
            };
            let read: usize = encoded.iter().map(TokenizedText::len).sum();
            (texts.embed(encoded).await?, read)
        }
        Service::ImagesAndTexts(both) => match given(&app, asked.input)? {
            Given::Texts(inputs) => {
                let embedded = both.embed(inputs).await?;
                (embedded.vectors, embedded.tokens)
            }
            Given::Tokens(_) => return Err(Refusal::field("input", "this model takes texts, not tokens")),
        },
        _ => return Err(cannot(&served, "turn texts into vectors")),
    };
    drop(place);
    let width = vectors.first().map_or(0, Vec::len);
    if asked.dimensions.is_some_and(|dimensions| dimensions != width) {
        let what = format!("`dimensions` must be {width}, the width of this model's vectors, or left out");
        return Err(Refusal::field("dimensions", what));
    }
    let data = vectors.into_iter().enumerate().map(|(index, vector)| Embedding {
        object: "embedding",
        index,
        embedding: match as_base64 {
            true => Vector::Base64(base64_of(&vector)),
            false => Vector::Numbers(vector),
        },
    });
    let usage = json!({"prompt_tokens": read, "total_tokens": read});
    #[derive(Serialize)]
    struct Answer<'a> {
        object: &'static str,
        data: Vec<Embedding>,
        model: &'a str,
        usage: serde_json::Value,
    }
    Ok(json_answer(&Answer { object: "list", data: data.collect(), model: &served.name, usage }))
}

/// What is to become vectors, checked.
enum Given {
    Texts(Vec<TextInput>),
    Tokens(Vec<Vec<u32>>),
}

fn given(app: &App, input: Inputs) -> Result<Given, Refusal> {
    let text = |text: String| TextInput { text, pair: None };
    let given = match input {
        Inputs::Text(one) => Given::Texts(vec![text(one)]),
        Inputs::Texts(all) => Given::Texts(all.into_iter().map(text).collect()),
        Inputs::Tokens(ids) => Given::Tokens(vec![ids]),
        Inputs::TokenLists(lists) => Given::Tokens(lists),
    };
    let (count, has_empty, what) = match &given {
        Given::Texts(texts) => (texts.len(), texts.iter().any(|input| input.text.is_empty()), "is empty"),
        Given::Tokens(lists) => (lists.len(), lists.iter().any(Vec::is_empty), "has no tokens"),
    };
    let most = app.limits.inputs;
    match (count, has_empty) {
        (count, _) if count == 0 || count > most => {
            Err(Refusal::field("input", format!("`input` has between 1 and {most} texts; it has {count}")))
        }
        (_, true) => Err(Refusal::field("input", format!("a text of `input` {what}"))),
        (_, false) => Ok(given),
    }
}

fn base64_of(vector: &[f32]) -> String {
    let bytes: Vec<u8> = vector.iter().flat_map(|number| number.to_le_bytes()).collect();
    base64::engine::general_purpose::STANDARD.encode(bytes)
}
