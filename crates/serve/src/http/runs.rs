//! `/glass/runs`: training runs of a folder, and server-sent events of what they write.

use std::collections::HashMap;
use std::convert::Infallible;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use axum::body::Body;
use axum::extract::{Path, State};
use axum::http::HeaderValue;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::response::{IntoResponse, Response};
use bytes::Bytes;
use futures_util::stream;
use serde_json::{Value as Json, json};
use vitreous_pages::{Section, report};
use vitreous_train::RunRecord;

use super::App;
use super::shape::json_answer;
use crate::models::Served;
use crate::refusal::Refusal;
use crate::training::{Listener, RunError, RunEvent, RunSummary, RunWatchers, TooManyListeners};

/// How often a silent stream is looked at, to end with the server.
const BETWEEN_LOOKS: Duration = Duration::from_millis(500);
/// After so many of these a comment is sent, by which clients that have left are noticed.
const LOOKS_PER_SIGN: u32 = 30;

impl From<RunError> for Refusal {
    fn from(error: RunError) -> Refusal {
        match error {
            RunError::Name(_) => Refusal::bad(error.to_string()),
            RunError::Missing(_) => Refusal::not_found(error.to_string()),
            RunError::Unreadable(_) => Refusal::new(axum::http::StatusCode::UNPROCESSABLE_ENTITY, error.to_string()),
        }
    }
}

impl From<TooManyListeners> for Refusal {
    fn from(error: TooManyListeners) -> Refusal {
        Refusal::busy(error.to_string())
    }
}

/// Runs of training in the folder of `--runs`, the latest first
#[utoipa::path(get, path = "/glass/runs", tag = "Page", responses((status = 200, description = "The runs")))]
pub async fn list(State(app): State<Arc<App>>) -> Result<Response, Refusal> {
    let Some(watchers) = &app.runs else { return Ok(json_answer(&json!({ "folder": false, "runs": [] }))) };
    let folder = watchers.folder().clone();
    let runs = blocking(move || Ok(folder.summaries())).await?;
    let served = served_runs(&app);
    let runs: Vec<Json> = runs.iter().map(|run| with_model(run, &served)).collect();
    Ok(json_answer(&json!({ "folder": true, "runs": runs })))
}

/// A run: how far it is, and the sections of its report
#[utoipa::path(get, path = "/glass/runs/{name}", tag = "Page", params(("name" = String, Path, description = "The run")),
    responses((status = 200, description = "The run"), (status = 404, description = "There is no such run")))]
pub async fn one(State(app): State<Arc<App>>, Path(name): Path<String>) -> Result<Response, Refusal> {
    let folder = folder(&app)?.folder().clone();
    let read = blocking(move || {
        let run = folder.read(&name)?;
        let faults: Vec<String> = run.faults.iter().map(ToString::to_string).collect();
        Ok((RunSummary::of(&name, &run), written(report::sections(&run, None)), faults))
    });
    let (summary, sections, faults) = read.await?;
    let mut answer = with_model(&summary, &served_runs(&app));
    answer["sections"] = json!(sections);
    answer["faults"] = json!(faults);
    Ok(json_answer(&answer))
}

/// What a run gets wrong and where it looks, in pictures
#[utoipa::path(get, path = "/glass/runs/{name}/pictures", tag = "Page", params(("name" = String, Path, description = "The run")),
    responses((status = 200, description = "The sections of its report that need its data and its model"), (status = 404, description = "There is no such run")))]
pub async fn pictures(State(app): State<Arc<App>>, Path(name): Path<String>) -> Result<Response, Refusal> {
    let folder = folder(&app)?.folder().clone();
    let sections = blocking(move || folder.pictures(&name)).await?;
    Ok(json_answer(&json!({ "sections": sections })))
}

/// Two runs side by side
#[utoipa::path(get, path = "/glass/runs/{name}/beside/{other}", tag = "Page",
    params(("name" = String, Path, description = "A run"), ("other" = String, Path, description = "Another")),
    responses((status = 200, description = "The sections of a comparison"), (status = 404, description = "There is no such run")))]
