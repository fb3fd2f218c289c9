//! Endpoints, and what every request passes through: an id, a limit of time, keys, a shape for refusals, a line in the log.

mod admin;
mod body;
mod cors;
mod glass;
mod guard;
mod openai;
pub mod openapi;
mod page;
mod plain;
mod runs;
mod shape;
mod v2;

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::Duration;

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::from_fn_with_state;
use axum::routing::{MethodRouter, get, post};
use tokio::sync::{Semaphore, mpsc, oneshot};

use crate::log::{Log, RequestLine};
use crate::metrics::Metrics;
use crate::models::{ModelSet, Models, Served};
use crate::options::{ApiKeys, Limits};
use crate::refusal::Refusal;
use crate::training::RunWatchers;

pub(crate) use body::{Input, Query};

/// Whether models were loaded again; or why not.
pub type Reloaded = oneshot::Sender<Result<(), String>>;

/// What all requests share.
pub struct App {
    pub models: Models,
    pub limits: Limits,
    pub keys: Option<ApiKeys>,
    pub origins: Vec<String>,
    pub metrics: Arc<Metrics>,
    pub log: Log,
    /// Training runs to show.
    pub runs: Option<RunWatchers>,
    /// Whether only other programs on this machine can ask.
    pub is_local: bool,
    /// Whether the server is about to end.
    pub is_draining: AtomicBool,
    /// Requests to load models again.
    pub reload: mpsc::Sender<Reloaded>,
    /// Bytes of bodies that there is room for.
    pub body_room: Arc<Semaphore>,
    /// A number of this process, and how many ids were given.
    pub ids: (u64, AtomicU64),
}

impl App {
    /// The models that are served now.
    pub fn models(&self) -> Result<Arc<ModelSet>, Refusal> {
        self.models.now().ok_or_else(|| Refusal::unavailable("the models are being loaded; ask again in a moment"))
    }

    /// The model of a name. Without a name it is the only one.
    pub fn model(&self, name: Option<&str>) -> Result<Arc<Served>, Refusal> {
        let models = self.models()?;
        let names = || models.all().iter().map(|model| format!("`{}`", model.name)).collect::<Vec<_>>().join(", ");
        let found = match (name, models.all()) {
            (Some(name), _) => models.get(name),
            (None, [only]) => Some(only),
            (None, _) => return Err(Refusal::field("model", format!("name a model: there are {}", names()))),
        };
        found.cloned().ok_or_else(|| {
            let name: String = name.unwrap_or_default().chars().take(100).collect();
            let what = format!("there is no model `{name}`; there are {}", names());
            Refusal { code: Some("model_not_found"), field: Some("model"), ..Refusal::not_found(what) }
        })
    }

    /// An id that a client gave, if it is a sensible one, or a new one.
    pub fn request_id(&self, headers: &HeaderMap) -> String {
        let given = headers.get("x-request-id").and_then(|id| id.to_str().ok());
        let is_usual = |letter: char| letter.is_ascii_alphanumeric() || "-_.".contains(letter);
        match given.filter(|id| (1..=64).contains(&id.len()) && id.chars().all(is_usual)) {
            Some(id) => id.to_string(),
            None => format!("req-{:08x}-{:x}", self.ids.0 as u32, self.ids.1.fetch_add(1, Ordering::Relaxed)),
        }
    }
}

impl App {
    /// Counts and logs what is no request and was refused by hyper; gives the id of its answer.
    pub fn refused_unread(&self, status: u16) -> String {
        let id = self.request_id(&HeaderMap::new());
        self.metrics.request("other", status, 0.0);
        let error = Some("this is no request that is understood");
        self.log.request(&RequestLine { id: &id, method: "-", path: "-", status, took: Duration::ZERO, error });
        id
    }
}

/// The id of a request, which its answer has, too.
#[derive(Clone, Debug)]
pub struct RequestId(pub String);

impl RequestId {
    /// The one that a request was given.
    pub fn of(request: &axum::extract::Request) -> String {
        request.extensions().get::<RequestId>().map(|id| id.0.clone()).unwrap_or_default()
    }
}

/// The wrong model for an endpoint.
pub(crate) fn cannot(model: &Served, what: &str) -> Refusal {
    Refusal::field("model", format!("this model cannot {what}: {}", model.what_it_does()))
}

/// All endpoints but those of the page, by their paths.
fn routes() -> Vec<(String, MethodRouter<Arc<App>>)> {
    let mut routes: Vec<(String, MethodRouter<Arc<App>>)> = vec![
        ("/docs".into(), get(page::docs)),
        ("/openapi.json".into(), get(openapi::json)),
        ("/metrics".into(), get(admin::metrics)),
        ("/admin/reload".into(), post(admin::reload)),
        ("/v1/models".into(), get(openai::models::list)),
        ("/v1/models/{name}".into(), get(openai::models::one)),
        ("/v1/completions".into(), post(openai::completions::complete)),
        ("/v1/chat/completions".into(), post(openai::chat::complete)),
        ("/v1/embeddings".into(), post(openai::embeddings::embed)),
        ("/v1/audio/transcriptions".into(), post(openai::transcriptions::transcribe)),
        ("/classify/{name}".into(), post(plain::classify::classify)),
        ("/explain/{name}".into(), post(plain::explain::explain)),
        ("/glass/events".into(), get(runs::all_events)),
        ("/glass/runs".into(), get(runs::list)),
        ("/glass/runs/{name}".into(), get(runs::one)),
        ("/glass/runs/{name}/events".into(), get(runs::events)),
        ("/glass/runs/{name}/pictures".into(), get(runs::pictures)),
        ("/glass/runs/{name}/beside/{other}".into(), get(runs::beside)),
        ("/v2".into(), get(v2::server)),
        ("/v2/health/live".into(), get(v2::live)),
        ("/v2/health/ready".into(), get(v2::ready)),
        ("/v2/repository/index".into(), post(v2::index)),
    ];
    for place in [v2::MODEL, v2::VERSIONED_MODEL] {
        routes.push((place.into(), get(v2::model)));
        routes.push((format!("{place}/ready"), get(v2::model_ready)));
        routes.push((format!("{place}/infer"), post(v2::infer::infer)));
    }
    routes
}

/// All endpoints.
pub fn router(app: Arc<App>) -> Router {
    let routes = routes().into_iter();
    routes
        .fold(Router::new(), |router, (path, endpoint)| router.route(&path, endpoint))
        .merge(glass::routes())
        .fallback(no_endpoint)
        .method_not_allowed_fallback(other_method)
        // Bodies are read by `body`, which has limits of its own.
        .layer(DefaultBodyLimit::disable())
        .layer(from_fn_with_state(app.clone(), guard::guard))
        .with_state(app)
}

async fn no_endpoint() -> Refusal {
    Refusal::not_found("there is no such endpoint; GET /docs lists them")
}

async fn other_method() -> Refusal {
    Refusal::new(StatusCode::METHOD_NOT_ALLOWED, "this endpoint has another method; GET /docs lists them")
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_endpoint_is_described_and_every_description_is_of_an_endpoint() {
        let described = openapi::openapi().paths.paths;
        // The page's own are put together elsewhere.
        let is_of_page = |path: &String| path == "/" || path.starts_with("/glass/");
        let described: BTreeSet<String> = described.into_keys().filter(|path| !is_of_page(path)).collect();
        let served: BTreeSet<String> =
            routes().into_iter().map(|(path, _)| path).filter(|path| !is_of_page(path)).collect();
        assert_eq!(described, served);
    }
}
