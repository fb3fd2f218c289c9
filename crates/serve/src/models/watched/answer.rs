//! What a model says of an input.

use serde_json::{Value as Json, json};
use vitreous_explain::inside::Said;
use vitreous_explain::live::Pass;
use vitreous_models::{Gives, Pooling};
use vitreous_runtime::scores::{best, softmax};
use vitreous_runtime::text::{TextModel, best_span};

use super::request::AnswerAsked;
use super::work::failed;
use super::{WatchedInput, WatchedModel};
use crate::work::WorkError;

/// How many of the most probable are told, if nobody asks for another number, and the most.
const USUAL_TOP: usize = 5;
const MOST_TOP: usize = 1000;

pub(super) fn top_of(asked: Option<usize>) -> Result<usize, WorkError> {
    match asked.unwrap_or(USUAL_TOP) {
        top @ 1..=MOST_TOP => Ok(top),
        top => Err(WorkError::Input(format!("`top` is between 1 and {MOST_TOP}; it is {top}"))),
    }
}

/// The token that is asked about: the last, if none is named.
pub(super) fn token_of(input: &WatchedInput, asked: Option<usize>) -> Result<usize, WorkError> {
    let count = input.tokens.len().max(1);
    match asked {
        None => Ok(count - 1),
        Some(token) if token < count => Ok(token),
        Some(token) => Err(WorkError::Input(format!("there is no token {token}: there are {count}, counted from 0"))),
    }
}

/// The most probable outputs, and how sure the model is: the entropy in nats.
fn distribution(model: &WatchedModel, logits: &[f32], top: usize) -> Json {
    let scores = softmax(logits);
    let outcome = |index: usize| json!({"index": index, "label": model.label(index), "score": scores[index], "logit": logits[index]});
    let entropy: f64 = scores.iter().filter(|p| **p > 0.0).map(|p| -p * p.ln()).sum();
    json!({"top": best(&scores, top).into_iter().map(outcome).collect::<Vec<_>>(), "entropy": entropy, "of": logits.len()})
}

/// The model's answer; of models of vectors, the vector, too.
pub(super) fn answer(
    model: &WatchedModel,
    input: &WatchedInput,
    pass: &mut Pass,
    asked: &AnswerAsked,
) -> Result<(Json, Option<Vec<f32>>), WorkError> {
    let top = top_of(asked.top)?;
    match model {
        WatchedModel::Image(_) | WatchedModel::ImageText(_) => match pass.output("logits") {
            Some((logits, _)) => Ok((distribution(model, logits, top), None)),
            None => Ok(vector(vector_of(model, pass), "model")),
        },
        WatchedModel::Text(text) => of_text(model, text, input, pass, asked, top),
        WatchedModel::Language(_) => {
            let token = token_of(input, asked.token)?;
            let (logits, _) = pass.logits(&[token]).map_err(failed)?;
            let mut answer = distribution(model, &logits, top);
            answer["token"] = json!(token);
            if asked.tokens {
                answer["actual"] = following(input, pass)?;
            }
            Ok((answer, None))
        }
        WatchedModel::Translator(_) | WatchedModel::Sequence(_) | WatchedModel::Speech(_) => {
            Ok((written(model, input, pass, top)?, None))
        }
    }
}

/// Of each token of a text the probability that it follows on those before it, and its rank; the first follows on none.
fn following(input: &WatchedInput, pass: &mut Pass) -> Result<Json, WorkError> {
    let count = input.tokens.len();
    let rows: Vec<usize> = (0..count.saturating_sub(1)).collect();
    let mut actual = vec![Json::Null];
    // So many have a number for every token of the vocabulary at once.
    for some in rows.chunks(64) {
        let (logits, outputs) = pass.logits(some).map_err(failed)?;
        for (row, logits) in some.iter().zip(logits.chunks_exact(outputs.max(1))) {
            let said = Said::of(logits, 0, Some(input.tokens[row + 1].id));
            actual.push(said.asked.map_or(Json::Null, |(share, rank)| json!({"probability": share, "rank": rank})));
        }
    }
    Ok(Json::Array(actual))
}

