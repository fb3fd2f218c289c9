//! What completions and chats share: how a text is written, and collecting it.

use std::sync::Arc;
use std::time::Instant;

use serde::Deserialize;
use serde::de::DeserializeOwned;
use serde_json::{Value as Json, json};
use tokio::sync::mpsc::UnboundedReceiver;
use utoipa::ToSchema;
use vitreous_models::generate::SamplingOptions;
use vitreous_runtime::language::{Continuation, OutputFormat, StopReason, TextOptions};

use super::unsupported::UnsupportedFields;
use crate::http::{App, body};
use crate::models::{LanguageService, Served};
use crate::refusal::Refusal;
use crate::work::{WorkError, WriteEvent};

/// The most texts of a request.
const MOST_TEXTS: usize = 128;
/// The most stop strings, and bytes of one.
const MOST_STOPS: usize = 16;
const LONGEST_STOP: usize = 1024;
/// The most likeliest tokens.
const MOST_LOGPROBS: usize = 20;

/// One string or several.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum OneOrMany {
    /// One.
    One(String),
    /// Several.
    Many(Vec<String>),
}

/// What a stream tells besides its text.
#[derive(Clone, Copy, Debug, Default, Deserialize, ToSchema)]
pub struct StreamOptions {
    /// Whether the last event counts tokens.
    #[serde(default)]
    pub include_usage: Option<bool>,
}

/// How a text is written. The fields from `top_k` on are not OpenAI's.
#[derive(Clone, Debug, Default, Deserialize, ToSchema)]
pub struct WritingFields {
    /// The model; may be left out where there is one
    pub model: Option<String>,
    /// Sampling temperature; 0 takes the likeliest token each time. 1 if it is left out
    pub temperature: Option<f32>,
    /// Choose from the likeliest tokens that add up to this probability
    pub top_p: Option<f32>,
    /// How many texts
    pub n: Option<usize>,
    /// The most tokens to write
    pub max_tokens: Option<usize>,
    /// The same under the newer name
    pub max_completion_tokens: Option<usize>,
    /// Strings before which a text ends
    pub stop: Option<OneOrMany>,
    /// The same seed gives the same text
    pub seed: Option<i64>,
    /// Whether the text comes piece by piece, as server-sent events
    pub stream: Option<bool>,
    /// What a stream tells besides its text
    pub stream_options: Option<StreamOptions>,
    /// `{"type": "json_object"}`, or `{"type": "json_schema", "json_schema": {"schema": ..}}`
    #[schema(value_type = Option<Object>)]
    pub response_format: Option<Json>,
    /// Choose from the K likeliest tokens
    pub top_k: Option<usize>,
    /// Choose from tokens that are at least this part as likely as the likeliest
    pub min_p: Option<f32>,
    /// Makes tokens that were seen less likely; 1 is no penalty
    pub repetition_penalty: Option<f32>,
    /// Write on where the model would end the text
    pub ignore_eos: Option<bool>,
    /// A regular expression that the text must match as a whole
    pub regex: Option<String>,
}

/// Parses a body whose fields are those of `T` and of [`WritingFields`]; refuses those that are not supported.
pub fn parse<T: DeserializeOwned>(bytes: &[u8]) -> Result<(T, WritingFields), Refusal> {
    let (own, writing): (T, WritingFields) = (body::parse(bytes)?, body::parse(bytes)?);
    body::parse::<UnsupportedFields>(bytes)?.check(writing.n.unwrap_or(1))?;
    Ok((own, writing))
}

impl WritingFields {
    /// Whether the answer is streamed.
    pub fn is_streamed(&self) -> bool {
        self.stream.unwrap_or(false)
    }

    /// Whether a stream counts tokens at its end.
    pub fn tells_usage(&self) -> bool {
        self.stream_options.is_some_and(|options| options.include_usage.unwrap_or(false))
    }

    /// How many texts.
    pub fn count(&self) -> Result<usize, Refusal> {
        match self.n.unwrap_or(1) {
            count @ 1..=MOST_TEXTS => Ok(count),
            count => Err(Refusal::field("n", format!("`n` is between 1 and {MOST_TEXTS}; it is {count}"))),
        }
    }

    /// The most tokens that were asked for.
    pub fn most_tokens(&self) -> Option<usize> {
        self.max_completion_tokens.or(self.max_tokens)
    }

    /// Refuses a text of no tokens, where there is nothing else to tell.
    pub fn check_tokens(&self) -> Result<(), Refusal> {
        match self.most_tokens() {
            Some(0) => Err(Refusal::field("max_tokens", "`max_tokens` is at least 1")),
            _ => Ok(()),
        }
    }

