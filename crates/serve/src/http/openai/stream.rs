//! Texts piece by piece, as server-sent events.

use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use axum::body::Body;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::StreamExt;
use futures_util::stream::{self, SelectAll};
use serde_json::Value as Json;
use tokio::sync::mpsc::UnboundedReceiver;
use vitreous_models::generate::WrittenToken;
use vitreous_runtime::language::Continuation;

use crate::http::App;
use crate::http::shape::openai_error;
use crate::models::Place;
use crate::refusal::Refusal;
use crate::work::WriteEvent;

/// How the events of an endpoint look.
pub trait Chunks: Send + 'static {
    /// The answer's id.
    fn id(&self) -> &str;
    /// What comes before the first piece of a text.
    fn first(&self, index: usize) -> Option<Json>;
    /// A piece of a text.
    fn piece(&mut self, index: usize, text: &str, token: Option<&WrittenToken>) -> Json;
    /// The end of a text.
    fn end(&self, index: usize, whole: &Continuation) -> Json;
    /// After all texts, if it was asked for.
    fn usage(&self) -> Option<Json>;
}

/// What a stream needs until it ends.
struct Streaming<C> {
    app: Arc<App>,
    model: String,
    chunks: C,
    events: SelectAll<stream::BoxStream<'static, (usize, WriteEvent)>>,
    start: Instant,
    deadline: tokio::time::Instant,
    is_first: bool,
    /// Texts that have not ended.
    unfinished: usize,
    is_over: bool,
    /// The place in the queue is free when the stream ends, or its client leaves.
    _place: Place,
}

/// The answer that streams texts.
pub fn respond(
    app: Arc<App>,
    model: String,
    receivers: Vec<UnboundedReceiver<WriteEvent>>,
    chunks: impl Chunks,
    place: Place,
) -> Response {
    let first: Vec<Bytes> =
        (0..receivers.len()).filter_map(|index| chunks.first(index)).map(|one| event(&one)).collect();
    let unfinished = receivers.len();
    let streams = receivers.into_iter().enumerate().map(|(index, mut receiver)| {
        stream::poll_fn(move |context| receiver.poll_recv(context)).map(move |event| (index, event)).boxed()
    });
    let deadline = tokio::time::Instant::now() + app.limits.answer;
    let streaming = Streaming {
        app,
        model,
        chunks,
        events: stream::select_all(streams),
        start: Instant::now(),
        deadline,
        is_first: true,
        unfinished,
        is_over: false,
        _place: place,
    };
    let rest = stream::unfold(streaming, |mut streaming| async move {
        let bytes = streaming.next().await?;
        Some((bytes, streaming))
    });
    let events = stream::iter(first).chain(rest).map(Ok::<Bytes, Infallible>);
    let mut response = Body::from_stream(events).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // nginx would hold pieces back.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

impl<C> Drop for Streaming<C> {
    fn drop(&mut self) {
        if !self.is_over {
            self.app.metrics.left.fetch_add(1, Ordering::Relaxed);
        }
    }
}

impl<C: Chunks> Streaming<C> {
    /// The next events, together if several have come; `None` at the end.
    async fn next(&mut self) -> Option<Bytes> {
        if self.is_over {
            return None;
        }
        loop {
            let next = tokio::time::timeout_at(self.deadline, self.events.next()).await;
            let Ok(next) = next else {
                let seconds = self.app.limits.answer.as_secs();
                let what = format!("the answer took longer than {seconds} s; ask for less, or raise --timeout");
                return Some(self.broken(&Refusal::new(StatusCode::GATEWAY_TIMEOUT, &what), &what));
            };
            let Some((index, new)) = next else {
                if self.unfinished > 0 {
                    return Some(self.broken(&Refusal::internal(), "the worker has ended"));
                }
                self.is_over = true;
                let usage = self.chunks.usage().map(|usage| event(&usage)).unwrap_or_default();
                return Some([usage, Bytes::from_static(b"data: [DONE]\n\n")].concat().into());
            };
            if std::mem::take(&mut self.is_first) {
                self.app.metrics.first_token(&self.model, self.start.elapsed().as_secs_f64());
            }
            match new {
                // Text that is held back comes with what follows; a token without text is told all the same.
                WriteEvent::Piece(text, None) if text.is_empty() => {}
                WriteEvent::Piece(text, token) => return Some(event(&self.chunks.piece(index, &text, token.as_ref()))),
                WriteEvent::Finished(whole) => {
                    self.unfinished -= 1;
                    return Some(event(&self.chunks.end(index, &whole)));
                }
                WriteEvent::Failed(error) => {
                    let why = error.to_string();
                    return Some(self.broken(&error.into(), &why));
                }
            }
        }
    }

    /// The last event of a stream that fails. Its status was sent long ago, so that only the log and a number tell of it.
    fn broken(&mut self, refusal: &Refusal, why: &str) -> Bytes {
        self.is_over = true;
        self.app.metrics.broken_streams.fetch_add(1, Ordering::Relaxed);
        self.app.log.error(&format!("the stream {} of {} broke off: {why}", self.chunks.id(), self.model));
        event(&openai_error(refusal))
    }
}

fn event(value: &Json) -> Bytes {
    format!("data: {value}\n\n").into()
}
