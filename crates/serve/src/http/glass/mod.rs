//! The glass house: a page where a model is watched while it thinks, and what the page asks for. See `docs/glass.md`.

pub mod app;
mod binary;
pub mod inputs;
pub mod look;
pub mod models;

use std::sync::Arc;

use axum::Router;
use axum::http::StatusCode;
use axum::routing::{get, post};

use super::App;
use crate::models::watched::{WatchedInput, forgotten};
use crate::models::{Served, Watched};
use crate::refusal::Refusal;

/// Its endpoints.
pub fn routes() -> Router<Arc<App>> {
    Router::new()
        .route("/", get(app::index))
        .route("/glass/app/{*file}", get(app::file))
        .route("/glass/models", get(models::list))
        .route("/glass/{name}/inputs", post(inputs::give))
        .route("/glass/{name}/inputs/{input}/seen", get(inputs::seen))
        .route("/glass/{name}/graph", get(look::graph))
        .route("/glass/{name}/look", post(look::look))
}

/// The model as it is watched.
fn watched(served: &Served) -> Result<&Watched, Refusal> {
    let what =
        || Refusal::field("model", format!("`{}` cannot be watched: it was not opened from a file", served.name));
    served.watched().ok_or_else(what)
}

/// An input that was given before. One that is not kept any more is gone: the page gives it again.
fn input(watched: &Watched, id: &str) -> Result<Arc<WatchedInput>, Refusal> {
    let gone = || Refusal {
        code: Some("input_forgotten"),
        field: Some("input"),
        ..Refusal::new(StatusCode::GONE, forgotten(id))
    };
    watched.input(id).ok_or_else(gone)
}
