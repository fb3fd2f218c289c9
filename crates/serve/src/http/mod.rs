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

use axum::Router;
use axum::extract::DefaultBodyLimit;
use axum::http::{HeaderMap, StatusCode};
use axum::middleware::from_fn_with_state;
use axum::routing::{get, post};
use tokio::sync::{mpsc, oneshot};

use crate::log::Log;
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

/// All endpoints.
pub fn router(app: Arc<App>) -> Router {
    let of_model =
        |path: &str| [format!("/v2/models/{{name}}{path}"), format!("/v2/models/{{name}}/versions/{{version}}{path}")];
    let mut router = Router::new()
        .route("/docs", get(page::docs))
        .route("/openapi.json", get(openapi::json))
        .route("/metrics", get(admin::metrics))
        .route("/admin/reload", post(admin::reload))
        .route("/v1/models", get(openai::models::list))
        .route("/v1/models/{name}", get(openai::models::one))
        .route("/v1/completions", post(openai::completions::complete))
        .route("/v1/chat/completions", post(openai::chat::complete))
        .route("/v1/embeddings", post(openai::embeddings::embed))
        .route("/v1/audio/transcriptions", post(openai::transcriptions::transcribe))
        .route("/classify/{name}", post(plain::classify::classify))
        .route("/explain/{name}", post(plain::explain::explain))
        .route("/glass/events", get(runs::all_events))
        .route("/glass/runs", get(runs::list))
        .route("/glass/runs/{name}", get(runs::one))
        .route("/glass/runs/{name}/events", get(runs::events))
        .route("/glass/runs/{name}/pictures", get(runs::pictures))
        .route("/glass/runs/{name}/beside/{other}", get(runs::beside))
        .route("/v2", get(v2::server))
        .route("/v2/health/live", get(v2::live))
        .route("/v2/health/ready", get(v2::ready))
        .route("/v2/repository/index", post(v2::index));
    for path in of_model("") {
        router = router.route(&path, get(v2::model));
    }
    for path in of_model("/ready") {
        router = router.route(&path, get(v2::model_ready));
    }
    for path in of_model("/infer") {
        router = router.route(&path, post(v2::infer::infer));
    }
    router
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
