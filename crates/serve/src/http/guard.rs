//! What every request passes through.

use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use axum::extract::{MatchedPath, Request, State};
use axum::http::header::{AUTHORIZATION, CONNECTION, HeaderName};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::Next;
use axum::response::{IntoResponse, Response};
use futures_util::FutureExt;

use super::{App, RequestId, cors, shape};
use crate::log::RequestLine;
use crate::refusal::Refusal;
use crate::work::panic_text;

const REQUEST_ID: HeaderName = HeaderName::from_static("x-request-id");

/// What is logged of a client that left before its answer: nginx's status for it.
const CLIENT_LEFT: u16 = 499;

/// A request while it is being answered: it is counted and, where its client leaves, logged.
struct InFlight<'a> {
    app: &'a App,
    id: String,
    method: Method,
    path: String,
    endpoint: String,
    start: Instant,
    is_answered: bool,
}

impl InFlight<'_> {
    /// Counts and logs how it ended.
    fn ended(&self, status: u16, error: Option<&str>) {
        let took = self.start.elapsed();
        self.app.metrics.request(&self.endpoint, status, took.as_secs_f64());
        let (id, method, path) = (self.id.as_str(), self.method.as_str(), self.path.as_str());
        self.app.log.request(&RequestLine { id, method, path, status, took, error });
    }
}

impl Drop for InFlight<'_> {
    fn drop(&mut self) {
        self.app.metrics.in_flight.fetch_sub(1, Ordering::Relaxed);
        if !self.is_answered {
            self.app.metrics.left.fetch_add(1, Ordering::Relaxed);
            self.ended(CLIENT_LEFT, Some("the client left before its answer"));
        }
    }
}

/// Gives a request its id, checks its key, limits its time, catches panics, and writes what was refused in the shape of its API.
pub async fn guard(State(app): State<Arc<App>>, mut request: Request, next: Next) -> Response {
    app.metrics.in_flight.fetch_add(1, Ordering::Relaxed);
    let matched = request.extensions().get::<MatchedPath>();
    let mut in_flight = InFlight {
        app: &app,
        id: app.request_id(request.headers()),
        method: request.method().clone(),
        path: request.uri().path().to_string(),
        // Paths that nobody serves are one endpoint, so that they cannot fill memory.
        endpoint: matched.map_or("other", MatchedPath::as_str).to_string(),
        start: Instant::now(),
        is_answered: false,
    };
    request.extensions_mut().insert(RequestId(in_flight.id.clone()));
    let origin = cors::allowed_origin(&app, request.headers());
    let mut response = match cors::preflight(&app, request.method(), origin.as_ref()) {
        Some(response) => response,
        None => match check(&app, &request) {
            Ok(()) => answered(&app, request, next).await,
            Err(refusal) => refusal.into_response(),
        },
    };
    let refusal = response.extensions_mut().remove::<Refusal>();
    if let Some(refusal) = &refusal {
        response = shape::refused(&in_flight.path, refusal);
        if refusal.status == StatusCode::REQUEST_TIMEOUT || refusal.status == StatusCode::PAYLOAD_TOO_LARGE {
            // What is left of the body is not read.
            response.headers_mut().insert(CONNECTION, HeaderValue::from_static("close"));
        }
    }
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_str(&in_flight.id) {
        headers.insert(REQUEST_ID, id);
    }
    headers.insert("x-content-type-options", HeaderValue::from_static("nosniff"));
    cors::add_headers(origin, headers);
    in_flight.is_answered = true;
    in_flight.ended(response.status().as_u16(), refusal.as_ref().map(|refusal| refusal.message.as_str()));
    response
}

/// The endpoint's answer, within its time, also if it panics.
async fn answered(app: &App, request: Request, next: Next) -> Response {
    let work = AssertUnwindSafe(next.run(request)).catch_unwind();
    match tokio::time::timeout(app.limits.answer, work).await {
        Ok(Ok(response)) => response,
        Ok(Err(panic)) => {
            app.log.error(&panic_text(panic.as_ref()));
            Refusal::internal().into_response()
        }
        Err(_) => {
            let seconds = app.limits.answer.as_secs();
            let what = format!("the answer took longer than {seconds} s; ask for less, or raise --timeout");
            Refusal::new(StatusCode::GATEWAY_TIMEOUT, what).into_response()
        }
    }
}

/// Refuses whoever has no key, and other sites' pages that would change something.
fn check(app: &App, request: &Request) -> Result<(), Refusal> {
    let path = request.uri().path();
    // Probes have no keys, and learn nothing.
    if path.starts_with("/v2/health/") {
        return Ok(());
    }
    // The page itself asks for the key, and is the same in every copy of the program.
    if (path == "/" || path.starts_with("/glass/app/")) && matches!(*request.method(), Method::GET | Method::HEAD) {
        return Ok(());
    }
    if let Some(keys) = &app.keys
        && !given_key(request.headers()).is_some_and(|key| keys.allow(key))
    {
        let what = "a key is needed: send it as `Authorization: Bearer KEY`";
        let code = Some("invalid_api_key");
        return Err(Refusal { code, ..Refusal::new(StatusCode::UNAUTHORIZED, what) });
    }
    if path.starts_with("/admin/") && request.method() != Method::GET {
        if app.keys.is_none() && !app.is_local {
            let what = "without --api-key-file this is possible from this machine alone: listen on a loopback address";
            return Err(Refusal::new(StatusCode::FORBIDDEN, what));
        }
        // A page of another site that is open in a browser here must not do this.
        if request.headers().contains_key("origin") || request.headers().contains_key("sec-fetch-site") {
            return Err(Refusal::new(StatusCode::FORBIDDEN, "this is not for pages in a browser"));
        }
    }
    Ok(())
}

fn given_key(headers: &HeaderMap) -> Option<&[u8]> {
    let bearer = headers.get(AUTHORIZATION).and_then(|value| {
        let (scheme, key) = value.as_bytes().split_at_checked(7)?;
        scheme.eq_ignore_ascii_case(b"bearer ").then_some(key)
    });
    bearer.or_else(|| headers.get("x-api-key").map(HeaderValue::as_bytes)).map(<[u8]>::trim_ascii)
}
