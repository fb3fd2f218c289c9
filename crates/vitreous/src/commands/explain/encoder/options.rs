//! What is asked of the texts of an encoder, from the options.

use anyhow::anyhow;
use vitreous_pages::explained::encoder::{EncoderAsked, ReadText};
use vitreous_pages::format::one_line;
use vitreous_runtime::text::TextModel;

use super::super::{Explain, choose};
use crate::failure::Failure;

/// What is asked, if the model and its texts have a use for it.
pub fn asked(explain: &Explain, model: &TextModel, texts: &[ReadText]) -> Result<EncoderAsked, Failure> {
    let signature = model.model.architecture.signature();
    let (named, masked) = (signature.named_outputs() > 0, signature.masked_tokens().is_some());
    if explain.token.is_some() && !masked && signature.token_classes().is_none() {
        let what = format!("--token is for models with an output for each token, and this is {}", signature.what());
        return Err(Failure::input(anyhow!(what)));
    }
    if let Some(token) = explain.token {
        let lengths = texts.iter().map(|text| text.encoding.len());
        if let Some(count) = lengths.filter(|&count| token >= count).min() {
            let what = format!("--token {token}: the text has {count} tokens, 0 to {}", count - 1);
            return Err(Failure::input(anyhow!(what)));
        }
    }
    let outputs = match explain.classes.first() {
        Some(class) if !named && !masked => {
            return Err(Failure::input(anyhow!(
                "--class {}: this is {}, which has no classes",
                one_line(class),
                signature.what()
            )));
        }
        _ => outputs(explain, model)?,
    };
    Ok(EncoderAsked { top: explain.top(), outputs, token: explain.token })
}

/// The classes that were asked for; of a masked language model, tokens of its vocabulary.
fn outputs(explain: &Explain, model: &TextModel) -> Result<Vec<usize>, Failure> {
    if model.model.architecture.signature().masked_tokens().is_none() {
        return choose::classes(&explain.classes, &model.model).map_err(Failure::Input);
    }
    let id = |text: &String| {
        let known = model.tokenizer.id(text).filter(|&id| (id as usize) < model.input.vocabulary);
        known.map(|id| id as usize).ok_or_else(|| {
            let what = "is no token of the vocabulary: write one as the page does";
            Failure::input(anyhow!("--class {}: this {what}", one_line(text)))
        })
    };
    explain.classes.iter().map(id).collect()
}
