//! What a client sends: bodies within limits of size and time, JSON with named mistakes, forms.

use std::sync::Arc;

use axum::extract::{FromRequest, Multipart, Request};
use axum::http::StatusCode;
use axum::http::header::{CONTENT_ENCODING, CONTENT_LENGTH, CONTENT_TYPE};
use bytes::{Bytes, BytesMut};
use futures_util::StreamExt;
use serde::de::DeserializeOwned;
use tokio::sync::OwnedSemaphorePermit;

use super::App;
use crate::refusal::Refusal;

/// The most fields of a form.
const MOST_FIELDS: usize = 64;

/// A body or a field of a form that is being read. What has come of all of them together is limited, since thousands may come at a time.
struct Reading<'a> {
    app: &'a App,
    bytes: BytesMut,
    room: Option<OwnedSemaphorePermit>,
}

/// Bytes that count among those of all requests for as long as anything of them is kept.
struct Counted {
    bytes: BytesMut,
    _room: Option<OwnedSemaphorePermit>,
}

impl AsRef<[u8]> for Counted {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl<'a> Reading<'a> {
    fn new(app: &'a App) -> Reading<'a> {
        Reading { app, bytes: BytesMut::new(), room: None }
    }

    fn push(&mut self, piece: &[u8]) -> Result<(), Refusal> {
        let full = "the bodies of other requests leave no room for this one; ask again in a moment";
        let count = u32::try_from(piece.len()).map_err(|_| Refusal::busy(full))?;
        let room = self.app.body_room.clone().try_acquire_many_owned(count).map_err(|_| Refusal::busy(full))?;
        match &mut self.room {
            Some(all) => all.merge(room),
            None => self.room = Some(room),
        }
        self.bytes.extend_from_slice(piece);
        Ok(())
    }

    fn done(self) -> Bytes {
        Bytes::from_owner(Counted { bytes: self.bytes, _room: self.room })
    }
}

/// All of a body.
pub async fn bytes(app: &App, request: Request) -> Result<Bytes, Refusal> {
    let most = app.limits.body;
    let too_large = || Refusal::too_large(format!("the body is larger than {most} bytes, the most that are taken"));
    if let Some(encoding) = request.headers().get(CONTENT_ENCODING).filter(|encoding| *encoding != "identity") {
        let what = format!("bodies that are encoded ({encoding:?}) are not understood: send it as it is");
        return Err(Refusal::new(StatusCode::UNSUPPORTED_MEDIA_TYPE, what));
    }
    let length = request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    if length.is_some_and(|length| length > most) {
        return Err(too_large());
    }
    let mut stream = request.into_body().into_data_stream();
    let read = async {
        let mut all = Reading::new(app);
        while let Some(piece) = stream.next().await {
            let piece = piece.map_err(|_| Refusal::bad("the body ended early"))?;
            if all.bytes.len() + piece.len() > most {
                return Err(too_large());
            }
            all.push(&piece)?;
        }
        Ok(all.done())
    };
    tokio::time::timeout(app.limits.upload, read).await.unwrap_or_else(|_| Err(slow_upload(app)))
}

fn slow_upload(app: &App) -> Refusal {
    let seconds = app.limits.upload.as_secs();
    Refusal::new(StatusCode::REQUEST_TIMEOUT, format!("the body did not come within {seconds} s"))
}

/// JSON of a type; a mistake is told with the field that it is in.
pub fn parse<T: DeserializeOwned>(body: &[u8]) -> Result<T, Refusal> {
    let mut deserializer = serde_json::Deserializer::from_slice(body);
    let parsed = serde_path_to_error::deserialize(&mut deserializer).map_err(|error| {
        let path = error.path().to_string();
        let inner = error.into_inner();
        match path.as_str() {
            "." | "?" => Refusal::bad(format!("the body is not what this endpoint takes: {inner}")),
            path => Refusal::bad(format!("`{path}`: {inner}")),
        }
    })?;
    deserializer.end().map_err(|error| Refusal::bad(format!("behind the JSON there is more: {error}")))?;
    Ok(parsed)
}

/// The JSON body of a request.
pub async fn json<T: DeserializeOwned>(app: &App, request: Request) -> Result<T, Refusal> {
    parse(&bytes(app, request).await?)
}

/// The fields of a form, in their order, within the limits of a body.
pub async fn form(app: &Arc<App>, request: Request) -> Result<Vec<(String, Bytes)>, Refusal> {
    let length = request.headers().get(CONTENT_LENGTH).and_then(|length| length.to_str().ok()?.parse::<usize>().ok());
    let most = app.limits.body;
    let too_large = || Refusal::too_large(format!("the form is larger than {most} bytes, the most that are taken"));
    if length.is_some_and(|length| length > most) {
        return Err(too_large());
    }
    let multipart = Multipart::from_request(request, app).await;
    let wrong = |what: String| Refusal::bad(format!("the form cannot be read: {what}"));
    let mut multipart = multipart.map_err(|error| wrong(error.body_text()))?;
    let read = async {
        let (mut fields, mut total) = (Vec::new(), 0);
        while let Some(mut field) = multipart.next_field().await.map_err(|error| wrong(error.body_text()))? {
            let name = field.name().unwrap_or_default().to_string();
            let mut value = Reading::new(app);
            while let Some(piece) = field.chunk().await.map_err(|error| wrong(error.body_text()))? {
                total += piece.len();
                if total > most {
                    return Err(too_large());
                }
                value.push(&piece)?;
            }
            fields.push((name, value.done()));
            if fields.len() > MOST_FIELDS {
                return Err(Refusal::bad(format!("the form has more than {MOST_FIELDS} fields")));
            }
        }
        Ok(fields)
    };
    tokio::time::timeout(app.limits.upload, read).await.unwrap_or_else(|_| Err(slow_upload(app)))
}

/// A file out of a body of JSON, which counts like the body that it was in.
struct Decoded {
    bytes: Vec<u8>,
    _body: Bytes,
}

impl AsRef<[u8]> for Decoded {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

/// The value of a field as text.
pub fn text(name: &str, value: &[u8]) -> Result<String, Refusal> {
    String::from_utf8(value.to_vec()).map_err(|_| Refusal::bad(format!("`{name}` is not UTF-8")))
}

/// What is asked about: an image, a text with perhaps a second one, a question with its context; as the whole body or in a form.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Input {
    /// An image file.
    pub file: Option<Bytes>,
    /// A text.
    pub text: Option<String>,
    /// The text that belongs to it.
    pub pair: Option<String>,
    /// A translation of it.
    pub target: Option<String>,
    /// Names of classes, between commas.
    pub labels: Option<String>,
    /// The sentence that they are put into, in place of `{}`.
    pub template: Option<String>,
}

/// What stands behind `?`.
#[derive(Clone, Debug, Default, serde::Deserialize)]
pub struct Query {
    /// How many classes, answers or fillings.
    pub top: Option<usize>,
    /// `json` or `html`.
    pub format: Option<String>,
}

/// The JSON form of an [`Input`].
#[derive(serde::Deserialize)]
struct InputFields {
    text: Option<String>,
    text_pair: Option<String>,
    pair: Option<String>,
    question: Option<String>,
    context: Option<String>,
    target: Option<String>,
    /// An image file in base64.
    image: Option<String>,
    /// A recording in base64.
    audio: Option<String>,
    labels: Option<String>,
    template: Option<String>,
}

impl Input {
    /// Reads a body, whose type says what it is: a form, JSON, text, or else a file.
    pub async fn read(app: &Arc<App>, request: Request) -> Result<Input, Refusal> {
        let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
        let kind = kind.split(';').next().unwrap_or_default().trim().to_ascii_lowercase();
        match kind.as_str() {
            "multipart/form-data" => Input::of_fields(form(app, request).await?),
            "application/json" => Input::of_json(bytes(app, request).await?),
            _ => Input::of_bytes(bytes(app, request).await?, &kind),
        }
    }

