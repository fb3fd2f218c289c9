//! `/v2/models/NAME/infer`: tensors in, tensors out, as JSON or with their bytes behind it.

use std::sync::Arc;

use axum::extract::{Path, Request, State};
use axum::http::HeaderValue;
use axum::response::{IntoResponse, Response};
use serde::Deserialize;
use serde::de::IgnoredAny;
use serde_json::{Value as Json, json};
use utoipa::ToSchema;
use vitreous_runtime::OutputName;
use vitreous_runtime::text::{Purpose, TextInput};

use super::tensor::{GivenTensor, Tensor, Values};
use super::{ModelPath, VERSION};
use crate::http::openai::{WritingFields, finished, parse};
use crate::http::shape::json_answer;
use crate::http::{App, body, cannot};
use crate::models::{
    ImageService, LanguageService, Recording, SequenceFields, Served, Service, TensorShape, TextRequest, TextService,
    TranscribeOptions,
};
use crate::refusal::Refusal;

/// How many bytes of a body are JSON; tensors come behind.
const JSON_LENGTH: &str = "inference-header-content-length";
/// How many classes of each token.
const USUAL_TOP: usize = 5;
/// The most tokens to write, where no parameter says a number.
const USUAL_TOKENS: usize = 16;

/// What is asked for.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct InferRequest {
    /// Comes back with the answer
    pub id: Option<String>,
    /// The inputs
    pub inputs: Vec<GivenTensor>,
    /// The outputs that are wanted; without any, the first that the model has
    pub outputs: Option<Vec<AskedOutput>>,
    /// `binary_data_output`; for language models also `max_tokens`, `temperature` and others of `/v1/completions`, for translators `from` and `to`
    #[schema(value_type = Option<Object>)]
    pub parameters: Option<Json>,
}

/// An output that is wanted.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct AskedOutput {
    /// Its name
    pub name: String,
    /// `binary_data`: whether its bytes come behind the JSON
    #[schema(value_type = Option<Object>)]
    pub parameters: Option<Json>,
}

/// Ask a model by tensors
#[utoipa::path(post, path = "/v2/models/{name}/infer", tag = "Open Inference Protocol",
    params(("name" = String, Path, description = "The model")), request_body = InferRequest, responses(
    (status = 200, description = "The outputs"), (status = 400, description = "The request is wrong"),
    (status = 429, description = "The queue is full: ask again after `Retry-After` seconds")))]
pub async fn infer(
    State(app): State<Arc<App>>,
    Path(path): Path<ModelPath>,
    request: Request,
) -> Result<Response, Refusal> {
    let served = path.model(&app)?;
    let json_length = match request.headers().get(JSON_LENGTH) {
        None => None,
        Some(length) => {
            let number = length.to_str().ok().and_then(|length| length.parse::<usize>().ok());
            Some(number.ok_or_else(|| Refusal::bad(format!("`{JSON_LENGTH}` is not a number")))?)
        }
    };
    let body = body::bytes(&app, request).await?;
    let (json, mut binary) = match json_length {
        None => (&body[..], &[][..]),
        Some(length) => body.split_at_checked(length).ok_or_else(|| {
            Refusal::bad(format!("`{JSON_LENGTH}` is {length}, but the body has {} bytes", body.len()))
        })?,
    };
    let asked: InferRequest = body::parse(json)?;
    let mut inputs = Vec::new();
    for tensor in asked.inputs {
        let bytes = match tensor.binary_size()? {
            None => None,
            Some(size) => {
                let (bytes, rest) = binary.split_at_checked(size).ok_or_else(|| {
                    Refusal::bad("the tensors behind the JSON are shorter than `binary_data_size` says")
                })?;
                binary = rest;
                Some(bytes)
            }
        };
        let name = tensor.name.clone();
        inputs.push((name, tensor.read(bytes)?));
    }
    if !binary.is_empty() {
        return Err(Refusal::bad(format!("{} bytes behind the JSON belong to no input", binary.len())));
    }
    let known = served.tensors().ok_or_else(|| cannot(&served, "be asked by tensors"))?;
    let names: Vec<&str> = known.outputs.iter().map(|output| output.name).collect();
    let wanted = match asked.outputs.filter(|outputs| !outputs.is_empty()) {
        None => names.iter().take(1).map(|name| (*name, false)).collect(),
        Some(outputs) => {
            let mut wanted: Vec<(&str, bool)> = Vec::new();
            for output in outputs {
                let name = names.iter().find(|name| **name == output.name);
                let unknown = || Refusal::bad(format!("there is no such output; there are {}", names.join(", ")));
                let name = *name.ok_or_else(unknown)?;
                // Each is computed, so that one name must not be many.
                if wanted.iter().any(|(known, _)| *known == name) {
                    return Err(Refusal::bad(format!("the output `{name}` is named twice")));
                }
                wanted.push((name, flag(output.parameters.as_ref(), "binary_data")));
            }
            wanted
        }
    };
    let all_binary = flag(asked.parameters.as_ref(), "binary_data_output");
    let tensors = in_order(inputs, &known.inputs)?;
    let place = served.place()?;
    let mut outputs = Vec::new();
    let mut bytes = Vec::new();
    for (name, is_binary) in wanted {
        let found = compute(&app, &served, name, tensors.clone(), asked.parameters.as_ref()).await?;
        outputs.push(found.write(name, (is_binary || all_binary).then_some(&mut bytes)));
    }
    drop(place);
    let mut answer = json!({"model_name": served.name, "model_version": VERSION, "outputs": outputs});
    if let Some(id) = asked.id {
        answer["id"] = json!(id);
    }
    if bytes.is_empty() {
        return Ok(json_answer(&answer));
    }
    let mut whole = answer.to_string().into_bytes();
    let length = HeaderValue::from(whole.len());
    whole.extend(bytes);
    let mut response = whole.into_response();
    response.headers_mut().insert("content-type", HeaderValue::from_static("application/octet-stream"));
    response.headers_mut().insert(JSON_LENGTH, length);
    Ok(response)
}

