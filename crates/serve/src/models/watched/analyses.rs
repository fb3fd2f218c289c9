//! What takes longer than a run: what parts add to a logit, what kind of head a head is, what speaks for an answer.

use std::collections::HashMap;
use std::sync::Arc;

use serde_json::{Value as Json, json};
use vitreous_explain::encoder::{EncoderExplainer, EncoderSettings, Target};
use vitreous_explain::inside::{HeadScores, Inside, head_scores, repeated_tokens};
use vitreous_explain::live::{AttentionGroup, LiveEdit, LiveInput};
use vitreous_explain::{Classes, ExplainError, Explainer, Settings, Structure};
use vitreous_models::Gives;
use vitreous_models::encode::TextTokens;
use vitreous_pages::explain::json as image_json;
use vitreous_pages::explain_encoder::TokenRelevance;
use vitreous_pages::explain_encoder::json::relevance as relevance_json;
use vitreous_pages::inside::json as parts_json;
use vitreous_runtime::text::TextModel;

use super::answer::{token_of, usual_token};
use super::request::{PatchingAsked, TargetAsked};
use super::work::{LookWork, check_alike, failed};
use super::{Look, WatchedInput, WatchedModel};
use crate::work::WorkError;

impl LookWork<'_> {
    /// Puts the analyses that are wanted into the header.
    pub(super) fn analyses(
        &mut self,
        look: &Look,
        edits: &[LiveEdit],
        others: &HashMap<String, Arc<WatchedInput>>,
        header: &mut Json,
    ) -> Result<(), WorkError> {
        let Look { input, want, .. } = look;
        if let Some(asked) = &want.attribution {
            let (token, target) = self.target(input, edits, asked)?;
            let parts = self.live.inside(&input.live, edits, |inside| inside.attribution(token, target));
            match parts {
                Ok(parts) => header["attribution"] = parts_json::attribution(&parts),
                Err(ExplainError::NotAttributable { why }) => header["attribution_note"] = json!(why),
                Err(error) => return Err(failed(error)),
            }
            header["attribution_of"] = self.named_target(token, target);
        }
        if let Some(asked) = &want.effects {
            self.effects(input, edits, asked, header)?;
        }
        if want.scores.is_some() {
            header["scores"] = self.scores(input, edits)?;
        }
        if let Some(asked) = &want.patching {
            header["patching"] = self.patching(input, edits, asked, others)?;
        }
        if let Some(asked) = &want.relevance {
            header["relevance"] = self.relevance(input, edits, asked)?;
        }
        Ok(())
    }

    pub(super) fn named_target(&self, token: usize, target: usize) -> Json {
        json!({"token": token, "index": target, "label": self.model.label(target)})
    }

    /// The token and the output that are meant: the most probable output, if none is named.
    pub(super) fn target(
        &mut self,
        input: &WatchedInput,
        edits: &[LiveEdit],
        asked: &TargetAsked,
    ) -> Result<(usize, usize), WorkError> {
        let gives = self.model.model().architecture.signature().gives;
        let by_token =
            |gives: &Gives| matches!(gives, Gives::NextToken(_) | Gives::MaskedTokens(_) | Gives::TokenClasses(_));
        let token = match asked.token {
            Some(token) => token_of(input, Some(token))?,
            None if gives.iter().any(by_token) => usual_token(self.model, input),
            None => 0,
        };
        if let Some(target) = asked.target {
            return Ok((token, target));
        }
        let mut pass = self.live.pass(&input.live, edits, &[]).map_err(failed)?;
        let is_masked = gives.iter().any(|gives| matches!(gives, Gives::MaskedTokens(_)));
        if is_masked {
            let says = pass.lens(&[token], 1, None).map_err(failed)?;
            let said = says.last().and_then(|last| last.said.first()?.top.first().copied());
            return Ok((token, said.map_or(0, |(id, _)| id as usize)));
        }
        let (logits, _) = pass.logits(&[token]).map_err(failed)?;
        let best = (0..logits.len()).max_by(|&a, &b| logits[a].total_cmp(&logits[b]).then(b.cmp(&a)));
        Ok((token, best.unwrap_or(0)))
    }

    /// Of all heads, on this text and on random tokens that are repeated.
    fn scores(&mut self, input: &WatchedInput, edits: &[LiveEdit]) -> Result<Json, WorkError> {
        let LiveInput::Text { ids, .. } = &input.live else {
            return Err(WorkError::Input("scores of heads are for texts".to_string()));
        };
        let of_text = self.scores_of(&input.live, ids, edits)?;
        let mut object = parts_json::scores(&of_text);
        if let WatchedModel::Language(model) = self.model {
            let first = model.tokenizer.special().begin.filter(|&first| (first as usize) < model.vocabulary);
            let ids = repeated_tokens(first, model.vocabulary, model.longest);
            let is_everywhere = edits.iter().all(|edit| {
                edit.tokens.is_none() && !matches!(edit.change, vitreous_explain::live::LiveChange::From(_))
            });
            // An edit of single tokens has no meaning in another text.
            if is_everywhere && !ids.is_empty() {
                let repeated = LiveInput::Text { ids: ids.clone(), types: Vec::new(), masked: Vec::new() };
                object["repeated"] = parts_json::scores(&self.scores_of(&repeated, &ids, edits)?);
            }
        }
        Ok(object)
    }

    fn scores_of(
        &mut self,
        live: &LiveInput,
        ids: &[u32],
        edits: &[LiveEdit],
    ) -> Result<Vec<Vec<HeadScores>>, WorkError> {
        let mut pass = self.live.pass(live, edits, &[]).map_err(failed)?;
        let (layers, _) = pass.layers_of(AttentionGroup::Own).unwrap_or((0, 0));
        let mut scores = Vec::with_capacity(layers);
        for layer in 0..layers {
            let (weights, _) = pass.attention(AttentionGroup::Own, layer).map_err(failed)?;
            scores.push(weights.chunks_exact(ids.len() * ids.len()).map(|head| head_scores(ids, head)).collect());
        }
        Ok(scores)
    }

    fn patching(
        &mut self,
        input: &WatchedInput,
        edits: &[LiveEdit],
        asked: &PatchingAsked,
        others: &HashMap<String, Arc<WatchedInput>>,
    ) -> Result<Json, WorkError> {
        let other = others.get(&asked.other).ok_or_else(|| WorkError::Input(super::forgotten(&asked.other)))?;
        check_alike(input, other)?;
        let own = TargetAsked { token: asked.token, target: asked.target, integrated: false };
        let (token, target) = self.target(input, edits, &own)?;
        let given = match &other.live {
            LiveInput::Image(pixels) => vitreous_explain::inside::Given::Image(pixels.to_vec()),
            LiveInput::Text { ids, .. } => vitreous_explain::inside::Given::Tokens(ids.clone()),
            LiveInput::Pair { .. } | LiveInput::Audio { .. } => {
                return Err(WorkError::Input("patching is for models with one stack of layers".to_string()));
            }
        };
        let mut there = Inside::read(self.model.model(), given, self.device).map_err(failed)?;
        let mut against = 0;
        let likeliest = |logits: &[f32]| {
            let rest = (0..logits.len()).filter(|&id| id != target);
            against = rest.max_by(|&a, &b| logits[a].total_cmp(&logits[b])).unwrap_or(0);
        };
        there.with_own_logits(token, likeliest).map_err(failed)?;
        let effects = self
            .live
            .inside(&input.live, edits, |inside| inside.patch_effects(&mut there, token, [target, against]))
            .map_err(failed)?;
        Ok(json!({
            "target": self.named_target(token, target), "against": {"index": against, "label": self.model.label(against)},
            "own": effects.own, "other": effects.other, "patched": effects.patched,
        }))
    }

    /// Of images: rollout and relevance of patches; of texts: of tokens. Of the model as it is.
    fn relevance(&mut self, input: &WatchedInput, edits: &[LiveEdit], asked: &TargetAsked) -> Result<Json, WorkError> {
        if !edits.is_empty() {
            let what = "relevance is computed of the model as it is: take the edits back to see it";
            return Err(WorkError::Input(what.to_string()));
        }
        match (self.model, &input.live) {
            (WatchedModel::Image(model) | WatchedModel::ImageText(model), LiveInput::Image(pixels)) => {
                let structure = Structure::of(model.model.architecture.as_ref()).map_err(failed)?;
                let usual = Settings::usual(structure, vitreous_runtime::threads());
                let classes = Classes::TopAnd(1, asked.target.into_iter().collect());
                let mut explainer =
                    Explainer::new(&model.model, Settings { classes, ..usual }, self.device).map_err(failed)?;
                let explanation = explainer.explain(pixels).map_err(failed)?;
                let whole = image_json::object("image", None, &explanation, model, 1);
                Ok(json!({"rollout": whole["rollout"], "patches": whole["relevance"]}))
            }
            (WatchedModel::Text(model), LiveInput::Text { ids, types, masked }) => {
                let (token, output) = self.target(input, edits, asked)?;
                let run = self.live.pass(&input.live, edits, &[]).map_err(failed)?;
                let target = target_of(model, input, run, [token, output])?;
                let structure = Structure::of(model.model.architecture.as_ref()).map_err(failed)?;
                let usual = EncoderSettings::usual(structure, vitreous_runtime::threads());
                let settings = EncoderSettings { pooling: model.sentence.pooling(), ..usual };
                let mut explainer = EncoderExplainer::new(&model.model, settings, self.device).map_err(failed)?;
                let mut pass = explainer.read(TextTokens { ids, types, masked }).map_err(failed)?;
                let gradient_attention = pass.relevance(&target).map_err(failed)?;
                let encoding = input.encoding.as_ref().filter(|_| asked.integrated);
                let baseline = encoding.and_then(|encoding| model.baseline(encoding, masked));
                let integrated = match baseline {
                    Some(baseline) => Some(pass.attributions(&target, &baseline).map_err(failed)?),
                    None => None,
                };
                let (name, key) = (self.model.label(output), output.to_string());
                let relevance =
                    TokenRelevance { target, name, key, gradient_attention, integrated, parts: None, effects: None };
                Ok(relevance_json(&relevance))
            }
            _ => Err(WorkError::Input("relevance is for models of images and for encoders of texts".to_string())),
        }
    }
}

/// The number that relevance is of.
fn target_of(
    model: &TextModel,
    input: &WatchedInput,
    mut pass: vitreous_explain::live::Pass,
    [token, output]: [usize; 2],
) -> Result<Target, WorkError> {
    if model.model.architecture.signature().masked_tokens().is_some() && model.head().is_none() {
        return Ok(Target::OfToken { token, output });
    }
    Ok(match model.head() {
        Some(Gives::TokenClasses(_)) => Target::OfToken { token, output },
        Some(Gives::Span) => {
            let all: Vec<usize> = (0..input.tokens.len()).collect();
            let (logits, _) = pass.logits(&all).map_err(failed)?;
            let found =
                input.encoding.as_ref().and_then(|encoding| vitreous_runtime::text::best_span(encoding, &logits));
            let none = || WorkError::Input("the context has no token, so there is no answer".to_string());
            let (start, end, _) = found.ok_or_else(none)?;
            Target::Span { start, end }
        }
        Some(_) => Target::Output(output),
        None => Target::HalfSquaredLength,
    })
}
