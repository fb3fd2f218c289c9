//! `/v1/chat/completions`: answers in a conversation.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use utoipa::ToSchema;
use vitreous_models::generate::WrittenToken;
use vitreous_runtime::chat_template::ChatMessage;
use vitreous_runtime::language::{Continuation, LanguageModel};

use super::stream::{Chunks, respond};
use super::unsupported::UnsupportedFields;
use super::writing::{WritingFields, finish_reason, finished, language, parse, usage};
use super::{logprobs, now};
use crate::http::shape::json_answer;
use crate::http::{App, RequestId, body};
use crate::models::{Place, Served, TextRequest};
use crate::refusal::Refusal;

/// The most messages of a conversation.
const MOST_MESSAGES: usize = 4096;

/// What somebody said.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct Message {
    /// `system`, `user` or `assistant`; `developer` is the same as `system`
    pub role: String,
    /// A text, or a list of parts such as `{"type": "text", "text": ".."}`
    pub content: Option<Content>,
}

/// A text, or parts of one.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Content {
    /// A text.
    Text(String),
    /// Parts.
    Parts(Vec<ContentPart>),
}

/// A part of what somebody said.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct ContentPart {
    /// `text`
    #[serde(rename = "type")]
    pub kind: String,
    /// The text
    pub text: Option<String>,
}

/// What only chats have.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct ChatFields {
    /// What was said so far
    pub messages: Vec<Message>,
    /// Whether the probability of each token is told
    pub logprobs: Option<bool>,
    /// With it, so many of the likeliest tokens
    pub top_logprobs: Option<usize>,
}

/// The body, for its description.
#[derive(Deserialize, ToSchema)]
pub struct ChatRequest {
    #[serde(flatten)]
    _own: ChatFields,
    #[serde(flatten)]
    _writing: WritingFields,
    #[serde(flatten)]
    _unsupported: UnsupportedFields,
}

/// Answer in a conversation
#[utoipa::path(post, path = "/v1/chat/completions", tag = "OpenAI", request_body = ChatRequest, responses(
    (status = 200, description = "The answers, or a stream of events"),
    (status = 400, description = "The request is wrong"),
    (status = 429, description = "The queue is full: ask again after `Retry-After` seconds"),
))]
pub async fn complete(State(app): State<Arc<App>>, request: Request) -> Result<Response, Refusal> {
    let id = format!("chatcmpl-{}", RequestId::of(&request));
    let (own, writing): (ChatFields, WritingFields) = parse(&body::bytes(&app, request).await?)?;
    let served = app.model(writing.model.as_deref())?;
    let model = language(&served, "chat")?;
    writing.check_tokens()?;
    let told = match (own.logprobs.unwrap_or(false), own.top_logprobs) {
        (true, top) => Some(top.unwrap_or(0)),
        (false, Some(1..)) => return Err(Refusal::field("top_logprobs", "`top_logprobs` needs `logprobs: true`")),
        (false, _) => None,
    };
    let mut options = writing.options(model.context, told)?;
    let (count, format) = (writing.count()?, writing.format()?);
    let messages = messages(own.messages)?;
    let place = served.place()?;
    let prompt = model.chat_prompt(messages).await?;
    options.more_ends = prompt.ends;
    let tokens = prompt.tokens.len();
    let receivers = model.write(TextRequest { prompt: prompt.tokens, options, count, format }).await?;
    let chunks = ChatChunks {
        id,
        served: served.clone(),
        model: model.model.clone(),
        created: now(),
        logprobs: told.is_some(),
        tells_usage: writing.tells_usage(),
        prompt_tokens: tokens,
        written: 0,
    };
    if writing.is_streamed() {
        return Ok(respond(app, served.name.clone(), receivers, chunks, place));
    }
    let all = receivers.into_iter().map(|events| finished(&app, &served.name, events));
    let all = futures_util::future::try_join_all(all).await?;
    drop::<Place>(place);
    let written = all.iter().map(|one| one.tokens.len()).sum();
    let choices: Vec<Json> = all.iter().enumerate().map(|(index, one)| chunks.choice(index, one)).collect();
    Ok(json_answer(&json!({
        "id": chunks.id, "object": "chat.completion", "created": chunks.created, "model": served.name,
        "choices": choices, "usage": usage(tokens, written),
    })))
}

fn messages(given: Vec<Message>) -> Result<Vec<ChatMessage>, Refusal> {
    let wrong = |what: String| Refusal::field("messages", what);
    if given.is_empty() || given.len() > MOST_MESSAGES {
        return Err(wrong(format!(
            "a conversation has between 1 and {MOST_MESSAGES} messages; this one has {}",
            given.len()
        )));
    }
    let mut messages = Vec::with_capacity(given.len());
    for (place, Message { role, content }) in given.into_iter().enumerate() {
        let role = match role.as_str() {
            "developer" => "system".to_string(),
            "system" | "user" | "assistant" => role,
            _ => return Err(wrong(format!("`messages[{place}].role` is system, user or assistant"))),
        };
        let text = match content {
            None => String::new(),
            Some(Content::Text(text)) => text,
            Some(Content::Parts(parts)) => {
                let mut all = String::new();
                for part in parts {
                    match (part.kind.as_str(), part.text) {
                        ("text", Some(text)) => all.push_str(&text),
                        _ => {
                            return Err(wrong(format!(
                                "`messages[{place}].content`: only parts of type text are understood"
                            )));
                        }
                    }
                }
                all
            }
        };
        messages.push(ChatMessage::new(role, text));
    }
    Ok(messages)
}

/// How answers look.
struct ChatChunks {
    id: String,
    served: Arc<Served>,
    model: Arc<LanguageModel>,
    created: u64,
    logprobs: bool,
    tells_usage: bool,
    prompt_tokens: usize,
    written: usize,
}

impl ChatChunks {
    fn choice(&self, index: usize, whole: &Continuation) -> Json {
        let told = self.logprobs.then(|| logprobs::of_chat(&self.model, &whole.tokens));
        json!({
            "index": index, "message": {"role": "assistant", "content": whole.text, "refusal": null},
            "logprobs": told, "finish_reason": finish_reason(whole.stop),
        })
    }

    fn chunk(&self, choices: Json) -> Json {
        json!({
            "id": self.id, "object": "chat.completion.chunk", "created": self.created, "model": self.served.name,
            "choices": choices,
        })
    }

    fn delta(&self, index: usize, delta: Json, told: Option<Json>, reason: Option<&str>) -> Json {
        self.chunk(json!([{"index": index, "delta": delta, "logprobs": told, "finish_reason": reason}]))
    }
}

impl Chunks for ChatChunks {
    fn id(&self) -> &str {
        &self.id
    }

    fn first(&self, index: usize) -> Option<Json> {
        Some(self.delta(index, json!({"role": "assistant", "content": ""}), None, None))
    }

    fn piece(&mut self, index: usize, text: &str, token: Option<&WrittenToken>) -> Json {
        self.written += usize::from(token.is_some());
        let told = token.filter(|_| self.logprobs);
        let told = told.map(|token| logprobs::of_chat(&self.model, std::slice::from_ref(token)));
        self.delta(index, json!({"content": text}), told, None)
    }

    fn end(&self, index: usize, whole: &Continuation) -> Json {
        self.delta(index, json!({}), None, Some(finish_reason(whole.stop)))
    }

    fn usage(&self) -> Option<Json> {
        let mut chunk = self.chunk(json!([]));
        chunk["usage"] = usage(self.prompt_tokens, self.written);
        self.tells_usage.then_some(chunk)
    }
}
