//! Answers and refusals as the client of an API expects them.

use axum::http::header::{CONTENT_TYPE, RETRY_AFTER};
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::{Value as Json, json};

use crate::refusal::Refusal;

/// JSON with a status.
pub fn json_response(status: StatusCode, value: &impl serde::Serialize) -> Response {
    match serde_json::to_vec(value) {
        Ok(bytes) => (status, [(CONTENT_TYPE, HeaderValue::from_static("application/json"))], bytes).into_response(),
        Err(_) => StatusCode::INTERNAL_SERVER_ERROR.into_response(),
    }
}

/// JSON.
pub fn json_answer(value: &impl serde::Serialize) -> Response {
    json_response(StatusCode::OK, value)
}

/// A page.
pub fn html(page: String) -> Response {
    let policy = "default-src 'none'; style-src 'unsafe-inline'; script-src 'unsafe-inline'; img-src data:; form-action 'none'; \
                  frame-ancestors 'none'; base-uri 'none'";
    let headers = [("content-type", "text/html; charset=utf-8"), ("content-security-policy", policy)];
    (headers, page).into_response()
}

/// A refusal: KServe's clients read `error` as a text, OpenAI's as an object. For people the latter is as good.
pub fn refused(path: &str, refusal: &Refusal) -> Response {
    let body = match path == "/v2" || path.starts_with("/v2/") {
        true => json!({"error": refusal.message}),
        false => openai_error(refusal),
    };
    let mut response = json_response(refusal.status, &body);
    if let Some(seconds) = refusal.retry_after {
        response.headers_mut().insert(RETRY_AFTER, HeaderValue::from(seconds));
    }
    if refusal.status == StatusCode::UNAUTHORIZED {
        response.headers_mut().insert("www-authenticate", HeaderValue::from_static("Bearer"));
    }
    response
}

/// OpenAI's shape of an error.
pub fn openai_error(refusal: &Refusal) -> Json {
    let kind = match refusal.status.as_u16() {
        401 => "authentication_error",
        429 => "rate_limit_error",
        500.. => "server_error",
        _ => "invalid_request_error",
    };
    json!({"error": {"message": refusal.message, "type": kind, "param": refusal.field, "code": refusal.code}})
}
