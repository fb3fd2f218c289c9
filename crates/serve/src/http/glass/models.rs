//! `/glass/models`: the models that can be watched.

use std::sync::Arc;

use axum::extract::State;
use axum::response::Response;
use serde_json::{Value, json};
use vitreous_models::model::is_untrained;

use crate::http::App;
use crate::http::shape::json_answer;
use crate::models::Served;
use crate::refusal::Refusal;
use crate::work::WorkError;

/// The models that can be watched: what each takes and gives, its layers and heads
#[utoipa::path(get, path = "/glass/models", tag = "Glass house", responses((status = 200, description = "A list")))]
pub async fn list(State(app): State<Arc<App>>) -> Result<Response, Refusal> {
    let models = app.models()?;
    let described = tokio::task::spawn_blocking(move || {
        let watched = models.all().iter().filter_map(|served| Some((served, served.watched()?)));
        let described = watched.map(|(served, watched)| Ok(with_origin(&app, served, watched.described()?)));
        described.collect::<Result<Vec<Value>, WorkError>>()
    });
    let described = described.await.map_err(|_| Refusal::internal())??;
    Ok(json_answer(&json!({"models": described})))
}

/// Where a model comes from: the run that trained it, if that is shown; whether it has its initial values.
fn with_origin(app: &App, served: &Served, mut described: Value) -> Value {
    let path = served.path.as_deref();
    let run = app.runs.as_ref().zip(path).and_then(|(runs, path)| runs.folder().run_of(path));
    described["trained_run"] = json!(run);
    described["untrained"] = json!(path.is_some_and(is_untrained));
    described
}
