//! `/v1/completions`: texts that go on from prompts.

use std::sync::Arc;

use axum::extract::{Request, State};
use axum::response::Response;
use serde::Deserialize;
use serde_json::{Value as Json, json};
use utoipa::ToSchema;
use vitreous_models::generate::WrittenToken;
use vitreous_runtime::language::{Continuation, LanguageModel};

use super::stream::{Chunks, respond};
use super::unsupported::UnsupportedFields;
use super::writing::{WritingFields, finish_reason, finished, language, parse, usage};
use super::{logprobs, now};
use crate::http::shape::json_answer;
use crate::http::{App, RequestId, body};
use crate::models::{Place, SequenceFields, SequenceService, Served, Service, TextRequest};
use crate::refusal::Refusal;
use crate::work::WorkError;

/// The most tokens where the client says no number, as OpenAI has it.
const USUAL_TOKENS: usize = 16;

/// One prompt or several, as text or as tokens.
#[derive(Clone, Debug, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Prompts {
    /// A text.
    Text(String),
    /// Texts.
    Texts(Vec<String>),
    /// Tokens.
    Tokens(Vec<u32>),
    /// Tokens of several prompts.
    TokenLists(Vec<Vec<u32>>),
}

/// What only completions have.
#[derive(Clone, Debug, Deserialize, ToSchema)]
pub struct CompletionFields {
    /// What to go on from
    pub prompt: Prompts,
    /// Tell the probability of each token, and so many of the likeliest in its place
    pub logprobs: Option<usize>,
    /// Whether the answer begins with the prompt
    pub echo: Option<bool>,
    /// The language of the prompt, for translators of several languages: `en_XX`, or `en`
    pub from: Option<String>,
    /// The language to translate to
    pub to: Option<String>,
}

/// The body, for its description.
#[derive(Deserialize, ToSchema)]
pub struct CompletionRequest {
    #[serde(flatten)]
    _own: CompletionFields,
    #[serde(flatten)]
    _writing: WritingFields,
    #[serde(flatten)]
    _unsupported: UnsupportedFields,
}