    /// How a text is written; `usual` is the most tokens where the client says no number.
    pub fn options(&self, usual: usize, logprobs: Option<usize>) -> Result<TextOptions, Refusal> {
        let stop = match &self.stop {
            None => Vec::new(),
            Some(OneOrMany::One(stop)) => vec![stop.clone()],
            Some(OneOrMany::Many(stops)) => stops.clone(),
        };
        if stop.len() > MOST_STOPS || stop.iter().any(|stop| stop.len() > LONGEST_STOP) {
            let what = format!("`stop` has at most {MOST_STOPS} strings of at most {LONGEST_STOP} bytes");
            return Err(Refusal::field("stop", what));
        }
        let max_tokens = self.most_tokens().unwrap_or(usual);
        if logprobs.is_some_and(|count| count > MOST_LOGPROBS) {
            return Err(Refusal::field(
                "logprobs",
                format!("at most {MOST_LOGPROBS} of the likeliest tokens are told"),
            ));
        }
        let sampling = SamplingOptions {
            temperature: self.temperature.unwrap_or(1.0),
            top_k: self.top_k.unwrap_or(0),
            top_p: self.top_p.unwrap_or(1.0),
            min_p: self.min_p.unwrap_or(0.0),
            repetition_penalty: self.repetition_penalty.unwrap_or(1.0),
            seed: self.seed.map_or_else(random_seed, |seed| seed as u64),
        };
        sampling.check().map_err(Refusal::bad)?;
        Ok(TextOptions {
            max_tokens,
            sampling,
            stop,
            ignore_end: self.ignore_eos.unwrap_or(false),
            logprobs,
            ..TextOptions::default()
        })
    }

    /// What a text must be.
    pub fn format(&self) -> Result<Option<OutputFormat>, Refusal> {
        if let Some(expression) = &self.regex {
            return Ok(Some(OutputFormat::Regex(expression.clone())));
        }
        let Some(format) = self.response_format.as_ref().filter(|format| !format.is_null()) else { return Ok(None) };
        let wrong = |what: &str| Refusal::field("response_format", what);
        match format.get("type").and_then(Json::as_str) {
            Some("text") => Ok(None),
            Some("json_object") => Ok(Some(OutputFormat::JsonSchema(json!({"type": "object"})))),
            Some("json_schema") => match format.get("json_schema").and_then(|named| named.get("schema")) {
                Some(schema) => Ok(Some(OutputFormat::JsonSchema(schema.clone()))),
                None => Err(wrong("`response_format.json_schema.schema` is missing")),
            },
            Some("regex") => match format.get("regex").and_then(Json::as_str) {
                Some(expression) => Ok(Some(OutputFormat::Regex(expression.to_string()))),
                None => Err(wrong("`response_format.regex` is missing")),
            },
            _ => Err(wrong("`response_format.type` is text, json_object, json_schema or regex")),
        }
    }
}

/// A seed that differs from request to request.
fn random_seed() -> u64 {
    use std::hash::{BuildHasher, Hasher};
    std::collections::hash_map::RandomState::new().build_hasher().finish()
}

/// The language model of a name.
pub fn language<'s>(served: &'s Served, what: &str) -> Result<&'s LanguageService, Refusal> {
    match &served.service {
        crate::models::Service::Language(language) => Ok(language),
        _ => Err(crate::http::cannot(served, what)),
    }
}

/// A text to the end.
pub async fn finished(
    app: &Arc<App>,
    model: &str,
    mut events: UnboundedReceiver<WriteEvent>,
) -> Result<Continuation, WorkError> {
    let start = Instant::now();
    let mut is_first = true;
    while let Some(event) = events.recv().await {
        if std::mem::take(&mut is_first) {
            app.metrics.first_token(model, start.elapsed().as_secs_f64());
        }
        match event {
            WriteEvent::Piece(..) => {}
            WriteEvent::Finished(continuation) => return Ok(continuation),
            WriteEvent::Failed(error) => return Err(error),
        }
    }
    Err(WorkError::Failed("the worker has ended".to_string()))
}

/// Why a text ended, as OpenAI calls it.
pub fn finish_reason(stop: StopReason) -> &'static str {
    match stop {
        StopReason::End | StopReason::StopString | StopReason::Constraint => "stop",
        StopReason::Length | StopReason::Context => "length",
    }
}

/// Counts of tokens.
pub fn usage(prompt: usize, written: usize) -> Json {
    json!({"prompt_tokens": prompt, "completion_tokens": written, "total_tokens": prompt + written})
}
