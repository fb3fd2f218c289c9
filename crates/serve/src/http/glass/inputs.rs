//! `/glass/NAME/inputs`: what a model is given, once.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use serde::Deserialize;

use super::{input, watched};
use crate::http::shape::json_answer;
use crate::http::{App, body};
use crate::models::watched::GivenInput;
use crate::refusal::Refusal;

/// A text or tokens.
#[derive(Deserialize)]
#[serde(deny_unknown_fields)]
struct InputBody {
    text: Option<String>,
    pair: Option<String>,
    target: Option<String>,
    ids: Option<Vec<u32>>,
}

/// Give a model an input to be watched; the same input has the same id
#[utoipa::path(post, path = "/glass/{name}/inputs", tag = "Glass house", params(("name" = String, Path, description = "The model")),
    request_body(content_type = "application/octet-stream", description = "An image or a recording, or JSON with `text`, `pair`, `target` or `ids`"),
    responses((status = 200, description = "Its id and its tokens"), (status = 400, description = "The model does not take it"),
        (status = 413, description = "It is too large")))]
pub async fn give(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    request: Request,
) -> Result<Response, Refusal> {
    let served = app.model(Some(&name))?;
    watched(&served)?;
    let kind = request.headers().get(CONTENT_TYPE).and_then(|kind| kind.to_str().ok()).unwrap_or_default();
    let is_json = kind.split(';').next().unwrap_or_default().trim().eq_ignore_ascii_case("application/json");
    let bytes = body::bytes(&app, request).await?;
    let given = match is_json {
        true => of_json(&bytes)?,
        false if bytes.is_empty() => {
            return Err(Refusal::bad("the body is empty: send an image, a recording, or JSON with `text`"));
        }
        false => GivenInput::File(bytes),
    };
    let place = served.place()?;
    let taken = served.watch(given).await?;
    drop(place);
    Ok(json_answer(&taken.json()))
}

fn of_json(bytes: &[u8]) -> Result<GivenInput, Refusal> {
    match body::parse(bytes)? {
        InputBody { ids: Some(ids), text: None, pair: None, target: None } => Ok(GivenInput::Tokens(ids)),
        InputBody { text: Some(text), pair, target, ids: None } => Ok(GivenInput::Text { text, pair, target }),
        _ => Err(Refusal::field("text", "send either `text`, perhaps with `pair` or `target`, or `ids`")),
    }
}

/// The picture as the model sees it, or the spectrogram of a recording
#[utoipa::path(get, path = "/glass/{name}/inputs/{input}/seen", tag = "Glass house",
    params(("name" = String, Path, description = "The model"), ("input" = String, Path, description = "The input's id")),
    responses((status = 200, description = "A PNG"), (status = 410, description = "The input is not kept any more: give it again")))]
pub async fn seen(State(app): State<Arc<App>>, Path((name, id)): Path<(String, String)>) -> Result<Response, Refusal> {
    let served = app.model(Some(&name))?;
    let given = input(watched(&served)?, &id)?;
    let drawing = tokio::task::spawn_blocking(move || match served.watched() {
        Some(watched) => watched.picture(&given),
        None => Ok(None),
    });
    let png = drawing.await.map_err(|_| Refusal::internal())??;
    let png = png.ok_or_else(|| Refusal::not_found("a text has no picture"))?;
    Ok(([(CONTENT_TYPE, "image/png"), (CACHE_CONTROL, "private, max-age=86400")], png).into_response())
}
