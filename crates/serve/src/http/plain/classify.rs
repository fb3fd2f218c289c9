//! `/classify/NAME`: what a model says of an image or a text, as `vitreous predict --json` and `fill --json` print it.

use std::sync::Arc;

use axum::extract::{Path, Query as UrlQuery, Request, State};
use axum::response::Response;
use serde_json::json;
use vitreous_runtime::OutputName;
use vitreous_runtime::image_text::LabelSet;
use vitreous_runtime::scores::{softmax, top_json};
use vitreous_runtime::text::TextInput;

use crate::http::shape::json_answer;
use crate::http::{App, Input, Query, cannot};
use crate::models::{ImageService, ImageTextService, Service};
use crate::refusal::Refusal;
use crate::work::WorkError;

/// How many classes, if nobody asks for another number.
const USUAL_TOP: usize = 5;
/// The most.
const MOST_TOP: usize = 10_000;

/// How many classes are asked for.
pub fn top(query: &Query) -> Result<usize, Refusal> {
    match query.top.unwrap_or(USUAL_TOP) {
        top @ 1..=MOST_TOP => Ok(top),
        top => Err(Refusal::field("top", format!("`top` is between 1 and {MOST_TOP}; it is {top}"))),
    }
}

/// Say what an image or a text is: classes, entities, an answer, fillings
#[utoipa::path(post, path = "/classify/{name}", tag = "Plain",
    params(("name" = String, Path, description = "The model"), ("top" = Option<usize>, Query, description = "How many classes")),
    request_body(content_type = "application/octet-stream", description = "An image file, or a text; or a form or JSON with `image`, \
        `text`, `pair`, `question`, `context`, `labels`, `template`"),
    responses((status = 200, description = "What the model says"), (status = 400, description = "The request is wrong")))]
pub async fn classify(
    State(app): State<Arc<App>>,
    Path(name): Path<String>,
    query: Result<UrlQuery<Query>, axum::extract::rejection::QueryRejection>,
    request: Request,
) -> Result<Response, Refusal> {
    let UrlQuery(query) = query.map_err(|error| Refusal::bad(error.body_text()))?;
    let top = top(&query)?;
    let served = app.model(Some(&name))?;
    let mut input = Input::read(&app, request).await?;
    let place = served.place()?;
    let answer = match &served.service {
        Service::Images(images) if images.classes().is_some() => classify_image(images, &mut input, top).await?,
        Service::ImagesAndTexts(both) => classify_by_name(both, &mut input, top).await?,
        Service::Texts(texts) if texts.classifies() => {
            let pair = input.pair.take();
            let text = input.take_text()?;
            if texts.answers_questions() && pair.as_ref().is_none_or(|context| context.trim().is_empty()) {
                let what = "this model answers questions about a text: send `question` and `context`";
                return Err(Refusal::field("context", what));
            }
            texts.answer(TextInput { text, pair }, top).await?
        }
        _ => return Err(cannot(&served, "classify")),
    };
    drop(place);
    Ok(json_answer(&answer))
}

async fn classify_image(images: &ImageService, input: &mut Input, top: usize) -> Result<serde_json::Value, Refusal> {
    let file = input.take_file("an image")?;
    let arrival = images.arrive();
    let prepared = images.prepare(file).await?;
    drop(arrival);
    let mut logits = images.run(OutputName::Logits, vec![prepared.numbers]).await?;
    let logits = logits.pop().ok_or_else(Refusal::internal)?;
    let scores = softmax(&logits);
    Ok(json!({"top": top_json(&scores, top, |class| images.model.label(class)), "logits": logits}))
}

/// Classes that are only named, as `vitreous predict --labels` has them.
async fn classify_by_name(
    both: &ImageTextService,
    input: &mut Input,
    top: usize,
) -> Result<serde_json::Value, Refusal> {
    let what = "this model compares images with texts: send `labels`, names of classes between commas";
    let labels = input.labels.take().ok_or_else(|| Refusal::field("labels", what))?;
    let set = LabelSet::new(
        labels.split(',').map(str::to_string).collect(),
        input.template.take().into_iter().collect(),
        "labels",
    );
    let set = set.map_err(WorkError::from)?;
    let names = set.labels().to_vec();
    let prepared = both.images.prepare(input.take_file("an image")?).await?;
    let (logits, scores) = both.classify(prepared.numbers, set).await?;
    Ok(json!({"top": top_json(&scores, top, |class| names[class].clone()), "logits": logits}))
}
