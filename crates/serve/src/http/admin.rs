//! What is for whoever runs the server.

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::State;
use axum::http::{HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use serde_json::json;
use tokio::sync::oneshot;

use super::App;
use super::shape::json_answer;
use crate::refusal::Refusal;

/// Numbers for Prometheus
#[utoipa::path(get, path = "/metrics", tag = "Server", responses((status = 200, description = "Prometheus' text format")))]
pub async fn metrics(State(app): State<Arc<App>>) -> Response {
    let bodies = app.limits.bodies.saturating_sub(app.body_room.available_permits());
    app.metrics.body_bytes.store(bodies, Ordering::Relaxed);
    let models = app.models.now();
    let gauges = models.iter().flat_map(|models| models.all().iter().flat_map(|model| model.gauges()));
    let text = app.metrics.text(&gauges.collect::<Vec<_>>());
    let mut response = text.into_response();
    let kind = HeaderValue::from_static("text/plain; version=0.0.4; charset=utf-8");
    response.headers_mut().insert("content-type", kind);
    response
}

/// Load all models again, from where they were; requests under way are answered by the old ones
#[utoipa::path(post, path = "/admin/reload", tag = "Server", responses(
    (status = 200, description = "The new models answer from now on"),
    (status = 500, description = "A model cannot be opened; the old ones go on"),
))]
pub async fn reload(State(app): State<Arc<App>>) -> Result<Response, Refusal> {
    let (answer, answered) = oneshot::channel();
    app.reload.send(answer).await.map_err(|_| Refusal::unavailable("the server is about to end"))?;
    match answered.await {
        Ok(Ok(())) => Ok(json_answer(&json!({"status": "reloaded"}))),
        Ok(Err(name)) => {
            let what = format!("the model `{name}` cannot be opened, so that the old ones go on; the log says why");
            Err(Refusal::new(StatusCode::INTERNAL_SERVER_ERROR, what))
        }
        Err(_) => Err(Refusal::unavailable("the server is about to end")),
    }
}
