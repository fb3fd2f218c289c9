//! Cross-origin requests: refused by browsers, unless their origin was named with `--cors`.

use axum::http::header::{
    ACCESS_CONTROL_ALLOW_HEADERS, ACCESS_CONTROL_ALLOW_METHODS, ACCESS_CONTROL_ALLOW_ORIGIN,
    ACCESS_CONTROL_EXPOSE_HEADERS, ACCESS_CONTROL_MAX_AGE, ORIGIN, VARY,
};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::response::{IntoResponse, Response};

use super::App;

/// The origin of a request, if pages of it may ask.
pub fn allowed_origin(app: &App, headers: &HeaderMap) -> Option<HeaderValue> {
    let origin = headers.get(ORIGIN)?;
    let is_named = |named: &String| named == "*" || named.as_bytes() == origin.as_bytes();
    app.origins.iter().any(is_named).then(|| origin.clone())
}

/// The answer to a browser that asks whether it may ask.
pub fn preflight(app: &App, method: &Method, origin: Option<&HeaderValue>) -> Option<Response> {
    if method != Method::OPTIONS || app.origins.is_empty() {
        return None;
    }
    let mut response = StatusCode::NO_CONTENT.into_response();
    if origin.is_some() {
        let headers = response.headers_mut();
        headers.insert(ACCESS_CONTROL_ALLOW_METHODS, HeaderValue::from_static("GET, POST"));
        let allowed = HeaderValue::from_static("authorization, content-type, x-api-key, x-request-id");
        headers.insert(ACCESS_CONTROL_ALLOW_HEADERS, allowed);
        headers.insert(ACCESS_CONTROL_MAX_AGE, HeaderValue::from_static("600"));
    }
    Some(response)
}

/// Lets pages of an origin read the answer.
pub fn add_headers(origin: Option<HeaderValue>, headers: &mut HeaderMap) {
    if let Some(origin) = origin {
        headers.insert(ACCESS_CONTROL_ALLOW_ORIGIN, origin);
        headers.insert(ACCESS_CONTROL_EXPOSE_HEADERS, HeaderValue::from_static("x-request-id"));
        headers.append(VARY, HeaderValue::from_static("origin"));
    }
}
