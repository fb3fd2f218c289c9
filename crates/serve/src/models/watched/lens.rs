//! What each layer of a model would say.

use serde_json::{Value as Json, json};
use vitreous_explain::inside::Said;
use vitreous_explain::live::{LayerEnds, LayerSays, Pass};
use vitreous_runtime::scores::softmax;
use vitreous_runtime::text::cosine;

use super::answer::{pooled, said_json, token_of, top_of, usual_token, vector_of};
use super::described::is_of_vectors;
use super::request::{LensAsked, TokenAsked};
use super::work::failed;
use super::{WatchedInput, WatchedModel};
use crate::work::WorkError;

/// The most outputs that are followed.
const MOST_FOLLOWED: usize = 64;

/// Puts `lens` into the header, and `followed` where outputs are followed.
pub(super) fn lens(
    model: &WatchedModel,
    input: &WatchedInput,
    pass: &mut Pass,
    asked: &LensAsked,
    header: &mut Json,
) -> Result<(), WorkError> {
    if is_of_vectors(model) {
        header["lens"] = cosines(model, pass, asked)?;
        return Ok(());
    }
    let top = top_of(asked.top)?;
    if asked.follow > MOST_FOLLOWED {
        let what = format!("at most {MOST_FOLLOWED} outputs are followed, not {}", asked.follow);
        return Err(WorkError::Input(what));
    }
    let token = match &asked.token {
        None => Some(usual_token(model, input)),
        Some(TokenAsked::One(token)) => Some(token_of(input, Some(*token))?),
        Some(TokenAsked::Named(name)) if name == "all" => None,
        Some(TokenAsked::Named(_)) => return Err(WorkError::Input("`token` is a number, or `all`".to_string())),
    };
    let target = asked.target.map(|target| target as u32);
    let one = |said: &Said| {
        let mut one = json!({"top": said_json(model, said)});
        if let Some((share, rank)) = said.asked {
            one["target"] = json!({"probability": share, "rank": rank});
        }
        one
    };
    let Some(token) = token else {
        if asked.follow > 0 {
            return Err(WorkError::Input("`follow` is for one token: name it as `token`".to_string()));
        }
        let tokens: Vec<usize> = (0..input.tokens.len()).collect();
        let layer = |says: LayerSays| match &says.said[..] {
            // An answer without tokens, or the text has but one.
            [said] => with_layer(one(said), says.layer),
            all => json!({"layer": says.layer, "tokens": all.iter().map(one).collect::<Vec<_>>()}),
        };
        header["lens"] = pass.lens(&tokens, top, target).map_err(failed)?.into_iter().map(layer).collect();
        return Ok(());
    };
    let layers = pass.lens_logits(token).map_err(failed)?;
    let said: Vec<Said> = layers.iter().map(|of| Said::of(&of.logits, top, target)).collect();
    header["lens"] = layers.iter().zip(&said).map(|(of, said)| with_layer(one(said), of.layer)).collect();
    if asked.follow > 0 {
        let shares: Vec<Vec<f64>> = layers.iter().map(|of| softmax(&of.logits)).collect();
        let follow = |index: u32| {
            let scores: Vec<f64> = shares.iter().filter_map(|of| of.get(index as usize).copied()).collect();
            json!({"index": index, "label": model.label(index as usize), "scores": scores})
        };
        let likeliest: Vec<Said> = layers.iter().map(|of| Said::of(&of.logits, asked.follow, None)).collect();
        header["followed"] = most_likely(&likeliest, asked.follow).into_iter().map(follow).collect();
    }
    Ok(())
}

/// Of a model whose answer is a vector: how near the vector of each layer is to the one that it answers with.
fn cosines(model: &WatchedModel, pass: &mut Pass, asked: &LensAsked) -> Result<Json, WorkError> {
    if *asked != LensAsked::default() {
        let what = "the lens of a model of vectors is one cosine for each layer: it is asked for as `{}`";
        return Err(WorkError::Input(what.to_string()));
    }
    let answer = vector_of(model, pass);
    let of_tokens = matches!(model, WatchedModel::Text(_));
    let layer = |LayerEnds { layer, vectors }: LayerEnds| {
        let vector = pooled(model, &vectors.numbers, &vectors.shape);
        json!({"layer": layer, "cosine": cosine(&vector, &answer)})
    };
    Ok(pass.lens_vectors(of_tokens).map_err(failed)?.into_iter().map(layer).collect())
}

fn with_layer(mut said: Json, layer: Option<usize>) -> Json {
    said["layer"] = json!(layer);
    said
}

/// The outputs that are worth following: those of the last layer first, then those that are likeliest anywhere before.
fn most_likely(said: &[Said], count: usize) -> Vec<u32> {
    let mut found: Vec<u32> =
        said.last().map(|last| last.top.iter().map(|(index, _)| *index).collect()).unwrap_or_default();
    let mut before: Vec<(u32, f32)> = said.iter().flat_map(|said| said.top.iter().copied()).collect();
    before.sort_by(|(_, a), (_, b)| b.total_cmp(a));
    // Half of the places are for what the model thinks on the way.
    found.truncate(count.div_ceil(2).max(1));
    for (index, _) in before {
        if found.len() < count && !found.contains(&index) {
            found.push(index);
        }
    }
    found
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_likely_at_the_end_or_on_the_way_is_followed() {
        let said = |top: &[(u32, f32)]| Said { top: top.to_vec(), asked: None };
        let layers = [said(&[(7, 0.9), (8, 0.1)]), said(&[(1, 0.6), (7, 0.4)]), said(&[(1, 0.5), (2, 0.3), (3, 0.2)])];
        assert_eq!(most_likely(&layers, 4), [1, 2, 7, 3]);
        assert_eq!(most_likely(&layers, 1), [1]);
        assert_eq!(most_likely(&[], 3), [0u32; 0]);
    }
}