pub async fn beside(
    State(app): State<Arc<App>>,
    Path((name, other)): Path<(String, String)>,
) -> Result<Response, Refusal> {
    let folder = folder(&app)?.folder().clone();
    let sections = blocking(move || {
        let runs: [RunRecord; 2] = [folder.read(&name)?, folder.read(&other)?];
        Ok(written(report::comparison::sections(&runs)))
    });
    Ok(json_answer(&json!({ "sections": sections.await? })))
}

/// What a run writes while it trains: server-sent events `metrics` and `state`
#[utoipa::path(get, path = "/glass/runs/{name}/events", tag = "Page", params(("name" = String, Path, description = "The run")),
    responses((status = 200, description = "Server-sent events"), (status = 404, description = "There is no such run")))]
pub async fn events(State(app): State<Arc<App>>, Path(name): Path<String>) -> Result<Response, Refusal> {
    let listener = folder(&app)?.listen(&name).await??;
    Ok(stream_of(app, listener))
}

/// That runs begin, go on, end or are removed: server-sent events `runs`
#[utoipa::path(get, path = "/glass/events", tag = "Page", responses((status = 200, description = "Server-sent events")))]
pub async fn all_events(State(app): State<Arc<App>>) -> Result<Response, Refusal> {
    let listener = folder(&app)?.listen_to_all()?;
    Ok(stream_of(app, listener))
}

fn folder(app: &App) -> Result<&RunWatchers, Refusal> {
    app.runs.as_ref().ok_or_else(|| Refusal::not_found("this server shows no training runs: start it with --runs DIR"))
}

/// The names of served models by the names of their runs.
fn served_runs(app: &App) -> HashMap<String, String> {
    let Some(watchers) = &app.runs else { return HashMap::new() };
    let models = app.models.now();
    let of_run = |model: &Arc<Served>| Some((watchers.folder().run_of(model.path.as_ref()?)?, model.name.clone()));
    models.iter().flat_map(|models| models.all()).filter_map(of_run).collect()
}

/// A run in a line, with the name of its model where that is served.
fn with_model(run: &RunSummary, served: &HashMap<String, String>) -> Json {
    let mut json = run.json().clone();
    json["model"] = json!(served.get(&run.name));
    json
}

fn written(sections: Vec<Section>) -> Vec<Json> {
    sections.iter().map(Section::json).collect()
}

/// What waits for disks, on a thread for that.
async fn blocking<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RunError> + Send + 'static,
) -> Result<T, Refusal> {
    Ok(tokio::task::spawn_blocking(work).await.map_err(|_| Refusal::internal())??)
}

fn stream_of(app: Arc<App>, listener: Listener) -> Response {
    let events = stream::unfold((app, listener), |(app, mut listener)| async move {
        let bytes = next(&app, &mut listener).await?;
        Some((Ok::<Bytes, Infallible>(bytes), (app, listener)))
    });
    let mut response = Body::from_stream(events).into_response();
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("text/event-stream; charset=utf-8"));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-cache"));
    // nginx would hold events back.
    headers.insert("x-accel-buffering", HeaderValue::from_static("no"));
    response
}

/// The next event, or a comment when there was none for long; `None` at the end, which is also that of the server.
async fn next(app: &App, listener: &mut Listener) -> Option<Bytes> {
    for _ in 0..LOOKS_PER_SIGN {
        if app.is_draining.load(Ordering::Relaxed) {
            return None;
        }
        if let Ok(event) = tokio::time::timeout(BETWEEN_LOOKS, listener.next()).await {
            return event.map(|event| bytes_of(&event));
        }
    }
    Some(Bytes::from_static(b": here\n\n"))
}

fn bytes_of(event: &RunEvent) -> Bytes {
    let id = event.line.map(|line| format!("id: {line}\n")).unwrap_or_default();
    format!("event: {}\n{id}data: {}\n\n", event.name, event.data).into()
}
