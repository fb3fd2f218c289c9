//! Which numbers the relevance of tokens is computed for.

use vitreous_explain::ExplainError;
use vitreous_explain::encoder::{Target, TextPass};
use vitreous_explain::inside::{Attribution, Given, HeadEffects, Inside};
use vitreous_models::Gives;
use vitreous_runtime::scores::{best, softmax};
use vitreous_runtime::text::{TextModel, best_span};

use super::super::ExplainedError;
use super::{ReadText, Setting, is_head};
use crate::explain_encoder::{NamedFillings, TokenRelevance};

/// The class of what is no entity.
const OUTSIDE: &str = "O";

/// A number, what it is in words, and what it is called in arrays.
type Named = (Target, String, String);

/// The relevance of all tokens for each number, or why there is none.
pub(super) fn relevance(
    setting: &Setting,
    text: &ReadText,
    pass: &mut TextPass,
    logits: &[f32],
    fillings: &[NamedFillings],
) -> Result<(Vec<TokenRelevance>, Option<String>), ExplainedError> {
    let targets = match targets(setting, text, logits, fillings) {
        Ok(targets) => targets,
        Err(note) => return Ok((Vec::new(), Some(note))),
    };
    let baseline = setting.model.baseline(&text.encoding, &text.masked);
    let note = baseline.is_none().then(|| {
        "Integrated gradients are left out: the tokenizer has no padding token that the model knows, from which they would begin.".to_string()
    });
    let mut found = Vec::new();
    for (target, name, key) in targets {
        let gradient_attention = pass.relevance(&target)?;
        let integrated = match &baseline {
            Some(baseline) => Some(pass.attributions(&target, baseline)?),
            None => None,
        };
        let (parts, effects) = inside(setting, text, &target, found.is_empty())?;
        found.push(TokenRelevance { target, name, key, gradient_attention, integrated, parts, effects });
    }
    Ok((found, note))
}

/// What the parts of the model add to a logit, and what happens without each; `None` of other numbers, and where the logit is no sum, or not
/// that of one of several outputs. Of two texts, whose tokens are of two types, neither is computed.
fn inside(
    setting: &Setting,
    text: &ReadText,
    target: &Target,
    with_effects: bool,
) -> Result<(Option<Attribution>, Option<HeadEffects>), ExplainedError> {
    let (token, output) = match *target {
        Target::Output(output) => (0, output),
        Target::OfToken { token, output } => (token, output),
        Target::Span { .. } | Target::HalfSquaredLength | Target::Similarity(_) => return Ok((None, None)),
    };
    if text.encoding.token_types.iter().any(|&kind| kind != 0) {
        return Ok((None, None));
    }
    let model = &setting.model.model;
    let given = Given::Tokens(text.encoding.ids.clone());
    let mut inside = Inside::read(model, given, setting.device)?;
    let parts = match inside.attribution(token, output) {
        Ok(parts) => Some(parts),
        Err(ExplainError::NotAttributable { .. }) => None,
        Err(error) => return Err(error.into()),
    };
    let signature = model.architecture.signature();
    let is_one_of_several = signature.labels().is_none() && signature.numbers().is_none();
    let effects = (with_effects && is_one_of_several).then(|| inside.head_effects(token, output)).transpose()?;
    Ok((parts, effects))
}