    fn of_fields(fields: Vec<(String, Bytes)>) -> Result<Input, Refusal> {
        let mut input = Input::default();
        for (name, value) in fields {
            match name.as_str() {
                "file" | "image" | "audio" => input.file = Some(value),
                "text" | "question" => input.text = Some(text(&name, &value)?),
                "pair" | "text_pair" | "context" => input.pair = Some(text(&name, &value)?),
                "target" => input.target = Some(text(&name, &value)?),
                "labels" => input.labels = Some(text(&name, &value)?),
                "template" => input.template = Some(text(&name, &value)?),
                _ => {
                    let known = "file, image, audio, text, pair, question, context, target, labels and template";
                    return Err(Refusal::bad(format!("a form has the fields {known}, but no `{name}`")));
                }
            }
        }
        Ok(input)
    }

    fn of_json(body: Bytes) -> Result<Input, Refusal> {
        use base64::Engine;
        let fields: InputFields = parse(&body)?;
        let decode = |name: &'static str, text: Option<String>| {
            let decoded = text.map(|text| base64::engine::general_purpose::STANDARD.decode(text)).transpose();
            decoded.map_err(|error| Refusal::field(name, format!("`{name}` is not base64: {error}")))
        };
        let file = decode("image", fields.image)?.or(decode("audio", fields.audio)?);
        Ok(Input {
            file: file.map(|bytes| Bytes::from_owner(Decoded { bytes, _body: body })),
            text: fields.text.or(fields.question),
            pair: fields.pair.or(fields.text_pair).or(fields.context),
            target: fields.target,
            labels: fields.labels,
            template: fields.template,
        })
    }

