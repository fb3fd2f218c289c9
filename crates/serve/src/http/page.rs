//! `/docs`: a plain page that says what is here.

use std::fmt::Write;
use std::sync::Arc;

use axum::extract::State;
use axum::http::HeaderMap;
use axum::http::header::HOST;
use axum::response::Response;
use vitreous_pages::escape;

use super::App;
use super::openapi::openapi;
use super::shape::html;

const STYLE: &str = "body{font:16px/1.5 system-ui,sans-serif;max-width:60rem;margin:2rem auto;padding:0 1rem;color-scheme:light dark}\
                     pre{overflow-x:auto;padding:.5rem .75rem;border:1px solid #8886;border-radius:.4rem}\
                     h2{margin:2rem 0 .3rem}h3{margin:1rem 0 .2rem;font-size:1rem}code{font-size:.9em}p{margin:.3rem 0}";

fn page(title: &str, body: &str) -> Response {
    html(format!(
        "<!doctype html>\n<html lang=\"en\"><head><meta charset=\"utf-8\"><meta name=\"viewport\" content=\"width=device-width\">\
         <title>{0}</title><style>{STYLE}</style></head><body><h1>{0}</h1>{body}</body></html>\n",
        escape(title)
    ))
}

/// The models with a line of curl for each of their endpoints, and the description of all endpoints, for people
#[utoipa::path(get, path = "/docs", tag = "Server", responses((status = 200, description = "A page")))]
pub async fn docs(State(app): State<Arc<App>>, headers: HeaderMap) -> Response {
    let described = serde_json::to_value(openapi()).unwrap_or_default();
    let mut body = models(&app, &headers);
    body.push_str("<h2>All endpoints</h2><p>The same for programs: <a href=\"/openapi.json\">openapi.json</a>.</p>");
    let text = |value: &serde_json::Value| escape(value.as_str().unwrap_or_default());
    for (path, methods) in described["paths"].as_object().into_iter().flatten() {
        for (method, endpoint) in methods.as_object().into_iter().flatten() {
            let _ = write!(
                body,
                "<h3>{} <code>{}</code></h3><p>{}</p>",
                method.to_uppercase(),
                escape(path),
                text(&endpoint["summary"])
            );
            let schema = endpoint["requestBody"]["content"].as_object().into_iter().flatten();
            for (kind, content) in schema {
                let name = content["schema"]["$ref"].as_str().and_then(|name| name.rsplit('/').next());
                let _ = write!(body, "<p><code>{}</code></p>", escape(kind));
                if let Some(name) = name {
                    body.push_str(&fields(&described, name));
                }
            }
            for (status, response) in endpoint["responses"].as_object().into_iter().flatten() {
                let _ = write!(body, "<p>{}: {}</p>", escape(status), text(&response["description"]));
            }
        }
    }
    page("Endpoints", &body)
}

/// The models, and what to send to each.
fn models(app: &App, headers: &HeaderMap) -> String {
    let is_usual = |letter: char| letter.is_ascii_alphanumeric() || ".-:[]".contains(letter);
    let host = headers.get(HOST).and_then(|host| host.to_str().ok());
    let host = host.filter(|host| host.len() < 256 && host.chars().all(is_usual)).unwrap_or("127.0.0.1:8000");
    let key = if app.keys.is_some() { "-H 'Authorization: Bearer KEY' " } else { "" };
    let mut body = "<p>Clients of OpenAI's API find it under <code>/v1</code>, those of the Open Inference Protocol (KServe, Triton) under \
                    <code>/v2</code>. <a href=\"/\">Watch a model think</a>, <a href=\"/metrics\">metrics</a>.</p>"
        .to_string();
    match app.models.now() {
        None => body.push_str("<p>The models are being loaded.</p>"),
        Some(models) => {
            for model in models.all() {
                let _ = write!(body, "<h2>{}</h2><p>{}</p>", escape(&model.name), escape(model.what));
                for endpoint in model.endpoints() {
                    let line = format!("curl {key}http://{host}{}", endpoint.example);
                    let _ = write!(
                        body,
                        "<h3>{} <code>{}</code></h3><pre>{}</pre>",
                        endpoint.method,
                        escape(&endpoint.path),
                        escape(&line)
                    );
                }
            }
        }
    }
    body
}

/// The fields of a schema, those of its parts included.
fn fields(described: &serde_json::Value, name: &str) -> String {
    let schema = &described["components"]["schemas"][name];
    let mut list = String::new();
    for part in schema["allOf"].as_array().into_iter().flatten().chain([schema]) {
        if let Some(name) = part["$ref"].as_str().and_then(|name| name.rsplit('/').next()) {
            list.push_str(&fields(described, name));
        }
        for (field, of) in part["properties"].as_object().into_iter().flatten() {
            let what = escape(of["description"].as_str().unwrap_or_default());
            let _ = write!(list, "<p><code>{}</code> {what}</p>", escape(field));
        }
    }
    list
}