/// Write on from a prompt
#[utoipa::path(post, path = "/v1/completions", tag = "OpenAI", request_body = CompletionRequest, responses(
    (status = 200, description = "The texts, or a stream of events"),
    (status = 400, description = "The request is wrong"),
    (status = 429, description = "The queue is full: ask again after `Retry-After` seconds"),
))]
pub async fn complete(State(app): State<Arc<App>>, request: Request) -> Result<Response, Refusal> {
    let id = format!("cmpl-{}", RequestId::of(&request));
    let (own, writing): (CompletionFields, WritingFields) = parse(&body::bytes(&app, request).await?)?;
    let served = app.model(writing.model.as_deref())?;
    if let Service::Sequences(sequences) = &served.service {
        return write_sequences(&app, &served, sequences, own, &writing, id).await;
    }
    let model = language(&served, "complete texts")?;
    for (name, given) in [("from", &own.from), ("to", &own.to)] {
        if given.is_some() {
            return Err(Refusal::field(
                name,
                format!("`{name}` is for translators, but `{}` is {}", served.name, served.what),
            ));
        }
    }
    let options = writing.options(USUAL_TOKENS, own.logprobs)?;
    let (count, format) = (writing.count()?, writing.format()?);
    let echo = own.echo.unwrap_or(false);
    if !echo {
        writing.check_tokens()?;
    }
    let prompts = prompts(&app, &own.prompt)?;
    let (texts, most) = (prompts.len().saturating_mul(count), app.limits.inputs);
    if texts > most {
        let what = format!("{} prompts with `n` = {count} are {texts} texts; {most} are the most", prompts.len());
        return Err(Refusal::field("n", what));
    }
    let place = served.place()?;
    let (mut tokens, mut receivers, mut echoed) = (0, Vec::new(), Vec::<Echoed>::new());
    for prompt in prompts {
        let (prompt, text) = match prompt {
            Prompt::Text(text) => (model.prompt(text.clone()).await?, text),
            Prompt::Tokens(tokens) => {
                let tokens = model.given_prompt(tokens)?;
                let text = model.model.tokenizer.decode(&tokens, true).unwrap_or_default();
                (tokens, text)
            }
        };
        tokens += prompt.len();
        let echoed_prompt = match (echo, own.logprobs) {
            (false, _) => Echoed::default(),
            (true, None) => Echoed { text, tokens: Vec::new() },
            (true, Some(top)) => Echoed { text, tokens: model.prompt_logprobs(prompt.clone(), top).await? },
        };
        echoed.extend(std::iter::repeat_n(echoed_prompt, count));
        let request = TextRequest { prompt, options: options.clone(), count, format: format.clone() };
        receivers.extend(model.write(request).await?);
    }
    let chunks = CompletionChunks {
        id,
        served: served.clone(),
        model: model.model.clone(),
        created: now(),
        logprobs: own.logprobs.is_some(),
        tells_usage: writing.tells_usage(),
        prompt_tokens: tokens,
        written: 0,
        offsets: echoed.iter().map(|echoed| logprobs::characters(&model.model, &echoed.tokens)).collect(),
        echoed,
    };
    if writing.is_streamed() {
        return Ok(respond(app, served.name.clone(), receivers, chunks, place));
    }
    let all = receivers.into_iter().map(|events| finished(&app, &served.name, events));
    let all = futures_util::future::try_join_all(all).await?;
    drop::<Place>(place);
    let written = all.iter().map(|one| one.tokens.len()).sum();
    let choices: Vec<Json> = all.iter().enumerate().map(|(index, one)| chunks.choice(index, one)).collect();
    Ok(json_answer(&json!({
        "id": chunks.id, "object": "text_completion", "created": chunks.created, "model": served.name,
        "choices": choices, "usage": usage(tokens, written),
    })))
}

/// What an answer begins with.
#[derive(Clone, Default)]
struct Echoed {
    /// The prompt.
    text: String,
    /// Its tokens, if their probabilities were asked for.
    tokens: Vec<WrittenToken>,
}

enum Prompt {
    Text(String),
    Tokens(Vec<u32>),
}

fn prompts(app: &App, given: &Prompts) -> Result<Vec<Prompt>, Refusal> {
    let prompts: Vec<Prompt> = match given {
        Prompts::Text(text) => vec![Prompt::Text(text.clone())],
        Prompts::Texts(texts) => texts.iter().map(|text| Prompt::Text(text.clone())).collect(),
        Prompts::Tokens(tokens) => vec![Prompt::Tokens(tokens.clone())],
        Prompts::TokenLists(lists) => lists.iter().map(|tokens| Prompt::Tokens(tokens.clone())).collect(),
    };
    let most = app.limits.inputs;
    match prompts.len() {
        0 => Err(Refusal::field("prompt", "`prompt` is empty")),
        count if count > most => {
            Err(Refusal::field("prompt", format!("`prompt` has {count} prompts; {most} are the most")))
        }
        _ => Ok(prompts),
    }
}

/// How completions look.
struct CompletionChunks {
    id: String,
    served: Arc<Served>,
    model: Arc<LanguageModel>,
    created: u64,
    logprobs: bool,
    tells_usage: bool,
    prompt_tokens: usize,
    written: usize,
    /// Characters of each text so far.
    offsets: Vec<usize>,
    /// What comes before each text.
    echoed: Vec<Echoed>,
}

impl CompletionChunks {
    fn choice(&self, index: usize, whole: &Continuation) -> Json {
        let Echoed { text, tokens } = &self.echoed[index];
        let text = format!("{text}{}", whole.text);
        let told = self.logprobs.then(|| {
            let tokens = [&tokens[..], &whole.tokens].concat();
            logprobs::of_completion(&self.model, &tokens, 0)
        });
        json!({"index": index, "text": text, "logprobs": told, "finish_reason": finish_reason(whole.stop)})
    }