/// The numbers; or, as an error, a sentence that says why there is none.
fn targets(
    setting: &Setting,
    text: &ReadText,
    logits: &[f32],
    fillings: &[NamedFillings],
) -> Result<Vec<Named>, String> {
    let model = setting.model;
    let signature = model.model.architecture.signature();
    let asked = &setting.asked.outputs;
    let with_asked = |first: usize| {
        let others = asked.iter().copied().filter(move |&class| class != first);
        std::iter::once(first).chain(others)
    };
    let largest = |logits: &[f32]| best(&softmax(logits), 1).first().copied().unwrap_or(0);
    Ok(match signature.gives.iter().find(is_head) {
        Some(Gives::Classes(_) | Gives::Labels(_)) => {
            let of = |class: usize| {
                (Target::Output(class), format!("the logit of “{}”", model.label(class)), class.to_string())
            };
            with_asked(largest(logits)).map(of).collect()
        }
        Some(Gives::Numbers(_)) => {
            let of =
                |at: usize| (Target::Output(at), format!("the predicted number “{}”", model.label(at)), at.to_string());
            with_asked(asked.first().copied().unwrap_or(0)).map(of).collect()
        }
        Some(Gives::TokenClasses(count)) => {
            let Some(token) = setting.asked.token.or_else(|| surest(model, text, logits, *count)) else {
                return Err("The text has no token of its own, so there is no class to explain.".to_string());
            };
            let of = |class: usize| {
                let name = format!(
                    "“{}” as the class of token {token}, “{}”",
                    model.label(class),
                    token_name(model, text, token)
                );
                (Target::OfToken { token, output: class }, name, format!("{token}.{class}"))
            };
            with_asked(largest(&logits[token * count..][..*count])).map(of).collect()
        }
        Some(Gives::MaskedTokens(_)) => {
            let Some(token) = setting.asked.token.or_else(|| text.masked.first().copied()) else {
                let mask = model.mask().map_or("the mask token".to_string(), |(_, mask)| mask);
                return Err(format!(
                    "The text has no {mask}, so there is no answer whose tokens could be relevant: write {mask} in place of a word, or choose a \
                     token with --token."
                ));
            };
            let best = fillings.last().and_then(|last| last.tokens[token].first()).map_or(0, |(id, _, _)| *id as usize);
            let of = |id: usize| {
                let filling = model.tokenizer.token(id as u32).unwrap_or_default();
                let name = format!(
                    "the logit of “{filling}” in the place of token {token}, “{}”",
                    token_name(model, text, token)
                );
                (Target::OfToken { token, output: id }, name, format!("{token}.{id}"))
            };
            with_asked(best).map(of).collect()
        }
        Some(Gives::Span) => match best_span(&text.encoding, logits) {
            Some((start, end, _)) => {
                let name =
                    format!("the answer from token {start} to token {end}: its start logit and its end logit, added");
                vec![(Target::Span { start, end }, name, format!("{start}.{end}"))]
            }
            None => return Err("The context has no token, so there is no answer.".to_string()),
        },
        Some(Gives::Vector(_) | Gives::TokenVectors(_) | Gives::NextToken(_) | Gives::Sequence(_)) | None => {
            match setting.other {
                Some((other, vector)) => {
                    let name = format!("the cosine similarity with “{other}”");
                    vec![(Target::Similarity(vector.clone()), name, "similarity".to_string())]
                }
                None => {
                    let name = "half the squared length of the text's vector (the model has no head; --pair TEXT explains a similarity)";
                    vec![(Target::HalfSquaredLength, name.to_string(), "vector".to_string())]
                }
            }
        }
    })
}

fn token_name(model: &TextModel, text: &ReadText, token: usize) -> String {
    model.tokenizer.token(text.encoding.ids[token]).unwrap_or_default()
}

/// The token whose class is most probable, of those that are in an entity; where none is, of all that the text has.
fn surest(model: &TextModel, text: &ReadText, logits: &[f32], classes: usize) -> Option<usize> {
    let scored = |at: usize| {
        let scores = softmax(&logits[at * classes..][..classes]);
        let class = best(&scores, 1).first().copied().unwrap_or(0);
        (at, model.label(class) != OUTSIDE, scores[class])
    };
    let own = (0..text.encoding.len()).filter(|&at| !text.encoding.special[at]).map(scored);
    own.max_by(|a, b| a.1.cmp(&b.1).then(a.2.total_cmp(&b.2)).then(b.0.cmp(&a.0))).map(|(at, _, _)| at)
}