/// The vector of a model that answers with one.
pub(super) fn vector_of(model: &WatchedModel, pass: &Pass) -> Vec<f32> {
    let of_tokens = matches!(model, WatchedModel::Text(_));
    let of_model = pass.output(if of_tokens { "tokens" } else { "features" });
    of_model.map(|(numbers, shape)| pooled(model, numbers, shape)).unwrap_or_default()
}

fn vector(numbers: Vec<f32>, pooling: &str) -> (Json, Option<Vec<f32>>) {
    let length = numbers.iter().map(|&x| f64::from(x).powi(2)).sum::<f64>().sqrt();
    (json!({"vector": {"width": numbers.len(), "length": length, "pooling": pooling}}), Some(numbers))
}

fn of_text(
    model: &WatchedModel,
    text: &TextModel,
    input: &WatchedInput,
    pass: &mut Pass,
    asked: &AnswerAsked,
    top: usize,
) -> Result<(Json, Option<Vec<f32>>), WorkError> {
    if text.model.architecture.signature().masked_tokens().is_some() && text.head().is_none() {
        return Ok((masks(model, input, pass, asked, top)?, None));
    }
    let Some(head) = text.head() else {
        return Ok(vector(vector_of(model, pass), pooling_name(text.sentence.pooling())));
    };
    let (logits, columns) = pass.logits(&(0..input.tokens.len()).collect::<Vec<_>>()).map_err(failed)?;
    let answer = match head {
        Gives::Classes(_) => distribution(model, &logits, top),
        Gives::Labels(_) => {
            let scores = TextModel::class_scores(head, &logits);
            let label = |index: usize| json!({"index": index, "label": text.label(index), "score": scores[index], "logit": logits[index]});
            json!({"top": best(&scores, top).into_iter().map(label).collect::<Vec<_>>(), "several": true, "of": logits.len()})
        }
        Gives::Numbers(_) => {
            let number = |(at, value): (usize, &f32)| json!({"label": text.label(at), "value": value});
            json!({"numbers": logits.iter().enumerate().map(number).collect::<Vec<_>>()})
        }
        Gives::TokenClasses(_) => {
            let of_token = |logits: &[f32]| distribution(model, logits, top);
            json!({"token_classes": logits.chunks_exact(columns.max(1)).map(of_token).collect::<Vec<_>>()})
        }
        Gives::Span => {
            let found = input.encoding.as_ref().and_then(|encoding| best_span(encoding, &logits));
            let context = input.texts.get(1).map_or("", String::as_str);
            let answer = |(start, end, score): (usize, usize, f64)| {
                let place = |token: usize| input.tokens.get(token).and_then(|token| token.place).unwrap_or([0, 0]);
                let range = place(start)[0]..place(end)[1];
                json!({"text": context.get(range).unwrap_or_default(), "start": start, "end": end, "score": score})
            };
            json!({"answers": found.map(answer).into_iter().collect::<Vec<_>>()})
        }
        Gives::Vector(_)
        | Gives::TokenVectors(_)
        | Gives::MaskedTokens(_)
        | Gives::NextToken(_)
        | Gives::Sequence(_) => {
            json!({})
        }
    };
    Ok((answer, None))
}