    fn chunk(&self, choices: Json) -> Json {
        json!({
            "id": self.id, "object": "text_completion", "created": self.created, "model": self.served.name,
            "choices": choices,
        })
    }
}

impl Chunks for CompletionChunks {
    fn id(&self) -> &str {
        &self.id
    }

    fn first(&self, index: usize) -> Option<Json> {
        let Echoed { text, tokens } = &self.echoed[index];
        let told = (!tokens.is_empty()).then(|| logprobs::of_completion(&self.model, tokens, 0));
        let choice = json!({"index": index, "text": text, "logprobs": told, "finish_reason": null});
        (!text.is_empty()).then(|| self.chunk(json!([choice])))
    }

    fn piece(&mut self, index: usize, text: &str, token: Option<&WrittenToken>) -> Json {
        self.written += usize::from(token.is_some());
        let told = token
            .filter(|_| self.logprobs)
            .map(|token| logprobs::of_completion(&self.model, std::slice::from_ref(token), self.offsets[index]));
        self.offsets[index] += text.chars().count();
        self.chunk(json!([{"index": index, "text": text, "logprobs": told, "finish_reason": null}]))
    }

    fn end(&self, index: usize, whole: &Continuation) -> Json {
        let reason = finish_reason(whole.stop);
        self.chunk(json!([{"index": index, "text": "", "logprobs": null, "finish_reason": reason}]))
    }

    fn usage(&self) -> Option<Json> {
        let mut chunk = self.chunk(json!([]));
        chunk["usage"] = usage(self.prompt_tokens, self.written);
        self.tells_usage.then_some(chunk)
    }
}

/// Answers prompts with an encoder-decoder, whose own files say how it searches.
async fn write_sequences(
    app: &Arc<App>,
    served: &Arc<Served>,
    sequences: &SequenceService,
    own: CompletionFields,
    writing: &WritingFields,
    id: String,
) -> Result<Response, Refusal> {
    let unsupported = [
        ("stream", writing.is_streamed()),
        ("n", writing.count()? > 1),
        ("logprobs", own.logprobs.is_some()),
        ("response_format", writing.format()?.is_some()),
        ("temperature", writing.temperature.is_some_and(|temperature| temperature != 0.0)),
        ("stop", writing.stop.is_some()),
    ];
    if let Some((name, _)) = unsupported.into_iter().find(|(_, is_given)| *is_given) {
        let what = format!("`{name}` is for language models, but `{}` is {}: leave it out", served.name, served.what);
        return Err(Refusal::field(name, what));
    }
    let place = served.place()?;
    writing.check_tokens()?;
    let fields = SequenceFields { max_tokens: writing.most_tokens(), from: own.from, to: own.to };
    sequences.check_languages(&fields)?;
    let mut asked = Vec::new();
    for prompt in prompts(app, &own.prompt)? {
        match prompt {
            Prompt::Text(text) => asked.push(sequences.write(text, fields.clone())),
            Prompt::Tokens(_) => return Err(Refusal::field("prompt", "this model takes texts, not tokens")),
        }
    }
    let all = futures_util::future::try_join_all(asked).await.map_err(|error: WorkError| Refusal::from(error))?;
    drop(place);
    let choices = all.iter().enumerate().map(|(index, one)| {
        let reason = if one.ended { "stop" } else { "length" };
        json!({"index": index, "text": one.text, "logprobs": null, "finish_reason": reason})
    });
    let (read, written) =
        all.iter().fold((0, 0), |(read, written), one| (read + one.source_tokens, written + one.written_tokens));
    Ok(json_answer(&json!({
        "id": id, "object": "text_completion", "created": now(), "model": served.name,
        "choices": choices.collect::<Vec<Json>>(), "usage": usage(read, written),
    })))
}
