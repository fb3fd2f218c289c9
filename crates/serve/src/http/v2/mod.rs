//! The Open Inference Protocol, version 2, as KServe and Triton speak it over HTTP.

pub mod infer;
mod tensor;

use std::sync::Arc;
use std::sync::atomic::Ordering;

use axum::extract::{Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use serde_json::{Value as Json, json};

use super::shape::json_answer;
use super::{App, cannot};
use crate::models::{Served, TensorShape};
use crate::refusal::Refusal;

/// The version of every model.
const VERSION: &str = "1";

/// Where a model is, and where it is for clients that name a version.
pub const MODEL: &str = "/v2/models/{name}";
pub const VERSIONED_MODEL: &str = "/v2/models/{name}/versions/{version}";

/// What is in the path of a model's endpoints.
#[derive(serde::Deserialize)]
pub struct ModelPath {
    name: String,
    version: Option<String>,
}

impl ModelPath {
    /// The model that is meant.
    fn model(&self, app: &App) -> Result<Arc<Served>, Refusal> {
        if self.version.as_deref().is_some_and(|version| version != VERSION) {
            return Err(Refusal::not_found(format!("models have version {VERSION} alone")));
        }
        app.model(Some(&self.name))
    }
}

/// What this server is
#[utoipa::path(get, path = "/v2", tag = "Open Inference Protocol", responses((status = 200, description = "Name, version, extensions")))]
pub async fn server() -> Response {
    let version = env!("CARGO_PKG_VERSION");
    json_answer(&json!({"name": "vitreous", "version": version, "extensions": ["binary_tensor_data"]}))
}

/// Whether the server runs
#[utoipa::path(get, path = "/v2/health/live", tag = "Open Inference Protocol", responses((status = 200, description = "It runs")))]
pub async fn live() -> Response {
    StatusCode::OK.into_response()
}

/// Whether all models can answer
#[utoipa::path(get, path = "/v2/health/ready", tag = "Open Inference Protocol", responses(
    (status = 200, description = "They can"), (status = 503, description = "They are being loaded, or the server is about to end")))]
pub async fn ready(State(app): State<Arc<App>>) -> Result<Response, Refusal> {
    if app.is_draining.load(Ordering::Relaxed) {
        return Err(Refusal::unavailable("the server is about to end"));
    }
    app.models().map(|_| StatusCode::OK.into_response())
}

/// The models
#[utoipa::path(post, path = "/v2/repository/index", tag = "Open Inference Protocol", responses((status = 200, description = "A list")))]
pub async fn index(State(app): State<Arc<App>>) -> Result<Response, Refusal> {
    let models = app.models()?;
    let one = |model: &Arc<Served>| json!({"name": model.name, "version": VERSION, "state": "READY", "reason": ""});
    Ok(json_answer(&models.all().iter().map(one).collect::<Vec<Json>>()))
}

/// The tensors of a model
#[utoipa::path(get, path = "/v2/models/{name}", tag = "Open Inference Protocol", params(("name" = String, Path, description = "The model")),
    responses((status = 200, description = "Its inputs and outputs"), (status = 404, description = "There is no such model")))]
pub async fn model(State(app): State<Arc<App>>, Path(path): Path<ModelPath>) -> Result<Response, Refusal> {
    let served = path.model(&app)?;
    let tensors = served.tensors().ok_or_else(|| cannot(&served, "be asked by tensors"))?;
    let one = |tensor: &TensorShape| json!({"name": tensor.name, "datatype": tensor.datatype, "shape": tensor.shape});
    Ok(json_answer(&json!({
        "name": served.name, "versions": [VERSION], "platform": "vitreous",
        "inputs": tensors.inputs.iter().map(one).collect::<Vec<Json>>(),
        "outputs": tensors.outputs.iter().map(one).collect::<Vec<Json>>(),
    })))
}

/// Whether a model can answer
#[utoipa::path(get, path = "/v2/models/{name}/ready", tag = "Open Inference Protocol",
    params(("name" = String, Path, description = "The model")), responses((status = 200, description = "It can")))]
pub async fn model_ready(State(app): State<Arc<App>>, Path(path): Path<ModelPath>) -> Result<Response, Refusal> {
    path.model(&app).map(|_| StatusCode::OK.into_response())
}
