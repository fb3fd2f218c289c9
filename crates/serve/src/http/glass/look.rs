//! `/glass/NAME/look`: the values of one run, with edits; `/glass/NAME/graph`: the stages.

use std::sync::Arc;

use axum::extract::{Path, Query, Request, State};
use axum::response::Response;
use serde::Deserialize;

use super::{binary, input, watched};
use crate::http::shape::json_answer;
use crate::http::{App, body};
use crate::models::watched::{EditAsked, Look, Want};
use crate::refusal::Refusal;

/// The body of a look.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct LookBody {
    input: String,
    #[serde(default)]
    edits: Vec<EditAsked>,
    #[serde(default)]
    want: Want,
}

/// See what a model does with an input, with edits inside it
#[utoipa::path(post, path = "/glass/{name}/look", tag = "Glass house", params(("name" = String, Path, description = "The model")),
    request_body(content_type = "application/json", description = "`input`, `edits` and `want`"),
    responses((status = 200, description = "A JSON header and arrays, in binary"), (status = 400, description = "The request is wrong"),
        (status = 410, description = "The input is not kept any more: give it again"), (status = 413, description = "The answer would be too large")))]
pub async fn look(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Refusal> {
    let served = app.model(Some(&name))?;
    let of = watched(&served)?;
    let LookBody { input: id, edits, want } = body::json(&app, request).await?;
    let given = input(of, &id)?;
    let others = edits.iter().filter_map(|edit| edit.input.as_ref());
    for other in others.chain(want.patching.iter().map(|patching| &patching.other)) {
        input(of, other)?;
    }
    let place = served.place()?;
    let looked = served.look(Look { input: given, edits, want }).await?;
    drop(place);
    binary::response(looked)
}

/// Behind `?`.
#[derive(Deserialize)]
pub struct GraphQuery {
    /// The input, whose lengths the graph has.
    input: Option<String>,
}

/// The stages of a model for an input, in order of computation
#[utoipa::path(get, path = "/glass/{name}/graph", tag = "Glass house",
    params(("name" = String, Path, description = "The model"), ("input" = String, Query, description = "The input's id")),
    responses((status = 200, description = "The stages"), (status = 410, description = "The input is not kept any more: give it again")))]
pub async fn graph(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    query: Result<Query<GraphQuery>, axum::extract::rejection::QueryRejection>,
) -> Result<Response, Refusal> {
    let Query(query) = query.map_err(|error| Refusal::bad(error.body_text()))?;
    let served = app.model(Some(&name))?;
    let of = watched(&served)?;
    let id = query.input.ok_or_else(|| Refusal::field("input", "name the input: ?input=ID"))?;
    let given = input(of, &id)?;
    let place = served.place()?;
    let stages = of.graph(given).await?;
    drop(place);
    Ok(json_answer(&stages))
}
