//! `/v1/models`.

use std::sync::Arc;

use axum::extract::{Path, State};
use axum::response::Response;
use serde_json::{Value as Json, json};

use crate::http::App;
use crate::http::shape::json_answer;
use crate::models::Served;
use crate::refusal::Refusal;

fn object(model: &Served) -> Json {
    json!({"id": model.name, "object": "model", "created": model.loaded, "owned_by": "vitreous", "description": model.what})
}

/// The models
#[utoipa::path(get, path = "/v1/models", tag = "OpenAI", responses((status = 200, description = "A list of models")))]
pub async fn list(State(app): State<Arc<App>>) -> Result<Response, Refusal> {
    let models = app.models()?;
    let data: Vec<Json> = models.all().iter().map(|model| object(model)).collect();
    Ok(json_answer(&json!({"object": "list", "data": data})))
}

/// One model
#[utoipa::path(get, path = "/v1/models/{name}", tag = "OpenAI", params(("name" = String, Path, description = "The model")),
    responses((status = 200, description = "The model"), (status = 404, description = "There is no such model")))]
pub async fn one(State(app): State<Arc<App>>, Path(name): Path<String>) -> Result<Response, Refusal> {
    Ok(json_answer(&object(app.model(Some(&name))?.as_ref())))
}
