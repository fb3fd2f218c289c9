//! A text as a language model sees it, up to the token that it would write next.

mod json;

use vitreous_engine::Device;
use vitreous_explain::inside::{Given, HeadScores, Inside, Reading};
use vitreous_explain::{Choice, ExplainError, Structure, language};
use vitreous_runtime::language::LanguageModel;

use super::{ExplainedError, MOST_TOKENS};
use crate::explain_encoder::{NamedFillings, TextPage, TextPrediction};
use crate::explain_language::{LanguagePage, NamedToken, Patching};
pub use json::object;

/// What is asked of every text.
#[derive(Clone, Debug, Default)]
pub struct LanguageAsked {
    /// How many tokens are named.
    pub top: usize,
    /// The token behind which the next one is explained, if it is not the last.
    pub token: Option<usize>,
    /// The next token that is explained, if it is not the likeliest.
    pub target: Option<u32>,
    /// Another text, and its tokens, whose vectors are put in place of this one's, one after the other.
    pub patched_from: Option<(String, Vec<u32>)>,
    /// Edits of the model, as they are told.
    pub edits: Vec<String>,
}

/// Explains texts one after the other.
pub struct LanguageTexts<'m> {
    model: &'m LanguageModel,
    structure: Structure,
    choice: Choice,
    device: Device,
    repeated_scores: Vec<Vec<HeadScores>>,
}

/// A text as tokens, if there are not too many. `name` says in a refusal which text it is.
pub fn read_text(model: &LanguageModel, name: &str, text: &str) -> Result<Vec<u32>, ExplainedError> {
    let ids = model.encode(text)?;
    let most = MOST_TOKENS.min(model.longest);
    match ids.len() {
        0 => Err(ExplainedError::input(format!("{name}: this text is empty; give one with words"))),
        count if count > most => Err(ExplainedError::input(format!(
            "{name}: this text has {count} tokens, and at most {most} can be explained: give a shorter one"
        ))),
        _ => Ok(ids),
    }
}

/// The token that is meant: one of the vocabulary as the tokenizer writes it, a text that is one token, or its number. Otherwise how
/// many tokens it is.
pub fn single_token(model: &LanguageModel, text: &str) -> Result<Result<u32, usize>, ExplainedError> {
    let known = |id: &u32| (*id as usize) < model.vocabulary;
    if let Some(id) = model.tokenizer.id(text).filter(known) {
        return Ok(Ok(id));
    }
    let ids = model.tokenizer.encode_plain(text)?;
    Ok(match ids[..] {
        [id] if known(&id) => Ok(id),
        _ => text.parse::<u32>().ok().filter(known).ok_or(ids.len()),
    })
}

impl<'m> LanguageTexts<'m> {
    /// Gets ready to explain texts with a model. Scores of its heads on repeated tokens are left out of a model with edits of single
    /// tokens, which have no meaning there.
    pub fn new(
        model: &'m LanguageModel,
        choice: Choice,
        edits_tokens: bool,
        device: &Device,
    ) -> Result<LanguageTexts<'m>, ExplainedError> {
        let structure = Structure::of(model.model.architecture.as_ref())?;
        let first = model.tokenizer.special().begin.filter(|&first| (first as usize) < model.vocabulary);
        let repeated_scores = match edits_tokens {
            true => Vec::new(),
            false => language::scores_on_repeated_tokens(&model.model, first, device)?,
        };
        Ok(LanguageTexts { model, structure, choice, device: device.clone(), repeated_scores })
    }

    /// Everything about one text.
    pub fn explain(&self, text: &str, ids: &[u32], asked: &LanguageAsked) -> Result<LanguagePage, ExplainedError> {
        let LanguageTexts { model, device, .. } = self;
        let name = |&id: &u32| token_name(model, id);
        let position = match asked.token {
            None => ids.len() - 1,
            Some(token) if token < ids.len() => token,
            Some(asked) => return Err(ExplainError::NotThere { what: "token", asked, count: ids.len() }.into()),
        };
        let (attention, scores) = language::attention(&model.model, ids, &self.choice, device)?;
        let mut inside = Inside::read(&model.model, Given::Tokens(ids.to_vec()), device)?;
        let following: Vec<Option<u32>> = ids.iter().skip(1).map(|&id| Some(id)).chain([None]).collect();
        let readings = inside.lens(asked.top, &following)?;
        let likeliest = readings.last().and_then(|last| last.said[position].top.first()).map_or(0, |(id, _)| *id);
        let target = asked.target.unwrap_or(likeliest);
        let effects = inside.head_effects(position, target as usize)?;
        let attribution = inside.attribution(position, target as usize).map_err(|error| error.to_string());
        let patching = match &asked.patched_from {
            Some((other, tokens)) => Some(self.patch(&mut inside, other, tokens, position, target)?),
            None => None,
        };
        let last = readings.last().map_or(Vec::new(), |last| last.said.iter().map(|said| said.asked).collect());
        let actual = [None].into_iter().chain(last).take(ids.len()).collect();
        let text = TextPage {
            texts: vec![("Text", text.to_string())],
            model: model.model.path.as_ref().map(|path| path.display().to_string()).unwrap_or_default(),
            layers: self.structure.layers,
            heads: self.structure.heads,
            tokens: ids.iter().map(name).collect(),
            ids: ids.to_vec(),
            special: vec![false; ids.len()],
            prediction: TextPrediction::Masked,
            attention,
            relevance: Vec::new(),
            relevance_note: None,
            fillings: readings.iter().map(|reading| fillings(reading, &name)).collect(),
            masked: Vec::new(),
        };
        Ok(LanguagePage {
            text,
            actual,
            position,
            target: NamedToken { id: target, name: name(&target) },
            attribution,
            effects,
            scores,
            repeated_scores: self.repeated_scores.clone(),
            patching,
            nearest: Vec::new(),
            edits: asked.edits.clone(),
        })
    }

    fn patch(
        &self,
        inside: &mut Inside,
        text: &str,
        other: &[u32],
        position: usize,
        target: u32,
    ) -> Result<Patching, ExplainedError> {
        let name = |&id: &u32| token_name(self.model, id);
        let mut there = Inside::read(&self.model.model, Given::Tokens(other.to_vec()), &self.device)?;
        let mut against = 0;
        let likeliest = |logits: &[f32]| {
            let others = (0..logits.len()).filter(|&id| id != target as usize);
            against = others.max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap_or(0) as u32;
        };
        there.with_own_logits(position, likeliest)?;
        let effects = inside.patch_effects(&mut there, position, [target as usize, against as usize])?;
        Ok(Patching {
            text: text.to_string(),
            tokens: other.iter().map(name).collect(),
            against: NamedToken { id: against, name: name(&against) },
            effects,
        })
    }
}

/// How a token is written.
pub fn token_name(model: &LanguageModel, id: u32) -> String {
    model.tokenizer.token(id).unwrap_or_else(|| id.to_string())
}

fn fillings(reading: &Reading, name: &impl Fn(&u32) -> String) -> NamedFillings {
    let top = |top: &[(u32, f32)]| top.iter().map(|(id, share)| (*id, name(id), *share)).collect();
    NamedFillings { layer: reading.layer, tokens: reading.said.iter().map(|said| top(&said.top)).collect() }
}