    fn of_bytes(body: Bytes, kind: &str) -> Result<Input, Refusal> {
        if kind == "text/plain" {
            return Ok(Input { text: Some(text("the body", &body)?), ..Input::default() });
        }
        // curl says `application/x-www-form-urlencoded` of everything behind `--data-binary`: the model decides what it is.
        Ok(Input { file: Some(body), ..Input::default() })
    }

    /// The text, also if the body was not said to be one. It must not be empty.
    pub fn take_text(&mut self) -> Result<String, Refusal> {
        let text = match (self.text.take(), self.file.take()) {
            (Some(text), _) => text,
            (None, Some(bytes)) => text("the body", &bytes)?,
            (None, None) => {
                return Err(Refusal::bad("this model takes a text: send it as the body, or as the field `text`"));
            }
        };
        match text.trim().is_empty() {
            true => Err(Refusal::bad("the text is empty")),
            false => Ok(text),
        }
    }

    /// The file: of `an image`, or of `a recording`.
    pub fn take_file(&mut self, of: &str) -> Result<Bytes, Refusal> {
        let what = format!("this model takes {of}: send the file as the body, or as the field `file` of a form");
        self.file.take().filter(|file| !file.is_empty()).ok_or_else(|| Refusal::bad(what))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[derive(Debug, serde::Deserialize)]
    struct Two {
        #[allow(dead_code)]
        a: u32,
        #[allow(dead_code)]
        b: Vec<u32>,
    }

    #[test]
    fn a_mistake_in_json_is_told_with_its_place() {
        let told = |text: &str| parse::<Two>(text.as_bytes()).expect_err("a mistake").message;
        assert!(parse::<Two>(b"{\"a\": 1, \"b\": [2]}").is_ok());
        assert!(told("{\"a\": \"x\", \"b\": []}").starts_with("`a`: invalid type"));
        assert!(told("{\"a\": 1, \"b\": [1, -2]}").starts_with("`b[1]`: invalid value"));
        assert!(told("{\"a\": 1").starts_with("the body is not what this endpoint takes: EOF"));
        assert!(told("{\"a\": 1, \"b\": []} x").starts_with("behind the JSON there is more"));
        assert!(parse::<Two>(b"{\"a\": 1, \"b\": [], \"\xff\": 1}").is_err());
    }
}
