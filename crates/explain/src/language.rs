//! What a language model does inside with one text, token by token.

use vitreous_engine::{Device, Graph};
use vitreous_models::{Call, Model};

use crate::error::ExplainError;
use crate::forward::Forward;
use crate::heads::Heads;
use crate::inputs::InputValues::Integers;
use crate::inside::{HeadScores, head_scores, repeated_tokens};
use crate::settings::Choice;
use crate::taps::Tap;
use crate::text::{AttentionKeeper, TextAttention};
use crate::tokens::check_tokens;

/// Bytes of attention weights that are held at once, besides those that are kept.
const MEMORY: usize = 256 << 20;

/// The attention between the tokens of a text: the weights of the chosen layers and heads, and the scores of all heads, by layer and head.
pub fn attention(
    model: &Model,
    ids: &[u32],
    choice: &Choice,
    device: &Device,
) -> Result<(Vec<TextAttention>, Vec<Vec<HeadScores>>), ExplainError> {
    let signature = model.architecture.signature();
    let input = signature.tokens().ok_or(ExplainError::NoTexts { what: signature.what() })?;
    if ids.is_empty() {
        return Err(ExplainError::NoTokens);
    }
    check_tokens("text", ids, input)?;
    let tokens = ids.len();
    let mut graph = Graph::for_inference();
    model.architecture.build(&mut graph, &Call::whole(1).tokens(tokens))?;
    let taps = Tap::all(&graph)?;
    let mut forward = Forward::new(model, &graph, taps, &[], "explaining a text", device)?;
    // A model has a layer at least, and all are alike.
    let mut heads = Heads::new(&forward.taps[0], tokens, MEMORY, device)?;
    let numbers: Vec<i32> = ids.iter().map(|&id| id as i32).collect();
    let (types, lengths) = (vec![0; tokens], [tokens as i32]);
    let inputs = [("tokens", Integers(&numbers)), ("token_types", Integers(&types)), ("lengths", Integers(&lengths))];
    forward.run(&inputs)?;
    let (mut kept, mut scores) = (Vec::new(), Vec::with_capacity(forward.taps.len()));
    for layer in 0..forward.taps.len() {
        let mut keeper = AttentionKeeper::new(layer, &choice.heads, tokens * tokens);
        let mut of_layer = Vec::new();
        heads.of_layer(&forward, layer, |heads, weights| {
            of_layer.extend(weights.chunks_exact(tokens * tokens).map(|weights| head_scores(ids, weights)));
            if choice.layers.contains(&layer) {
                keeper.add(heads, weights);
            }
            Ok(())
        })?;
        if choice.layers.contains(&layer) {
            kept.push(keeper.finish());
        }
        scores.push(of_layer);
    }
    Ok((kept, scores))
}

/// The scores of all heads on random tokens that are repeated once: a property of the model, whatever text is read. `first` is the token that texts
/// begin with.
pub fn scores_on_repeated_tokens(
    model: &Model,
    first: Option<u32>,
    device: &Device,
) -> Result<Vec<Vec<HeadScores>>, ExplainError> {
    let signature = model.architecture.signature();
    let input = signature.tokens().ok_or(ExplainError::NoTexts { what: signature.what() })?;
    let ids = repeated_tokens(first, input.vocabulary, input.longest);
    let none = Choice { layers: Vec::new(), heads: Vec::new() };
    attention(model, &ids, &none, device).map(|(_, scores)| scores)
}