/// The inputs in the order in which the model has them; each must be there once, and no other, and all of one batch.
fn in_order(mut given: Vec<(String, Tensor)>, known: &[TensorShape]) -> Result<Vec<Tensor>, Refusal> {
    let mut tensors: Vec<Tensor> = Vec::new();
    for input in known {
        if let Some(place) = given.iter().position(|(name, _)| name == input.name) {
            tensors.push(given.swap_remove(place).1);
        }
    }
    if tensors.len() < known.len() || !given.is_empty() {
        let names: Vec<String> = known.iter().map(|input| format!("`{}`", input.name)).collect();
        let count = if known.len() == 1 { "one input" } else { "two inputs" };
        return Err(Refusal::bad(format!("this model takes {count}, {}", names.join(" and "))));
    }
    if tensors.windows(2).any(|pair| pair[0].shape.first() != pair[1].shape.first()) {
        return Err(Refusal::bad("all inputs of a batch have equally many rows"));
    }
    Ok(tensors)
}

fn flag(parameters: Option<&Json>, name: &str) -> bool {
    parameters.and_then(|parameters| parameters.get(name)).and_then(Json::as_bool).unwrap_or(false)
}

async fn compute(
    app: &Arc<App>,
    served: &Served,
    output: &str,
    mut inputs: Vec<Tensor>,
    parameters: Option<&Json>,
) -> Result<Tensor, Refusal> {
    let pairs = if inputs.len() > 1 { inputs.pop() } else { None };
    let input = inputs.pop().ok_or_else(|| Refusal::bad("there is no input"))?;
    let (count, most) = (input.shape.first().copied().unwrap_or(0), app.limits.inputs);
    if count == 0 || count > most {
        return Err(Refusal::bad(format!("a batch has between 1 and {most} rows; this one has {count}")));
    }
    match &served.service {
        Service::Images(images) => images_of(images, output, input).await,
        Service::Texts(texts) => {
            let pairs = pairs.map(texts_in).transpose()?;
            texts_of(texts, output, texts_in(input)?, pairs).await
        }
        Service::Language(language) => written(app, served, language, texts_in(input)?, parameters).await,
        Service::Sequences(sequences) => {
            let parameters = parameters.map(|parameters| body::parse(parameters.to_string().as_bytes())).transpose()?;
            let fields: SequenceFields = parameters.unwrap_or_default();
            sequences.check_languages(&fields)?;
            let asked = texts_in(input)?.into_iter().map(|text| sequences.write(text, fields.clone()));
            let all = futures_util::future::try_join_all(asked).await?;
            Ok(Tensor::of_texts(all.into_iter().map(|one| one.text).collect()))
        }
        Service::ImagesAndTexts(both) => images_of(&both.images, output, input).await,
        Service::Speech(speech) => {
            let Values::Texts(recordings) = input.values else { return Err(Refusal::bad("`audio` is BYTES")) };
            let most_seconds = app.limits.audio_seconds;
            let transcribed = recordings.into_iter().map(|bytes| {
                let recording = Recording { bytes: bytes.into(), most_seconds };
                speech.transcribe(recording, TranscribeOptions::default())
            });
            let all = futures_util::future::try_join_all(transcribed).await?;
            Ok(Tensor::of_texts(all.into_iter().map(|one| one.text.trim().to_string()).collect()))
        }
    }
}

