//! `/explain/NAME`: what a model does inside with an image, as the page that `vitreous explain` writes, or as JSON.

use std::sync::Arc;

use axum::extract::{Path, Query as UrlQuery, Request, State};
use axum::http::header::ACCEPT;
use axum::response::Response;
use vitreous_engine::{Device, Graph};
use vitreous_explain::{Classes, Explainer, Settings, Structure, pictures};
use vitreous_models::{Call, Size};
use vitreous_pages::explain::weights::WeightPictures;
use vitreous_pages::explain::{ImagePage, PartSeen, json, page};
use vitreous_pages::facts::{flow_notes, image_model};
use vitreous_pages::flow;
use vitreous_runtime::ImageModel;

use super::classify::top;
use crate::http::shape::{html, json_answer};
use crate::http::{App, Input, Query, cannot};
use crate::models::{PreparedImage, Service};
use crate::refusal::Refusal;
use crate::work::WorkError;

/// Show what a model does inside with an image
#[utoipa::path(post, path = "/explain/{name}", tag = "Plain",
    params(("name" = String, Path, description = "The model"), ("top" = Option<usize>, Query, description = "How many classes"),
        ("format" = Option<String>, Query, description = "`html`, or `json`, which `Accept: application/json` asks for, too")),
    request_body(content_type = "application/octet-stream", description = "An image file; or a form or JSON with `image`"),
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
    let Service::Images(images) = &served.service else { return Err(cannot(&served, "explain images")) };
    let mut input = Input::read(&app, request).await?;
    let place = served.place()?;
    let prepared = images.prepare(input.take_file()?).await?;
    let shown = served.name.clone();
    let work = move |model: &ImageModel, device: &Device| explained(model, device, &prepared, &shown, top, as_json);
    let explained = images.alone(work).await?;
    drop(place);
    Ok(match explained {
        Explained::Json(object) => json_answer(&object),
        Explained::Page(page) => html(page),
    })
}

enum Explained {
    Json(serde_json::Value),
    Page(String),
}

fn explained(
    model: &ImageModel,
    device: &Device,
    image: &PreparedImage,
    name: &str,
    top: usize,
    as_json: bool,
) -> Result<Explained, WorkError> {
    let architecture = model.model.architecture.as_ref();
    let structure = Structure::of(architecture).map_err(failed)?;
    let usual = Settings::usual(structure, vitreous_runtime::threads());
    let settings = Settings { classes: Classes::TopAnd(top, Vec::new()), ..usual };
    let mut explainer = Explainer::new(&model.model, settings, device).map_err(failed)?;
    let explanation = explainer.explain(&image.numbers).map_err(failed)?;
    if as_json {
        return Ok(Explained::Json(json::object("image", None, &explanation, model, top)));
    }
    let pictures = pictures(&model.model).map_err(failed)?;
    let weights = WeightPictures::draw(&pictures, model.input.channels).map_err(failed)?;
    let mut graph = Graph::for_inference();
    architecture.build(&mut graph, &Call::whole(1)).map_err(failed)?;
    let flow = flow::drawing(&graph, &flow_notes(architecture));
    let mut facts = image_model(&model.model).map_err(failed)?;
    // Where a model lies on the server's disk is nobody's business.
    facts.path = name.to_string();
    let size = explanation.layout.image;
    let seen = model.preprocess.undo(&image.numbers, [size.height, size.width]).map_err(failed)?;
    let [whole, part] = image.sizes.map(|[height, width]| Size { height, width });
    let shown = ImagePage {
        path: "image",
        model: &facts,
        seen: &seen,
        part: PartSeen { image: whole, seen: part },
        explanation: &explanation,
        parts: None,
        weights: &weights,
        flow: &flow,
        top,
    };
    Ok(Explained::Page(page(&shown).map_err(failed)?))
}

fn failed(error: impl std::fmt::Display) -> WorkError {
    WorkError::Failed(error.to_string())
}
