//! The description of the API, made from the endpoints themselves.

use axum::response::Response;
use utoipa::OpenApi;
use utoipa::openapi::path::{ParameterBuilder, ParameterIn};
use utoipa::openapi::{PathItem, Required};

use super::shape::json_answer;
use super::v2::{MODEL, VERSIONED_MODEL};
use super::{admin, glass, openai, page, plain, runs, v2};

/// All endpoints.
#[derive(OpenApi)]
#[openapi(
    info(
        title = "Vitreous",
        description = "Models over HTTP: OpenAI's API, the Open Inference Protocol, and plain requests.",
        license(name = "MIT OR Apache-2.0")
    ),
    paths(
        glass::app::index,
        glass::app::file,
        glass::models::list,
        glass::inputs::give,
        glass::inputs::seen,
        glass::look::look,
        glass::look::graph,
        page::docs,
        json,
        admin::metrics,
        admin::reload,
        openai::models::list,
        openai::models::one,
        openai::completions::complete,
        openai::chat::complete,
        openai::embeddings::embed,
        openai::transcriptions::transcribe,
        plain::classify::classify,
        plain::explain::explain,
        runs::list,
        runs::one,
        runs::pictures,
        runs::beside,
        runs::events,
        runs::all_events,
        v2::server,
        v2::live,
        v2::ready,
        v2::index,
        v2::model,
        v2::model_ready,
        v2::infer::infer,
    )
)]
struct Described;

/// The description of the API.
pub fn openapi() -> utoipa::openapi::OpenApi {
    let mut api = Described::openapi();
    // Each endpoint of a model of the Open Inference Protocol is there a second time, with a version.
    let versioned: Vec<(String, PathItem)> = (api.paths.paths.iter())
        .filter_map(|(path, item)| {
            Some((format!("{VERSIONED_MODEL}{}", path.strip_prefix(MODEL)?), with_version(item.clone())))
        })
        .collect();
    api.paths.paths.extend(versioned);
    api
}

fn with_version(mut item: PathItem) -> PathItem {
    for operation in [&mut item.get, &mut item.post].into_iter().flatten() {
        let version = ParameterBuilder::new().name("version").parameter_in(ParameterIn::Path).required(Required::True);
        let version = version.description(Some("The version, which is 1")).build();
        operation.parameters.get_or_insert_default().push(version);
        operation.operation_id = operation.operation_id.take().map(|id| format!("{id}_of_version"));
    }
    item
}

/// This description
#[utoipa::path(get, path = "/openapi.json", tag = "Server", responses((status = 200, description = "OpenAPI 3.1")))]
pub async fn json() -> Response {
    json_answer(&openapi())
}
