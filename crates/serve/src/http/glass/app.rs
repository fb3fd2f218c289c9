//! The page and its files, from the binary.

use axum::extract::{Path, RawQuery};
use axum::http::header::{CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, ETAG, IF_NONE_MATCH};
use axum::http::{HeaderMap, HeaderValue, StatusCode};
use axum::response::{IntoResponse, Response};
use vitreous_pages::glass;

use crate::refusal::Refusal;

/// Nothing comes from anywhere else, and nothing in the page is a script but its files.
const POLICY: &str = "default-src 'self'; img-src 'self' blob: data:; media-src 'self' blob:; object-src 'none'; \
                      form-action 'none'; frame-ancestors 'none'; base-uri 'none'";

/// The page where a model is watched while it thinks
#[utoipa::path(get, path = "/", tag = "Glass house", responses((status = 200, description = "A page")))]
pub async fn index(headers: HeaderMap) -> Result<Response, Refusal> {
    asset("index.html", &headers, None)
}

/// A file of the page
#[utoipa::path(get, path = "/glass/app/{file}", tag = "Glass house", params(("file" = String, Path, description = "Its name")),
    responses((status = 200, description = "The file; with `?v=` of its hash it never changes"), (status = 304, description = "It is as it was")))]
pub async fn file(
    Path(name): Path<String>,
    RawQuery(query): RawQuery,
    headers: HeaderMap,
) -> Result<Response, Refusal> {
    asset(&name, &headers, query.as_deref())
}

fn asset(name: &str, headers: &HeaderMap, query: Option<&str>) -> Result<Response, Refusal> {
    let missing = || Refusal::not_found("the page has no such file");
    let asset = glass::file(name).ok_or_else(missing)?;
    let tag = format!("\"{}\"", asset.hash);
    let is_known = headers.get(IF_NONE_MATCH).is_some_and(|known| {
        known.to_str().is_ok_and(|known| known.split(',').any(|one| one.trim().trim_start_matches("W/") == tag))
    });
    let is_named = query.and_then(|query| query.strip_prefix("v=")) == Some(asset.hash.as_str());
    let mut response = match is_known {
        true => StatusCode::NOT_MODIFIED.into_response(),
        false => asset.bytes.into_owned().into_response(),
    };
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static(asset.kind));
    headers.insert(CONTENT_SECURITY_POLICY, HeaderValue::from_static(POLICY));
    let caching = if is_named { "public, max-age=31536000, immutable" } else { "no-cache" };
    headers.insert(CACHE_CONTROL, HeaderValue::from_static(caching));
    headers.insert(ETAG, HeaderValue::from_str(&tag).map_err(|_| Refusal::internal())?);
    headers.insert("referrer-policy", HeaderValue::from_static("no-referrer"));
    Ok(response)
}