async fn images_of(images: &ImageService, output: &str, input: Tensor) -> Result<Tensor, Refusal> {
    let of = &images.model.input;
    let size = [of.channels, of.size.height, of.size.width];
    if input.shape.len() != 4 || input.shape[1..] != size {
        return Err(Refusal::bad(format!("`images` has the shape [batch, {}, {}, {}]", size[0], size[1], size[2])));
    }
    let Values::Numbers(numbers) = input.values else { return Err(Refusal::bad("`images` is FP32")) };
    if numbers.iter().any(|number| !number.is_finite()) {
        return Err(Refusal::bad("`images` has values that are no numbers, or infinite"));
    }
    let rows = numbers.chunks_exact(of.floats().max(1)).map(<[f32]>::to_vec).collect();
    let output = if output == "logits" { OutputName::Logits } else { OutputName::Features };
    Ok(Tensor::of_rows(images.run(output, rows).await?))
}

fn texts_in(input: Tensor) -> Result<Vec<String>, Refusal> {
    if input.shape.len() > 2 || (input.shape.len() == 2 && input.shape[1] != 1) {
        return Err(Refusal::bad("texts have the shape [batch] or [batch, 1]"));
    }
    let Values::Texts(texts) = input.values else { return Err(Refusal::bad("texts are BYTES")) };
    let text = |text: Vec<u8>| String::from_utf8(text).map_err(|_| Refusal::bad("a text is not UTF-8"));
    texts.into_iter().map(text).collect()
}

async fn texts_of(
    texts: &TextService,
    output: &str,
    inputs: Vec<String>,
    pairs: Option<Vec<String>>,
) -> Result<Tensor, Refusal> {
    if inputs.iter().chain(pairs.iter().flatten()).any(String::is_empty) {
        return Err(Refusal::bad("a text is empty"));
    }
    let mut pairs = pairs.unwrap_or_default().into_iter();
    let inputs: Vec<TextInput> = inputs.into_iter().map(|text| TextInput { text, pair: pairs.next() }).collect();
    if output == "answer" {
        let answers = inputs.into_iter().map(|input| texts.answer(input, USUAL_TOP));
        let answers = futures_util::future::try_join_all(answers).await?;
        return Ok(Tensor::of_texts(answers.iter().map(Json::to_string).collect()));
    }
    let is_vector = output == "embedding";
    let encoded = texts.tokenize(inputs, is_vector.then_some(Purpose::Any)).await?;
    Ok(Tensor::of_rows(match is_vector {
        true => texts.embed(encoded).await?,
        false => texts.logits(encoded).await?,
    }))
}

async fn written(
    app: &Arc<App>,
    served: &Served,
    language: &LanguageService,
    prompts: Vec<String>,
    parameters: Option<&Json>,
) -> Result<Tensor, Refusal> {
    let fields: WritingFields = match parameters {
        Some(parameters) => parse::<IgnoredAny>(parameters.to_string().as_bytes())?.1,
        None => WritingFields::default(),
    };
    fields.check_tokens()?;
    let (options, format) = (fields.options(USUAL_TOKENS, None)?, fields.format()?);
    let mut receivers = Vec::new();
    for prompt in prompts {
        let prompt = language.prompt(prompt).await?;
        let request = TextRequest { prompt, options: options.clone(), count: 1, format: format.clone() };
        receivers.extend(language.write(request).await?);
    }
    let all = receivers.into_iter().map(|events| finished(app, &served.name, events));
    let all = futures_util::future::try_join_all(all).await?;
    Ok(Tensor::of_texts(all.into_iter().map(|one| one.text).collect()))
}
