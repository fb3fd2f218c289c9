//! `/explain/NAME`: what a model does inside with an image, a text or a recording, as the page that `vitreous explain` writes, or as JSON.

mod image;
mod image_text;
mod speech;
mod text;

use std::sync::Arc;

use axum::extract::{Path, Query as UrlQuery, Request, State};
use axum::http::header::ACCEPT;
use axum::response::Response;
use vitreous_pages::explained::ExplainedError;

use super::classify::top;
use crate::http::shape::{html, json_answer};
use crate::http::{App, Input, Query, cannot};
use crate::models::watched::WatchedModel;
use crate::models::{Recording, Served, Service};
use crate::refusal::Refusal;
use crate::work::WorkError;

/// Show what a model does inside with an image, a text or a recording
#[utoipa::path(post, path = "/explain/{name}", tag = "Plain",
    params(("name" = String, Path, description = "The model"), ("top" = Option<usize>, Query, description = "How many classes, or tokens"),
        ("format" = Option<String>, Query, description = "`html`, or `json`, which `Accept: application/json` asks for, too")),
    request_body(content_type = "application/octet-stream", description = "An image, a text or a recording; or a form or JSON with \
        `image`, `audio`, `text`, `pair`, `question`, `context`, `target`; with an image, `text` has captions, one per line"),
    responses((status = 200, description = "A page, or JSON"), (status = 400, description = "The request is wrong")))]
pub async fn explain(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    query: Result<UrlQuery<Query>, axum::extract::rejection::QueryRejection>,
    request: Request,
) -> Result<Response, Refusal> {
    let UrlQuery(query) = query.map_err(|error| Refusal::bad(error.body_text()))?;
    let top = top(&query)?;
    let accepts = request.headers().get(ACCEPT).and_then(|accept| accept.to_str().ok()).unwrap_or_default();
    let as_json = match query.format.as_deref() {
        Some("json") => true,
        Some("html") => false,
        Some(_) => return Err(Refusal::field("format", "`format` is html or json")),
        None => accepts.split(',').any(|kind| kind.trim().starts_with("application/json")),
    };
    let served = app.model(Some(&name))?;
    let shown = Shown { name: served.name.clone(), top, as_json };
    let explained = explained(&app, &served, shown, request).await?;
    Ok(match explained {
        Explained::Json(object) => json_answer(&object),
        Explained::Page(page) => html(page),
    })
}

/// How it is shown.
struct Shown {
    /// What the model is called. Where it lies on the server's disk is nobody's business.
    name: String,
    top: usize,
    as_json: bool,
}

enum Explained {
    Json(serde_json::Value),
    Page(String),
}

async fn explained(app: &Arc<App>, served: &Served, shown: Shown, request: Request) -> Result<Explained, Refusal> {
    let Some(watched) = served.watched() else { return Err(cannot(served, "explain")) };
    let (model, device) = (watched.model.clone(), watched.device().clone());
    let mut input = Input::read(app, request).await?;
    let place = served.place()?;
    let explained = match (&served.service, model) {
        (Service::Images(images), WatchedModel::Image(model)) => {
            let prepared = images.prepare(input.take_file("an image")?).await?;
            served.alone(move || image::explained(&model, &device, &prepared, &shown)).await?
        }
        (_, WatchedModel::Speech(model)) => {
            let bytes = input.take_file("a recording")?;
            let recording = Recording { bytes, most_seconds: app.limits.audio_seconds };
            served.alone(move || speech::explained(&model, &device, &recording, &shown)).await?
        }
        (Service::ImagesAndTexts(both), _) => {
            let captions = image_text::captions(&mut input)?;
            let prepared = both.images.prepare(input.take_file("an image")?).await?;
            let model = both.model.clone();
            served.alone(move || image_text::explained(&model, &device, &prepared, &captions, &shown)).await?
        }
        (_, model) => {
            let given = text::Given::of(&mut input)?;
            served.alone(move || text::explained(&model, &device, &given, &shown)).await?
        }
    };
    drop(place);
    Ok(explained)
}

fn failed(error: impl std::fmt::Display) -> WorkError {
    WorkError::Failed(error.to_string())
}

impl From<ExplainedError> for WorkError {
    fn from(error: ExplainedError) -> WorkError {
        match error.is_input() {
            true => WorkError::Input(error.to_string()),
            false => WorkError::Failed(error.to_string()),
        }
    }
}