/// What would stand in the place of each mask, or of a token that was named.
fn masks(
    model: &WatchedModel,
    input: &WatchedInput,
    pass: &mut Pass,
    asked: &AnswerAsked,
    top: usize,
) -> Result<Json, WorkError> {
    let vitreous_explain::live::LiveInput::Text { masked, .. } = &input.live else { return Ok(json!({})) };
    let mut list = Vec::new();
    if let Some(token) = asked.token.filter(|token| !masked.contains(token)) {
        let token = token_of(input, Some(token))?;
        let says = pass.lens(&[token], top, None).map_err(failed)?;
        if let Some(said) = says.last().and_then(|last| last.said.first()) {
            list.push(json!({"token": token, "top": said_json(model, said)}));
        }
        return Ok(json!({"masks": list}));
    }
    let rows: Vec<usize> = (0..masked.len()).collect();
    let logits = pass.output("logits").map(|(logits, _)| logits.to_vec()).unwrap_or_default();
    let outputs = logits.len() / rows.len().max(1);
    for (&token, logits) in masked.iter().zip(logits.chunks_exact(outputs.max(1))) {
        let mut mask = distribution(model, logits, top);
        mask["token"] = json!(token);
        list.push(mask);
    }
    Ok(json!({"masks": list}))
}

/// The text that the decoder writes, token by token, with all before each given.
fn written(model: &WatchedModel, input: &WatchedInput, pass: &mut Pass, top: usize) -> Result<Json, WorkError> {
    let rows: Vec<usize> = (0..input.written.len()).collect();
    let (logits, outputs) = pass.logits(&rows).map_err(failed)?;
    let token = |(logits, &id): (&[f32], &u32)| {
        let said = Said::of(logits, top, Some(id));
        let mut token = json!({"id": id, "text": model.piece(id, false), "top": said_json(model, &said)});
        if let Some((share, rank)) = said.asked {
            token["probability"] = json!(share);
            token["rank"] = json!(rank);
        }
        token
    };
    let tokens: Vec<Json> = logits.chunks_exact(outputs.max(1)).zip(&input.written).map(token).collect();
    let mut answer = json!({"tokens": tokens, "of": outputs});
    match &input.spoken {
        Some(spoken) => {
            let word = |(start, end, text, share): &(f64, f64, String, f64)| json!({"start": start, "end": end, "text": text, "probability": share});
            answer["text"] = json!(spoken.text);
            answer["language"] = json!(spoken.language);
            answer["words"] = spoken.words.iter().map(word).collect();
        }
        None => answer["text"] = json!(input.texts.get(1)),
    }
    Ok(answer)
}

pub(super) fn said_json(model: &WatchedModel, said: &Said) -> Json {
    let one = |(id, share): &(u32, f32)| json!({"index": id, "label": model.label(*id as usize), "score": share});
    said.top.iter().map(one).collect()
}

/// The token that an answer is read from, where none is named: the last, or the first mask.
pub(super) fn usual_token(model: &WatchedModel, input: &WatchedInput) -> usize {
    match (&input.live, model) {
        (vitreous_explain::live::LiveInput::Text { masked, .. }, WatchedModel::Text(_)) => {
            masked.first().copied().unwrap_or(0)
        }
        _ => input.tokens.len().saturating_sub(1),
    }
}

/// One vector of those of all tokens; a model of images has pooled them itself.
pub(super) fn pooled(model: &WatchedModel, numbers: &[f32], shape: &[usize]) -> Vec<f32> {
    let WatchedModel::Text(text) = model else { return numbers.to_vec() };
    let width = shape.last().copied().unwrap_or(1).max(1);
    let rows = || numbers.chunks_exact(width);
    match text.sentence.pooling() {
        Pooling::Cls => rows().next().map(<[f32]>::to_vec).unwrap_or_default(),
        Pooling::Last => rows().last().map(<[f32]>::to_vec).unwrap_or_default(),
        Pooling::Max => (0..width).map(|at| rows().map(|row| row[at]).fold(f32::NEG_INFINITY, f32::max)).collect(),
        Pooling::Mean => {
            let count = rows().count().max(1) as f64;
            (0..width).map(|at| (rows().map(|row| f64::from(row[at])).sum::<f64>() / count) as f32).collect()
        }
    }
}

fn pooling_name(pooling: Pooling) -> &'static str {
    match pooling {
        Pooling::Cls => "cls",
        Pooling::Mean => "mean",
        Pooling::Max => "max",
        Pooling::Last => "last",
    }
}
