//! `/v1/audio/transcriptions`: what is said in a recording.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::http::HeaderValue;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use utoipa::ToSchema;

use super::transcript_formats::TranscriptFormat;
use crate::http::{App, body, cannot};
use crate::models::{Recording, Service, TranscribeOptions};
use crate::refusal::Refusal;

/// The fields of the form.
#[derive(ToSchema)]
#[allow(dead_code)] // for its description: forms are read field by field
pub struct TranscriptionRequest {
    /// The recording
    #[schema(value_type = String, format = Binary)]
    file: Vec<u8>,
    /// The model; may be left out where there is one
    model: Option<String>,
    /// The language that is spoken, as in `en`
    language: Option<String>,
    /// What was said before, or how words are to be written
    prompt: Option<String>,
    /// `json`, `text`, `srt`, `vtt` or `verbose_json`
    response_format: Option<String>,
    /// The temperature of sampling
    temperature: Option<f32>,
    /// `word` or `segment`, for `verbose_json`
    #[schema(rename = "timestamp_granularities[]")]
    timestamp_granularities: Option<Vec<String>>,
}

/// What the form says.
#[derive(Default)]
struct Asked {
    file: Option<Bytes>,
    model: Option<String>,
    format: TranscriptFormat,
    options: TranscribeOptions,
}

/// Write down what is said in a recording
#[utoipa::path(post, path = "/v1/audio/transcriptions", tag = "OpenAI",
    request_body(content = TranscriptionRequest, content_type = "multipart/form-data"), responses(
    (status = 200, description = "The text, in the format that was asked for"),
    (status = 400, description = "The request is wrong"),
))]
pub async fn transcribe(State(app): State<Arc<App>>, request: Request) -> Result<Response, Refusal> {
    let asked = read(body::form(&app, request).await?)?;
    let served = app.model(asked.model.as_deref())?;
    let Service::Speech(speech) = &served.service else {
        return Err(cannot(&served, "write down what is said in a recording"));
    };
    let what = "`file` is missing: the recording, as a part of the form";
    let file = asked.file.filter(|file| !file.is_empty()).ok_or_else(|| Refusal::field("file", what))?;
    let _place = served.place()?;
    let recording = Recording { bytes: file, most_seconds: app.limits.audio_seconds };
    let transcript = speech.transcribe(recording, asked.options.clone()).await?;
    let (kind, text) = asked.format.write(&transcript, &asked.options);
    let mut response = text.into_response();
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static(kind));
    Ok(response)
}

fn read(fields: Vec<(String, Bytes)>) -> Result<Asked, Refusal> {
    let mut asked = Asked::default();
    for (name, value) in fields {
        let text = |name: &str| body::text(name, &value);
        match name.as_str() {
            "file" => asked.file = Some(value),
            "model" => asked.model = Some(text("model")?),
            "language" => asked.options.language = Some(text("language")?).filter(|language| !language.is_empty()),
            "prompt" => asked.options.prompt = Some(text("prompt")?).filter(|prompt| !prompt.is_empty()),
            "response_format" => {
                let what = "`response_format` is json, text, srt, vtt or verbose_json";
                let format = TranscriptFormat::parse(&text("response_format")?);
                asked.format = format.ok_or_else(|| Refusal::field("response_format", what))?;
            }
            "temperature" => {
                let number = text("temperature")?.trim().parse().ok().filter(|number| (0.0..=1.0).contains(number));
                let what = "`temperature` is a number between 0 and 1";
                asked.options.temperature = number.ok_or_else(|| Refusal::field("temperature", what))?;
            }
            "timestamp_granularities[]" | "timestamp_granularities" => {
                match text("timestamp_granularities")?.as_str() {
                    "word" => asked.options.words = true,
                    "segment" => {}
                    _ => {
                        let what = "`timestamp_granularities[]` is word or segment";
                        return Err(Refusal::field("timestamp_granularities[]", what));
                    }
                }
            }
            "stream" if text("stream")? == "true" => {
                return Err(Refusal::field("stream", "transcriptions are not streamed"));
            }
            // Fields that newer clients send, and that change nothing here.
            _ => {}
        }
    }
    Ok(asked)
}
